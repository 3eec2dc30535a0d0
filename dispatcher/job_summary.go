package dispatcher

import (
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// JobSummary is a job as lists over many apps show it: its condition, without its definition.
type JobSummary struct {
	App         string       `json:"app" schema:"Name"`
	Name        string       `json:"name" schema:"Name"`
	Description string       `json:"description"`
	Labels      input.Labels `json:"labels,omitempty"`
	// The roll-up of triggers and runs.
	State   JobState `json:"state"`
	Enabled bool     `json:"enabled"`
	// Paused is an operator's pause of the whole job, and Pause says who paused it, when, and why.
	Paused bool `json:"paused"`
	Pause
	// AppPaused is true if a pause of the app holds the job.
	AppPaused bool                 `json:"app_paused,omitempty"`
	Revision  int64                `json:"revision"`
	Target    target.TargetSummary `json:"target"`
	// Triggers is how many the job has.
	Triggers int `json:"triggers"`
	// NextFireTime is the earliest next fire time of its triggers, without those on hold; nil if there is none.
	NextFireTime *time.Time `json:"next_fire_time,omitempty"`
	// LatestRun is the run with the latest scheduled time, over or not; nil if the history has none.
	LatestRun *RunSummary `json:"latest_run,omitempty"`
	// Result is the state of the finished run with the latest scheduled time; empty if no run has finished.
	Result run.State `json:"result,omitempty"`
}

// RunSummary is a run as the list of jobs shows it.
type RunSummary struct {
	ID          string     `json:"id" schema:"RunID"`
	State       run.State  `json:"state"`
	Class       run.Class  `json:"class,omitempty"`
	ScheduledAt time.Time  `json:"scheduled_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	// Lateness is how late the first attempt of a fire began; nil if it has not begun, if it had to wait as the job asked
	// or was attempted again, and for other runs.
	Lateness *input.Duration `json:"lateness,omitempty"`
}

// JobQuery selects summaries of jobs, in the order of apps and names. Empty fields select all.
type JobQuery struct {
	// Apps lists the jobs of these apps; empty means all.
	Apps []string
	// State and Result are as in JobSummary.
	State  JobState
	Result run.State
	// Name matches a part of the job's name, and Host is a name as in TargetSummary.
	Name, Host string
	// ByNextFire orders jobs by when their next fire is due, in place of app and name. It leaves out jobs without one.
	ByNextFire bool
	// Page also selects by labels. Its cursor is the next of JobSummaries; see JobCursor.
	Page input.Page
	// Now is the time of the read; runs of the latest days are found faster than earlier ones.
	Now time.Time
}

// JobCursor returns the cursor of the page of summaries after a job.
func JobCursor(app, job string) string { return app + "/" + job }

// ParseJobCursor is the inverse of JobCursor; ok is false for any other text.
func ParseJobCursor(text string) (app, job string, ok bool) {
	app, job, _ = strings.Cut(text, "/")
	var problems input.Problems
	input.CheckName(&problems, "", app)
	input.CheckName(&problems, "", job)
	return app, job, len(problems) == 0
}

// MaxMeasuredJobs bounds the jobs in one scrape of the metrics of jobs.
const MaxMeasuredJobs = 1000

// JobHealth holds the values of a job's metrics.
type JobHealth struct {
	JobSummary
	// LastSuccess is when the last successful run ended; nil if none of the latest 100 succeeded.
	LastSuccess *time.Time
}

// Census counts the contents of an installation, and shows what will expire soon. Each count has a limit.
type Census struct {
	Jobs map[JobState]int // not deleted
	// Runs are the live runs with a row of their own: those that wait, and some others. Most fires that nodes hold in
	// their first attempt have no such row.
	Runs  map[run.State]int
	Nodes map[NodeState]int
	// SetAside counts the rows that work has set aside.
	SetAside map[Work]int
	// Overdue is how many triggers have been due for longer than asked for without a claim. Oldest is when the oldest
	// of them was due; zero if there is none.
	Overdue int
	Oldest  time.Time
	// TokenExpiry is when the first API token expires, without those expired for over a day; zero if there is none.
	TokenExpiry time.Time
	// Blocked counts slots that block their jobs; see view.Blockage.
	Blocked int
	// Undelivered counts alerts with a notification that is to be attempted again, as retrying, and others whose latest
	// notification was given up, as failed.
	Undelivered map[run.State]int
	// Forgotten counts pauses of apps, jobs and triggers that are older than ForgottenAfter and have no end.
	Forgotten int
	// SilentGroups counts endpoint groups that enabled jobs call and that have no endpoint for them.
	SilentGroups int
	// CertificateEnd is when the first client certificate of enabled jobs and their groups expires; zero without any.
	CertificateEnd time.Time
	// RetentionBehind is how long ago the oldest history should have been removed.
	RetentionBehind time.Duration
	// DaysAhead is how many days after today have partitions for the history; nil if the history is not partitioned.
	DaysAhead *int
}

// LiveStates are the states of runs that are not over.
var LiveStates = []run.State{run.Queued, run.Claimed, run.Running, run.Retrying, run.WaitingCallback, run.WaitingShards}

// NodeStates are all states of a node.
var NodeStates = []NodeState{NodeActive, NodePaused, NodeDraining, NodeDead}
