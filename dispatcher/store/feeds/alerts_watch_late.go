package feeds

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// lateFire is a fire that may be late: its alerts decide.
type lateFire struct {
	trigger, job int64
	scheduled    time.Time
	after        *int64 // jobs.alert_late_after
	// waits tells that the fire was claimed: its run waits for a slot, its host or a rate. Nobody expects that of a job that is paused.
	waits bool
}

// findLateFires finds fires that have not begun in time, after those that were found before: fires that no node has claimed,
// and runs that wait for their first attempt.
func (s *Store) findLateFires(ctx context.Context, after *alert.LateFire, limit int, now time.Time,
	done *alert.AlertsWatched) (*alert.LateFire, error) {
	if after == nil {
		return nil, nil
	}
	const wanted = `SELECT 1 FROM jobs WHERE alert_late_after IS NOT NULL LIMIT 1`
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
		if f.after != nil && now.Sub(f.scheduled).Milliseconds() > *f.after {
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

// lateDue returns a page of the fires that are due and that no node has claimed. Only what is late is read.
func (s *Store) lateDue(ctx context.Context, next *alert.LateFire, limit int, now time.Time) ([]lateFire, error) {
	if next.AllDue {
		return nil, nil
	}
	// $1 a second ago, which no late_after is less than, $2 and $3 the last of the page before, $4 limit
	const late = `SELECT c.due_at, c.id, c.next_fire_time, t.job_id, j.alert_late_after FROM (SELECT c.due_at, c.id, c.next_fire_time
			FROM trigger_clock AS c WHERE c.off = 0 AND c.due_at IS NOT NULL AND c.due_at <= $1 AND (c.due_at, c.id) > ($2, $3)
			ORDER BY c.due_at, c.id LIMIT $4) AS c
		JOIN triggers AS t ON t.id = c.id JOIN jobs AS j ON j.id = t.job_id ORDER BY c.due_at, c.id`
	dueAt := int64(0)
	if !next.DueAt.IsZero() {
		dueAt = next.DueAt.UnixMilli()
	}
	fires, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (f lateFire, err error) {
		err = row.Scan(db.InstantColumn(&next.DueAt), &next.TriggerID, db.InstantColumn(&f.scheduled), &f.job, &f.after)
		f.trigger = next.TriggerID
		return f, err
	}, late, now.UnixMilli()-time.Second.Milliseconds(), dueAt, next.TriggerID, limit)
	next.AllDue = len(fires) < limit
	return fires, err
}

// lateWaiting returns, of a page of jobs, the earliest run of a fire that was claimed and waits for its first attempt: for a
// slot, for its host, or for the rate of it. What a pause of the job or the trigger holds is left out.
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
				AND COALESCE(t.enabled, TRUE) AND NOT COALESCE(t.paused, FALSE)
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

// tellLate lets the alerts of jobs judge that fires of theirs have not begun.
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
				if err := judgeLate(ctx, j, job, f.trigger, f.scheduled); err != nil {
					return err
				}
			}
		}
		notified, err = j.Finish(ctx)
		return err
	})
	return notified, err
}

// judgeLate makes the alerts of a job fire because a fire has not begun in time. Those that do already know enough.
func judgeLate(ctx context.Context, j *definitions.Judgement, job *definitions.JudgedJob, trigger int64, scheduled time.Time) error {
	if job.LateAfter == nil || j.At.Sub(scheduled).Milliseconds() <= *job.LateAfter {
		return nil
	}
	from, err := owedFrom(ctx, j, job)
	if err != nil {
		return err
	}
	from = alert.Later(scheduled, from)
	for _, a := range job.Alerts {
		by := j.At.Sub(from)
		rule, has := a.RuleOf(target.AlertLate, j.At)
		id, track := j.TrackOf(a, job, target.AlertLate)
		if !has || by <= a.LateAfter.Std() || track.Firing {
			continue
		}
		run := run.Key{TriggerID: trigger, ScheduledAt: scheduled, Kind: run.KindSchedule}
		next, made := track.Observe(rule, alert.Observation{Met: 1, At: from.Add(a.LateAfter.Std()), Run: run.String(),
			ScheduledAt: scheduled, LateBy: by}, j.At)
		j.Set(id, a, job, next, made)
	}
	return nil
}
