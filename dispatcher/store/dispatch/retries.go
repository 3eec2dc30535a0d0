package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Parts of the hot statements for retried runs; see db/scan.go for the names.

// until is when retries end. If the trigger's next fire ends them, it is at the latest just before that fire, or at
// once if the fire was claimed already.
const until = `CASE WHEN b.stops = b.yes AND t.prev_fire_time > b.scheduled_at THEN 0
			WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
			ELSE b.until_at END AS until_at, b.next_at, b.not_attempted, b.token AS of_token,
		b.waits_for AS of_wait, b.wait_app, b.wait_host, b.wait_pause, b.wait_probe, b.callback_id AS of_callback_id,
		b.callback AS of_callback`

// goesOn is the condition that a run c is retried.
const goesOn = `(c.next_at <= c.until_at)`

// nextAt is when a run c is retried. A run that waits for its host does so until its retries end.
const nextAt = `CASE WHEN c.of_wait <> 0 THEN c.until_at ELSE c.next_at END`

// chooseFailedFires chooses the fires of the batch that still have their claim.
const chooseFailedFires = `SELECT` + firesOfBatch + `, b.counts AS of_failures, ` + until + `
	FROM b LEFT JOIN trigger_clock AS t ON t.id = b.trigger_id WHERE` + heldByClaim

// chooseFailed chooses the live runs of the batch that are still held.
func chooseFailed(f db.Flavor) string {
	return `SELECT` + ChosenEnd(End{started: `b.started_at`, at: `b.ended_at`, status: `b.http_status`, State: `b.state`, Class: `b.class`,
		Message: `b.error`}) + `, r.failures + b.counts AS of_failures, ` + until + `
	FROM b JOIN live_runs AS r ON` + db.Fence(f) + ` LEFT JOIN trigger_clock AS t ON t.id = r.trigger_id`
}

// insertFailed keeps the failed attempt, because the row of a retried run is reused. An accepted attempt has not ended.
const insertFailed = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
	http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.of_node, c.of_started, c.of_end, c.of_status, c.of_state, c.of_class, c.of_error
	FROM c WHERE c.not_attempted = 0 AND c.of_callback IS NULL AND ` + goesOn + ` ON CONFLICT DO NOTHING`

// waits is the condition that a run c that continues waits for its first attempt.
const waits = `c.not_attempted = 1 AND c.over = 1`

// goesOnAs is the state of a run c that continues.
const goesOnAs = `CASE WHEN c.of_callback IS NULL THEN 'retrying' ELSE 'waiting_callback' END`

// insertRetrying makes live runs of the fires that continue. It touches no other fires of their claims.
var insertRetrying = ` INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, claimed_at, started_at,
	next_attempt_at, waits_for, retry_until, attempt, failures, http_status, state, class, error, callback_id, callback, waited)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.of_job, ` + AppOf("c.of_job") + `, c.of_revision, c.of_node, 0, c.of_claimed, c.of_started,
		` + nextAt + `,
		c.of_wait, CASE WHEN c.of_callback IS NULL THEN c.until_at END,
		c.over - c.not_attempted, c.of_failures, c.of_status, ` + goesOnAs + `, c.of_class, c.of_error,
		c.of_callback_id, c.of_callback, CASE WHEN ` + waits + ` THEN c.of_class ELSE '' END
	FROM c WHERE ` + goesOn + ` ON CONFLICT DO NOTHING`

// retryRuns sets the live runs that continue to retrying or waiting_callback. If the target has already reported a
// failure of the attempt that it now accepts, the report is kept and due. The end of retries of a waiting run stays.
func retryRuns(f db.Flavor) string {
	return ` UPDATE live_runs AS r SET token = 0, state = ` + goesOnAs + `,
		next_attempt_at = CASE WHEN c.of_callback IS NOT NULL AND r.callback IS NOT NULL THEN c.of_end ELSE ` + nextAt + ` END,
		callback_id = c.of_callback_id,
		callback = CASE WHEN c.of_callback IS NOT NULL THEN coalesce(r.callback, c.of_callback) END,
		waits_for = c.of_wait, attempt = c.over - c.not_attempted,
		retry_until = CASE WHEN c.of_callback IS NULL THEN c.until_at ELSE r.retry_until END, failures = c.of_failures,
		started_at = c.of_started, http_status = c.of_status, class = c.of_class, error = c.of_error,
		waited = CASE WHEN ` + waits + ` THEN c.of_class ELSE r.waited END
	FROM c WHERE` + db.OfChosen(f) + ` AND ` + goesOn
}

// notHeld selects the runs r, retrying or past the deadline of their callback, that no pause holds. A pause, or a
// switch, of the job or trigger holds retries as it holds fires, but neither manual runs nor the end of an attempt.
// Runs of a deleted job or trigger end at their next attempt.
const notHeld = `(r.kind % 16 NOT IN (1, 3) OR r.state = 'waiting_callback' OR j.deleted_at IS NOT NULL OR t.deleted_at IS NOT NULL
			OR j.enabled AND NOT j.paused AND NOT j.app_paused AND COALESCE(t.enabled, TRUE) AND NOT COALESCE(t.paused, FALSE))`

// dueRetries chooses due retrying runs before the end of their retries, and runs with an overdue callback or one that
// reported a failure. Retries of a run that was never attempted do not end. The query for now
// makes PostgreSQL read only due runs, and CROSS JOIN keeps SQLite from beginning with the jobs.
// $1 node, $2 now, $3 limit, $4 due, $5 number of apps
const dueRetries = ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.next_attempt_at, r.app_id, FALSE
	FROM n CROSS JOIN live_runs AS r CROSS JOIN jobs AS j LEFT JOIN triggers AS t ON t.id = r.trigger_id
	WHERE j.id = r.job_id AND ` + isDueRetry + `
		AND (r.retry_until >= n.now OR r.attempt = 0 OR r.state = 'waiting_callback') AND r.next_attempt_at >= $4
		AND ` + mayRun + ` AND ` + notHeld + `
	ORDER BY r.next_attempt_at LIMIT $3`

const isDueRetry = db.IsParked + ` AND r.waits_for = 0 AND r.next_attempt_at <= (SELECT now FROM n)`

// retriesByTurns chooses the runs of dueRetries in turns of apps, not by time. It reads a separate index for the
// apps that have retries, due or not, however many retries there are.
// $1 node, $2 now, $3 limit, $4 due, $5 number of apps
func retriesByTurns(f db.Flavor) string {
	const which, order = db.IsParked + ` AND r.waits_for = 0`, `r.next_attempt_at, r.scheduled_at, r.trigger_id, r.kind`
	return `, ` + appsOf(which) + `, w AS (
	` + f.EachFirst(adoptableRow+`r.next_attempt_at AS due`, ` CROSS JOIN jobs AS j LEFT JOIN triggers AS t ON t.id = r.trigger_id`,
		`j.id = r.job_id AND r.app_id = a.app AND `+isDueRetry+` AND r.next_attempt_at >= a.after_due
		AND (r.retry_until >= (SELECT now FROM n) OR r.attempt = 0 OR r.state = 'waiting_callback')
		AND (a.after_at IS NULL OR (`+order+`) > (a.after_due, a.after_at, a.after_trigger, a.after_kind))
		AND `+jobMayRun+` AND `+notHeld, order) + `)` + inTurns
}

// takeRetries chooses the runs of the batch that have not changed since they were found. The attempt of a run that
// waits for a callback keeps its number: the node records its end.
const takeRetries = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind,
		CASE WHEN r.state = 'waiting_callback' THEN r.attempt - 1 ELSE r.attempt END AS over, ` + adoptedRevision + `, b.now`

// The form of whichRetries' comparison keeps PostgreSQL from the indexes of retrying runs.
const whichRetries = `(` + db.IsParked + `) = b.yes AND r.waits_for = b.waits_for AND (b.waits_for <> 0 OR r.next_attempt_at <= b.now)`

// expiredRetries chooses attempted runs after the end of their retries. They end like their latest attempts, as shown
// by the class. $2 limit
var expiredRetries = ` SELECT` + ChosenEnd(End{
	State: `CASE WHEN r.class IN ('timeout', 'function_timeout', 'callback_timeout') THEN 'timed_out' ELSE 'failed' END`,
}) + `
	FROM n CROSS JOIN live_runs AS r WHERE r.state = 'retrying' AND r.retry_until < (SELECT now FROM n) AND r.attempt > 0
	ORDER BY r.scheduled_at + 0, r.trigger_id LIMIT $2`

// partRetries divides records into those that end their runs and those that do not.
func partRetries(records []dispatcher.Record) (ended, again []dispatcher.Record) {
	if !slices.ContainsFunc(records, func(r dispatcher.Record) bool { return r.Next != nil }) {
		return records, nil
	}
	for _, r := range records {
		if r.Next == nil {
			ended = append(ended, r)
		} else {
			again = append(again, r)
		}
	}
	return ended, again
}

// nextAttempts returns the columns that nextColumns names.
func nextAttempts(records []dispatcher.Record) []any {
	var at, until []int64
	var counts, notAttempted []int32
	var stops []bool
	var wait, app, pause, probe []int64
	var host []string
	callbackID, callback := make([]*int64, len(records)), make([]*string, len(records))
	for i, r := range records {
		last := r.Next.Until
		if accepted := r.Next.Callback; accepted != nil {
			last = r.Next.At
			if accepted.ID != 0 {
				callbackID[i] = &accepted.ID
			}
			callback[i] = CallbackNote{
				Started: r.Outcome.StartedAt.UnixMilli(), Accepted: r.Outcome.EndedAt.UnixMilli(),
				Status: r.Outcome.HTTPStatus, Group: accepted.Group, State: accepted.StateRevision,
				Within: cmp.Or(accepted.Within, run.DefaultCallbackTimeout.Std()).Milliseconds(),
			}.Column()
		}
		at, until = append(at, r.Next.At.UnixMilli()), append(until, last.UnixMilli())
		counts, notAttempted = append(counts, Number(r.Next.CountsAsFailure)), append(notAttempted, Number(r.Next.NotAttempted))
		stops = append(stops, r.Next.StopAtNextFire)
		w, probeAt := dispatcher.HostWait{}, int64(0)
		if r.Next.Wait != nil {
			w, probeAt = *r.Next.Wait, r.Next.Wait.ProbeAt.UnixMilli()
		}
		wait, app, host = append(wait, w.ID), append(app, w.AppID), append(host, w.Host)
		pause, probe = append(pause, w.Pause.Milliseconds()), append(probe, probeAt)
	}
	return []any{at, until, counts, notAttempted, stops, wait, app, host, pause, probe, callbackID, callback}
}

// Number returns 1 for true.
func Number(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// NextRetry returns when the first retries are due, and whether runs wait for a host.
func (s *Store) NextRetry(ctx context.Context, from, after time.Time) (dispatcher.RetryTimes, error) {
	const retry = `(SELECT next_attempt_at FROM live_runs AS r WHERE ` + db.IsParked + ` AND waits_for = 0 AND next_attempt_at `
	// $1 from, $2 after
	const earliest = `SELECT ` + retry + `>= $1 ORDER BY next_attempt_at LIMIT 1),
		` + retry + `> $2 ORDER BY next_attempt_at LIMIT 1),
		EXISTS (SELECT 1 FROM host_waits)`
	var least, next *int64
	var waits bool
	_, err := db.ReadRow(ctx, s.db.Read, []any{&least, &next, &waits}, earliest, db.OrZero(from), after.UnixMilli())
	return dispatcher.RetryTimes{Least: db.Zeroable(db.Optional(least)), Next: db.Zeroable(db.Optional(next)), Waits: waits}, err
}

// noteWaits stores the hosts that the runs c wait for. It combines the pauses of a host known to several nodes: the
// longest counts. It locks the row, so that no other node drops it before the runs are stored.
const noteWaits = ` INSERT INTO host_waits (id, app_id, job_id, host, pause, probe_at)
	SELECT c.of_wait, min(c.wait_app), min(c.of_job), min(c.wait_host), max(c.wait_pause), max(c.wait_probe)
	FROM c WHERE c.of_wait <> 0 AND ` + goesOn + ` GROUP BY c.of_wait ORDER BY c.of_wait
	ON CONFLICT (id) DO UPDATE SET pause = CASE WHEN excluded.pause > host_waits.pause THEN excluded.pause ELSE host_waits.pause END,
		probe_at = CASE WHEN excluded.probe_at > host_waits.probe_at THEN excluded.probe_at ELSE host_waits.probe_at END`

// hostWaiters chooses runs that wait for a host, those with the fewest attempts first.
// $1 node, $2 now, $3 limit, $4 what they wait for, $5 number of apps
const hostWaiters = ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.job_id, j.revision, r.next_attempt_at, r.app_id, FALSE
	FROM n CROSS JOIN live_runs AS r CROSS JOIN jobs AS j LEFT JOIN triggers AS t ON t.id = r.trigger_id
	WHERE j.id = r.job_id AND r.waits_for = $4 AND r.waits_for <> 0 AND ` + mayRun + ` AND ` + notHeld + `
	ORDER BY r.attempt, r.next_attempt_at LIMIT $3`

// probed leaves out the waits w of runs that no node may adopt now, because of a switch of their app or job.
const probed = ` JOIN jobs AS j ON j.id = w.job_id JOIN apps AS a ON a.id = w.app_id
	WHERE (a.enabled OR a.deleted_at IS NOT NULL) AND (j.deleted_at IS NOT NULL OR j.enabled AND NOT j.paused AND NOT j.app_paused)`

// Bounds of DueHosts: for one host, and for all. The rest follows after the probes of these.
const (
	dueOfHost = "20"
	dueHosts  = "500"
)

// DueHosts reads the waits with a due probe. It finds wanted waits by their ids, so that the traces of other probes,
// which a long snapshot keeps, cost nothing. It ends the wait of runs that are past the end of their retries and were
// never attempted: these may call their host once, whatever its circuit. GiveUp ends the others.
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
	waits, err := db.ReadRows(ctx, s.db.Read, func(w *dispatcher.HostWait) []any {
		return []any{&w.ID, &w.AppID, &w.JobID, &w.Host, db.DurationColumn((*input.Duration)(&w.Pause)), db.InstantColumn(&w.ProbeAt)}
	}, due, args...)
	if err != nil || len(waits) == 0 {
		return nil, err
	}
	// The runs that are past the end of their retries and were never attempted wait no longer.
	err = InParts(ctx, s.OfStored, waits, func(part []dispatcher.HostWait) error {
		all := make([]int64, len(part))
		for i, wait := range part {
			all[i] = wait.ID
		}
		// $1 now, $2 waits
		release := `UPDATE live_runs SET waits_for = 0, next_attempt_at = $1 WHERE waits_for <> 0 AND waits_for` + s.db.In(2) + `
			AND attempt = 0 AND next_attempt_at <= $1`
		_, err := db.Affect(ctx, s.db.Write, release, now.UnixMilli(), s.db.List(all))
		return err
	}, func(wait dispatcher.HostWait, why error) error {
		return s.SetAside(ctx, AsideRow{Work: dispatcher.WorkHost, Item: "host " + wait.Host, Job: wait.JobID}, why, now)
	})
	if err != nil {
		return nil, fmt.Errorf("end waits for hosts: %w", err)
	}
	return waits, nil
}

// TakeProbe takes the next probe of a wait, unless another node did.
func (s *Store) TakeProbe(ctx context.Context, wait dispatcher.HostWait, pause time.Duration, next time.Time) (bool, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 wait, $2 when its probe was due, $3 pause, $4 when the next is
	const take = `UPDATE host_waits SET pause = $3, probe_at = $4 WHERE id = $1 AND probe_at = $2`
	n, err := db.Affect(ctx, s.db.Write, take, wait.ID, wait.ProbeAt.UnixMilli(), pause.Milliseconds(), next.UnixMilli())
	return n == 1, err
}

// HostResponded ends the pause of a wait, so that all its runs may go.
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

// DropHostWait removes a wait without runs. It looks for runs in a separate statement, with a snapshot that includes
// the runs of the node that held the lock before.
func (s *Store) DropHostWait(ctx context.Context, id int64) (dropped bool, err error) {
	err = s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
		if err := t.Exec(ctx, `SELECT id FROM host_waits WHERE id = $1`+t.LockRows(db.LockToDelete), id); err != nil {
			return err
		}
		const drop = `DELETE FROM host_waits WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM live_runs WHERE waits_for = $1 AND waits_for <> 0)`
		n, err := t.Affect(ctx, drop, id)
		dropped = n == 1
		return err
	})
	return dropped, err
}
