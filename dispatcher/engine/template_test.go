package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// bodies are the request bodies of the calls so far.
func (r *rig) bodies() []string {
	r.t.Helper()
	var all []string
	for _, call := range r.calls {
		_, _, body, err := call.Request()
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, string(body))
	}
	return all
}

// putTemplated puts a job with one trigger. Its body has the values that templates know, in seconds from an instant on.
func (r *rig) putTemplated(trigger dispatcher.Trigger) {
	r.t.Helper()
	job := dispatcher.Job{App: "app", Name: "templated", JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{"only": trigger}}}
	job.SetDefaults()
	job.Retry.Delays = []input.Duration{0}
	job.Target.Webhook = &target.Webhook{
		URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout,
		Body: `{{if .PreviousFire}}{{date "%T" .PreviousFire}}{{else}}none{{end}} {{date "%T" .ScheduledAt}} ` +
			`{{if .NextFire}}{{date "%T" .NextFire}}{{else}}none{{end}} {{.Attempt}}`,
	}
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

func triggerOf(expression string) dispatcher.Trigger {
	var t dispatcher.Trigger
	t.SetDefaults()
	t.Expression = expression
	return t
}

// at formats an instant as the body does.
func (r *rig) at(after time.Duration) string { return r.now.Add(after).Format(time.TimeOnly) }

// They follow the schedule by which the run was claimed, even if its job and calendar change meanwhile.
func TestAttemptsOfARunSeeTheSameAdjacentFires(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.invoke = func(_ context.Context, call target.Call) run.Outcome {
		if call.Attempt < 3 {
			return broken()
		}
		return run.Outcome{State: run.Succeeded}
	}
	start := r.now
	calendar := dispatcher.Calendar{App: "app", Name: "pauses"}
	exclude := func(after ...time.Duration) {
		t.Helper()
		calendar.Rules = nil
		for _, one := range after {
			calendar.Rules = append(calendar.Rules, schedule.CalendarRule{Expression: start.Add(one).Format("5 4 15") + " * * ?"})
		}
		if _, _, err := r.store.PutCalendar(t.Context(), calendar, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	exclude(4*time.Second, 6*time.Second)
	trigger := triggerOf("rate(2s)")
	trigger.Calendar, trigger.StartAt = "pauses", &start
	r.putTemplated(trigger)
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(2*time.Second))
	one := r.settled()[0]
	if one.State != run.Retrying {
		t.Fatalf("run = %+v, want it to be attempted again", one)
	}
	want := []string{r.at(0) + " " + r.at(2*time.Second) + " " + r.at(8*time.Second) + " 1"}
	r.now = r.now.Add(2 * time.Second)
	exclude(8 * time.Second)
	r.retry(one.ID)
	r.putTemplated(triggerOf("rate(3s)"))
	r.retry(one.ID)
	want = append(want, want[0][:len(want[0])-1]+"2", want[0][:len(want[0])-1]+"3")
	if diff := cmp.Diff(want, r.bodies()); diff != "" {
		t.Errorf("bodies (-want +got):\n%s", diff)
	}
}

func TestRunsOfEachKindSeeAdjacentFires(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		expression string
		run        func(r *rig)
		want       func(r *rig) string
	}{
		"the first": {"rate(4s)", func(r *rig) {
			r.poll(5 * time.Second)
			r.claimOnce(r.t.Context(), r.now.Add(4*time.Second))
		}, func(r *rig) string { return "none " + r.at(4*time.Second) + " " + r.at(8*time.Second) + " 1" }},
		"a catch-up": {"rate(4s)", func(r *rig) {
			if err := r.settle(r.t.Context(), r.now.Add(10*time.Second)); err != nil {
				r.t.Fatal(err)
			}
		}, func(r *rig) string {
			return r.at(4*time.Second) + " " + r.at(8*time.Second) + " " + r.at(12*time.Second) + " 1"
		}},
		"a fixed delay": {"delay(4s)", func(r *rig) {
			r.poll(5 * time.Second)
			r.claimOnce(r.t.Context(), r.now.Add(4*time.Second))
		}, func(r *rig) string { return "none " + r.at(4*time.Second) + " none 1" }},
		"by hand": {"rate(4s)", func(r *rig) {
			if _, err := r.store.RequestRun(r.t.Context(), "app", "templated", nil, input.Change{Actor: "test", Now: r.now}); err != nil {
				r.t.Fatal(err)
			}
			if err := r.adopt(r.t.Context()); err != nil {
				r.t.Fatal(err)
			}
		}, func(r *rig) string { return "none " + r.at(0) + " none 1" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			trigger := triggerOf(tt.expression)
			trigger.MisfireAfter = input.Duration(time.Second)
			r.putTemplated(trigger)
			tt.run(r)
			r.quiet()
			if diff := cmp.Diff([]string{tt.want(r)}, r.bodies()); diff != "" {
				t.Errorf("bodies (-want +got):\n%s", diff)
			}
		})
	}
}
