// Package history is what a chaos run writes down beside the database: requests as the
// receiver saw them, faults as they were injected, and definitions as they were declared. It
// shares nothing with the product but the meaning of its headers.
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
	Hits         = "hits.jsonl"
	Faults       = "faults.jsonl"
	Declarations = "declarations.jsonl"
	Audits       = "audits.jsonl"
)

// The kinds of fault that the checker knows by name.
const (
	StoodStill = "machine stood still" // which nobody injects: the machine did not get to anything
	Drain      = "SIGTERM under load"  // and the wait until the node has ended
	Storm      = "SIGTERM in a storm"  // the same, of one of many that came together
	Rollback   = "SIGTERM in a deploy" // the same, of one that had taken the place of another of its name
)

// Hit is one line of the receiver: that a request came, or that it was answered. Both are on
// the disk before the response leaves.
type Hit struct {
	// Request numbers the requests; the response has that of its request.
	Request int64     `json:"request"`
	At      time.Time `json:"at"`
	// Status is 0 when a request comes; then what was answered, or -1 if the connection was cut
	// on purpose, or had gone.
	Status      int       `json:"status"`
	App         string    `json:"app,omitempty"`
	Job         string    `json:"job,omitempty"`
	Trigger     string    `json:"trigger,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Event       string    `json:"event,omitempty"`
	Attempt     int       `json:"attempt,omitempty"`
	ScheduledAt time.Time `json:"scheduled_at,omitzero"`
	// Put is the number of the declaration whose payload came.
	Put int `json:"put,omitempty"`
}

// Fault is something that was done to the system, from one instant to another.
type Fault struct {
	Kind string `json:"kind"`
	// Node is the name of the node that it was done to, empty for the database or all.
	Node string `json:"node,omitempty"`
	// Process is the number of the one process that it was done to, 0 for all of that name.
	Process int `json:"process,omitempty"`
	// Target tells that it concerns nothing but the requests to receivers that are far.
	Target bool `json:"target,omitempty"`
	// Wrong is what was wrong with how it went, which nobody but who injected it can see.
	Wrong string    `json:"wrong,omitempty"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
}

// Drains tells whether a process was told to end, and waited for.
func (f Fault) Drains() bool { return f.Kind == Drain || f.Kind == Storm || f.Kind == Rollback }

// ProcessLabel is the label of a node that says which process it is, whatever its incarnation.
const ProcessLabel = "process"

// Declaration is a definition that was put, with when that began and was known to be done.
// A job is put by one writer at a time, and again until it is known to be done.
type Declaration struct {
	Put      int       `json:"put"`
	App      string    `json:"app"`
	Job      string    `json:"job"`
	Begun    time.Time `json:"begun"`
	Answered time.Time `json:"answered"`
	Deleted  bool      `json:"deleted,omitempty"`
	Enabled  bool      `json:"enabled"`
	Delivery string    `json:"delivery"`
	// These are as they were put.
	MisfireAfter  string `json:"misfire_after,omitempty"`
	MisfirePolicy string `json:"misfire_policy,omitempty"`
	Path          string `json:"path"`
	// Far tells that its receiver is one that nodes may be cut off from.
	Far bool `json:"far,omitempty"`
	// Concurrency says what becomes of a run that finds another of its job; empty: nothing.
	Concurrency string `json:"concurrency,omitempty"`
	QueueLimit  int    `json:"queue_limit,omitempty"`
	// Retry is what becomes of an attempt that failed; nil: of at most once, nothing.
	Retry *Retry `json:"retry,omitempty"`
	// Triggers are by name.
	Triggers map[string]Trigger `json:"triggers"`
}

// Audit is what the product itself says of its ledger.
type Audit struct {
	App    string `json:"app"`
	Failed bool   `json:"failed"`
	Said   string `json:"said"`
}

// Retry says how often an attempt is made, and how long after the one before: as Delays say, or up
// to Base, and twice as much each further time, up to Cap.
type Retry struct {
	MaxAttempts int      `json:"max_attempts"`
	Base        string   `json:"base,omitempty"`
	Cap         string   `json:"cap,omitempty"`
	Delays      []string `json:"delays,omitempty"`
}

// Trigger is a schedule as it was declared.
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

// Create makes a file of a run; with sync, a line is on the disk when Append returns.
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
