package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// pausesLookedAt is how many of the pauses of an app that ended last are looked at for one that held a job.
const pausesLookedAt = 200

// addEndedPauses adds to the facts of jobs that are expected to succeed when the latest pause of their app ended that held them:
// nobody expects a success of the time before, as after a change of the job.
func addEndedPauses(ctx context.Context, j *judgement, facts map[int64]alert.Facts, ids []int64) error {
	ofApp := map[int64][]dispatcher.AppPause{}
	for _, id := range ids {
		track, known := j.tracks[id]
		job := j.jobs[track.JobID]
		if !known || job == nil || track.Condition != target.AlertNoSuccess {
			continue
		}
		pauses, read := ofApp[job.appID]
		if !read {
			var err error
			if pauses, err = endedPauses(ctx, j, job.appID); err != nil {
				return fmt.Errorf("read pauses of app %s that ended: %w", job.app, err)
			}
			ofApp[job.appID] = pauses
		}
		var latest time.Time
		if held := dispatcher.HeldBy(pauses, job.labels); len(held) > 0 {
			latest = *held[0].EndedAt
		}
		if one := facts[job.id]; latest.After(one.ChangedAt) {
			one.ChangedAt = latest
			facts[job.id] = one
		}
	}
	return nil
}

// endedPauses returns the pauses of an app that have ended, latest first.
func endedPauses(ctx context.Context, j *judgement, app int64) ([]dispatcher.AppPause, error) {
	// $1 app, $2 limit
	const ended = `SELECT ` + pauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.app_id = $1 AND p.ended_at IS NOT NULL ORDER BY p.ended_at DESC LIMIT $2`
	return db.Collect(ctx, j, scanAppPause, ended, app, pausesLookedAt)
}

// noteOwed notes since when a run could begin that began late: people who pause a job, or its app, know that its fires are late.
func noteOwed(ctx context.Context, j *judgement, job *judgedJob, end *alert.End) error {
	if job.lateAfter == nil || end.StartedAt.Sub(end.ScheduledAt).Milliseconds() <= *job.lateAfter {
		return nil
	}
	from, err := owedFrom(ctx, j, job)
	if err == nil && !from.After(end.StartedAt) {
		end.OwedFrom = from
	}
	return err
}

// owedFrom returns since when nothing has kept the fires of a job from beginning: the latest change of the job or its app, which
// each pause of a job and each switch is, or the end of the latest pause of the app that held it.
func owedFrom(ctx context.Context, j *judgement, job *judgedJob) (time.Time, error) {
	pauses, err := endedPauses(ctx, j, job.appID)
	if err != nil {
		return time.Time{}, fmt.Errorf("read pauses of app %s that ended: %w", job.app, err)
	}
	if held := dispatcher.HeldBy(pauses, job.labels); len(held) > 0 {
		return alert.Later(job.changedAt, *held[0].EndedAt), nil
	}
	return job.changedAt, nil
}
