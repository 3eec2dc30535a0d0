package store

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// defaultStatistics is how far back statistics go that name no beginning.
const defaultStatistics = 30 * 24 * time.Hour

// Statistics returns what the runs of some days came to. Of a day that both passes have counted it takes the final counts.
func (s *Store) Statistics(ctx context.Context, query view.StatisticsQuery) (found view.Statistics, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if query.Now, err = s.db.OrClock(ctx, query.Now); err != nil {
		return found, err
	}
	if query.To.IsZero() {
		query.To = query.Now
	}
	if query.From.IsZero() {
		query.From = query.To.Add(-defaultStatistics)
	}
	final, err := cursor(ctx, s.db.Read, statisticsPasses[1].cursor)
	if err != nil {
		return found, err
	}
	counted, err := cursor(ctx, s.db.Read, statisticsPasses[0].cursor)
	if err != nil {
		return found, err
	}
	found.CountedTo = db.Instant(counted)
	// $1 the first day, $2 the last, $3 up to when the second pass has counted
	var w db.Conditions
	w.Add("s.day >= %s AND s.day <= %s", db.Day(query.From.UnixMilli()), db.Day(query.To.UnixMilli()))
	w.Add("s.final = (s.day + 86400000 <= %s)", final)
	of := ``
	if query.Apps != nil {
		ids := make([]int64, len(query.Apps))
		for i, name := range query.Apps {
			ids[i] = run.AppID(name)
		}
		of = ` AND s.app_id` + s.db.In(len(w.Args)+1)
		w.Args = append(w.Args, s.db.List(ids))
	}
	list := `SELECT s.day, s.state, sum(s.runs), sum(s.attempts), sum(s.started), sum(s.late_sum), max(s.late_most)
		FROM run_statistics AS s WHERE 1 = 1` + w.Text + of + ` GROUP BY s.day, s.state ORDER BY s.day, s.state`
	rows, err := db.Collect(ctx, s.db.Read, scanCounted, list, w.Args...)
	found.Days = daysOf(rows, final)
	return found, err
}

// countedDay are the counts of one state on one day.
type countedDay struct {
	day                                        int64
	state                                      string
	runs, attempts, started, lateSum, lateMost int64
}

func scanCounted(row db.Scanner) (c countedDay, err error) {
	err = row.Scan(&c.day, &c.state, &c.runs, &c.attempts, &c.started, &c.lateSum, &c.lateMost)
	return c, err
}

// daysOf puts together the counts of states, which are in the order of their days.
func daysOf(rows []countedDay, final int64) []view.DayStatistics {
	days := []view.DayStatistics{}
	late := int64(0) // the sum of the last day
	for i, c := range rows {
		if i == 0 || rows[i-1].day != c.day {
			late = 0
			days = append(days, view.DayStatistics{
				Day: db.Instant(c.day).Format(time.DateOnly), Runs: map[run.State]int64{}, Final: c.day+db.DayMillis <= final,
			})
		}
		d := &days[len(days)-1]
		if c.state == "" {
			d.Misfires = c.runs
			continue
		}
		d.Runs[run.State(c.state)] = c.runs
		d.Attempts += c.attempts
		d.Started += c.started
		d.LateMost = max(d.LateMost, db.Millis(c.lateMost))
		if late += c.lateSum; d.Started > 0 {
			d.LateMean = db.Millis(late / d.Started)
		}
	}
	return days
}
