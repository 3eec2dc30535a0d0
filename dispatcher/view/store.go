package view

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Overview has views over many jobs, or all. Each method sends a fixed number of statements for each named app,
// independent of the sizes of apps and of the history, and none reads through the history.
type Overview interface {
	// JobSummaries lists jobs by app and name. next is the cursor of the following page, empty after the last. A page may have
	// fewer summaries than its limit, or none, and still a next one: a call looks at some thousand jobs at most.
	JobSummaries(ctx context.Context, query dispatcher.JobQuery) (summaries []dispatcher.JobSummary, next string, err error)
	// HealthOfJobs returns the health of the first jobs, by app and name, and how many more there are, at most
	// 100,000 of each app. An empty apps means all.
	HealthOfJobs(ctx context.Context, apps []string, most int, now time.Time) (jobs []dispatcher.JobHealth, more int, err error)
	// Attention returns the problems of some apps; empty means all, with nodes and rollbacks.
	Attention(ctx context.Context, apps []string, now time.Time) (Attention, error)
	// UpcomingTriggers lists triggers that are due before until, in the order of their ids, after an id. It leaves
	// out triggers that do not fire, such as paused ones.
	UpcomingTriggers(ctx context.Context, apps []string, until time.Time, after int64, limit int) ([]UpcomingTrigger, error)
}

// UpcomingTrigger is a trigger that is due.
type UpcomingTrigger struct {
	ID            int64
	App, Identity string // Identity is that of Job.Identity
	Trigger       dispatcher.Trigger
}
