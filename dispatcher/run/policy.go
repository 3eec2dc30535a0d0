package run

import (
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Delivery is a policy for attempts with an unknown outcome after their node died or was cut off. Empty: AtLeastOnce.
type Delivery string

// ConcurrencyPolicy decides about a run of a job when all slots are taken. It is not called overlap, because
// Schedule.Overlap is about daylight saving.
type ConcurrencyPolicy string

// The policies of concurrency. Without Job.MaxConcurrency, ConcurrencyAllow has no bound, and the
// others have one slot.
const (
	ConcurrencyAllow   ConcurrencyPolicy = "allow"   // the run waits as with queue, if there is a bound
	ConcurrencyForbid  ConcurrencyPolicy = "forbid"  // the run is skipped
	ConcurrencyQueue   ConcurrencyPolicy = "queue"   // the run waits for its turn; beyond Job.QueueLimit it is skipped
	ConcurrencyReplace ConcurrencyPolicy = "replace" // the new run begins after the oldest is cancelled and has stopped
)

// ConcurrencyPolicies are all policies.
var ConcurrencyPolicies = []ConcurrencyPolicy{ConcurrencyAllow, ConcurrencyForbid, ConcurrencyQueue, ConcurrencyReplace}

// Retry decides whether and when a run is attempted again after a failure, under the same event id. The zero value
// stands for the defaults.
type Retry struct {
	// MaxAttempts is how many attempts may fail, including the first: 1 to MostAttempts. Attempts
	// that were lost with their node, or throttled by the target, do not count.
	MaxAttempts int `json:"max_attempts" schema:"max=100,min=1"`
	// Base bounds the wait before the second attempt; the bound doubles for each further one. Each wait is random
	// between zero and its bound (full jitter).
	Base input.Duration `json:"base"`
	// Cap is the longest wait, also when a target asks for more with Retry-After.
	Cap input.Duration `json:"cap"`
	// Delays are the waits, to the millisecond, in place of Base and its doubling; the last one
	// repeats. There are fewer than MaxAttempts.
	Delays []input.Duration `json:"delays,omitempty" schema:"Duration,max=99"`
	// MaxAge is how long after the first attempt began, or was deferred, a run may be attempted. A run that was only
	// deferred until then is attempted once more.
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

// OrDefault returns the defaults for the zero value.
func (r Retry) OrDefault() Retry {
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
