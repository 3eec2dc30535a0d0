package store

import (
	"context"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A PUT of what is stored, a pause of what is paused and a resume of what is not change nothing. That is found out by
// reading, before any transaction begins: it takes no lock, writes nothing and notifies nobody, however often a client
// repeats it.

// unchangedJob returns a job as it is if same says that a change would leave it so. A read that fails leaves the answer to
// the transaction of the change, which comes to it again.
func (s *Store) unchangedJob(ctx context.Context, app, name string, change input.Change,
	same func(dispatcher.Job, *target.Bounds) bool) (dispatcher.Job, bool) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	job, err := s.findJob(ctx, s.Read, app, name, "")
	if err != nil || allow(change, job.Revision) != nil {
		return job, false
	}
	owner, err := findApp(ctx, s.Read, app, "")
	if err != nil || !same(job, owner.Bounds) {
		return job, false
	}
	shown := []dispatcher.JobVersion{{Job: job}}
	if err := s.addShown(ctx, s.Read, app, shown); err != nil {
		return job, false
	}
	// The job and its triggers were read one after the other: they belong together if the job has not changed since.
	// $1 id
	const current = `SELECT revision FROM jobs WHERE id = $1 AND deleted_at IS NULL`
	revision, _, err := db.First(ctx, s.Read, db.ScanInt, current, job.Key())
	return shown[0].Job, err == nil && revision == job.Revision
}

// unchangedApp returns an app as it is if a PUT leaves it so; see unchangedJob.
func (s *Store) unchangedApp(ctx context.Context, app access.App, change input.Change) (access.App, bool) {
	stored, err := s.App(ctx, app.Name)
	return stored, err == nil && allow(change, stored.Revision) == nil && stored.Declares(app)
}

// unchangedCalendar returns a calendar as it is if a PUT leaves it so; see unchangedJob.
func (s *Store) unchangedCalendar(ctx context.Context, calendar dispatcher.Calendar, change input.Change) (dispatcher.Calendar, bool) {
	stored, err := s.Calendar(ctx, calendar.App, calendar.Name)
	return stored, err == nil && allow(change, stored.Revision) == nil && stored.Declares(calendar)
}

// unchangedGroup returns a group as it is if a PUT leaves it so. What is outside the bounds of its app is refused also then.
func (s *Store) unchangedGroup(ctx context.Context, group target.EndpointGroup,
	change input.Change) (target.EndpointGroup, bool) {
	stored, err := s.Group(ctx, group.App, group.Name)
	if err != nil || allow(change, stored.Revision) != nil || !stored.Declares(group) {
		return stored, false
	}
	owner, err := findApp(ctx, s.Read, group.App, "")
	return stored, err == nil && owner.Bounds.CheckGroup(group) == nil
}

// declaredAgain tells whether a PUT of job leaves old as it is. What is outside the bounds of its app is refused also then.
func declaredAgain(job dispatcher.Job) func(dispatcher.Job, *target.Bounds) bool {
	return func(old dispatcher.Job, bounds *target.Bounds) bool {
		return job.CheckBounds(bounds) == nil && old.Declares(job)
	}
}

// isPaused tells whether a job, or a trigger of it if that is named, is paused.
func isPaused(job dispatcher.Job, trigger string) (paused, found bool) {
	if trigger == "" {
		return job.Paused, true
	}
	one, found := job.Triggers[trigger]
	return one.Paused, found
}
