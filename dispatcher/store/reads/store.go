// Package reads answers the queries of users: runs, dead letters, timelines, statistics, objectives, and attention.
package reads

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// censusCounts are counts by kind and state, each up to a limit. The rows of the overdue triggers and of
// the tokens also have a time.
// $1 limit, $2 triggers that were due before it are overdue, $3 the least time of an expiry that matters,
// $4 pauses that are older are forgotten, $5 since when rows that are set aside must have been due to be tried again
const censusCounts = `SELECT 'job', j.state, count(*), 0
	FROM (SELECT state FROM jobs WHERE deleted_at IS NULL AND part_of = 0 LIMIT $1) AS j GROUP BY j.state
UNION ALL SELECT 'run', r.state, count(*), 0 FROM (SELECT state FROM live_runs LIMIT $1) AS r GROUP BY r.state
UNION ALL SELECT 'node', o.state, count(*), 0 FROM nodes AS o GROUP BY o.state
UNION ALL SELECT 'overdue', '', count(*), coalesce(min(d.due_at), 0) FROM (SELECT t.due_at FROM trigger_clock AS t
	WHERE t.off = 0 AND t.due_at IS NOT NULL AND t.due_at < $2` + dispatch.NotSwitchedOff + ` ORDER BY t.due_at LIMIT $1) AS d
UNION ALL SELECT 'token', '', count(*), coalesce(min(k.expires_at), 0) FROM api_tokens AS k WHERE k.expires_at >= $3
UNION ALL SELECT 'aside', x.work, count(*), 0 FROM (SELECT work FROM set_aside WHERE try_at > $5 LIMIT $1) AS x GROUP BY x.work
UNION ALL SELECT 'aside', 'follow', count(*), 0 FROM (SELECT 1 AS one FROM pending_ends WHERE try_at > 0 LIMIT $1) AS e HAVING count(*) > 0
UNION ALL ` + forgottenPauses + `
UNION ALL ` + undeliveredAlerts

// $1 limit
const undeliveredAlerts = `SELECT 'undelivered', d.state, count(*), 0 FROM (` + UndeliveredAlerts + ` LIMIT $1) AS d
	WHERE d.state IS NOT NULL GROUP BY d.state`

// UndeliveredAlerts are the alerts with a state: retrying if a notification is to be attempted again, failed if the
// latest one was given up, and else NULL.
const UndeliveredAlerts = `SELECT a.app_id, a.name, CASE
		WHEN EXISTS (SELECT 1 FROM live_runs AS r WHERE r.job_id = a.job_id AND r.state = 'retrying' AND (r.attempt > 0 OR r.waits_for <> 0))
			THEN 'retrying'
		WHEN (SELECT r.state FROM runs AS r WHERE r.job_id = a.job_id ORDER BY r.scheduled_at DESC LIMIT 1) IN ('failed', 'timed_out', 'lost')
			THEN 'failed' END AS state
	FROM alerts AS a WHERE a.deleted_at IS NULL`

// expiredLately is how long an expired token counts, so that operators who were away see it.
const expiredLately = 24 * time.Hour

// censusRow is a row of censusCounts.
type censusRow struct {
	what, state string
	count       int
	at          int64
}

func (one censusRow) addTo(c *dispatcher.Census) {
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
	case "undelivered":
		c.Undelivered[run.State(one.state)] = one.count
	case "forgotten":
		c.Forgotten = one.count
	case "token":
		if one.at > 0 {
			c.TokenExpiry = db.Instant(one.at)
		}
	}
}

// Census counts jobs, runs, nodes and everything that needs attention.
func (s *Store) Census(ctx context.Context, overdue time.Time, limit int) (c dispatcher.Census, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.Now(ctx, s.db.Read)
	if err != nil {
		return c, fmt.Errorf("count what there is: %w", err)
	}
	rows, err := db.ReadRows(ctx, s.db.Read, func(one *censusRow) []any {
		return []any{&one.what, &one.state, &one.count, &one.at}
	}, censusCounts, int64(limit), overdue.UnixMilli(), now.Add(-expiredLately).UnixMilli(),
		now.Add(-view.ForgottenAfter).UnixMilli(), now.Add(-dispatch.AsideSeen).UnixMilli())
	if err != nil {
		return c, fmt.Errorf("count what there is: %w", err)
	}
	c.Jobs, c.Runs, c.Nodes = map[dispatcher.JobState]int{}, map[run.State]int{}, map[dispatcher.NodeState]int{}
	c.Undelivered = map[run.State]int{}
	for _, one := range rows {
		one.addTo(&c)
	}
	if err := s.censusCauses(ctx, limit, now, &c); err != nil {
		return c, err
	}
	if c.DaysAhead, err = s.db.DaysAhead(ctx, s.db.Read, now.UnixMilli()); err != nil {
		return c, fmt.Errorf("count partitions ahead: %w", err)
	}
	return c, nil
}

// callsGroup is the condition that an enabled job j calls a group g.
const callsGroup = `j.app_id = g.app_id AND j.target_group = g.name AND j.target_group <> '' AND j.deleted_at IS NULL AND j.enabled`

// silentGroups are groups g of apps a without an endpoint that gets requests, though enabled jobs call them. For names of
// hosts each node finds the endpoints itself.
// $1 now
const silentGroups = `endpoint_groups AS g JOIN apps AS a ON a.id = g.app_id
	WHERE g.deleted_at IS NULL AND a.deleted_at IS NULL AND a.enabled AND NOT g.by_name
	AND NOT EXISTS (SELECT 1 FROM endpoints AS e WHERE e.group_id = g.id AND NOT e.draining AND (e.expires_at IS NULL OR e.expires_at > $1))
	AND EXISTS (SELECT 1 FROM jobs AS j WHERE ` + callsGroup + `)`

// silent finds groups without an endpoint.
func (l *looker) silent(ctx context.Context) (err error) {
	args := definitions.StatementArgs{l.at.UnixMilli()}
	l.found.Groups, err = foundFirst(ctx, l, func(row db.Scanner) (g view.SilentGroup, err error) {
		err = row.Scan(&g.App, &g.Group, &g.Draining, db.OptionalColumn(&g.LeftAt), &g.Jobs, &g.Job)
		return g, err
	}, `SELECT a.name, g.name,
			(SELECT count(*) FROM endpoints AS e WHERE e.group_id = g.id AND e.draining AND (e.expires_at IS NULL OR e.expires_at > $1)),
			g.left_at, (SELECT count(*) FROM jobs AS j WHERE `+callsGroup+`), (SELECT min(j.name) FROM jobs AS j WHERE `+callsGroup+`)
		FROM `+silentGroups+l.ofApps(`g.app_id`, &args)+` ORDER BY a.name, g.name`, args...)
	return err
}

// endingCertificates are the certificates of enabled jobs and of groups that such jobs call. An attached job is not
// shown itself, so its owner is found instead.
const endingCertificates = `SELECT j.app AS app, j.name AS job, '' AS grp, j.certificate_ends_at AS ends FROM jobs AS j
	WHERE j.certificate_ends_at IS NOT NULL AND j.deleted_at IS NULL AND j.enabled AND j.part_of = 0%[1]s
UNION ALL SELECT a.name, '', g.name, g.certificate_ends_at FROM endpoint_groups AS g JOIN apps AS a ON a.id = g.app_id
	WHERE g.certificate_ends_at IS NOT NULL AND g.deleted_at IS NULL AND a.deleted_at IS NULL
	AND EXISTS (SELECT 1 FROM jobs AS j WHERE ` + callsGroup + `)%[2]s`

// certificates finds client certificates that end soon.
func (l *looker) certificates(ctx context.Context) (err error) {
	args := definitions.StatementArgs{l.at.Add(dispatcher.CertificateWarning).UnixMilli()}
	of := fmt.Sprintf(endingCertificates, l.ofApps(`j.app_id`, &args), l.ofApps(`g.app_id`, &args))
	l.found.Certificates, err = foundFirst(ctx, l, func(row db.Scanner) (c view.EndingCertificate, err error) {
		err = row.Scan(&c.App, &c.Job, &c.Group, db.InstantColumn(&c.EndsAt))
		return c, err
	}, `SELECT c.app, c.job, c.grp, c.ends FROM (`+of+`) AS c WHERE c.ends < $1 ORDER BY c.ends, c.app, c.job, c.grp`, args...)
	return err
}

// forgottenPauses counts pauses without an end from before a time, of each kind up to a limit.
// $1 limit, $4 before
const forgottenPauses = `SELECT 'forgotten', '', (SELECT count(*) FROM (SELECT 1 FROM jobs AS j
		WHERE j.paused_at < $4 AND j.pause_until IS NULL AND j.deleted_at IS NULL AND j.paused_at IS NOT NULL LIMIT $1) AS j)
	+ (SELECT count(*) FROM (SELECT 1 FROM triggers AS t
		WHERE t.paused_at < $4 AND t.pause_until IS NULL AND t.deleted_at IS NULL AND t.paused_at IS NOT NULL LIMIT $1) AS t)
	+ (SELECT count(*) FROM (SELECT 1 FROM app_pauses AS p
		WHERE p.paused_at < $4 AND p.until_at IS NULL AND p.ended_at IS NULL LIMIT $1) AS p), 0`

// censusCauses counts further causes for attention.
func (s *Store) censusCauses(ctx context.Context, limit int, now time.Time, c *dispatcher.Census) error {
	// $1 now, $2 since when a slot must be taken, $3 limit
	blocked, _, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT count(*) FROM (SELECT 1 FROM `+blockedJobs+` LIMIT $3) AS b`,
		now.UnixMilli(), now.Add(-view.BlockedAfter).UnixMilli(), limit)
	if err != nil {
		return fmt.Errorf("count blocked jobs: %w", err)
	}
	c.Blocked = int(blocked)
	// $1 now, $2 limit
	silent, _, err := db.First(ctx, s.db.Read, db.ScanInt, `SELECT count(*) FROM (SELECT 1 FROM `+silentGroups+` LIMIT $2) AS g`,
		now.UnixMilli(),
		limit)
	if err != nil {
		return fmt.Errorf("count groups without endpoints: %w", err)
	}
	end, _, err := db.First(ctx, s.db.Read, db.ScanNullInt, `SELECT min(c.ends) FROM (`+fmt.Sprintf(endingCertificates, ``, ``)+`) AS c`)
	if err != nil {
		return fmt.Errorf("look for certificates that end: %w", err)
	}
	late, err := s.lateRetention(ctx, now)
	if err != nil {
		return fmt.Errorf("look for history that should be gone: %w", err)
	}
	c.SilentGroups = int(silent)
	if end != nil {
		c.CertificateEnd = db.Instant(*end)
	}
	if len(late) > 0 {
		c.RetentionBehind = slices.MaxFunc(late, func(a, b view.LateRetention) int { return cmp.Compare(a.Behind, b.Behind) }).Behind.Std()
	}
	return nil
}

// Store reads the ledger and the definitions.
type Store struct {
	dispatch    *dispatch.Store
	definitions *definitions.Store
	db          *db.DB
	Walks       Walks
}

// New returns a store over the database d.
func New(dispatch *dispatch.Store, definitions *definitions.Store, d *db.DB) *Store {
	s := &Store{dispatch: dispatch, definitions: definitions, db: d,
		Walks: Walks{Jobs: 2_000, CountedJobs: 2_000, Rows: 10_000, Counted: 100_000, Span: 3 * 24 * time.Hour}}
	if d.ByDay() { // PostgreSQL searches the index of each day for each job, SQLite one for all days
		s.Walks.Jobs, s.Walks.CountedJobs = 200, 200
	}
	return s
}
