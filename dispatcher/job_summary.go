package dispatcher

import (
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// JobSummary is a job as a list over many apps shows it: how it does, without its definition.
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
	// AppPaused tells that a pause of its app holds the job.
	AppPaused bool                 `json:"app_paused,omitempty"`
	Revision  int64                `json:"revision"`
	Target    target.TargetSummary `json:"target"`
	// Triggers is how many the job has.
	Triggers int `json:"triggers"`
	// NextFireTime is the earliest of its triggers, those that are held left out; nil: there is none.
	NextFireTime *time.Time `json:"next_fire_time,omitempty"`
	// LatestRun is the one that was scheduled last, over or not; nil: there is none in the history.
	LatestRun *RunSummary `json:"latest_run,omitempty"`
	// Result is the state of the run that was scheduled last of those that are over; empty: none is.
	Result run.State `json:"result,omitempty"`
}

// RunSummary is a run as the list of jobs shows it.
type RunSummary struct {
	ID          string     `json:"id" schema:"RunID"`
	State       run.State  `json:"state"`
	Class       run.Class  `json:"class,omitempty"`
	ScheduledAt time.Time  `json:"scheduled_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	// Lateness is how long after its scheduled time its first attempt began; nil: it has not begun, or was attempted again.
	Lateness *input.Duration `json:"lateness,omitempty"`
}

// JobQuery selects summaries of jobs, in the order of apps and names. Empty fields select all.
type JobQuery struct {
	// Apps are those whose jobs are listed; empty: all.
	Apps []string
	// State is the roll-up; Result as in JobSummary.
	State  JobState
	Result run.State
	// Name is a part of the name, and Host a name as in TargetSummary.
	Name, Host string
	// Page has the labels, too. Its cursor is what JobSummaries returned as next; see JobCursor.
	Page input.Page
	// Now is when the page is read; runs of the latest days are found sooner than those before.
	Now time.Time
}

// JobCursor returns the cursor of the page of summaries that follows a job.
func JobCursor(app, job string) string { return app + "/" + job }

// ParseJobCursor is the inverse of JobCursor; ok is false for a text that is none.
func ParseJobCursor(text string) (app, job string, ok bool) {
	app, job, _ = strings.Cut(text, "/")
	var problems input.Problems
	input.CheckName(&problems, "", app)
	input.CheckName(&problems, "", job)
	return app, job, len(problems) == 0
}

// MaxMeasuredJobs is how many jobs one scrape of the metrics of jobs shows.
const MaxMeasuredJobs = 1000

// JobHealth is what the metrics of a job tell.
type JobHealth struct {
	JobSummary
	// LastSuccess is when the last run that succeeded ended; nil: none of the latest 100 did.
	LastSuccess *time.Time
}

// Census counts what there is in an installation, and says what will soon be missing in it. Each count has a limit.
type Census struct {
	Jobs map[JobState]int // not deleted
	// Runs are the live runs: those that wait, and those that have a row of their own for another reason. The fires that nodes
	// hold in their first attempt mostly have none.
	Runs  map[run.State]int
	Nodes map[NodeState]int
	// SetAside counts the rows that work goes on without.
	SetAside map[Work]int
	// Overdue is how many triggers are due for longer than asked for and not claimed. Oldest is when the oldest of them was due;
	// zero: there is none.
	Overdue int
	Oldest  time.Time
	// TokenExpiry is when the first token of the API expires that has not been expired for a day; zero: there is none.
	TokenExpiry time.Time
	// Forgotten are pauses of apps, jobs and triggers that are older than ForgottenAfter and have no end.
	Forgotten int
	// SilentGroups are endpoint groups that enabled jobs call and that have no endpoint for them.
	SilentGroups int
	// CertificateEnd is when the first client certificate ends that enabled jobs and their groups present; zero: there is none.
	CertificateEnd time.Time
	// RetentionBehind is for how long the oldest history should have been gone.
	RetentionBehind time.Duration
	// DaysAhead is how many days after today have partitions for the history; nil: the history has none.
	DaysAhead *int
}

// LiveStates are the states of runs that are not over.
var LiveStates = []run.State{run.Queued, run.Claimed, run.Running, run.Retrying, run.WaitingCallback, run.WaitingShards}

// NodeStates are all states of a node.
var NodeStates = []NodeState{NodeActive, NodePaused, NodeDraining, NodeDead}
