package repeat

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// DeadLetterStates are the states of runs that are dead letters.
var DeadLetterStates = []run.State{run.Failed, run.TimedOut, run.Lost}

// Bounds of a replay.
const (
	// DefaultReplayPortion and MaxReplayPortion are how many runs one request replays.
	DefaultReplayPortion = 100
	MaxReplayPortion     = 1000
	// MostDeadLettersCounted is where a count of dead letters ends.
	MostDeadLettersCounted = 10_000
)

// DeadLetterReplay asks to retry the dead letters that it selects, a portion at a time, or to count them. Empty fields
// select all.
type DeadLetterReplay struct {
	// Job is the name of a job, or of a delivery, such as NAME.on_failure.
	Job   string    `json:"job,omitempty" schema:"JobOrDelivery"`
	Class run.Class `json:"class,omitempty"`
	State run.State `json:"state,omitempty"`
	// From and To bound the scheduled time, both inclusive.
	From time.Time `json:"from,omitzero"`
	// Only scheduled times up to here, inclusive.
	To time.Time `json:"to,omitzero"`
	// DryRun counts what would be replayed, and replays nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Limit is how many runs this request replays at most, and Cursor where it goes on: Replayed.Next of the one before.
	Limit int `json:"limit,omitempty" schema:"max=1000,min=1"`
	// The value of next in the previous response.
	Cursor string `json:"cursor,omitempty"`
}

// SetDefaults gives a decoded request the values of fields that its JSON leaves out.
func (r *DeadLetterReplay) SetDefaults() { r.Limit = DefaultReplayPortion }

// Query returns what r selects in an app.
func (r DeadLetterReplay) Query(app string) DeadLetterQuery {
	return DeadLetterQuery{App: app, Job: r.Job, Class: r.Class, State: r.State, From: r.From, To: r.To,
		Page: input.Page{Limit: r.Limit, Cursor: r.Cursor}}
}

// Validate returns everything wrong with r, as Problems, or nil. Whether Cursor is the id of a run is for the caller to check.
func (r DeadLetterReplay) Validate() error {
	var problems input.Problems
	r.Query("").check(&problems)
	input.CheckRange(&problems, "/limit", r.Limit, 1, MaxReplayPortion)
	return problems.Err()
}

// Validate returns everything wrong with what q selects, as Problems, or nil. App and Page are for the caller to check.
func (q DeadLetterQuery) Validate() error {
	var problems input.Problems
	q.check(&problems)
	return problems.Err()
}

func (q DeadLetterQuery) check(problems *input.Problems) {
	if q.Job != "" {
		CheckJobOrDelivery(problems, "/job", q.Job)
	}
	if q.Class != "" && !slices.Contains(run.Classes, q.Class) { // the list is too long for a message
		known := make([]string, len(run.Classes))
		for i, class := range run.Classes {
			known[i] = string(class)
		}
		problems.Add("/class", input.CodeEnum, "class %s is not a class of failure%s; the reference of the API lists them under Class",
			input.Echo(string(q.Class)), input.DidYouMean(string(q.Class), known))
	}
	if q.State != "" {
		input.CheckEnum(problems, "/state", "state of a dead letter", q.State, DeadLetterStates)
	}
}

// CheckJobOrDelivery reports a name that neither a job has, nor a delivery that belongs to one: its name, a dot and an event.
func CheckJobOrDelivery(problems *input.Problems, at, name string) {
	job, event, attached := strings.Cut(name, ".")
	if attached && (slices.Contains(run.FollowEvents, run.FollowEvent(event)) || event == string(run.KindAlert)) {
		name = job
	}
	input.CheckName(problems, at, name)
}

// DeadLetterQuery selects runs that ended as failed, timed_out or lost, latest scheduled first. Empty fields select all.
type DeadLetterQuery struct {
	App      string // required
	Job      string // also that of a delivery, such as NAME.on_failure
	Class    run.Class
	State    run.State // failed, timed_out or lost
	From, To time.Time // bound the scheduled time, both inclusive; zero: unbounded
	// Page's cursor is a run's id.
	Page input.Page
}

// DeadLetterCount is how many dead letters there are.
type DeadLetterCount struct {
	// How many there are, at most 10000.
	Count int `json:"count"`
	// More tells that there are more than were counted.
	More bool `json:"more"`
}

// Replayed is what one call of ReplayDeadLetters did.
type Replayed struct {
	// Replayed are the runs that were queued again. Skipped were found, and retried or removed by somebody else meanwhile.
	Replayed int `json:"replayed"`
	// How many were retried or removed by somebody else meanwhile.
	Skipped int `json:"skipped"`
	// Next is the cursor for the next call; empty: all had their turn or, with Stopped, none.
	Next string `json:"next,omitempty"`
	// Stopped says why the call ended early, such as a quota that is used up; nil: it did not. The next call goes on at Next.
	Stopped *input.Problem `json:"stopped,omitempty"`
}

// DeadLetters are runs that failed for good. A run that is retried is none until it fails again.
type DeadLetters interface {
	// DeadLetters lists runs as Ledger.Runs does, without their attempts. ErrNotFound: the app or the job never existed.
	DeadLetters(ctx context.Context, query DeadLetterQuery) ([]run.Run, error)
	// CountDeadLetters counts those of a query, whose Page it leaves alone, as far as most.
	CountDeadLetters(ctx context.Context, query DeadLetterQuery, most int) (DeadLetterCount, error)
	// ReplayDeadLetters retries a portion of the runs of a query, as RetryRun does each: at most Page.Limit, from the
	// cursor on, each in a transaction of its own. So a call that is cut off has retried some, and another one goes on.
	ReplayDeadLetters(ctx context.Context, query DeadLetterQuery, change input.Change) (Replayed, error)
}
