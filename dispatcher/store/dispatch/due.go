package dispatch

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// dueColumns are a DueTrigger of trigger_clock AS t; -1 stands for what there is none of.
const dueColumns = `t.id, t.app_id, t.revision, t.calendar_revision, coalesce(t.prev_fire_time, -1), coalesce(t.next_fire_time, -1),
	coalesce(t.due_at, -1), t.misfire_after, coalesce(t.attempt_timeout, -1), t.node_labels`

// dueRow is where dueColumns of one row after the other are read into. A poll reads a row for every fire, and a row
// of its own for each would cost an allocation a column.
type dueRow struct {
	trigger                                dispatcher.DueTrigger
	prev, next, due, misfireAfter, timeout int64
	labels                                 string
	refs                                   []any
}

func newDueRow() *dueRow {
	r := &dueRow{}
	t := &r.trigger
	r.refs = []any{&t.ID, &t.AppID, &t.Revision, &t.CalendarRevision, &r.prev, &r.next, &r.due, &r.misfireAfter, &r.timeout, &r.labels}
	return r
}

// scan reads dueColumns.
func (r *dueRow) scan(row db.Scanner) (dispatcher.DueTrigger, error) {
	err := row.Scan(r.refs...)
	t := r.trigger
	t.PrevFireTime, t.NextFireTime, t.DueAt = orNever(r.prev), orNever(r.next), orNever(r.due)
	t.MisfireAfter, t.NodeLabels = db.Millis(r.misfireAfter).Std(), input.ParseLabels(r.labels)
	if t.Timeout = target.DefaultTimeout.Std(); r.timeout >= 0 {
		t.Timeout = db.Millis(r.timeout).Std()
	}
	return t, err
}

// orNever is the instant of a column of dueColumns.
func orNever(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return db.Instant(ms)
}

// DueLists are the lists of a query of due triggers side by side, each filled up. Only DueOfJobs has jobs.
var (
	DueLists  = []db.Column{db.Col("app", db.Bigint), db.Col("labels", db.Text)}
	DueOfJobs = append(DueLists[:2:2], db.Col("job", db.Bigint))
)

// dueTriggers is one page of the window, by trigger_clock_due: it reads no entry of a trigger that is off, and no
// row of one that is outside of the range of ids.
// $2 until, $3 due and $4 trigger of the last row, $5 limit, $6 first and $7 last id
const dueTriggers = ` SELECT ` + dueColumns + ` FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at <= $2 AND (t.due_at, t.id) > ($3, $4) AND t.id >= $6 AND t.id <= $7` + dueFilter

// dueTriggersOfJobs is the same for the triggers of some jobs, by triggers_job. The planner can only begin with these:
// what a trigger must be like is one expression that needs the row of both.
const dueTriggersOfJobs = `, d AS MATERIALIZED (SELECT g.id, b.yes, b.no FROM b JOIN triggers AS g ON g.job_id = b.job)
	SELECT ` + dueColumns + ` FROM d JOIN trigger_clock AS t ON t.id = d.id WHERE CASE WHEN t.off = 0 AND t.due_at <= $2
		AND (t.due_at, t.id) > ($3, $4) AND t.id >= $6 AND t.id <= $7` + dueFilter

const ofJobsEnd = ` THEN d.yes ELSE d.no END`

// dueFilter leaves out other apps and other sets of labels, and what an app that has just been disabled has
// left in the index; see followApp.
// $8 number of apps, $9 number of sets of labels
const dueFilter = ` AND ($8 = 0 OR t.app_id IN (SELECT app FROM b))
	AND ($9 = 0 OR t.node_labels IN (SELECT labels FROM b))` + NotSwitchedOff

// NotSwitchedOff leaves out the triggers of apps that were disabled and whose clocks do not all follow yet.
const NotSwitchedOff = ` AND t.app_id NOT IN (SELECT id FROM apps WHERE switched_to IS NOT NULL AND NOT enabled)`

// The sum of the two columns might not fit into a number, and the statement would fail for all.
const (
	onTime  = ` AND t.misfire_after >= (SELECT now FROM n) - t.due_at`
	tooLate = ` AND t.misfire_after < (SELECT now FROM n) - t.due_at`
)

const dueOrder = ` ORDER BY t.due_at, t.id LIMIT $5`

// dueStatements are the reads of due triggers. $1 now
type dueStatements struct {
	Window, Overdue, OfJobs, overdueOfJobs db.Statement
}

func dueStatementsOf(f db.Flavor) dueStatements {
	all, ofJobs := f.Rows(1, 10, "", DueLists...)+dueTriggers, f.Rows(1, 10, "", DueOfJobs...)+dueTriggersOfJobs
	return dueStatements{
		Window: db.Reading(all + onTime + dueOrder), Overdue: db.Reading(all + tooLate + dueOrder),
		OfJobs: db.Reading(ofJobs + onTime + ofJobsEnd + dueOrder), overdueOfJobs: db.Reading(ofJobs + tooLate + ofJobsEnd + dueOrder),
	}
}

// Of returns the statement for a query.
func (d *dueStatements) Of(query dispatcher.DueQuery) db.Statement {
	switch {
	case len(query.JobIDs) > 0 && query.Overdue:
		return d.overdueOfJobs
	case len(query.JobIDs) > 0:
		return d.OfJobs
	case query.Overdue:
		return d.Overdue
	}
	return d.Window
}

// Due reads one page of the triggers that are due in the window, or overdue.
func (s *Store) Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var due []dispatcher.DueTrigger
	into := newDueRow()
	_, err := s.db.Execute(ctx, s.Hot.Due.Of(query), s.DueArgs(query), func(row db.Scanner) error {
		t, err := into.scan(row)
		due = append(due, t)
		return err
	})
	return due, err
}

// DueArgs are the parameters of dueStatements.
func (s *Store) DueArgs(query dispatcher.DueQuery) []any {
	// Behind what is due before From, and behind the page before.
	after, afterID := int64(-1), int64(0)
	if !query.From.IsZero() {
		after, afterID = query.From.UnixMilli()-1, math.MaxInt64
	}
	if at := query.AfterTime.UnixMilli(); !query.AfterTime.IsZero() && at > after {
		after, afterID = at, query.AfterID
	}
	last := int64(math.MaxInt64)
	if query.IDTo != 0 {
		last = query.IDTo - 1
	}
	lists := DueListsOf(query.Apps, query.LabelSets, query.JobIDs)
	return append([]any{db.OrZero(query.Now), query.Until.UnixMilli(), after, afterID, int64(query.Limit), query.IDFrom, last,
		int64(len(query.Apps)), int64(len(query.LabelSets))}, s.db.Batch(lists...)...)
}

// DueListsOf returns the columns of DueLists, or of DueOfJobs if there are jobs. What fills up a list repeats it
// or names nothing that there is.
func DueListsOf(apps, labels []string, jobs []int64) []any {
	rows := max(len(apps), len(labels), len(jobs))
	ids, sets := make([]int64, rows), make([]string, rows)
	for i, app := range apps {
		ids[i] = run.AppID(app)
	}
	for i := range sets {
		if len(labels) > 0 {
			sets[i] = labels[min(i, len(labels)-1)]
		}
	}
	if len(jobs) == 0 {
		return []any{ids, sets}
	}
	jobs = slices.Compact(slices.Sorted(slices.Values(jobs)))
	return []any{ids, sets, append(jobs, make([]int64, rows-len(jobs))...)}
}

// OverdueApps finds the apps of overdue triggers that a node may settle. Of apps that are disabled and of labels
// that no node has there is nothing in the index.
// $2 number of apps, $3 the least due time
const OverdueApps = ` SELECT a.name FROM apps AS a WHERE a.enabled AND a.id IN (SELECT t.app_id FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at >= $3 AND t.due_at < (SELECT now FROM n)` + tooLate + `
		AND ($2 = 0 OR t.app_id IN (SELECT app FROM b)) AND (t.node_labels = '' OR t.node_labels IN (SELECT labels FROM b)))
	ORDER BY a.name`

// OverdueApps returns the apps that have overdue triggers for a node of these labels.
func (s *Store) OverdueApps(ctx context.Context, apps []string, labels input.Labels, from, now time.Time) ([]string, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	served, err := s.servedLabels(ctx, labels)
	if err != nil {
		return nil, fmt.Errorf("look for overdue triggers: %w", err)
	}
	least := int64(0)
	if !from.IsZero() {
		least = from.UnixMilli()
	}
	args := append([]any{db.OrZero(now), int64(len(apps)), least}, s.db.Batch(DueListsOf(apps, served, nil)...)...)
	return db.Collect(ctx, s.db.Read, db.ScanText, s.db.Rows(1, 4, "", DueLists...)+OverdueApps, args...)
}

// upcomingTriggers counts what the window poll would read, up to a limit, by the same index.
// $1 until, $2 limit, $3 number of apps
const upcomingTriggers = ` SELECT count(*) FROM (SELECT 1 FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at <= $1 AND ($3 = 0 OR t.app_id IN (SELECT app FROM b))` + NotSwitchedOff + `
	LIMIT $2) AS u`

// Upcoming counts the triggers that are due by until.
func (s *Store) Upcoming(ctx context.Context, apps []string, until time.Time, limit int) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	query := s.db.Rows(0, 4, "", DueLists...) + upcomingTriggers
	args := append([]any{until.UnixMilli(), int64(limit), int64(len(apps))}, s.db.Batch(DueListsOf(apps, nil, nil)...)...)
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, query, args...)
	if err != nil {
		return 0, fmt.Errorf("count upcoming triggers: %w", err)
	}
	return int(n), nil
}

// awaitedCallbacks counts the runs that wait for a callback, up to a limit, by an index that has no others.
// $1 limit, $2 number of apps
const awaitedCallbacks = ` SELECT count(*) FROM (SELECT 1 FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id
	WHERE r.state = 'waiting_callback' AND ($2 = 0 OR j.app_id IN (SELECT app FROM b)) LIMIT $1) AS u`

// AwaitedCallbacks counts the runs that wait for a callback.
func (s *Store) AwaitedCallbacks(ctx context.Context, apps []string, limit int) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	args := append([]any{int64(limit), int64(len(apps))}, s.db.Batch(DueListsOf(apps, nil, nil)...)...)
	n, _, err := db.First(ctx, s.db.Read, db.ScanInt, s.db.Rows(0, 3, "", DueLists...)+awaitedCallbacks, args...)
	if err != nil {
		return 0, fmt.Errorf("count runs that wait for a callback: %w", err)
	}
	return int(n), nil
}
