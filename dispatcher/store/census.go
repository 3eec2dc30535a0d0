package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// censusCounts are counts by what is counted and its state, each up to a limit. The row of the overdue triggers and that of
// the tokens have a time in place of a state.
// $1 limit, $2 triggers that were due before it are overdue, $3 the least time of an expiry that matters,
// $4 pauses that are older are forgotten, $5 since when rows that are set aside must have been due to be tried again
const censusCounts = `SELECT 'job', j.state, count(*), 0
	FROM (SELECT state FROM jobs WHERE deleted_at IS NULL AND part_of = 0 LIMIT $1) AS j GROUP BY j.state
UNION ALL SELECT 'run', r.state, count(*), 0 FROM (SELECT state FROM live_runs LIMIT $1) AS r GROUP BY r.state
UNION ALL SELECT 'node', o.state, count(*), 0 FROM nodes AS o GROUP BY o.state
UNION ALL SELECT 'overdue', '', count(*), coalesce(min(d.due_at), 0) FROM (SELECT t.due_at FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at < $2` + notSwitchedOff + ` ORDER BY t.due_at LIMIT $1) AS d
UNION ALL SELECT 'token', '', count(*), coalesce(min(k.expires_at), 0) FROM api_tokens AS k WHERE k.expires_at >= $3
UNION ALL SELECT 'aside', x.work, count(*), 0 FROM (SELECT work FROM set_aside WHERE try_at > $5 LIMIT $1) AS x GROUP BY x.work
UNION ALL SELECT 'aside', 'follow', count(*), 0 FROM (SELECT 1 AS one FROM pending_ends WHERE try_at > 0 LIMIT $1) AS e HAVING count(*) > 0
UNION ALL ` + forgottenPauses

// expiredLately is for how long an expired token counts, so that somebody hears of it who was away.
const expiredLately = 24 * time.Hour

// censusRow is a row of censusCounts.
type censusRow struct {
	what, state string
	count       int
	at          int64
}

// Census counts what there is.
func (s *Store) Census(ctx context.Context, overdue time.Time, limit int) (c dispatcher.Census, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.Now(ctx, s.db.Read)
	if err != nil {
		return c, fmt.Errorf("count what there is: %w", err)
	}
	rows, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (one censusRow, err error) {
		err = row.Scan(&one.what, &one.state, &one.count, &one.at)
		return one, err
	}, censusCounts, int64(limit), overdue.UnixMilli(), now.Add(-expiredLately).UnixMilli(),
		now.Add(-view.ForgottenAfter).UnixMilli(), now.Add(-asideSeen).UnixMilli())
	if err != nil {
		return c, fmt.Errorf("count what there is: %w", err)
	}
	c.Jobs, c.Runs, c.Nodes = map[dispatcher.JobState]int{}, map[run.State]int{}, map[dispatcher.NodeState]int{}
	for _, one := range rows {
		switch one.what {
		case "job":
			c.Jobs[dispatcher.JobState(one.state)] = one.count
		case "run":
			c.Runs[run.State(one.state)] = one.count
		case "node":
			c.Nodes[dispatcher.NodeState(one.state)] = one.count
		case "aside":
			if c.SetAside == nil {
				c.SetAside = map[dispatcher.Work]int{}
			}
			c.SetAside[dispatcher.Work(one.state)] = one.count
		case "overdue":
			if c.Overdue = one.count; one.at > 0 {
				c.Oldest = db.Instant(one.at)
			}
		case "forgotten":
			c.Forgotten = one.count
		case "token":
			if one.at > 0 {
				c.TokenExpiry = db.Instant(one.at)
			}
		}
	}
	if err := s.censusCauses(ctx, limit, now, &c); err != nil {
		return c, err
	}
	if c.DaysAhead, err = s.db.DaysAhead(ctx, s.db.Read, now.UnixMilli()); err != nil {
		return c, fmt.Errorf("count partitions ahead: %w", err)
	}
	return c, nil
}
