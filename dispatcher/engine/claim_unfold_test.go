package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A claim that grew old is unfolded during an attempt of it. The attempt ends as usual.
func TestSlowAttemptOutlivesItsClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("report", "rate(1s)", nil)
	unfolded := 0
	r.invoke = func(ctx context.Context, _ target.Call) run.Outcome {
		n, err := r.store.UnfoldClaims(ctx, r.fleet.ID(), 0, r.now.Add(time.Hour))
		if err != nil {
			r.t.Error(err)
		}
		unfolded += n
		return run.Outcome{State: run.Succeeded}
	}
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	if diff := cmp.Diff([]string{"1s schedule succeeded #1"}, offsets(r, r.settled())); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if unfolded != 1 || len(r.calls) != 1 {
		t.Errorf("%d claims were unfolded during %d calls, want 1 and 1", unfolded, len(r.calls))
	}
}

// A run of a locked job asks again by itself; the others of its batch begin at once.
func TestUndecidedRunsDelayNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locked := func(run run.HeldRun) bool { return run.JobID == 1 }
		begun, rounds := time.Now(), 0
		p := newRunPermits("acquire slots", func(_ context.Context, runs []run.HeldRun) ([]run.HeldRun, error) {
			var granted, undecided []run.HeldRun
			for _, run := range runs {
				if locked(run) && rounds < 5 {
					rounds++
					undecided = append(undecided, run)
				} else {
					granted = append(granted, run)
				}
			}
			if len(undecided) > 0 {
				return granted, &dispatcher.UndecidedError{Runs: undecided}
			}
			return granted, nil
		}, 10, slog.New(slog.DiscardHandler))
		ctx, end := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { p.run(ctx); close(stopped) }()
		waits := map[int64]time.Duration{}
		done := make(chan int64)
		for job := range int64(3) {
			go func() {
				if !p.request(ctx, run.HeldRun{JobID: job, Key: run.Key{TriggerID: job}}) {
					t.Errorf("the run of job %d may not begin", job)
				}
				done <- job
			}()
		}
		for range 3 {
			waits[<-done] = time.Since(begun)
		}
		if waits[0] != 0 || waits[2] != 0 || waits[1] < 4*undecidedPause || waits[1] > 6*undecidedPause {
			t.Errorf("waited %v, want none but that of the locked job, for some %s", waits, 5*undecidedPause)
		}
		end()
		<-stopped
	})
}

// The row of bad cannot be written, so its fire leaves the claim under another token while its attempt goes on.
func TestCancelReachesAnAttemptOfADividedClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("bad", "rate(1s)", nil)
	r.declare("good", "rate(1s)", nil)
	r.exec(fmt.Sprintf(`CREATE TRIGGER refuse BEFORE INSERT ON live_runs WHEN NEW.job_id = %d
		BEGIN SELECT RAISE(ABORT, 'a value does not fit'); END`, run.JobID("app", "bad")))
	divided := make(chan struct{})
	r.listens()
	var id string
	r.invoke = func(ctx context.Context, call target.Call) run.Outcome {
		if call.Job == "good" {
			<-divided // a claim of one fire would stay
			return run.Outcome{State: run.Succeeded}
		}
		defer close(divided)
		id = call.Key.String()
		lasting := context.WithoutCancel(ctx)
		_, err := r.store.UnfoldClaims(lasting, r.fleet.ID(), 0, r.now.Add(time.Hour))
		if err == nil {
			_, err = r.store.CancelRun(lasting, id, input.Change{Actor: "test"})
		}
		if err != nil {
			r.t.Error(err)
		}
		return r.cutOff(ctx)
	}
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	ended := slices.Sorted(slices.Values(offsets(r, r.settled())))
	if diff := cmp.Diff([]string{"1s schedule cancelled #1", "1s schedule succeeded #1"}, ended); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if one := r.runNow(id); len(one.Attempts) != 1 || one.Attempts[0].State != run.Cancelled || one.Attempts[0].Late == nil {
		t.Errorf("attempts of the cancelled run: %+v, want one with the result of the attempt that was cut off", one.Attempts)
	}
}
