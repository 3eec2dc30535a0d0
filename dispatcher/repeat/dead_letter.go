package repeat

import (
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
	Job   string    `json:"job,omitempty"`
	Class run.Class `json:"class,omitempty"`
	State run.State `json:"state,omitempty"`
	// From and To bound the scheduled time, both inclusive.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// DryRun counts what would be replayed, and replays nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Limit is how many runs this request replays at most, and Cursor where it goes on: Replayed.Next of the one before.
	Limit  int    `json:"limit,omitempty"`
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
