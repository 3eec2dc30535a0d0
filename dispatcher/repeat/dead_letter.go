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
	// MostDeadLettersCounted bounds a count of dead letters.
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
	// DryRun only counts the runs that would be replayed.
	DryRun bool `json:"dry_run,omitempty"`
	// Limit is how many runs this request replays at most. Cursor is Replayed.Next of the previous request.
	Limit int `json:"limit,omitempty" schema:"max=1000,min=1"`
	// The value of next in the previous response.
	Cursor string `json:"cursor,omitempty"`
}

// SetDefaults gives a decoded request the values of fields that its JSON leaves out.
func (r *DeadLetterReplay) SetDefaults() { r.Limit = DefaultReplayPortion }

// Query returns the query of r in an app.
func (r DeadLetterReplay) Query(app string) DeadLetterQuery {
	return DeadLetterQuery{App: app, Job: r.Job, Class: r.Class, State: r.State, From: r.From, To: r.To,
		Page: input.Page{Limit: r.Limit, Cursor: r.Cursor}}
}

// Validate returns everything wrong with r, as Problems, or nil. The caller checks that Cursor is the id of a run.
func (r DeadLetterReplay) Validate() error {
	var problems input.Problems
	r.Query("").check(&problems)
	input.CheckRange(&problems, "/limit", r.Limit, 1, MaxReplayPortion)
	return problems.Err()
}

// Validate returns everything wrong with the filter of q, as Problems, or nil. The caller checks App and Page.
func (q DeadLetterQuery) Validate() error {
	var problems input.Problems
	q.check(&problems)
	return problems.Err()
}

func (q DeadLetterQuery) check(problems *input.Problems) {
	if q.Job != "" {
		CheckJobOrDelivery(problems, "/job", q.Job)
	}
	CheckClass(problems, "/class", q.Class)
	if q.State != "" {
		input.CheckEnum(problems, "/state", "state of a dead letter", q.State, DeadLetterStates)
	}
}

// CheckClass reports a class of failure that is not empty and unknown. The list of all is too long for a message.
func CheckClass(problems *input.Problems, at string, class run.Class) {
	if class == "" || slices.Contains(run.Classes, class) {
		return
	}
	known := make([]string, len(run.Classes))
	for i, class := range run.Classes {
		known[i] = string(class)
	}
	problems.Add(at, input.CodeEnum, "class %s is not a class of failure%s; the reference of the API lists them under Class",
		input.Echo(string(class)), input.DidYouMean(string(class), known))
}

// CheckJobOrDelivery reports a name that fits neither a job nor a delivery: a job's name, a dot and an event.
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
	Job      string // or a delivery, such as NAME.on_failure
	Class    run.Class
	State    run.State // failed, timed_out or lost
	From, To time.Time // bound the scheduled time, both inclusive; zero: unbounded
	// Page's cursor is a run's id.
	Page input.Page
}

// DeadLetterCount is how many dead letters there are.
type DeadLetterCount struct {
	// The number of dead letters, at most 10000.
	Count int `json:"count"`
	// More is true if there are more than were counted.
	More bool `json:"more"`
}

// Replayed is the result of one call of ReplayDeadLetters.
type Replayed struct {
	// Replayed counts runs that were queued again. Skipped counts those retried or removed by others meanwhile.
	Replayed int `json:"replayed"`
	// How many somebody else retried or removed meanwhile.
	Skipped int `json:"skipped"`
	// Next is the cursor for the next call; empty if all had their turn or, with Stopped, none.
	Next string `json:"next,omitempty"`
	// Stopped is why the call ended early, such as a used up quota; nil if it did not. The next call goes on at Next.
	Stopped *input.Problem `json:"stopped,omitempty"`
}

// DeadLetters are runs that failed permanently. A retried run is none until it fails again.
type DeadLetters interface {
	// DeadLetters lists runs as Ledger.Runs does, without their attempts. ErrNotFound: the app or the job never existed.
	DeadLetters(ctx context.Context, query DeadLetterQuery) ([]run.Run, error)
	// CountDeadLetters counts the dead letters of a query, ignoring its Page, up to most.
	CountDeadLetters(ctx context.Context, query DeadLetterQuery, most int) (DeadLetterCount, error)
	// ReplayDeadLetters retries a portion of the runs of a query, each like RetryRun: at most Page.Limit, from the
	// cursor on, each in a transaction of its own. So an interrupted call has retried some, and another one goes on.
	ReplayDeadLetters(ctx context.Context, query DeadLetterQuery, change input.Change) (Replayed, error)
}
