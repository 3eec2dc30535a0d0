package feeds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// noteOwed notes when a late run could begin: users who pause a job, or its app, know that its fires are late.
func noteOwed(ctx context.Context, j *definitions.Judgement, job *definitions.JudgedJob, end *alert.End) error {
	if job.LateAfter == nil || end.StartedAt.Sub(end.ScheduledAt).Milliseconds() <= *job.LateAfter {
		return nil
	}
	from, err := owedFrom(ctx, j, job)
	if err == nil && !from.After(end.StartedAt) {
		end.OwedFrom = from
	}
	return err
}

// owedFrom returns the time since when the fires of a job could begin: the latest change of the job or its app,
// including pauses of a job and switches, or the end of the latest pause of the app that held it.
func owedFrom(ctx context.Context, j *definitions.Judgement, job *definitions.JudgedJob) (time.Time, error) {
	pauses, err := endedPauses(ctx, j, job.AppID)
	if err != nil {
		return time.Time{}, fmt.Errorf("read pauses of app %s that ended: %w", job.App, err)
	}
	return input.Later(job.ChangedAt, heldUntil(pauses, job.Labels)), nil
}

// heldFires reports whether people held missed fires, by pauses of the trigger, its job or its app, or by a switch of the
// app: the first, and all until at most misfire_after before the last, so that nothing else made that one miss.
func (s *Store) heldFires(ctx context.Context, j *definitions.Judgement, e *dispatch.PendingEnd, last time.Time) (bool, error) {
	first, now := e.Key.ScheduledAt.UnixMilli(), j.At.UnixMilli()
	holds, err := s.definitions.AppHoldsIn(ctx, j, e.Key.ScheduledAt, []string{e.App})
	if err != nil {
		return false, err
	}
	type span struct{ from, to int64 }
	var held []span
	switches := append(holds[e.App].Switches, dispatcher.AppSwitch{At: j.At})
	for i, next := range switches[1:] {
		if off := switches[i]; !off.Enabled {
			held = append(held, span{off.At.UnixMilli(), next.At.UnixMilli()})
		}
	}
	// $1 job, $2 trigger, $3 the first missed fire, $4 now
	const revisions = `SELECT r.from_at, coalesce(r.to_at, $4), r.misfire_after, r.paused, r.labels FROM trigger_revisions AS r
		WHERE r.job_id = $1 AND r.id = $2 AND (r.to_at IS NULL OR r.to_at > $3) ORDER BY r.from_at`
	misfireAfter := int64(0)
	err = db.EachRow(ctx, j, func(row db.Scanner) error {
		var in span
		var paused bool
		var labels input.Labels
		err := row.Scan(&in.from, &in.to, &misfireAfter, &paused, db.LabelsColumn(&labels))
		if paused {
			held = append(held, in)
		}
		for _, p := range dispatcher.HeldBy(holds[e.App].Pauses, labels) {
			ended := cmp.Or(db.OrZero(db.Zeroable(p.EndedAt)), now)
			held = append(held, span{max(in.from, p.PausedAt.UnixMilli()), min(in.to, ended)})
		}
		return err
	}, revisions, e.JobID, e.Key.TriggerID, first, now)
	slices.SortFunc(held, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	until := first
	for _, h := range held {
		if h.from <= until {
			until = max(until, h.to)
		}
	}
	return until > first && last.UnixMilli()-misfireAfter <= until, err
}

// lateFire is a fire that may be late according to its alerts.
type lateFire struct {
	trigger, job int64
	scheduled    time.Time
	after        *int64 // jobs.alert_late_after
	unclaimed    string // name of the trigger of a fire that no node has claimed, so that it has no run; else empty
	// waits means that the fire was claimed: its run waits for a slot, its host or a rate. Ignored for paused jobs.
	waits bool
	// unserved means that no live node has the labels of the job. Then the fire counts as missed after missedAfter milliseconds.
	unserved    bool
	missedAfter *int64
}

// exceeds reports whether a time is longer than some milliseconds; nil: without a bound.
func exceeds(by time.Duration, most *int64) bool { return most != nil && by.Milliseconds() > *most }

func (f lateFire) key() run.Key {
	return run.Key{TriggerID: f.trigger, ScheduledAt: f.scheduled, Kind: run.KindSchedule}
}

// findLateFires finds fires that have not begun in time, after those found before: fires that no node has claimed, and
// runs that wait for their first attempt.
func (s *Store) findLateFires(ctx context.Context, after *alert.LateFire, limit int, now time.Time,
	done *alert.AlertsWatched) (*alert.LateFire, error) {
	if after == nil {
		return nil, nil
	}
	const wanted = `SELECT 1 FROM jobs WHERE alert_late_after IS NOT NULL UNION ALL SELECT 1 FROM label_sets WHERE NOT served LIMIT 1`
	if _, found, err := db.First(ctx, s.db.Read, db.ScanInt, wanted); err != nil || !found {
		return nil, err
	}
	next := *after
	fires, err := s.lateDue(ctx, &next, limit, now)
	if err != nil {
		return nil, fmt.Errorf("read fires that are due: %w", err)
	}
	waiting, err := s.lateWaiting(ctx, &next, limit, now)
	if err != nil {
		return nil, fmt.Errorf("read runs that wait: %w", err)
	}
	var late []lateFire
	for _, f := range append(fires, waiting...) {
		if by := now.Sub(f.scheduled); exceeds(by, f.after) || exceeds(by, f.missedAfter) {
			late = append(late, f)
		}
	}
	of := func(f lateFire) string { return dispatch.JobItem(f.job) }
	late = dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkAlerts, late, of, now)
	err = dispatch.InParts(ctx, s.dispatch.OfStored, late, func(part []lateFire) error {
		notified, err := s.tellLate(ctx, part, now)
		done.Notified += notified
		return err
	}, func(f lateFire, why error) error {
		return s.dispatch.SetJobAside(ctx, dispatcher.WorkAlerts, f.job, why, now)
	})
	if err != nil {
		return nil, err
	}
	done.Late += len(late)
	if next.AllDue && next.AllWaiting {
		return nil, nil
	}
	done.More = true
	return &next, nil
}

// lateDue returns a page of the due fires that no node has claimed. It reads only late ones.
func (s *Store) lateDue(ctx context.Context, next *alert.LateFire, limit int, now time.Time) ([]lateFire, error) {
	if next.AllDue {
		return nil, nil
	}
	// $1 a second ago, which no late_after is less than, $2 and $3 the last of the page before, $4 limit
	late := `SELECT c.due_at, c.id, c.next_fire_time, t.job_id, j.alert_late_after, t.name, c.off <> 0, CASE
			WHEN c.off <> 0 AND j.follows & 8 <> 0 AND coalesce(t.misfire_policy, '') <> 'fire_all'
				THEN c.misfire_after + (c.due_at - c.next_fire_time) END
		FROM (` + dispatch.Unclaimed(` AND c.due_at <= $1 AND (c.due_at, c.id) > ($2, $3)`, `$4`) + `) AS c
		JOIN triggers AS t ON t.id = c.id JOIN jobs AS j ON j.id = t.job_id ORDER BY c.due_at, c.id`
	fires, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (f lateFire, err error) {
		err = row.Scan(db.InstantColumn(&next.DueAt), &next.TriggerID, db.InstantColumn(&f.scheduled), &f.job, &f.after,
			&f.unclaimed, &f.unserved, &f.missedAfter)
		f.trigger = next.TriggerID
		return f, err
	}, late, now.UnixMilli()-time.Second.Milliseconds(), db.OrZero(next.DueAt), next.TriggerID, limit)
	next.AllDue = len(fires) < limit
	return fires, err
}

// lateWaiting returns, for a page of jobs, the earliest run of a claimed fire that waits for its first attempt: for a
// slot, for its host, or for its rate. It leaves out runs held by a pause of the job or the trigger.
func (s *Store) lateWaiting(ctx context.Context, next *alert.LateFire, limit int, now time.Time) ([]lateFire, error) {
	if next.AllWaiting {
		return nil, nil
	}
	// $1 a second ago, which no late_after is less than, $2 the last job of the page before, $3 limit
	const late = `SELECT w.job_id, w.since, j.alert_late_after, (SELECT r.trigger_id FROM live_runs AS r
			WHERE ` + notBegun + ` AND r.job_id = w.job_id AND r.scheduled_at = w.since ORDER BY r.trigger_id LIMIT 1)
		FROM (SELECT r.job_id, min(r.scheduled_at) AS since FROM live_runs AS r JOIN jobs AS j ON j.id = r.job_id
			LEFT JOIN triggers AS t ON t.id = r.trigger_id
			WHERE ` + notBegun + ` AND r.scheduled_at <= $1 AND r.job_id > $2 AND j.alert_late_after IS NOT NULL
				AND ` + mayBegin + `
			GROUP BY r.job_id ORDER BY r.job_id LIMIT $3) AS w
		JOIN jobs AS j ON j.id = w.job_id ORDER BY w.job_id`
	fires, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (lateFire, error) {
		f := lateFire{waits: true}
		err := row.Scan(&f.job, db.InstantColumn(&f.scheduled), &f.after, &f.trigger)
		next.JobID = f.job
		return f, err
	}, late, now.UnixMilli()-time.Second.Milliseconds(), next.JobID, limit)
	next.AllWaiting = len(fires) < limit
	return fires, err
}

// notBegun is the condition of the index live_runs_not_begun on runs r: fires that wait for their first attempt.
const notBegun = `r.attempt = 0 AND r.kind = 1`

// mayBegin is the condition that no pause of its trigger t, which may be missing, holds a run.
const mayBegin = `COALESCE(t.enabled, TRUE) AND NOT COALESCE(t.paused, FALSE)`

// tellLate makes the alerts of jobs evaluate fires that have not begun.
func (s *Store) tellLate(ctx context.Context, fires []lateFire, now time.Time) (notified int, err error) {
	jobs := make([]int64, len(fires))
	for i, f := range fires {
		jobs[i] = f.job
	}
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		j, err := definitions.Judge(ctx, t, jobs)
		if err != nil {
			return err
		}
		for _, f := range fires {
			if job := j.Jobs[f.job]; job != nil && !job.Deleted && (job.Watched || !f.waits) {
				if err := judgeLate(ctx, j, job, f); err != nil {
					return err
				}
			}
		}
		notified, err = j.Finish(ctx)
		return err
	})
	return notified, err
}

// judgeLate makes the alerts of a job fire because a fire has not begun in time.
func judgeLate(ctx context.Context, j *definitions.Judgement, job *definitions.JudgedJob, late lateFire) error {
	from, err := owedFrom(ctx, j, job)
	if err != nil {
		return err
	}
	facts := alert.Facts{Late: alert.Case{Key: late.key(), Since: input.Later(late.scheduled, from)}, Unclaimed: late.unclaimed}
	if facts.Late.Why, err = late.why(ctx, j); err != nil {
		return err
	}
	by := j.At.Sub(facts.Late.Since)
	facts.Missed = exceeds(by, late.missedAfter)
	for _, a := range job.Alerts {
		for _, condition := range []target.AlertCondition{target.AlertLate, target.AlertMissed} {
			rule, has := j.RuleOf(a, job, condition)
			id, track := j.TrackOf(a, job, condition)
			if !has || track.Waits || condition == target.AlertLate && by <= a.LateAfter.Std() ||
				condition == target.AlertMissed && !facts.Missed {
				continue
			}
			track.LookAt = j.At
			next, made := track.Look(a.Alert, rule, facts, j.At)
			j.Set(id, a, job, next, made)
		}
	}
	return nil
}

// readLate finds the earliest fire of each job that has not begun: one that no node has claimed, or whose run waits.
func readLate(ctx context.Context, j *definitions.Judgement, facts map[int64]alert.Facts, jobs []int64) error {
	// $1 now, from $2 on: ids
	read := j.Rows(0, 2, "", db.IDColumns...) + ` SELECT f.job_id, f.at, f.trigger_id, f.unclaimed, f.unserved FROM (
		SELECT f.*, row_number() OVER (PARTITION BY f.job_id ORDER BY f.at, f.trigger_id) AS nth FROM (
			SELECT t.job_id, c.next_fire_time AS at, t.id AS trigger_id, t.name AS unclaimed, c.off <> 0 AS unserved
				FROM b JOIN triggers AS t ON t.job_id = b.id
				JOIN trigger_clock AS c ON c.id = t.id WHERE c.off IN (0, 8) AND c.due_at <= $1 AND t.deleted_at IS NULL
			UNION ALL SELECT r.job_id, r.scheduled_at, r.trigger_id, '', FALSE FROM b JOIN live_runs AS r ON r.job_id = b.id
				LEFT JOIN triggers AS t ON t.id = r.trigger_id
				WHERE ` + notBegun + ` AND r.scheduled_at <= $1 AND ` + mayBegin + `) AS f) AS f
		WHERE f.nth = 1`
	fires, err := db.ReadRows(ctx, j, func(f *lateFire) []any {
		return []any{&f.job, db.InstantColumn(&f.scheduled), &f.trigger, &f.unclaimed, &f.unserved}
	},
		read, append([]any{j.At.UnixMilli()}, j.Batch(jobs)...)...)
	if err != nil {
		return err
	}
	for _, f := range fires {
		one, job := facts[f.job], j.Jobs[f.job]
		if !job.Watched {
			continue // a person paused it
		}
		from, err := owedFrom(ctx, j, job)
		if err != nil {
			return err
		}
		one.Late, one.Unclaimed = alert.Case{Key: f.key(), Since: input.Later(f.scheduled, from)}, f.unclaimed
		if one.Late.Why, err = f.why(ctx, j); err != nil {
			return err
		}
		facts[f.job] = one
	}
	return nil
}

// why says why the fire has not begun.
func (f lateFire) why(ctx context.Context, j *definitions.Judgement) (string, error) {
	if f.unserved {
		return "no live node has the labels that its job requires", nil
	}
	if f.unclaimed != "" {
		return "no node has claimed it", nil
	}
	r, err := reads.RunOf(ctx, j.Flavor, j, f.key().String())
	if errors.Is(err, dispatcher.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the run of a late fire: %w", err)
	}
	return "it " + cmp.Or(r.Waiting(), "is "+string(r.State)), nil
}
