package dispatcher_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestAllProblemsOfARetryPolicyAreReported(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*run.Retry)
		want   []string
	}{
		"the defaults":          {func(*run.Retry) {}, nil},
		"all left out":          {func(r *run.Retry) { *r = run.Retry{} }, nil},
		"one attempt":           {func(r *run.Retry) { r.MaxAttempts = 1 }, nil},
		"delays":                {func(r *run.Retry) { r.Delays = durations(0, time.Hour) }, nil},
		"one delay for many":    {func(r *run.Retry) { r.MaxAttempts, r.Delays = 100, durations(time.Second) }, nil},
		"no attempt":            {func(r *run.Retry) { r.MaxAttempts = 0 }, []string{"/retry/max_attempts attempts_range"}},
		"negative attempts":     {func(r *run.Retry) { r.MaxAttempts = -1 }, []string{"/retry/max_attempts attempts_range"}},
		"a billion":             {func(r *run.Retry) { r.MaxAttempts = 1e9 }, []string{"/retry/max_attempts attempts_range"}},
		"more delays than due":  {func(r *run.Retry) { r.Delays = durations(1, 2, 3) }, []string{"/retry/delays attempts_range"}},
		"a negative delay":      {func(r *run.Retry) { r.Delays = durations(0, -1) }, []string{"/retry/delays/1 duration_min"}},
		"a delay of days":       {func(r *run.Retry) { r.Delays = durations(25 * time.Hour) }, []string{"/retry/delays/0 duration_max"}},
		"base above cap":        {func(r *run.Retry) { r.Cap = input.Duration(time.Second) }, []string{"/retry/cap backoff_order"}},
		"base above cap unused": {func(r *run.Retry) { r.Cap, r.Delays = input.Duration(time.Second), durations(0) }, nil},
		"everything": {func(r *run.Retry) {
			*r = run.Retry{MaxAttempts: 101, Base: 1, Cap: input.Duration(2 * input.MaxDuration), MaxAge: 1}
		}, []string{"/retry/base duration_min", "/retry/cap duration_max", "/retry/max_age duration_min", "/retry/max_attempts attempts_range"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := dispatcher.Job{App: "a", Name: "j", JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{
				URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout,
			}}}}
			job.SetDefaults()
			tt.change(&job.Retry)
			var problems input.Problems
			problems.AddError("", job.Validate())
			var got []string
			for _, f := range problems {
				got = append(got, f.Path+" "+f.Code)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func durations(all ...time.Duration) []input.Duration {
	converted := make([]input.Duration, len(all))
	for i, d := range all {
		converted[i] = input.Duration(d)
	}
	return converted
}

func TestMissingRetryPolicyIsTheDefault(t *testing.T) {
	t.Parallel()
	job := dispatcher.Job{App: "a", Name: "j", JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{
		URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout,
	}}}}
	revised, _, err := dispatcher.Apply(nil, job, dispatcher.Prior{}, nil, time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	want := run.Retry{MaxAttempts: 3, Base: durations(5 * time.Second)[0], Cap: durations(5 * time.Minute)[0],
		MaxAge: durations(24 * time.Hour)[0]}
	if diff := cmp.Diff(want, revised.Retry); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
}

func TestWaitsGrowToTheCap(t *testing.T) {
	t.Parallel()
	grows := run.Retry{MaxAttempts: 100, Base: durations(5 * time.Second)[0], Cap: durations(time.Minute)[0]}
	listed := grows
	listed.Delays = durations(0, time.Second, time.Hour)
	const last = 1 - 1.0/(1<<20)
	var bounds, list []time.Duration
	for n := 1; n <= 7; n++ {
		bounds = append(bounds, grows.Delay(n, last).Round(time.Second))
		list = append(list, listed.Delay(n, last))
	}
	seconds := func(all ...int) (d []time.Duration) {
		for _, n := range all {
			d = append(d, time.Duration(n)*time.Second)
		}
		return d
	}
	if diff := cmp.Diff(seconds(5, 10, 20, 40, 60, 60, 60), bounds); diff != "" {
		t.Errorf("bounds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(seconds(0, 1, 3600, 3600, 3600, 3600, 3600), list); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

func TestWaitIsWithinItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(int64(input.MinDuration), int64(input.MaxDuration)).Draw(t, "base")
		most := rapid.Int64Range(base, int64(input.MaxDuration)).Draw(t, "cap")
		policy := run.Retry{Base: input.Duration(base), Cap: input.Duration(most)}
		failures := rapid.IntRange(1, run.MostAttempts).Draw(t, "failures")
		draw := rapid.Float64Range(0, 0.999999).Draw(t, "draw")
		wait := policy.Delay(failures, draw)
		if wait < 0 || wait > time.Duration(most) || failures == 1 && wait > time.Duration(base) {
			t.Errorf("wait = %s, want it from 0 to at most %s, and to %s after one failure", wait, time.Duration(most), time.Duration(base))
		}
		if wait%time.Millisecond != 0 {
			t.Errorf("wait = %s, want whole milliseconds", wait)
		}
	})
}
