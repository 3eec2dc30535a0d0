package dispatcher

import (
	"context"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Retry says whether and when a run whose attempt failed is attempted again, under the same event id.
// The zero value stands for the defaults.
type Retry struct {
	// MaxAttempts is how many attempts may fail, including the first: 1 to MostAttempts. Attempts
	// that were lost with their node, or throttled by the target, do not count.
	MaxAttempts int `json:"max_attempts"`
	// Base bounds the wait before the second attempt; the bound doubles for each further one. Each
	// wait is drawn evenly between zero and its bound (full jitter).
	Base input.Duration `json:"base"`
	// Cap is the longest wait, also when a target asks for more with Retry-After.
	Cap input.Duration `json:"cap"`
	// Delays are the waits, to the millisecond, in place of Base and its doubling; the last one
	// repeats. There are fewer than MaxAttempts.
	Delays []input.Duration `json:"delays,omitempty"`
	// MaxAge is the time after the first attempt began, or was deferred, in which a run may be attempted. A run
	// that was only deferred until then is attempted once more.
	MaxAge input.Duration `json:"max_age"`
	// StopAtNextFire ends the run instead of an attempt at or after the next fire of its trigger.
	StopAtNextFire bool `json:"stop_at_next_fire"`
}

// Bounds and defaults of retries.
const (
	MostAttempts    = 100
	DefaultAttempts = 3
	DefaultBase     = input.Duration(5 * time.Second)
	DefaultCap      = input.Duration(5 * time.Minute)
	DefaultMaxAge   = input.Duration(24 * time.Hour)
)

// SetDefaults gives a decoded policy the values of fields that its JSON leaves out.
func (r *Retry) SetDefaults() {
	*r = Retry{MaxAttempts: DefaultAttempts, Base: DefaultBase, Cap: DefaultCap, MaxAge: DefaultMaxAge}
}

// IsZero reports whether r is the zero value, which stands for the defaults.
func (r Retry) IsZero() bool {
	return r.MaxAttempts == 0 && r.Base == 0 && r.Cap == 0 && len(r.Delays) == 0 && r.MaxAge == 0 && !r.StopAtNextFire
}

// orDefault returns the defaults for the zero value.
func (r Retry) orDefault() Retry {
	if r.IsZero() {
		r.SetDefaults()
	}
	return r
}

// Check adds everything wrong with r.
func (r Retry) Check(problems *input.Problems, path string) {
	if r.IsZero() {
		return
	}
	if r.MaxAttempts < 1 || r.MaxAttempts > MostAttempts {
		problems.Add(path+"/max_attempts", input.CodeAttemptsRange,
			"%d attempts are not between 1 and %d; with 1 a failed run is not repeated", r.MaxAttempts, MostAttempts)
	}
	r.Base.CheckRange(problems, path+"/base", input.MinDuration, input.MaxDuration)
	r.Cap.CheckRange(problems, path+"/cap", input.MinDuration, input.MaxDuration)
	r.MaxAge.CheckRange(problems, path+"/max_age", time.Second, input.MaxDuration)
	if len(r.Delays) == 0 {
		if r.Cap < r.Base {
			problems.Add(path+"/cap", input.CodeBackoffOrder, "cap %s is less than base %s; waits grow from base to cap", r.Cap, r.Base)
		}
		return
	}
	if wanted := len(r.Delays) + 1; r.MaxAttempts >= 1 && wanted > min(r.MaxAttempts, MostAttempts) {
		problems.Add(path+"/delays", input.CodeAttemptsRange,
			"%d delays are for %d attempts, but max_attempts is %d; raise it, or give fewer delays (the last one repeats)",
			len(r.Delays), wanted, r.MaxAttempts)
		return
	}
	for i, delay := range r.Delays {
		delay.CheckRange(problems, path+"/delays"+input.Pointer(strconv.Itoa(i)), 0, input.MaxDuration)
	}
}

// Delay returns how long to wait after failures of a run, at least one. draw is at least 0 and
// less than 1.
func (r Retry) Delay(failures int, draw float64) time.Duration {
	if n := len(r.Delays); n > 0 {
		return r.Delays[min(failures, n)-1].Std()
	}
	bound := r.Base.Std()
	for n := 1; n < failures && bound < r.Cap.Std(); n++ {
		bound *= 2
	}
	return time.Duration(draw * float64(min(bound, r.Cap.Std()))).Truncate(time.Millisecond)
}

// NextAttempt is when a run is attempted again.
type NextAttempt struct {
	At time.Time
	// Until is when the run fails for good: no attempt begins later.
	Until time.Time
	// CountsAsFailure tells that the attempt counts against Retry.MaxAttempts.
	CountsAsFailure bool
	// NotAttempted tells that the attempt was deferred before it began, so its number is used again.
	NotAttempted bool
	// StopAtNextFire ends the run if its trigger fires before At, or has fired since.
	StopAtNextFire bool
	// Wait is what the run waits for in place of At; nil: nothing. At Until it stops waiting.
	Wait *HostWait
	// Callback tells that there is no next attempt: the target accepted this one, and says until At how it ended. Of
	// the other fields only At counts. nil: the attempt is over.
	Callback *run.Callback
}

// RetryTimes are times at which something is to be done for runs that are attempted again; zero: there is none.
type RetryTimes struct {
	Least time.Time // when the first of them is or was due, whether a node may adopt it or not
	Next  time.Time // when the next is due
	Waits bool      // whether there is a HostWait
}

// Retries are runs in state retrying. No node holds them; any node adopts those that are due. See
// AdoptQuery.
type Retries interface {
	HostWaits
	// NextRetry returns when the first retries are due: of those from from on, and of those later than after.
	NextRetry(ctx context.Context, from, after time.Time) (RetryTimes, error)
	// GiveUp ends the retrying runs that are past their time, as their latest attempts ended, and returns how
	// many. A run that was never attempted but only deferred is not given up: it stays due for a last attempt.
	GiveUp(ctx context.Context, now time.Time) (int, error)
	// Disable puts the trigger of a run into state error with a reason, and adds an entry to the audit log. It does so
	// if the run ended with the outcome of that record, if the trigger is waiting, and if the job has not been changed
	// since the run was claimed, adopted or retried. A resume or any change of the job lifts it.
	Disable(ctx context.Context, ended Record, reason string, now time.Time) (done bool, err error)
}
