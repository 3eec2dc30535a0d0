package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// chain declares a job without triggers, which others may follow.
func (r *rig) chain(name string, change func(*dispatcher.Job)) {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: name}
	job.SetDefaults()
	job.Retry = run.Retry{MaxAttempts: 1, Base: run.DefaultBase, Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}
	job.Target.Webhook = &target.Webhook{URL: "http://" + name + "/", Method: "POST", Timeout: target.DefaultTimeout}
	if change != nil {
		change(&job)
	}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

// follow handles the runs that have ended, and lets the runs that this queues end, until none is left.
func (r *rig) follow() {
	r.t.Helper()
	for {
		r.quiet()
		done, err := r.store.FollowEnds(r.t.Context(), dispatcher.FollowQuery{Limit: followPage})
		if err != nil {
			r.t.Fatal(err)
		}
		if done.Queued == 0 {
			return
		}
		if err := r.adopt(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// called returns the jobs of the calls, each with the run that it follows.
func (r *rig) called() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		text := call.Job
		if c := call.Cause; c != nil {
			text += " " + c.On + " " + string(c.State)
		}
		all = append(all, text)
	}
	return all
}

func TestDeepChainRunsToItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Job == "c" {
			return broken()
		}
		return run.Outcome{State: run.Succeeded, HTTPStatus: 200,
			Response: &run.Response{Body: fmt.Sprintf(`{"from": %q}`, call.Job)}}
	}
	r.chain("d", nil)
	r.chain("c", func(j *dispatcher.Job) {
		j.OnSuccess, j.OnFailure = &dispatcher.Follow{Jobs: []string{"d"}},
			&dispatcher.Follow{Jobs: []string{"d"}, Payload: dispatcher.FollowResult}
	})
	r.chain("b", func(j *dispatcher.Job) {
		j.Payload = json.RawMessage(`"own"`)
		j.OnSuccess = &dispatcher.Follow{Jobs: []string{"c"}, Payload: dispatcher.FollowResult}
	})
	r.chain("a", func(j *dispatcher.Job) { j.OnSuccess = &dispatcher.Follow{Jobs: []string{"b"}} })
	first := r.requestRun("a")
	r.follow()
	want := []string{"a", "b on_success succeeded", "c on_success succeeded", "d on_failure failed"}
	if diff := cmp.Diff(want, r.called()); diff != "" {
		t.Fatalf("calls (-want +got):\n%s", diff)
	}
	if got := string(r.calls[1].Payload); got != `"own"` {
		t.Errorf("b gets payload %s, want its own", got)
	}
	var document dispatcher.FollowDocument
	if err := json.Unmarshal(r.calls[2].Payload, &document); err != nil {
		t.Fatal(err)
	}
	if string(document.Result) != `{"from":"b"}` || document.Parent.Job != "b" || document.Parent.Run != r.calls[1].Key.String() {
		t.Errorf("c gets %s, want the result of b", r.calls[2].Payload)
	}
	events := map[string]bool{}
	for _, call := range r.calls {
		events[call.EventID] = true
		if !call.Key.ScheduledAt.Equal(first.ScheduledAt) {
			t.Errorf("job %s is scheduled at %s, want %s as the first", call.Job, call.Key.ScheduledAt, first.ScheduledAt)
		}
	}
	if len(events) != len(r.calls) {
		t.Errorf("%d calls have %d event ids", len(r.calls), len(events))
	}
	if refs := r.runNow(first.ID).FollowedBy; len(refs) != 1 || refs[0].Job != "b" || refs[0].State != run.Succeeded {
		t.Errorf("the first run is followed by %+v, want b", refs)
	}
}

func TestFireOfAClaimIsFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.chain("child", nil)
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = "rate(1s)"
	job := dispatcher.Job{App: "app", Name: "parent",
		JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"only": trigger}}}
	job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
	job.OnSuccess = &dispatcher.Follow{Jobs: []string{"child"}}
	if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	r.poll(3 * time.Second)
	r.claimOnce(t.Context(), r.clock.Now())
	r.quiet()
	select {
	case <-r.wakeFollow:
	default:
		t.Error("the record of a run that is followed did not wake the loop")
	}
	if err := r.followOnce(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.wakeAdopt:
	default:
		t.Error("runs that were queued did not wake the loop that adopts them")
	}
	if err := r.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.follow()
	got := strings.Join(r.called(), ", ")
	if n := strings.Count(got, "child on_success succeeded"); n == 0 || n != strings.Count(got, "parent") {
		t.Errorf("calls: %s; want each run of parent followed by one of child", got)
	}
	first := r.settled()[0].ScheduledAt
	found, err := verify.Explain(t.Context(), r.store, verify.ExplainQuery{App: "app", Job: "parent", Trigger: "only", At: first, Now: r.now})
	if err != nil || found.Run == nil || len(found.Run.FollowedBy) != 1 {
		t.Fatalf("explain: %+v, %v; want a run and what followed it", found, err)
	}
	want := "on_success is followed by run " + found.Run.FollowedBy[0].Run + " of app/child, succeeded"
	if last := found.Steps[len(found.Steps)-1]; last.What != want || !last.At.Equal(*found.Run.EndedAt) {
		t.Errorf("the last step is %q at %s; want %q when the run ended", last.What, last.At, want)
	}
}

func TestDeliveryIsAttemptedAgainAndIsNotFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Key.Kind == run.KindFollow && call.Attempt == 2 {
			return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
		}
		return broken()
	}
	to := target.FollowDestination{Webhook: &target.FollowWebhook{URL: "http://dead-letters/"}}
	r.chain("parent", func(j *dispatcher.Job) { j.OnFailure = &dispatcher.Follow{FollowDestination: to} })
	r.requestRun("parent")
	r.follow()
	want := []string{"parent", "parent.on_failure on_failure failed"}
	if diff := cmp.Diff(want, r.called()); diff != "" {
		t.Fatalf("calls (-want +got):\n%s", diff)
	}
	id := r.calls[1].Key.String()
	one := r.runNow(id)
	if one.State != run.Retrying || one.Kind != run.KindFollow || one.Cause.Run != r.calls[0].Key.String() {
		t.Errorf("the delivery is %+v, want it retrying, because of the first run", one)
	}
	if url := r.calls[1].Target.Webhook.URL; url != "http://dead-letters/" {
		t.Errorf("the delivery goes to %s", url)
	}
}
