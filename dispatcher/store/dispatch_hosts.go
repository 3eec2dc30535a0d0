package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// noteWaits keeps, for the runs c that wait for their host, what they wait for. What several nodes know of a host's pauses
// comes together here: the longest counts. It locks the row, so that nobody drops it before the runs are there.
const noteWaits = ` INSERT INTO host_waits (id, app_id, job_id, host, pause, probe_at)
	SELECT c.of_wait, min(c.wait_app), min(c.of_job), min(c.wait_host), max(c.wait_pause), max(c.wait_probe)
	FROM c WHERE c.of_wait <> 0 AND ` + goesOn + ` GROUP BY c.of_wait ORDER BY c.of_wait
	ON CONFLICT (id) DO UPDATE SET pause = CASE WHEN excluded.pause > host_waits.pause THEN excluded.pause ELSE host_waits.pause END,
		probe_at = CASE WHEN excluded.probe_at > host_waits.probe_at THEN excluded.probe_at ELSE host_waits.probe_at END`

// hostWaiters chooses runs that wait for a host: those that were never attempted first, then those with the fewest attempts.
// $1 node, $2 now, $3 limit, $4 what they wait for, $5 number of apps
const hostWaiters = ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.next_attempt_at, r.app_id, FALSE
	FROM n CROSS JOIN live_runs AS r CROSS JOIN jobs AS j LEFT JOIN triggers AS t ON t.id = r.trigger_id
	WHERE j.id = r.job_id AND r.waits_for = $4 AND r.waits_for <> 0 AND ` + mayRun + ` AND ` + notHeld + `
	ORDER BY r.attempt, r.next_attempt_at LIMIT $3`

// probed leaves out the waits w whose runs no node may adopt now, because of a switch of their app or job.
const probed = ` JOIN jobs AS j ON j.id = w.job_id JOIN apps AS a ON a.id = w.app_id
	WHERE (a.enabled OR a.deleted_at IS NOT NULL) AND (j.deleted_at IS NOT NULL OR j.enabled AND NOT j.paused AND NOT j.app_paused)`

// Bounds of DueHosts: of one host, and of all. What it leaves out comes when these have had their probes.
const (
	dueOfHost = "20"
	dueHosts  = "500"
)

// DueHosts reads the waits whose next probe is due. Those that are wanted by their ids it finds by these: the traces of
// the probes of others, which a long snapshot keeps, cost nothing then. It ends the wait of their runs whose time is over
// and that were never attempted: these may call their host once, whatever its circuit says. GiveUp ends the others.
func (s *Store) DueHosts(ctx context.Context, query dispatcher.HostQuery) ([]dispatcher.HostWait, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, query.Now)
	if err != nil {
		return nil, err
	}
	apps := make([]int64, len(query.Apps))
	for i, app := range query.Apps {
		apps[i] = run.AppID(app)
	}
	args := []any{now.UnixMilli(), s.db.List(apps), int64(len(apps)), s.db.List(query.IDs)}
	wanted := `w.id` + s.db.In(4)
	if !query.Overdue.IsZero() {
		wanted = `(` + wanted + ` OR w.probe_at <= $5)`
		args = append(args, query.Overdue.UnixMilli())
	}
	// $1 now, $2 apps, $3 how many these are, $4 ids, $5 since when others are due
	due := `SELECT id, app_id, job_id, host, pause, probe_at FROM (
		SELECT w.*, row_number() OVER (PARTITION BY w.app_id, w.host ORDER BY w.probe_at, w.id) AS nth FROM host_waits AS w` + probed + `
			AND w.probe_at <= $1 AND ` + wanted + ` AND ($3 = 0 OR w.app_id` + s.db.In(2) + `)
		) AS w WHERE nth <= ` + dueOfHost + ` ORDER BY probe_at, id LIMIT ` + dueHosts
	waits, err := db.Collect(ctx, s.db.Read, scanHostWait, due, args...)
	if err != nil || len(waits) == 0 {
		return nil, err
	}
	err = inParts(ctx, s, waits, func(part []dispatcher.HostWait) error { return s.endOldWaits(ctx, part, now) },
		func(wait dispatcher.HostWait, why error) error {
			return s.setAside(ctx, asideRow{work: dispatcher.WorkHost, item: "host " + wait.Host, job: wait.JobID}, why, now)
		})
	if err != nil {
		return nil, fmt.Errorf("end waits for hosts: %w", err)
	}
	return waits, nil
}

// endOldWaits ends the wait of those runs of some waits whose time is over and that were never attempted.
func (s *Store) endOldWaits(ctx context.Context, waits []dispatcher.HostWait, now time.Time) error {
	all := make([]int64, len(waits))
	for i, wait := range waits {
		all[i] = wait.ID
	}
	// $1 now, $2 waits
	release := `UPDATE live_runs SET waits_for = 0, next_attempt_at = $1 WHERE waits_for <> 0 AND waits_for` + s.db.In(2) + `
		AND attempt = 0 AND next_attempt_at <= $1`
	_, err := db.Affect(ctx, s.db.Write, release, now.UnixMilli(), s.db.List(all))
	return err
}

func scanHostWait(row db.Scanner) (wait dispatcher.HostWait, err error) {
	var pause int64
	err = row.Scan(&wait.ID, &wait.AppID, &wait.JobID, &wait.Host, &pause, db.InstantColumn(&wait.ProbeAt))
	wait.Pause = time.Duration(pause) * time.Millisecond
	return wait, err
}

// TakeProbe takes the next probe of a wait, unless somebody else did.
func (s *Store) TakeProbe(ctx context.Context, wait dispatcher.HostWait, pause time.Duration, next time.Time) (bool, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 wait, $2 when its probe was due, $3 pause, $4 when the next is
	const take = `UPDATE host_waits SET pause = $3, probe_at = $4 WHERE id = $1 AND probe_at = $2`
	n, err := db.Affect(ctx, s.db.Write, take, wait.ID, wait.ProbeAt.UnixMilli(), pause.Milliseconds(), next.UnixMilli())
	return n == 1, err
}

// HostResponded lets all runs of a wait go.
func (s *Store) HostResponded(ctx context.Context, id int64, now time.Time) error {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return err
	}
	// $1 wait, $2 now
	const let = `UPDATE host_waits SET pause = 0, probe_at = $2 WHERE id = $1`
	_, err = db.Affect(ctx, s.db.Write, let, id, now.UnixMilli())
	return err
}

// DropHostWait removes a wait without runs. It looks for them by a statement of its own, whose snapshot has the runs of
// the node that held the lock before.
func (s *Store) DropHostWait(ctx context.Context, id int64) (dropped bool, err error) {
	err = s.change(ctx, input.Change{}, func(ctx context.Context, t *tx) error {
		if _, err := t.ExecContext(ctx, `SELECT id FROM host_waits WHERE id = $1`+t.LockRows(db.LockToDelete), id); err != nil {
			return err
		}
		const drop = `DELETE FROM host_waits WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM live_runs WHERE waits_for = $1 AND waits_for <> 0)`
		n, err := t.execute(ctx, drop, id)
		dropped = n == 1
		return err
	})
	return dropped, err
}
