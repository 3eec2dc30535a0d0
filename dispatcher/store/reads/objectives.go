package reads

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// How fires are counted exactly once, although fires have no mark for it:
//
// The fires of a trigger are counted up to a cursor, which never passes the next fire of the trigger. So all fires
// before it are claimed or settled, and from then on are in a claim, among the live runs, in the history or among the
// misfires. These are read in the order in which a fire moves. Fires in a claim or live are noted as pending; then the
// history is counted without the pending fires. A fire that ends in between is pending, and is counted once, from
// there. Counts, pending fires and cursors are one transaction.

const (
	// objectiveLag is how long fires may take to be claimed before their bucket is counted. Later ones come next time.
	objectiveLag = 30 * time.Second
	// objectiveSpan bounds the time for which one step counts fires of a trigger, in milliseconds, and pendingAtOnce
	// the number of pending fires that it reads.
	objectiveSpan = definitions.ObjectiveHour
	pendingAtOnce = 1000
)

// RollUpObjectives counts fires of some jobs, each in its own transaction.
func (s *Store) RollUpObjectives(ctx context.Context, limit int, now time.Time) (rolled dispatcher.ObjectivesRolled, err error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return rolled, err
	}
	target := now.Add(-objectiveLag).UnixMilli()
	target -= target % objectiveBucket
	after, err := dispatch.Cursor(ctx, s.db.Read, dispatcher.LockObjectives)
	if err != nil {
		return rolled, err
	}
	// $1 last job of the call before, $2 up to when fires are counted, $3 limit
	const behind = `SELECT job_id FROM objectives WHERE job_id > $1 AND checked_to < $2 ORDER BY job_id LIMIT $3`
	jobs, err := db.Collect(ctx, s.db.Read, db.ScanInt, behind, after, target, limit)
	if err != nil {
		return rolled, fmt.Errorf("look for objectives: %w", err)
	}
	next := int64(0)
	if len(jobs) == limit {
		next = jobs[limit-1]
	}
	for _, job := range dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkObjectives, jobs, dispatch.JobItem, now) {
		err := s.dispatch.OrAside(ctx, func() error {
			more, err := s.rollUpObjective(ctx, job, target, now)
			rolled.More = rolled.More || more
			return err
		}, func(why error) error { return s.dispatch.SetJobAside(ctx, dispatcher.WorkObjectives, job, why, now) })
		if err != nil {
			return rolled, fmt.Errorf("count the fires of job %d: %w", job, err)
		}
		rolled.Jobs++
	}
	rolled.More = rolled.More || next != 0
	return rolled, dispatch.MoveCursor(ctx, s.db.Write, dispatcher.LockObjectives, after, next)
}

// objectiveStep is one step of a job.
type objectiveStep struct {
	*dispatch.Tx
	job, within, target int64
	counts              map[int64]*dispatcher.ObjectiveCounts // by bucket
}

// rollUpObjective counts fires of one job, and reports whether there are more before target.
func (s *Store) rollUpObjective(ctx context.Context, job, target int64, now time.Time) (more bool, err error) {
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		more = false
		// $1 job. What a PUT changes of it waits for this step.
		const of = `SELECT o.within, o.checked_to, o.pending_after FROM objectives AS o WHERE o.job_id = $1`
		var o struct{ within, checked, pendingAfter int64 }
		found, err := db.ReadRow(ctx, t, []any{&o.within, &o.checked, &o.pendingAfter}, of+db.LockOf(t.ForUpdate(), "o"), job)
		if err != nil || !found || o.checked >= target {
			return err
		}
		const has = `SELECT 1 FROM jobs WHERE id = $1 AND deleted_at IS NULL AND objective <> ''`
		if _, wanted, err := db.First(ctx, t, db.ScanInt, has, job); err != nil || !wanted {
			if err == nil {
				err = definitions.ForgetCounts(ctx, t, job)
			}
			if err == nil {
				err = t.Exec(ctx, `DELETE FROM objectives WHERE job_id = $1`, job)
			}
			return err
		}
		step := &objectiveStep{Tx: t, job: job, within: o.within, target: target, counts: map[int64]*dispatcher.ObjectiveCounts{}}
		checked, err := step.countTriggers(ctx, o.checked)
		if err != nil {
			return err
		}
		checked = max(checked, o.checked) // a trigger that was paused for long begins far back
		after, err := step.countPending(ctx, o.pendingAfter)
		if err != nil {
			return err
		}
		more = checked < target || after != 0
		if err := step.writeCounts(ctx); err != nil {
			return err
		}
		if after != 0 && checked == target {
			checked-- // the next step reads the remaining pending fires
		}
		// $1 job, $2 up to when, $3 where to go on with what is pending
		err = t.Exec(ctx, `UPDATE objectives SET checked_to = $2, pending_after = $3 WHERE job_id = $1`, job, checked, after)
		failpoint.Hit(failpoint.InObjective)
		return err
	})
	if err == nil {
		failpoint.Hit(failpoint.AfterObjective)
	}
	return more, err
}

// span is the time in which the fires of some triggers are counted: from is inclusive, to is exclusive.
type span struct{ from, to int64 }

// countTriggers counts the fires of all triggers of the job from their cursors on, and returns up to when it has
// counted. A new trigger since the last step has no earlier fires.
func (s *objectiveStep) countTriggers(ctx context.Context, checked int64) (int64, error) {
	// $1 job, $2 up to when fires of the others are counted
	const known = `INSERT INTO objective_triggers (job_id, trigger_id, rolled_to)
		SELECT t.job_id, t.id, CAST($2 AS BIGINT) FROM triggers AS t WHERE t.job_id = $1 ON CONFLICT DO NOTHING`
	if err := s.Exec(ctx, known, s.job, checked); err != nil {
		return 0, err
	}
	type cursor struct {
		trigger, at int64
		owed        *int64
	}
	// $1 job. A fixed delay that has no next fire yet gets one after its latest.
	const cursors = `SELECT o.trigger_id, o.rolled_to, CASE WHEN c.delayed AND c.next_fire_time IS NULL AND c.state = 'waiting'
			THEN coalesce(c.prev_fire_time, 0) + 1 ELSE c.next_fire_time END FROM objective_triggers AS o
		LEFT JOIN trigger_clock AS c ON c.id = o.trigger_id WHERE o.job_id = $1 ORDER BY o.trigger_id`
	triggers, err := db.ReadRows(ctx, s, func(c *cursor) []any { return []any{&c.trigger, &c.at, &c.owed} }, cursors, s.job)
	if err != nil {
		return 0, err
	}
	spans, done := map[span][]int64{}, s.target
	for _, c := range triggers {
		to := s.target
		if c.owed != nil {
			to = min(to, *c.owed)
		}
		if cut := c.at + objectiveSpan; cut < to {
			to, done = cut, min(done, cut)
		}
		if to > c.at {
			one := span{c.at, to}
			spans[one] = append(spans[one], c.trigger)
		}
	}
	for one, of := range spans {
		if err := s.countSpan(ctx, one, of); err != nil {
			return 0, err
		}
	}
	return done, nil
}

func (s *objectiveStep) countSpan(ctx context.Context, of span, triggers []int64) error {
	// $1 job, $2 from, $3 to, $4 on: triggers
	batch := s.Rows(0, 4, "", db.IDColumns...)
	args := append([]any{s.job, of.from, of.to}, s.Batch(triggers)...)
	pending := batch + ` INSERT INTO objective_pending (job_id, scheduled_at, trigger_id, kind)
		SELECT r.job_id, r.scheduled_at, r.trigger_id, r.kind FROM live_runs AS r
		WHERE r.job_id = $1 AND r.scheduled_at + 0 >= $2 AND r.scheduled_at + 0 < $3 AND r.kind = 1 AND r.trigger_id IN (SELECT id FROM b)
		UNION SELECT f.job_id, f.scheduled_at, f.trigger_id, 1 FROM (` + s.ClaimedFires() + `) AS f
		WHERE f.job_id = $1 AND f.scheduled_at >= $2 AND f.scheduled_at < $3 AND f.trigger_id IN (SELECT id FROM b)
		ON CONFLICT DO NOTHING`
	if err := s.Exec(ctx, pending, args...); err != nil {
		return fmt.Errorf("note fires that have not ended: %w", err)
	}
	ended := batch + ` SELECT r.scheduled_at, ` + firstStart + `, coalesce(r.state, 'succeeded'), r.waited IS NOT NULL
		FROM runs AS r LEFT JOIN attempts AS a ON r.attempt > 1 AND a.scheduled_at = r.scheduled_at AND a.trigger_id = r.trigger_id
			AND a.kind = r.kind AND a.attempt = 1 AND a.scheduled_at >= $2 AND a.scheduled_at < $3
		WHERE r.job_id = $1 AND r.scheduled_at >= $2 AND r.scheduled_at < $3 AND r.kind = 1 AND r.trigger_id IN (SELECT id FROM b)
			AND NOT EXISTS (SELECT 1 FROM objective_pending AS p WHERE p.job_id = r.job_id AND p.scheduled_at = r.scheduled_at
				AND p.trigger_id = r.trigger_id AND p.kind = r.kind)`
	fires, err := db.Collect(ctx, s, scanEndedFire, ended, args...)
	if err != nil {
		return fmt.Errorf("read fires: %w", err)
	}
	for _, fire := range fires {
		s.add(fire)
	}
	missed := batch + ` SELECT m.to_at, m.count FROM misfires AS m
		WHERE m.job_id = $1 AND m.from_at >= $2 AND m.from_at < $3 AND m.trigger_id IN (SELECT id FROM b)`
	misfires, err := db.ReadRows(ctx, s, func(m *[2]int64) []any { return []any{&m[0], &m[1]} }, missed, args...)
	if err != nil {
		return fmt.Errorf("read misfires: %w", err)
	}
	for _, m := range misfires {
		s.at(m[0]).Missed += m[1]
	}
	// $1 job, $2 up to when, $3 on: triggers
	move := s.Rows(0, 3, "", db.IDColumns...) + ` UPDATE objective_triggers SET rolled_to = $2
		WHERE job_id = $1 AND trigger_id IN (SELECT id FROM b)`
	return s.Exec(ctx, move, append([]any{s.job, of.to}, s.Batch(triggers)...)...)
}

// firstStart is when the first attempt of a run r began. The row of that attempt is a if another one followed.
const firstStart = `CASE WHEN r.attempt > 1 AND a.started_at IS NOT NULL THEN a.started_at ELSE r.ended_at - r.started_ms END`

// endedFire is a fire with an ended first attempt, or one that ended without any.
type endedFire struct {
	scheduled int64
	started   *int64 // of the first attempt; nil: none
	state     run.State
	waited    bool // before the first attempt, as the job asked
}

func scanEndedFire(row db.Scanner) (f endedFire, err error) {
	err = row.Scan(&f.scheduled, &f.started, &f.state, &f.waited)
	return f, err
}

func (s *objectiveStep) at(instant int64) *dispatcher.ObjectiveCounts {
	bucket := instant - instant%objectiveBucket
	if s.counts[bucket] == nil {
		s.counts[bucket] = &dispatcher.ObjectiveCounts{}
	}
	return s.counts[bucket]
}

func (s *objectiveStep) add(fire endedFire) {
	switch {
	case fire.started != nil && *fire.started-fire.scheduled <= s.within:
		s.at(fire.scheduled).Good++
	case fire.started == nil && (fire.state == run.Skipped || fire.state == run.Cancelled):
		// The job's policy or an operator prevented it.
	case fire.waited && fire.started != nil:
		// It waited as the job asked.
	case fire.state == run.Superseded:
		// A newer fire ran instead.
	default:
		s.at(fire.scheduled).Late++
	}
}

// countPending counts the pending fires after an instant with a first attempt that has ended meanwhile. It returns
// where the next step continues; 0: all were read.
func (s *objectiveStep) countPending(ctx context.Context, after int64) (next int64, err error) {
	// $1 job, $2 instant, $3 limit
	const page = `SELECT p.scheduled_at, p.trigger_id, p.kind FROM objective_pending AS p WHERE p.job_id = $1 AND p.scheduled_at > $2
		ORDER BY p.scheduled_at, p.trigger_id, p.kind LIMIT $3`
	keys, err := db.ReadRows(ctx, s, func(k *[3]int64) []any { return []any{&k[0], &k[1], &k[2]} },
		page, s.job, after, pendingAtOnce+dispatcher.MaxTriggers)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	if len(keys) > pendingAtOnce {
		next = keys[pendingAtOnce][0] // the page has all fires of this instant, because a trigger has one
		keys = slices.DeleteFunc(keys, func(k [3]int64) bool { return k[0] > next })
	}
	return next, s.resolve(ctx, keys)
}

// resolve counts the pending fires with an ended first attempt. It drops those from before the window.
func (s *objectiveStep) resolve(ctx context.Context, keys [][3]int64) error {
	var at, trigger, kind []int64
	for _, k := range keys {
		at, trigger, kind = append(at, k[0]), append(trigger, k[1]), append(kind, k[2])
	}
	batch, args := s.Rows(0, 1, "", db.FireKeyColumns...), s.Batch(at, trigger, kind)
	ended := batch + ` SELECT r.trigger_id, r.kind, r.scheduled_at, ` + firstStart + `, coalesce(r.state, 'succeeded'), r.waited IS NOT NULL
		FROM b JOIN runs AS r ON` + s.SameRun("r", "b.scheduled_at", "b.trigger_id", "b.kind") + ` LEFT JOIN attempts AS a ON r.attempt > 1 AND` +
		s.SameRun("a", "r.scheduled_at", "r.trigger_id", "r.kind") + ` AND a.attempt = 1`
	attempted := batch + ` SELECT a.trigger_id, a.kind, a.scheduled_at, a.started_at, a.state, coalesce(r.waited <> '', FALSE)
		FROM b JOIN attempts AS a ON` + s.SameRun("a", "b.scheduled_at", "b.trigger_id", "b.kind") + ` AND a.attempt = 1
		LEFT JOIN live_runs AS r ON` + s.SameRun("r", "b.scheduled_at", "b.trigger_id", "b.kind")
	over := map[[3]int64]endedFire{}
	for _, query := range []string{attempted, ended} { // the history comes last and wins, as for other fires
		_, err := db.Collect(ctx, s, func(row db.Scanner) (key [3]int64, err error) {
			fire, err := scanEndedFire(db.WiderRow{Scanner: row, Before: []any{&key[1], &key[2]}})
			key[0] = fire.scheduled
			over[key] = fire
			return key, err
		}, query, args...)
		if err != nil {
			return fmt.Errorf("read pending fires: %w", err)
		}
	}
	keys = slices.DeleteFunc(keys, func(k [3]int64) bool {
		fire, ended := over[k]
		if ended {
			s.add(fire)
		}
		return !ended && k[0] >= s.target-keptHours
	})
	at, trigger, kind = nil, nil, nil
	for _, k := range keys {
		at, trigger, kind = append(at, k[0]), append(trigger, k[1]), append(kind, k[2])
	}
	if len(keys) == 0 {
		return nil
	}
	// $1 job, from $2 on: the fires
	remove := s.Rows(0, 2, "", db.FireKeyColumns...) + ` DELETE FROM objective_pending WHERE job_id = $1
		AND (scheduled_at, trigger_id, kind) IN (SELECT b.scheduled_at, b.trigger_id, b.kind FROM b)`
	return s.Exec(ctx, remove, append([]any{s.job}, s.Batch(at, trigger, kind)...)...)
}

// writeCounts adds the counts, and deletes those older than anything shown.
func (s *objectiveStep) writeCounts(ctx context.Context) error {
	var minutes, from, good, late, missed []int64
	for bucket, counts := range s.counts {
		for _, size := range []int64{objectiveBucket, definitions.ObjectiveHour} {
			if kept := map[int64]int64{objectiveBucket: keptBuckets, definitions.ObjectiveHour: keptHours}[size]; bucket < s.target-kept {
				continue
			}
			minutes, from = append(minutes, size/60_000), append(from, bucket-bucket%size)
			good, late, missed = append(good, counts.Good), append(late, counts.Late), append(missed, counts.Missed)
		}
	}
	if len(from) > 0 {
		// $1 job, $2 on: the counts
		add := s.Rows(0, 2, "", db.CountColumns...) + ` INSERT INTO objective_counts AS c (job_id, minutes, from_at, good, late, missed)
			SELECT CAST($1 AS BIGINT), b.minutes, b.from_at, sum(b.good), sum(b.late), sum(b.missed) FROM b WHERE 1 = 1
			GROUP BY b.minutes, b.from_at ORDER BY b.minutes, b.from_at
			ON CONFLICT (job_id, minutes, from_at) DO UPDATE SET good = c.good + excluded.good, late = c.late + excluded.late,
				missed = c.missed + excluded.missed`
		if err := s.Exec(ctx, add, append([]any{s.job}, s.Batch(minutes, from, good, late, missed)...)...); err != nil {
			return fmt.Errorf("add counts: %w", err)
		}
	}
	// $1 job, $2 end of the buckets, $3 end of the hours
	const purge = `DELETE FROM objective_counts WHERE job_id = $1 AND (minutes = 5 AND from_at < $2 OR minutes = 60 AND from_at < $3)`
	return s.Exec(ctx, purge, s.job, s.target-keptBuckets, s.target-keptHours)
}

// Buckets of objective_counts, in milliseconds, and how long they are kept.
const (
	objectiveBucket = 5 * 60 * 1000

	keptBuckets = 73 * definitions.ObjectiveHour // longer than the longest of dispatcher.ObjectiveSpans
	keptHours   = int64(dispatcher.ObjectiveWindow/time.Millisecond) + definitions.ObjectiveHour
)

// objectiveBand is an expression for the band of a bucket c before the end of the counts of a job AS o: the time
// between two neighbors of dispatcher.ObjectiveSpans, or the window; see latestBand and windowBand. NULL: no band.
func objectiveBand() string {
	band := fmt.Sprintf(`CASE WHEN c.minutes = 60 THEN CASE WHEN c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN %d END`,
		dispatcher.ObjectiveWindow.Milliseconds(), windowBand)
	for n, span := range dispatcher.ObjectiveSpans() {
		band += fmt.Sprintf(`
		WHEN c.from_at >= o.checked_to - CAST(%d AS BIGINT) THEN %d`, span.Milliseconds(), latestBand+n)
	}
	return band + ` END`
}

// The bands: the window, and the shortest of dispatcher.ObjectiveSpans, followed by the longer ones.
const (
	windowBand = iota
	latestBand
)

// MeasuredOf returns the counts of jobs that have an objective, ordered by name. jobs is a WITH clause with their ids
// in b. It reads the buckets c that counted selects; empty: all.
func MeasuredOf(ctx context.Context, q db.Querier, jobs, counted string, args ...any) (all []MeasuredJob, err error) {
	query := jobs + ` SELECT j.id, a.name, j.name, j.objective, o.counted_from, o.checked_to,
		(SELECT count(*) FROM objective_pending AS p WHERE p.job_id = o.job_id), c.band, c.good, c.late, c.missed
	FROM (SELECT o.job_id, ` + objectiveBand() + ` AS band, sum(c.good) AS good, sum(c.late) AS late, sum(c.missed) AS missed
		FROM b JOIN objectives AS o ON o.job_id = b.id LEFT JOIN objective_counts AS c ON c.job_id = o.job_id` + counted + `
		GROUP BY o.job_id, 2) AS c
	JOIN objectives AS o ON o.job_id = c.job_id JOIN jobs AS j ON j.id = c.job_id JOIN apps AS a ON a.id = j.app_id
	WHERE j.objective <> '' AND j.deleted_at IS NULL ORDER BY a.name, j.name, j.id, c.band`
	bands, err := db.Collect(ctx, q, scanMeasured, query, args...)
	if err != nil {
		return nil, err
	}
	for _, band := range bands {
		if len(all) == 0 || all[len(all)-1].ID != band.ID {
			all = append(all, MeasuredJob{ID: band.ID, Job: band.Job, ObjectiveMeasured: band.ObjectiveMeasured})
			all[len(all)-1].Spans = make([]dispatcher.ObjectiveCounts, len(dispatcher.ObjectiveSpans()))
		}
		all[len(all)-1].add(band)
	}
	return all, nil
}

// LatestCounts selects the buckets c from which MeasuredOf computes whether an error budget burns.
func LatestCounts() string {
	return fmt.Sprintf(` AND c.minutes = 5 AND c.from_at >= o.checked_to - CAST(%d AS BIGINT)`, dispatcher.ObjectiveBurnSpan.Milliseconds())
}

// MeasuredJob is a job with its counts.
type MeasuredJob struct {
	ID  int64
	Job dispatcher.Job
	dispatcher.ObjectiveMeasured
}

// measuredBand is a job with its counts in a band; nil: in no band.
type measuredBand struct {
	MeasuredJob
	band *int
	dispatcher.ObjectiveCounts
}

func scanMeasured(row db.Scanner) (b measuredBand, err error) {
	var good, late, missed *int64
	err = row.Scan(&b.ID, &b.Job.App, &b.Job.Name, definitions.ObjectiveColumn(&b.Job.Objective), db.InstantColumn(&b.From),
		db.InstantColumn(&b.To), &b.Pending, &b.band, &good, &late, &missed)
	if err != nil {
		return b, err
	}
	if b.Job.Objective == nil {
		return b, fmt.Errorf("job %s/%s: its stored objective cannot be read", b.Job.App, b.Job.Name)
	}
	if from := b.To.Add(-dispatcher.ObjectiveWindow); from.After(b.From) {
		b.From = from
	}
	if b.band != nil {
		b.ObjectiveCounts = dispatcher.ObjectiveCounts{Good: *good, Late: *late, Missed: *missed}
	}
	return b, nil
}

// add adds the counts of a band to all spans that include it.
func (j *MeasuredJob) add(of measuredBand) {
	switch {
	case of.band == nil:
	case *of.band == windowBand:
		j.Window = of.ObjectiveCounts
	default:
		for n := *of.band - latestBand; n < len(j.Spans); n++ {
			j.Spans[n].Good += of.Good
			j.Spans[n].Late += of.Late
			j.Spans[n].Missed += of.Missed
		}
	}
}

// ObjectiveStatus returns the status of a job's objective.
func (s *Store) ObjectiveStatus(ctx context.Context, app, job string) (dispatcher.ObjectiveStatus, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	// $1 app, $2 name
	const named = `WITH b AS MATERIALIZED (SELECT id FROM jobs WHERE app_id = $1 AND name = $2 AND deleted_at IS NULL)`
	found, err := MeasuredOf(ctx, s.db.Read, named, ``, run.AppID(app), job)
	if err != nil {
		return dispatcher.ObjectiveStatus{}, err
	}
	if len(found) > 0 {
		return found[0].Status(found[0].Job), nil
	}
	if _, err := s.definitions.FindJob(ctx, s.db.Read, app, job, ""); errors.Is(err, dispatcher.ErrNotFound) {
		return dispatcher.ObjectiveStatus{}, err
	}
	return dispatcher.ObjectiveStatus{}, fmt.Errorf("job %s has no objective; declare objective in its definition: %w",
		input.Echo(app+"/"+job), dispatcher.ErrNotFound)
}

// ObjectiveStatuses returns a page of the jobs that have an objective, of some apps or of all, by app and name.
func (s *Store) ObjectiveStatuses(ctx context.Context, apps []string, page input.Page) ([]dispatcher.ObjectiveStatus, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	l := s.lookAt(apps)
	app, job, _ := dispatcher.ParseJobCursor(page.Cursor)
	args := definitions.StatementArgs{app, job, page.Limit}
	// $1 app and $2 name of the last job of the page before, $3 limit. The page is chosen before anything is counted.
	listed := `WITH b AS MATERIALIZED (SELECT j.id FROM jobs AS j WHERE (j.app, j.name) > ($1, $2) AND j.objective <> ''
		AND j.deleted_at IS NULL` + l.ofApps(`j.app_id`, &args) + ` ORDER BY j.app, j.name LIMIT $3)`
	found, err := MeasuredOf(ctx, s.db.Read, listed, ``, args...)
	statuses := make([]dispatcher.ObjectiveStatus, len(found))
	for i, one := range found {
		statuses[i] = one.Status(one.Job)
	}
	return statuses, err
}
