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

// Callback is how a target that accepted an attempt reports its outcome later. The run waits in state
// waiting_callback, without a node.
type Callback struct {
	// ID is a number of 63 bits that the target names the attempt by; 0 if it names the run.
	ID int64
	// Group is the endpoint group with the executors that have the attempt; empty if it has none.
	Group string
	// Within is how long after the attempt or a heartbeat the callback may come. 0 means DefaultCallbackTimeout.
	Within time.Duration
	// StateRevision is the revision of the state that the attempt got; nil if the job carries none.
	StateRevision *int64
}

// AwaitedAttempt is an attempt, accepted by its target, that still lacks an outcome.
type AwaitedAttempt struct {
	Run     string // id of the run
	Attempt int
	// Group is Callback.Group when the target accepted the attempt: the job may have another group by now.
	Group string
}

// Bounds of callbacks.
const (
	DefaultCallbackTimeout = input.Duration(time.Hour)
	// MinCallbackTimeout is the shortest time for a callback.
	MinCallbackTimeout = time.Second
	// MostCallbackWait bounds how long a run waits in total, with any heartbeats.
	MostCallbackWait = 7 * 24 * time.Hour
	// MostCallbackText bounds a message or a progress text, in bytes.
	MostCallbackText = 1024
)

// CallbackState is the state of a run that waits for a callback.
type CallbackState struct {
	// Endpoint is the id of the endpoint of a group that accepted the attempt; empty if the target is not a group.
	Endpoint string `json:"endpoint,omitempty"`
	// AcceptedAt is when the target accepted the attempt.
	AcceptedAt time.Time `json:"accepted_at,omitzero"`
	// Deadline is when the run ends as timed_out without a callback. A heartbeat moves it.
	Deadline time.Time `json:"deadline"`
	// HeartbeatAt is when the latest heartbeat came; nil if none has.
	HeartbeatAt *time.Time `json:"heartbeat_at,omitempty"`
	// Progress and Percent, 0 to 100, come from the latest heartbeats that had a text and a number.
	Progress string `json:"progress,omitempty" schema:"max=1024"`
	// The number in the latest heartbeat that had one.
	Percent *int `json:"percent,omitempty" schema:"max=100,min=0"`
}

// CallbackReply is the response to a callback.
type CallbackReply struct {
	Run   string `json:"run" schema:"RunID"`
	State State  `json:"state"`
	// Attempt is the attempt that the callback was for.
	Attempt int `json:"attempt"`
	// Callback has the deadline while the run waits.
	Callback *CallbackState `json:"callback,omitempty"`
}

// Progress is the progress of the work, from a heartbeat.
type Progress struct {
	Text    string // cut to MostCallbackText bytes; empty: as before
	Percent *int   // 0 to 100; nil: as before
}

// CallbackResult is the outcome of an attempt, from a callback.
type CallbackResult struct {
	// Message is the failure in words, or the result. It is cut to MostCallbackText bytes.
	Message string
	// TimedOut is true for a failure because the target stopped the work at its own time-out.
	TimedOut bool
	// State is the state of the job that the target returns, as ReadCarriedState returns it; nil if it returns none.
	State json.RawMessage
}

// AcceptedAttempt is an attempt that its target accepted and that is over: the target reported a failure, or did not
// report in time. The node that adopted its run makes no request; it records the end, and the next step by the job's
// policies.
type AcceptedAttempt struct {
	StartedAt  time.Time // zero if the node that called the target did not record it
	HTTPStatus int
	Failed     bool   // the target reported it; else its time is over
	TimedOut   bool   // the target stopped at its own time-out
	Message    string // from the target
	Within     time.Duration
}

// Heartbeat reports that an attempt goes on, and its progress. The callback may come Within that time from now; 0
// means the time that it had when the target accepted the attempt.
type Heartbeat struct {
	Attempt int
	Within  time.Duration
	Progress
}

// Callbacks let targets end the attempts that they accepted. A callback names the run and the number of the attempt.
// ErrConflict: this attempt ended in another way, or another one has begun. A callback may come before the node has
// recorded that the target accepted the attempt. A repeated callback changes nothing and is not an error.
type Callbacks interface {
	// AwaitedAttempt returns the attempt of an app with a Callback.ID, if its run waits.
	AwaitedAttempt(ctx context.Context, app string, id int64) (AwaitedAttempt, error)
	// CompleteRun ends a run as succeeded. Problems: it returns a state although its attempt may not.
	CompleteRun(ctx context.Context, runID string, attempt int, result CallbackResult, change input.Change) (Run, error)
	// FailRun reports a failed attempt. A node records that soon, and the run is attempted again if its job says so.
	FailRun(ctx context.Context, runID string, attempt int, result CallbackResult, change input.Change) (Run, error)
	// ExtendRun takes a heartbeat. No heartbeat moves the deadline beyond MostCallbackWait after the attempt began.
	ExtendRun(ctx context.Context, runID string, beat Heartbeat, change input.Change) (Run, error)
	// CallbackKey returns the key of the installation that the tokens of callbacks are made with. It is random, and
	// created on first use.
	CallbackKey(ctx context.Context) ([]byte, error)
}

// ActorCallback is the actor of a Change that a target makes with the token of its attempt. The audit log has no
// entry for it, because it shows the actions of people and their programs; the history has the result.
const ActorCallback = "callback"

// CallbackTokenPrefix begins the tokens of callbacks. No other bearer token begins with it.
const CallbackTokenPrefix = "carillon_cb_"

// CallToken lets a target end an attempt that it accepted.
type CallToken struct {
	// URL is the URL of the run in the API. Append /complete, /fail or /heartbeat.
	URL string `json:"url"`
	// Token is the bearer token for these requests only.
	Token string `json:"token"`
	// Timeout is how long after the acceptance, and after each heartbeat, the callback may come.
	Timeout input.Duration `json:"timeout"`
}

// CallbackToken returns the token of an attempt of the run with an event id. It contains the number of the attempt, and
// a message authentication code of both under the key of the installation. Its holder can end this attempt of this run.
func CallbackToken(key []byte, eventID string, attempt int) string {
	number := strconv.Itoa(attempt)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("callback\n" + eventID + "\n" + number))
	return CallbackTokenPrefix + number + "_" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// CallbackAttempt returns the number of the attempt in a token of a callback; 0 if it is no such token.
// IsCallbackToken checks whether the token is valid.
func CallbackAttempt(token string) int {
	rest, is := strings.CutPrefix(token, CallbackTokenPrefix)
	number, _, _ := strings.Cut(rest, "_")
	attempt, err := strconv.Atoi(number)
	if !is || err != nil || attempt < 1 {
		return 0
	}
	return attempt
}

// IsCallbackToken reports whether a token belongs to an attempt. Its duration reveals nothing about the right token.
func IsCallbackToken(key []byte, token, eventID string, attempt int) bool {
	return hmac.Equal([]byte(token), []byte(CallbackToken(key, eventID, attempt)))
}

// ExecutorRun identifies an attempt to executors of XXL-JOB.
type ExecutorRun struct {
	// JobID stands for the job. Executors queue and stop runs by it.
	JobID int32
	// LogID stands for the attempt, in its callback and its log.
	LogID int64
	// LoggedAt is the scheduled time. Executors keep the log under its day.
	LoggedAt time.Time
}

// ExecutorJobID returns the number of a job for executors: 31 bits of its key, never 0.
func ExecutorJobID(app, job string) int32 { return max(int32(JobID(app, job)>>32), 1) }

// ExecutorLogID returns the number of an attempt for executors. It has 53 bits, so it is exact as a floating-point
// number, and is never 0.
func ExecutorLogID(eventID string, attempt int) int64 {
	sum := sha256.Sum256([]byte("log/" + eventID + "/" + strconv.Itoa(attempt)))
	return max(int64(binary.BigEndian.Uint64(sum[:8])>>11), 1)
}

// ExecutorRun returns how executors identify an attempt of r.
func (r *Run) ExecutorRun(attempt int) ExecutorRun {
	return ExecutorRun{ExecutorJobID(r.App, r.Job), ExecutorLogID(r.EventID, attempt), r.ScheduledAt}
}
