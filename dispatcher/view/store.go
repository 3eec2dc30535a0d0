package view

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Overview is what people look at over many jobs, or all. Each method sends a fixed number of statements for each app that
// is named, whatever the sizes of apps and of the history, and none reads through the history.
type Overview interface {
	// JobSummaries lists jobs by app and name. next is the cursor of the following page, empty after the last. A page may have
	// fewer summaries than its limit, or none, and still a next one: a call looks at some thousand jobs at most.
	JobSummaries(ctx context.Context, query dispatcher.JobQuery) (summaries []dispatcher.JobSummary, next string, err error)
	// HealthOfJobs returns how the first jobs do, by app and name, and how many more there are, 100,000 of each app at most.
	// No apps stand for all of them.
	HealthOfJobs(ctx context.Context, apps []string, most int, now time.Time) (jobs []dispatcher.JobHealth, more int, err error)
	// Attention returns what asks for attention in some apps; empty: in all, with nodes and rollbacks.
	Attention(ctx context.Context, apps []string, now time.Time) (Attention, error)
	// UpcomingTriggers lists triggers that are due before until, in the order of their ids, after an id. Of triggers that do
	// not fire, such as paused ones, it lists none.
	UpcomingTriggers(ctx context.Context, apps []string, until time.Time, after int64, limit int) ([]UpcomingTrigger, error)
}

// UpcomingTrigger is a trigger that is due.
type UpcomingTrigger struct {
	ID            int64
	App, Identity string // Identity is as Job.Identity has it
	Trigger       dispatcher.Trigger
}
