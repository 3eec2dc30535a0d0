package run

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Callback is how a target that accepted an attempt says later how it ended. The run waits in state
// waiting_callback, and no node holds it.
type Callback struct {
	// ID is a number of 63 bits by which the target names the attempt; 0: it names the run.
	ID int64
	// Group is the endpoint group whose executors have the attempt; empty: it has none.
	Group string
	// Within is how long after the end of the attempt, and after each heartbeat, the callback may come. 0 stands for
	// DefaultCallbackTimeout.
	Within time.Duration
	// StateRevision is that of the state that the attempt was given; nil: the job carries none.
	StateRevision *int64
}

// AwaitedAttempt is an attempt whose target says how it ended.
type AwaitedAttempt struct {
	Run     string // its id
	Attempt int
	// Group is Callback.Group, as it was when the target accepted the attempt: the job may be another one by now.
	Group string
}

// Bounds of callbacks.
const (
	DefaultCallbackTimeout = input.Duration(time.Hour)
	// MinCallbackTimeout is the shortest time for a callback.
	MinCallbackTimeout = time.Second
	// MostCallbackWait bounds how long a run waits in total, whatever heartbeats come.
	MostCallbackWait = 7 * 24 * time.Hour
	// MostCallbackText bounds a message or a progress text, in bytes.
	MostCallbackText = 1024
)

// CallbackState is what is known of a run that waits for a callback.
type CallbackState struct {
	// Endpoint is the id of the endpoint of a group that accepted the attempt, empty if the target is no group.
	Endpoint string `json:"endpoint,omitempty"`
	// Deadline is when the run ends as timed_out without a callback. A heartbeat moves it.
	Deadline time.Time `json:"deadline"`
	// HeartbeatAt is when the latest heartbeat came, nil if none did.
	HeartbeatAt *time.Time `json:"heartbeat_at,omitempty"`
	// Progress and Percent, 0 to 100, are what the latest heartbeat that said so said of the progress of the work.
	Progress string `json:"progress,omitempty" schema:"max=1024"`
	// What the latest heartbeat with a number said.
	Percent *int `json:"percent,omitempty" schema:"max=100,min=0"`
}

// CallbackReply is what a callback learns of the run.
type CallbackReply struct {
	Run   string `json:"run" schema:"RunID"`
	State State  `json:"state"`
	// Attempt is the one that the callback was of.
	Attempt int `json:"attempt"`
	// Callback has the deadline while the run waits.
	Callback *CallbackState `json:"callback,omitempty"`
}

// Progress is what a heartbeat says of the work.
type Progress struct {
	Text    string // of more than MostCallbackText bytes the rest is dropped; empty: as before
	Percent *int   // 0 to 100; nil: as before
}

// CallbackResult is what a callback says of the end of an attempt.
type CallbackResult struct {
	// Message is the failure in words, or the result. Of more than MostCallbackText bytes the rest is dropped.
	Message string
	// TimedOut tells, of a failure, that the target stopped the work at a time-out of its own.
	TimedOut bool
	// State is what the target returns as the state of the job, as ReadCarriedState returns it; nil: it returns none.
	State json.RawMessage
}

// AcceptedAttempt is an attempt that its target accepted and that is over now: the target said that it failed, or nothing
// within its time. The node that adopted its run calls nothing; it records the end, and what follows by the job's policies.
type AcceptedAttempt struct {
	StartedAt  time.Time // zero: the node that called the target did not record it
	HTTPStatus int
	Failed     bool   // the target said so; else its time is over
	TimedOut   bool   // the target failed at a time-out of its own
	Message    string // of the target
	Within     time.Duration
}

// Heartbeat says that an attempt goes on, and how far it is. The callback may come Within that time from now; 0: within the time
// that it had when the target accepted the attempt.
type Heartbeat struct {
	Attempt int
	Within  time.Duration
	Progress
}

// Callbacks are how targets end the attempts that they accepted. A callback names the run and the number of the attempt.
// ErrConflict: this attempt is over, in another way than the callback says, or another one has begun. A callback may come
// before the node has recorded that the target accepted the attempt. One that is repeated changes nothing and is no error.
type Callbacks interface {
	// AwaitedAttempt returns the attempt of an app that has a Callback.ID and whose run waits.
	AwaitedAttempt(ctx context.Context, app string, id int64) (AwaitedAttempt, error)
	// CompleteRun ends a run as succeeded. Problems: it returns a state, and its attempt may not.
	CompleteRun(ctx context.Context, runID string, attempt int, result CallbackResult, change input.Change) (Run, error)
	// FailRun says that an attempt failed. A node records that soon, and the run is attempted again if its job says so.
	FailRun(ctx context.Context, runID string, attempt int, result CallbackResult, change input.Change) (Run, error)
	// ExtendRun takes a heartbeat. MostCallbackWait after the attempt began, none moves the deadline any more.
	ExtendRun(ctx context.Context, runID string, beat Heartbeat, change input.Change) (Run, error)
	// CallbackKey returns the key of the installation by which the tokens of callbacks are made. It is drawn at random
	// when it is first asked for.
	CallbackKey(ctx context.Context) ([]byte, error)
}

// ActorCallback is the actor of a Change that a target makes by the token of its attempt. The audit log, which says what
// people and their programs did, has no entry of it: the history has the result.
const ActorCallback = "callback"

// CallbackTokenPrefix begins the tokens of callbacks. No other bearer token begins with it.
const CallbackTokenPrefix = "carillon_cb_"

// CallToken is what a target needs to end an attempt that it accepted.
type CallToken struct {
	// URL is that of the run in the API. /complete, /fail and /heartbeat follow it.
	URL string `json:"url"`
	// Token is the bearer token for these, and for nothing else.
	Token string `json:"token"`
	// Timeout is how long after the acceptance, and after each heartbeat, the callback may come.
	Timeout input.Duration `json:"timeout"`
}

// CallbackToken returns the token of an attempt of the run with an event id. It has the number of the attempt, and a message
// authentication code of both by the key of the installation. Its holder can end this attempt of this run.
func CallbackToken(key []byte, eventID string, attempt int) string {
	number := strconv.Itoa(attempt)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("callback\n" + eventID + "\n" + number))
	return CallbackTokenPrefix + number + "_" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// CallbackAttempt returns the number of the attempt that a token of a callback says it is of; 0: it is no such token. Whether
// the token is valid is for IsCallbackToken to say.
func CallbackAttempt(token string) int {
	rest, is := strings.CutPrefix(token, CallbackTokenPrefix)
	number, _, _ := strings.Cut(rest, "_")
	attempt, err := strconv.Atoi(number)
	if !is || err != nil || attempt < 1 {
		return 0
	}
	return attempt
}

// IsCallbackToken reports whether a token is that of an attempt. How long it takes tells nothing of the right one.
func IsCallbackToken(key []byte, token, eventID string, attempt int) bool {
	return hmac.Equal([]byte(token), []byte(CallbackToken(key, eventID, attempt)))
}

// ExecutorRun is how executors of XXL-JOB know an attempt.
type ExecutorRun struct {
	// JobID stands for the job. Executors queue and stop by it.
	JobID int32
	// LogID stands for the attempt: its callback and its log have it.
	LogID int64
	// LoggedAt is the time under whose day executors keep the log: the scheduled time.
	LoggedAt time.Time
}

// ExecutorJobID returns the number by which executors know a job: 31 bits of its key, never 0.
func ExecutorJobID(app, job string) int32 { return max(int32(JobID(app, job)>>32), 1) }

// ExecutorLogID returns the number by which executors name an attempt. It has 53 bits, so that it is exact in languages
// whose numbers are floating-point, and is never 0.
func ExecutorLogID(eventID string, attempt int) int64 {
	sum := sha256.Sum256([]byte("log/" + eventID + "/" + strconv.Itoa(attempt)))
	return max(int64(binary.BigEndian.Uint64(sum[:8])>>11), 1)
}

// ExecutorRun returns how executors know an attempt of r.
func (r *Run) ExecutorRun(attempt int) ExecutorRun {
	return ExecutorRun{ExecutorJobID(r.App, r.Job), ExecutorLogID(r.EventID, attempt), r.ScheduledAt}
}
