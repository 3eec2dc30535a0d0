// Package history holds the records of a chaos run outside the database: requests as the receiver
// saw them, injected faults, and declarations. It shares nothing with the product but the meaning
// of its headers.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The files of a run, in its directory; each line is one JSON object.
const (
	Hits          = "hits.jsonl"
	Faults        = "faults.jsonl"
	Declarations  = "declarations.jsonl"
	Verifications = "verifications.jsonl"
	Backfills     = "backfills.jsonl"
	Callbacks     = "callbacks.jsonl"
	Rollbacks     = "rollbacks.jsonl"
	Poisonings    = "poisonings.jsonl"
	Moves         = "moves.jsonl"
)

// The kinds of fault that the checker knows by name.
const (
	MachineStalled = "machine stalled"     // not injected: the machine itself stood still
	Snapshot       = "long snapshot"       // excuses nothing: it only makes the database older
	Poison         = "poisoned row: "      // and its kind; excuses nothing: rows of one job were bad
	Drain          = "SIGTERM under load"  // and the wait until the node has ended
	Storm          = "SIGTERM in a storm"  // the same, for one of many nodes started together
	Deploy         = "SIGTERM in a deploy" // the same, for a node that had replaced another one of its name
)

// DeletedJobs is the number of jobs, deleted long ago, with which the database begins.
const DeletedJobs = 500

// Noisy is the app that is a bad neighbour: its targets hang or fail.
const Noisy = "noisy"

// After is the app with followers: chains and deliveries, alerts, callbacks and replays. It has backfills, too.
const After = "after"

// Moved is the app that moves from one installation to another and back; Elsewhere is the database of the other one.
const (
	Moved     = "moving"
	Elsewhere = "elsewhere"
)

// Move is one move of that app between databases, with the waiting runs that went with it.
type Move struct {
	From     string       `json:"from"`
	To       string       `json:"to"`
	Waiting  []WaitingRun `json:"waiting"`
	Begun    time.Time    `json:"begun"`
	Exported time.Time    `json:"exported"`
	Imported time.Time    `json:"imported"`
	Removed  time.Time    `json:"removed"`
}

// WaitingRun is a run in an export, in the export's words.
type WaitingRun struct {
	Job         string    `json:"job"`
	Trigger     string    `json:"trigger"`
	Kind        string    `json:"kind"`
	ScheduledAt time.Time `json:"scheduled_at"`
}

// Poisoned is the app with rows that are bad for a while. Its jobs may stop, but no others.
const Poisoned = "poisoned"

// Poisoning is a time in which a row was bad. Its kind is the name of the job, and the reason was shown to people.
type Poisoning struct {
	Kind string `json:"kind"`
	// Certain means that nodes meet the row without another fault, and Curtailed that they had less time than usual.
	Certain   bool   `json:"certain,omitempty"`
	Curtailed bool   `json:"curtailed,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Work is the work that continues without the row, if it was set aside. Counted means that a metric shows it.
	Work    string    `json:"work,omitempty"`
	Counted bool      `json:"counted,omitempty"`
	From    time.Time `json:"from,omitzero"`
	Mended  time.Time `json:"mended"`
}

// AllMended is the kind of the last poisoning: all rows are good again, and each job must fire once more.
const AllMended = "all mended"

// The events of a run that others may follow, named as in jobs and causes.
const (
	OnSuccess = "on_success"
	OnFailure = "on_failure"
	OnMisfire = "on_misfire"
)

// Hit is one line of the receiver: a request or its response. Both are on disk before the response
// is sent.
type Hit struct {
	// Request is the number of the request, which its response repeats.
	Request int64     `json:"request"`
	At      time.Time `json:"at"`
	// Status is 0 for a request. For a response it is the HTTP status, or -1 if the connection was
	// cut on purpose or had closed.
	Status      int       `json:"status"`
	App         string    `json:"app,omitempty"`
	Job         string    `json:"job,omitempty"`
	Trigger     string    `json:"trigger,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Event       string    `json:"event,omitempty"`
	Attempt     int       `json:"attempt,omitempty"`
	ScheduledAt time.Time `json:"scheduled_at,omitzero"`
	// Run is the id of the run.
	Run string `json:"run,omitempty"`
	// Put is the number of the declaration in the payload.
	Put int `json:"put,omitempty"`
}

// Callback is the receiver's callback for an accepted attempt, and the response status, or 0 without a response.
type Callback struct {
	Run     string    `json:"run"`
	Attempt int       `json:"attempt"`
	Said    string    `json:"said"` // complete or fail
	Status  int       `json:"status"`
	At      time.Time `json:"at"`
}

// Backfill is a requested backfill of a job of After.
type Backfill struct {
	Job  string    `json:"job"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Fault is an injected fault, from one instant to another.
type Fault struct {
	Kind string `json:"kind"`
	// Node is the name of the affected node, or empty for the database or all nodes.
	Node string `json:"node,omitempty"`
	// Process is the number of the affected process, or 0 for all with that name.
	Process int `json:"process,omitempty"`
	// Target means that only requests to far receivers are affected.
	Target bool `json:"target,omitempty"`
	// Problem is a failure of the injection that only the injector can see.
	Problem string    `json:"problem,omitempty"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
}

// Rollback is a database that was reset to an earlier state, and the operator's choice. The
// replaced database is kept under the name Lost, with all commits of the nodes.
type Rollback struct {
	Lost   string `json:"lost"`
	Choice string `json:"choice"` // skip or replay
	// Restarted means that the nodes were stopped meanwhile, as in the manual; otherwise they detected the rollback.
	Restarted bool `json:"restarted"`
	// The database lost the commits from Dumped to Cut. From Quiet on no node may send, until the
	// choice was made at Chosen. At Settled it was carried out, and the jobs continued until Until.
	Dumped  time.Time `json:"dumped"`
	Cut     time.Time `json:"cut"`
	Quiet   time.Time `json:"quiet"`
	Chosen  time.Time `json:"chosen"`
	Settled time.Time `json:"settled"`
	Until   time.Time `json:"until"`
}

// The choices after a rollback.
const (
	Skip   = "skip"
	Replay = "replay"
)

// Drains reports whether the fault is a SIGTERM with the wait for the end of the process.
func (f Fault) Drains() bool { return f.Kind == Drain || f.Kind == Storm || f.Kind == Deploy }

// ProcessLabel is the label of a node with its process number.
const ProcessLabel = "process"

// Declaration is a declared job, with the times when its first PUT began and when it was known to
// be done. One writer at a time repeats the PUT until then.
type Declaration struct {
	Put      int       `json:"put"`
	App      string    `json:"app"`
	Job      string    `json:"job"`
	Begun    time.Time `json:"begun"`
	Answered time.Time `json:"answered"`
	Deleted  bool      `json:"deleted,omitempty"`
	Enabled  bool      `json:"enabled"`
	Delivery string    `json:"delivery"`
	// The following fields are as declared.
	MisfireAfter  string `json:"misfire_after,omitempty"`
	MisfirePolicy string `json:"misfire_policy,omitempty"`
	Path          string `json:"path"`
	// Far means that nodes may lose the connection to its receiver.
	Far bool `json:"far,omitempty"`
	// Grouped means that its target is an endpoint group, and nodes may lose the connection to one endpoint.
	Grouped bool `json:"grouped,omitempty"`
	// Concurrency is the policy for a run that finds another run of its job, or empty.
	Concurrency string `json:"concurrency,omitempty"`
	QueueLimit  int    `json:"queue_limit,omitempty"`
	// Retry is the policy for failed attempts; nil means a single attempt, at most once.
	Retry *Retry `json:"retry,omitempty"`
	// Follows has the names of the following jobs, by event. With Delivers, a target also gets failures.
	Follows  map[string][]string `json:"follows,omitempty"`
	Delivers bool                `json:"delivers,omitempty"`
	// Accepts means that its receiver accepts attempts and calls back, and Replayed that its failed runs are replayed.
	Accepts  bool `json:"accepts,omitempty"`
	Replayed bool `json:"replayed,omitempty"`
	// Triggers are the triggers by name.
	Triggers map[string]Trigger `json:"triggers"`
}

// Verification is the product's own check of its ledger.
type Verification struct {
	App    string `json:"app"`
	Failed bool   `json:"failed"`
	Output string `json:"output"`
}

// Retry is the number of attempts and the wait before each: from Delays, or up to Base, doubled
// each further time, up to Cap.
type Retry struct {
	MaxAttempts int      `json:"max_attempts"`
	Base        string   `json:"base,omitempty"`
	Cap         string   `json:"cap,omitempty"`
	Delays      []string `json:"delays,omitempty"`
}

// Trigger is a declared schedule.
type Trigger struct {
	Expression string    `json:"expression"`
	Timezone   string    `json:"timezone,omitempty"`
	StartAt    time.Time `json:"start_at,omitzero"`
}

// Log appends lines to a file of a run. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	file *os.File
	sync bool
}

// Create creates a file of a run. With sync, a line is on disk when Append returns.
func Create(dir, name string, sync bool) (*Log, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &Log{file: file, sync: sync}, err
}

// Append writes one line.
func (l *Log) Append(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(text, '\n')); err != nil {
		return err
	}
	if !l.sync {
		return nil
	}
	return l.file.Sync()
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Read reads all lines of a file of a run.
func Read[T any](dir, name string) (all []T, err error) {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one T
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, len(all)+1, err)
		}
		all = append(all, one)
	}
	return all, lines.Err()
}
