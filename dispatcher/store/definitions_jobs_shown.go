package store

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// shownJob is findJob with Warnings, and with the pauses of its app that hold the job.
func (s *Store) shownJob(ctx context.Context, q db.Querier, app, name string) (dispatcher.Job, error) {
	job, err := s.findJob(ctx, q, app, name, "")
	if err != nil {
		return job, err
	}
	shown := []dispatcher.JobVersion{{Job: job}}
	err = s.addShown(ctx, q, app, shown)
	return shown[0].Job, err
}

// addWarnings adds to jobs of one app their warnings.
func (s *Store) addWarnings(ctx context.Context, q db.Querier, app string, jobs []dispatcher.JobVersion) error {
	bare := make([]dispatcher.Job, len(jobs))
	for i, job := range jobs {
		bare[i] = job.Job
	}
	_, calendars, err := calendarsOf(ctx, q, app, bare...)
	if err != nil {
		return err
	}
	owner, err := readApp(ctx, q, app, "")
	if err != nil {
		return err
	}
	for i := range jobs {
		job := &jobs[i]
		if job.Err != nil {
			job.State = dispatcher.JobError
		} else {
			warnings := input.Problems(job.Warn(calendars))
			warnings.AddError("", job.Job.CheckBounds(owner.Bounds)) // its attempts fail
			job.Warnings = warnings
		}
	}
	return nil
}

// addShown adds to jobs of one app what only people see.
func (s *Store) addShown(ctx context.Context, q db.Querier, app string, jobs []dispatcher.JobVersion) error {
	if err := addPauses(ctx, q, app, jobs); err != nil {
		return err
	}
	return s.addWarnings(ctx, q, app, jobs)
}

// addPauses adds to jobs of one app the pauses that hold them.
func addPauses(ctx context.Context, q db.Querier, app string, jobs []dispatcher.JobVersion) error {
	var pauses []dispatcher.AppPause
	for i := range jobs {
		job := &jobs[i]
		if !job.AppPaused {
			continue
		}
		if pauses == nil {
			var err error
			if pauses, err = heldPauses(ctx, q, app); err != nil {
				return err
			}
		}
		job.Pauses = dispatcher.HeldBy(pauses, job.Labels)
	}
	return nil
}
