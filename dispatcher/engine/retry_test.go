package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// broken is a failure of the target's host.
func broken() run.Outcome {
	return run.Outcome{State: run.Failed, HTTPStatus: 503, Class: run.ClassHTTP5xx, Error: "broken"}
}

// request puts a job without triggers and asks for a run of it.
func (r *rig) request(name string, change func(*dispatcher.Job)) string {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: name}
	job.SetDefaults()
	job.Retry.Delays = []input.Duration{0}
	job.Target.Webhook = &target.Webhook{URL: "http://" + name + "/", Method: "POST", Timeout: target.DefaultTimeout}
	if change != nil {
		change(&job)
	}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test"}); err != nil {
		r.t.Fatal(err)
	}
	run, err := r.store.RequestRun(r.t.Context(), "app", name, nil, input.Change{Actor: "test"})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.adopt(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.quiet()
	return run.ID
}

// retry adopts the runs that are due for another attempt, and returns one of them.
func (r *rig) retry(id string) run.Run {
	r.t.Helper()
	if err := r.retryOnce(r.t.Context(), r.clock.Now()); err != nil {
		r.t.Fatal(err)
	}
	r.quiet()
	return r.read(id)
}

func (r *rig) read(id string) run.Run {
	r.t.Helper()
	run, err := r.store.Run(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

func TestFailedRunIsAttemptedAgainUnderItsEventID(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Attempt < 3 {
			return broken()
		}
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
	}
	id := r.request("flaky", nil)
	if one := r.read(id); one.State != run.Retrying || one.NextAttemptAt == nil {
		t.Fatalf("after the first attempt: %+v, want it retrying", one)
	}
	r.retry(id)
	one := r.retry(id)
	if one.State != run.Succeeded || len(one.Attempts) != 3 {
		t.Errorf("run = %+v, want success at the third attempt", one)
	}
	for i, call := range r.calls {
		if call.Attempt != i+1 || call.EventID != one.EventID {
			t.Errorf("call %d is attempt %d under %s, want them in order under %s", i+1, call.Attempt, call.EventID, one.EventID)
		}
	}
}

func TestRunEndsAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(context.Context, target.Call) run.Outcome { return broken() }
	id := r.request("broken", nil)
	for range 5 {
		r.retry(id)
	}
	one := r.read(id)
	if one.State != run.Failed || one.Class != run.ClassHTTP5xx || len(one.Attempts) != 3 || len(r.calls) != 3 {
		t.Errorf("run = %+v after %d calls, want it failed after 3", one, len(r.calls))
	}
}

// The alarm wakes the node: the next interval of the loop is after the end of the test.
func TestRetryIsMadeWhenDue(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.opts.Window = time.Hour
	const wait = 300 * time.Millisecond
	done := make(chan time.Time, 1)
	var failed time.Time
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Attempt == 1 {
			failed = time.Now()
			return broken()
		}
		done <- time.Now()
		return run.Outcome{State: run.Succeeded}
	}
	ctx, end := context.WithCancel(t.Context())
	looping := make(chan struct{})
	go func() { r.retryLoop(ctx); close(looping) }()
	defer func() { end(); <-looping }()
	r.request("woken", func(j *dispatcher.Job) { j.Retry.Delays = []input.Duration{input.Duration(wait)} })
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case at := <-done:
		if at.Sub(failed) < wait {
			t.Errorf("attempted again after %s, want %s at least", at.Sub(failed), wait)
		}
	case <-late.Done():
		t.Fatal("not attempted again")
	}
}

// The row of the run alone is enough to find it.
func TestRetryRecordedByADeadNodeIsFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var calls atomic.Int32
	r.invoke = func(context.Context, target.Call) run.Outcome {
		if calls.Add(1) == 1 {
			return broken()
		}
		return run.Outcome{State: run.Succeeded}
	}
	id := r.request("left", nil)
	r.retries.own = nil
	if err := r.register(t.Context(), dispatcher.NodeActive); err != nil { // this marks the node before it dead
		t.Fatal(err)
	}
	if err := r.heartbeatOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if one := r.retry(id); one.State != run.Succeeded || one.Attempt != 2 || *one.Node != r.fleet.ID() {
		t.Errorf("run = %+v, want success by node %s", one, r.fleet.ID())
	}
}

// looked is a store that notes the lower bounds of looks for retries.
type looked struct {
	Store
	from []time.Time
}

func (l *looked) NextRetry(ctx context.Context, from, after time.Time) (dispatcher.RetryTimes, error) {
	l.from = append(l.from, from)
	return l.Store.NextRetry(ctx, from, after)
}

// retryAt looks for retries at a time, and returns the lower bound.
func (r *rig) retryAt(l *looked, now time.Time) time.Time {
	r.t.Helper()
	l.from, r.retries.lookedAt = nil, time.Time{}
	if err := r.retryOnce(r.t.Context(), now); err != nil {
		r.t.Fatal(err)
	}
	r.quiet()
	return l.from[0]
}

// failsOnce is a target that fails once, at a time; zero: now.
func failsOnce(at time.Time) func(context.Context, target.Call) run.Outcome {
	var calls atomic.Int32
	return func(context.Context, target.Call) run.Outcome {
		if calls.Add(1) > 1 {
			return run.Outcome{State: run.Succeeded}
		}
		failed := broken()
		failed.StartedAt, failed.EndedAt = at, at
		return failed
	}
}

// A look does not read the old retries that a long snapshot keeps in the database.
func TestLookForRetriesBeginsAtTheEarliestLeft(t *testing.T) {
	t.Parallel()
	l := &looked{}
	r := newRig(t, func(s Store) Store { l.Store = s; return l })
	now := r.clock.Now()
	for i, step := range []struct {
		after time.Duration
		want  time.Time
	}{
		{0, time.Time{}},
		{time.Second, now.Add(-5 * time.Second)},
		{50 * time.Second, now.Add(time.Second - 5*time.Second)},
		{time.Minute, time.Time{}},
		{61 * time.Second, now.Add(time.Minute - 5*time.Second)},
		{30 * time.Second, time.Time{}}, // the clock was set back
	} {
		if from := r.retryAt(l, now.Add(step.after)); !from.Equal(step.want) {
			t.Errorf("look %d begins at %v, want %v", i, from, step.want)
		}
	}
	// A retry that no node may make stays, however long.
	r.invoke = failsOnce(time.Time{})
	id := r.request("held", nil)
	due := *r.read(id).NextAttemptAt
	enable := func(enabled bool) {
		if _, _, err := r.store.PutApp(t.Context(), access.App{Name: "app",
			AppSpec: access.AppSpec{Enabled: enabled}}, input.Change{Actor: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	enable(false)
	for _, after := range []time.Duration{5 * time.Minute, 5*time.Minute + time.Second} {
		r.retryAt(l, now.Add(after))
	}
	if from := r.retryAt(l, now.Add(5*time.Minute+2*time.Second)); !from.Equal(due) {
		t.Errorf("next to a retry of a disabled app, a look begins at %v, want %v, when it is due", from, due)
	}
	enable(true)
	r.retryAt(l, now.Add(5*time.Minute+3*time.Second))
	if one := r.read(id); one.State != run.Succeeded {
		t.Errorf("after the app is enabled the run is %s, want it attempted again at the next look", one.State)
	}
}

// A record may be stored long after its retry was due, as after an outage of the database.
func TestRetryThatIsRecordedLateIsMadeAtTheNextLook(t *testing.T) {
	t.Parallel()
	l := &looked{}
	r := newRig(t, func(s Store) Store { l.Store = s; return l })
	now := r.clock.Now()
	r.retryAt(l, now)
	r.invoke = failsOnce(now.Add(-10 * time.Minute))
	id := r.request("late", nil)
	if from := r.retryAt(l, now.Add(time.Second)); from.IsZero() {
		t.Error("the look went back without bound")
	}
	if one := r.read(id); one.State != run.Succeeded {
		t.Errorf("the run is %s, want it attempted again at the next look", one.State)
	}
}

// The node that recorded it may have no place for it.
func TestRetryThatAnotherNodeRecordsLateIsFoundWithinAMinute(t *testing.T) {
	t.Parallel()
	l := &looked{}
	r := newRig(t, func(s Store) Store { l.Store = s; return l })
	now := r.clock.Now()
	r.retryAt(l, now)
	floor := r.plan.Floors.Retries.Known(0)
	r.invoke = failsOnce(now.Add(-10 * time.Minute))
	id := r.request("late", nil)
	look := r.plan.Floors.Retries.Begin(now, 0, time.Time{}) // this node does not know about it
	r.plan.Floors.Retries.End(look, time.Time{}, floor)
	r.retryAt(l, now.Add(59*time.Second))
	if one := r.read(id); one.State != run.Retrying {
		t.Errorf("the run is %s before the node looks at everything", one.State)
	}
	r.retryAt(l, now.Add(time.Minute))
	if one := r.read(id); one.State != run.Succeeded {
		t.Errorf("the run is %s a minute later, want it attempted again", one.State)
	}
}

func TestNextAttemptFollowsThePolicy(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	ended := began.Add(time.Second)
	after := func(d time.Duration) *time.Duration { return &d }
	type (
		call = target.Call
		r    = run.HeldRun
	)
	for name, tt := range map[string]struct {
		class  run.Class
		status int
		after  *time.Duration
		change func(*call, *r)
		want   time.Duration // after the end; less than 0: never
	}{
		"a server error":               {class: run.ClassHTTP5xx, status: 503, want: 4 * time.Second},
		"no response in time":          {class: run.ClassTimeout, want: 4 * time.Second},
		"connection refused":           {class: run.ClassConnectRefused, want: 4 * time.Second},
		"a request time-out":           {class: run.ClassHTTP4xx, status: 408, want: 4 * time.Second},
		"too early":                    {class: run.ClassHTTP4xx, status: 425, want: 4 * time.Second},
		"too many requests":            {class: run.ClassRateLimited, status: 429, want: 4 * time.Second},
		"a bad request":                {class: run.ClassHTTP4xx, status: 400, want: -1},
		"not found":                    {class: run.ClassHTTP4xx, status: 404, want: -1},
		"gone":                         {class: run.ClassHTTP4xx, status: 410, want: -1},
		"a redirect":                   {class: run.ClassRedirect, status: 302, want: -1},
		"a function error":             {class: run.ClassFunctionError, want: 4 * time.Second},
		"a refusal by AWS":             {class: run.ClassConfig, want: -1},
		"no credentials":               {class: run.ClassCredentials, want: 4 * time.Second},
		"at most once, function error": {class: run.ClassFunctionError, change: atMostOnce, want: -1},
		"at most once, no credentials": {class: run.ClassCredentials, change: atMostOnce, want: 4 * time.Second},
		"no token":                     {class: run.ClassOAuth2, after: after(7 * time.Second), want: 7 * time.Second},
		"at most once, refused token":  {class: run.ClassOAuth2, status: 401, change: atMostOnce, want: 4 * time.Second},
		"a forbidden address":          {class: run.ClassEgressDenied, want: -1},
		"cancelled":                    {class: run.ClassCancelled, want: -1},
		"a panic":                      {class: run.ClassPanic, want: -1},
		"Retry-After beyond the wait":  {class: run.ClassRateLimited, after: after(30 * time.Second), want: 30 * time.Second},
		"Retry-After within the wait":  {class: run.ClassRateLimited, after: after(0), want: 4 * time.Second},
		"Retry-After beyond the cap":   {class: run.ClassHTTP5xx, after: after(1e9 * time.Second), want: 5 * time.Minute},
		"the last attempt": {
			class: run.ClassTimeout, want: -1,
			change: func(_ *call, r *r) { r.Failures = 2 },
		},
		"lost attempts do not count": {
			class: run.ClassTimeout, want: 4 * time.Second,
			change: func(_ *call, r *r) { r.Attempt = 9 },
		},
		"waits grow with failures": {
			class: run.ClassTimeout, want: 8 * time.Second,
			change: func(_ *call, r *r) { r.Failures = 1 },
		},
		"one attempt": {
			class: run.ClassTimeout, want: -1,
			change: func(c *call, _ *r) { c.Retry.MaxAttempts = 1 },
		},
		"too old": {
			class: run.ClassTimeout, want: -1,
			change: func(c *call, _ *r) { c.Retry.MaxAge = input.Duration(time.Second) },
		},
		"given up before": {
			class: run.ClassTimeout, want: -1,
			change: func(_ *call, r *r) { r.RetryUntil = ended },
		},
		"at most once, perhaps sent":         {class: run.ClassTimeout, change: atMostOnce, want: -1},
		"at most once, with a response":      {class: run.ClassHTTP5xx, change: atMostOnce, want: -1},
		"at most once, connection reset":     {class: run.ClassReset, change: atMostOnce, want: -1},
		"at most once, handshake":            {class: run.ClassTLS, change: atMostOnce, want: -1},
		"at most once, certainly not sent":   {class: run.ClassDNS, change: atMostOnce, want: 4 * time.Second},
		"at most once, connection not there": {class: run.ClassConnectTimeout, change: atMostOnce, want: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c call
			c.Retry.SetDefaults()
			r := r{Attempt: 1}
			if tt.change != nil {
				tt.change(&c, &r)
			}
			o := run.Outcome{
				State: run.Failed, StartedAt: began, EndedAt: ended, Class: tt.class, HTTPStatus: tt.status, RetryAfter: tt.after,
			}
			next := nextAttempt(c, r, o, 0.8)
			if tt.want < 0 {
				if next != nil {
					t.Errorf("next = %+v, want none", next)
				}
				return
			}
			until := r.RetryUntil
			if until.IsZero() {
				until = began.Add(24 * time.Hour)
			}
			want := &dispatcher.NextAttempt{At: ended.Add(tt.want), Until: until, CountsAsFailure: true}
			if diff := cmp.Diff(want, next); diff != "" {
				t.Errorf("next (-want +got):\n%s", diff)
			}
		})
	}
}

// Throttled attempts do not count against the policy, even one of a single attempt, or at most once.
func TestThrottlesDoNotCount(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	call := target.Call{Delivery: dispatcher.AtMostOnce}
	call.Retry.SetDefaults()
	call.Retry.MaxAttempts = 1
	o := run.Outcome{State: run.Failed, StartedAt: began, EndedAt: began, Class: run.ClassThrottled}
	for attempt, want := range map[int]time.Duration{
		1: time.Second, 2: 1250 * time.Millisecond, 5: 10 * time.Second, 50: 37500 * time.Millisecond,
	} {
		next := nextAttempt(call, run.HeldRun{Attempt: attempt}, o, 0.125)
		if next == nil || next.CountsAsFailure || next.At.Sub(began) != want {
			t.Errorf("after attempt %d: %+v, want another after %s, not counted", attempt, next, want)
		}
	}
	asked := 30 * time.Second
	o.RetryAfter = &asked
	if next := nextAttempt(call, run.HeldRun{Attempt: 1}, o, 0); next.At.Sub(began) != asked {
		t.Errorf("next = %+v, want it when Lambda said", next)
	}
}

func atMostOnce(j *target.Call, _ *run.HeldRun) { j.Delivery = dispatcher.AtMostOnce }

// The job may leave the cache while an attempt is in flight, because others take its room.
func TestRetryDoesNotDependOnTheCache(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(context.Context, target.Call) run.Outcome {
		r.plan.Jobs.Clear()
		return broken()
	}
	if one := r.read(r.request("forgotten", nil)); one.State != run.Retrying {
		t.Errorf("run = %+v, want it retrying", one)
	}
}

// A fixed delay counts from the end of its run, and a run that retries has not ended.
func TestFixedDelayCountsFromTheLastAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	fail := true
	r.invoke = func(context.Context, target.Call) run.Outcome {
		if fail {
			return broken()
		}
		return run.Outcome{State: run.Succeeded}
	}
	job := dispatcher.Job{App: "app", Name: "delayed"}
	job.SetDefaults()
	job.Retry.Delays = []input.Duration{0}
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	only := dispatcher.Trigger{}
	only.SetDefaults()
	only.Expression = "delay(1s)"
	job.Triggers = map[string]dispatcher.Trigger{"only": only}
	if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	id := r.settled()[0].ID
	scheduled := func() bool {
		t.Helper()
		if err := r.plan.ScheduleNext(t.Context(), nil, r.now); err != nil {
			t.Fatal(err)
		}
		stored, err := r.store.Job(t.Context(), "app", "delayed")
		if err != nil {
			t.Fatal(err)
		}
		return stored.Triggers["only"].NextFireTime != nil
	}
	if scheduled() {
		t.Error("the next fire was scheduled while the run retries")
	}
	fail = false
	if one := r.retry(id); one.State != run.Succeeded || !scheduled() {
		t.Errorf("run = %+v, want success, and the next fire scheduled", one)
	}
}
