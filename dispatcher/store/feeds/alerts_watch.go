package feeds

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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

// WatchAlerts does a portion of the time-based work for alerts.
func (s *Store) WatchAlerts(ctx context.Context, after *alert.LateFire, limit int, now time.Time) (
	done alert.AlertsWatched, last *alert.LateFire, err error,
) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if now, err = s.db.OrClock(ctx, now); err != nil {
		return done, nil, err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context, int, time.Time, *alert.AlertsWatched) error
	}{
		{"let jobs follow alerts", s.sweepAlertsOfApps},
		{"look at states of alerts", s.lookAtAlerts}, {"find blocked jobs", s.findBlocked},
	} {
		if err := step.do(ctx, limit, now, &done); err != nil {
			return done, nil, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if last, err = s.findLateFires(ctx, after, limit, now, &done); err != nil {
		return done, nil, fmt.Errorf("find late fires: %w", err)
	}
	return done, last, nil
}

// sweepAlertsOfApps applies the alerts of an app to its next jobs.
func (s *Store) sweepAlertsOfApps(ctx context.Context, limit int, now time.Time, done *alert.AlertsWatched) error {
	// $1 limit
	const pending = `SELECT name FROM apps WHERE alerts_swept_to IS NOT NULL ORDER BY id LIMIT $1`
	apps, err := db.Collect(ctx, s.db.Read, db.ScanText, pending, 1+s.dispatch.Asides.Count(dispatcher.WorkAlerts))
	apps = dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkAlerts, apps, dispatch.AppItem, now)
	if err != nil || len(apps) == 0 {
		return err
	}
	var portion definitions.Swept
	err = s.dispatch.OrAside(ctx, func() error {
		return s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) (err error) {
			portion, err = definitions.SweepAlerts(ctx, t, run.AppID(apps[0]), limit)
			return err
		})
	}, func(why error) error { return s.dispatch.SetAppAside(ctx, dispatcher.WorkAlerts, apps[0], why, now) })
	done.Jobs, done.Notified, done.More = done.Jobs+portion.Jobs, done.Notified+portion.Notified, true // another app may be next
	return err
}

// dueState is an alert state due for a check.
type dueState struct{ id, job int64 }

// lookAtAlerts checks the due states.
func (s *Store) lookAtAlerts(ctx context.Context, limit int, now time.Time, done *alert.AlertsWatched) error {
	// $1 now, $2 limit
	const due = `SELECT s.id, s.job_id FROM alert_states AS s WHERE s.check_at <= $1 ORDER BY s.check_at LIMIT $2`
	states, err := db.ReadRows(ctx, s.db.Read, func(d *dueState) []any { return []any{&d.id, &d.job} },
		due, now.UnixMilli(), limit)
	if err != nil || len(states) == 0 {
		return err
	}
	err = dispatch.InParts(ctx, s.dispatch.OfStored, states, func(part []dueState) error {
		notified, err := s.lookAtStates(ctx, part, now)
		done.Notified += notified
		return err
	}, func(state dueState, why error) error {
		item := "alert state " + strconv.FormatInt(state.id, 10)
		if err := s.dispatch.SetAside(ctx, dispatch.AsideRow{Work: dispatcher.WorkAlerts, Item: item, Job: state.job}, why, now); err != nil {
			return err
		}
		// $1 work, $2 item, $3 state. The next look at it waits as long.
		const deferLook = `UPDATE alert_states SET check_at = (SELECT x.try_at FROM set_aside AS x WHERE x.work = $1 AND x.item = $2)
			WHERE id = $3`
		_, err := db.Affect(ctx, s.db.Write, deferLook, dispatcher.WorkAlerts, item, state.id)
		return err
	})
	done.Looked, done.More = done.Looked+len(states), done.More || len(states) == limit
	return err
}

// lookAtStates checks some states, and returns how many notifications it queued.
func (s *Store) lookAtStates(ctx context.Context, states []dueState, now time.Time) (notified int, err error) {
	ids, jobs := make([]int64, len(states)), make([]int64, len(states))
	for i, state := range states {
		ids[i], jobs[i] = state.id, state.job
	}
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		j, err := definitions.Judge(ctx, t, jobs)
		if err != nil {
			return err
		}
		facts, err := factsOf(ctx, j, ids)
		if err != nil {
			return err
		}
		if err := s.addFires(ctx, j, facts, ids); err != nil {
			return err
		}
		for _, id := range ids {
			lookAtTrack(j, id, facts)
		}
		notified, err = j.Finish(ctx)
		return err
	})
	return notified, err
}

// lookAtTrack checks a state. If it was changed meanwhile, there is nothing to do.
func lookAtTrack(j *definitions.Judgement, id int64, facts map[int64]alert.Facts) {
	track, there := j.Tracks[id]
	if !there {
		return
	}
	rule, reason := j.Applies(track)
	if reason != "" {
		j.End(id, track, reason)
		return
	}
	if track.Expired(j.At) {
		j.Remove(id)
		return
	}
	job, alert := j.Jobs[track.JobID], j.Alerts[track.AlertID]
	known := facts[track.JobID]
	known.Watched = job.Watched && !(known.Held && (known.Next != nil || track.Condition == target.AlertMissed))
	if job.ChangedAt.After(known.ChangedAt) {
		known.ChangedAt = job.ChangedAt
	}
	if alert.UpdatedAt.After(known.ChangedAt) {
		known.ChangedAt = alert.UpdatedAt
	}
	looked, made := track.Look(alert.Alert, rule, known, j.At)
	j.Set(id, alert, job, looked, made)
}

// factsOf reads the facts about the jobs of tracks.
func factsOf(ctx context.Context, j *definitions.Judgement, ids []int64) (map[int64]alert.Facts, error) {
	facts := map[int64]alert.Facts{}
	var successes, since []int64
	others := map[target.AlertCondition][]int64{}
	for _, id := range ids {
		track := j.Tracks[id]
		alert := j.Alerts[track.AlertID]
		if alert == nil || j.Jobs[track.JobID] == nil {
			continue
		}
		var from int64
		switch {
		case track.Condition == target.AlertNoSuccess && !track.Firing: // its text names the last success, however old
		case track.Condition == target.AlertNoSuccess:
			from = track.MeasuredFrom.Add(-alert.NoSuccessFor.Std()).UnixMilli()
		case track.Condition == target.AlertFailure || track.Condition == target.AlertMissed:
			from = track.MetAt.Add(-time.Hour).UnixMilli()
		default:
			others[track.Condition] = append(others[track.Condition], track.JobID)
			continue
		}
		successes, since = append(successes, track.JobID), append(since, from)
	}
	if len(successes) > 0 {
		found, err := j.Successes(ctx, successes, since)
		if err != nil {
			return nil, err
		}
		for job, success := range found {
			facts[job] = alert.Facts{LastSuccess: success.At, DeclaredAt: success.DeclaredAt}
		}
	}
	if err := addEndedPauses(ctx, j, facts, ids); err != nil {
		return nil, err
	}
	for _, more := range []struct {
		what string
		of   target.AlertCondition
		read func(context.Context, *definitions.Judgement, map[int64]alert.Facts, []int64) error
	}{
		{"runs under way", target.AlertOverrun, readRunning},
		{"fires that have not begun", target.AlertLate, readLate},
		{"counts of objectives", target.AlertObjective, readBurns},
		{"what blocks jobs", target.AlertBlocked, readBlockers},
	} {
		if len(others[more.of]) == 0 {
			continue
		}
		if err := more.read(ctx, j, facts, others[more.of]); err != nil {
			return nil, fmt.Errorf("read %s: %w", more.what, err)
		}
	}
	return facts, nil
}

// readRunning finds the oldest attempt of each job, except those of backfills, which alerts ignore. Attempts in a claim
// are young: they get rows among the live runs before they can take too long.
func readRunning(ctx context.Context, j *definitions.Judgement, facts map[int64]alert.Facts, jobs []int64) error {
	// From $1 on: ids
	read := j.Rows(0, 1, "", db.IDColumns...) + ` SELECT r.job_id, r.claimed_at, r.scheduled_at, r.trigger_id, r.kind, r.state FROM b
			JOIN live_runs AS r ON r.job_id = b.id WHERE r.claimed_at IS NOT NULL AND r.kind < 16 AND ` + definitions.NotOfBackfill + `
				AND r.state IN ('claimed', 'running', 'waiting_callback')
		UNION ALL SELECT f.job_id, f.claimed_at, f.scheduled_at, f.trigger_id, 1, 'claimed'
			FROM b JOIN (` + j.ClaimedFires() + `) AS f ON f.job_id = b.id`
	return db.EachRow(ctx, j, func(row db.Scanner) error {
		var job int64
		var key run.Key
		var since time.Time
		var state run.State
		err := row.Scan(&job, db.InstantColumn(&since), db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key), &state)
		if one := facts[job]; one.Oldest.Since.IsZero() || since.Before(one.Oldest.Since) {
			one.Oldest, one.Accepted = alert.Case{Key: key, Since: since}, state == run.WaitingCallback
			facts[job] = one
		}
		return err
	}, read, j.Batch(jobs)...)
}

// readBurns reads the burn rates of the error budgets of jobs from the counts of the latest hours only.
func readBurns(ctx context.Context, j *definitions.Judgement, facts map[int64]alert.Facts, jobs []int64) error {
	// From $1 on: ids
	ids := j.Batch(slices.Compact(slices.Sorted(slices.Values(jobs))))
	all, err := reads.MeasuredOf(ctx, j, j.Rows(0, 1, "", db.IDColumns...), reads.LatestCounts(), ids...)
	for _, measured := range all {
		one := facts[measured.ID]
		one.Burn = new(measured.Burn(measured.Job))
		facts[measured.ID] = one
	}
	return err
}

// findBlocked makes alerts evaluate jobs that a slot blocks; those without a firing alert come first.
func (s *Store) findBlocked(ctx context.Context, limit int, now time.Time, done *alert.AlertsWatched) error {
	// $3 limit
	const followed = ` AND j.follows & 8 <> 0 ORDER BY EXISTS (SELECT 1 FROM alert_states AS a WHERE a.job_id = j.id AND a.firing
		AND a.condition = '` + string(target.AlertBlocked) + `'), s.since LIMIT $3`
	found, err := reads.BlockedJobs(ctx, s.db.Read, now, followed, []any{limit})
	if err != nil {
		return err
	}
	of := func(b reads.BlockedJob) string { return dispatch.JobItem(b.ID) }
	found = dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkAlerts, found, of, now)
	return dispatch.InParts(ctx, s.dispatch.OfStored, found, func(part []reads.BlockedJob) error {
		ids := make([]int64, len(part))
		for i, b := range part {
			ids[i] = b.ID
		}
		return s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
			j, err := definitions.Judge(ctx, t, ids)
			if err != nil {
				return err
			}
			facts := map[int64]alert.Facts{}
			if err := readBlockers(ctx, j, facts, ids); err != nil {
				return err
			}
			for id, known := range facts {
				for _, a := range j.Jobs[id].Alerts {
					rule, has := j.RuleOf(a, j.Jobs[id], target.AlertBlocked)
					if stateID, track := j.TrackOf(a, j.Jobs[id], target.AlertBlocked); has && !track.Firing {
						track.LookAt = j.At
						next, made := track.Look(a.Alert, rule, known, j.At)
						j.Set(stateID, a, j.Jobs[id], next, made)
					}
				}
			}
			notified, err := j.Finish(ctx)
			done.Notified += notified
			return err
		})
	}, func(b reads.BlockedJob, why error) error {
		return s.dispatch.SetJobAside(ctx, dispatcher.WorkAlerts, b.ID, why, now)
	})
}

// readBlockers reads what blocks jobs. A job that is paused or disabled is not blocked: a person keeps it from running.
func readBlockers(ctx context.Context, j *definitions.Judgement, facts map[int64]alert.Facts, jobs []int64) error {
	found, err := reads.BlockedJobs(ctx, j, j.At, ` AND j.id`+j.In(3)+` ORDER BY s.since DESC`, []any{dispatch.List(j.Tx, jobs)})
	for _, b := range found { // the longest comes last
		if job := j.Jobs[b.ID]; job.Watched {
			one := facts[b.ID]
			one.Blocked = alert.Case{Key: b.Blocker, Since: b.Since, Why: b.Why()}
			facts[b.ID] = one
		}
	}
	return err
}

// addFires adds the schedules of jobs to their facts, if a success is missing, or a fire was.
func (s *Store) addFires(ctx context.Context, j *definitions.Judgement, facts map[int64]alert.Facts, ids []int64) (err error) {
	for _, id := range ids {
		track := j.Tracks[id]
		job := j.Jobs[track.JobID]
		wanted := track.Condition == target.AlertNoSuccess && !track.Firing || track.Condition == target.AlertMissed && track.Firing
		if job == nil || !wanted || job.Deleted || !job.Watched {
			continue
		}
		one := facts[job.ID]
		if one.Next, one.Held, err = s.definitions.NextFires(ctx, j, job); err != nil {
			return fmt.Errorf("read the schedule of job %s of app %s: %w", input.Echo(job.Name), job.App, err)
		}
		facts[job.ID] = one
	}
	return nil
}

// addEndedPauses adds to the facts of jobs with an expected success the end of the latest pause of their app that held
// them: no success is expected from the time before, as after a change of the job.
func addEndedPauses(ctx context.Context, j *definitions.Judgement, facts map[int64]alert.Facts, ids []int64) error {
	ofApp := map[int64][]dispatcher.AppPause{}
	for _, id := range ids {
		job := j.Jobs[j.Tracks[id].JobID]
		if job == nil || j.Tracks[id].Condition != target.AlertNoSuccess {
			continue
		}
		pauses, read := ofApp[job.AppID]
		if !read {
			var err error
			if pauses, err = endedPauses(ctx, j, job.AppID); err != nil {
				return fmt.Errorf("read pauses of app %s that ended: %w", job.App, err)
			}
			ofApp[job.AppID] = pauses
		}
		one := facts[job.ID]
		one.ChangedAt = input.Later(one.ChangedAt, heldUntil(pauses, job.Labels))
		facts[job.ID] = one
	}
	return nil
}

// heldUntil returns when the latest of some ended pauses that held jobs with these labels has ended; zero: none held them.
func heldUntil(ended []dispatcher.AppPause, labels input.Labels) time.Time {
	held := append(dispatcher.HeldBy(ended, labels), dispatcher.AppPause{EndedAt: &time.Time{}})
	return *held[0].EndedAt
}

// endedPauses returns the latest ended pauses of an app, to search them for one that held a job.
func endedPauses(ctx context.Context, j *definitions.Judgement, app int64) ([]dispatcher.AppPause, error) {
	// $1 app
	const ended = `SELECT ` + definitions.PauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.app_id = $1 AND p.ended_at IS NOT NULL ORDER BY p.ended_at DESC LIMIT 200`
	return db.Collect(ctx, j, definitions.ScanAppPause, ended, app)
}
