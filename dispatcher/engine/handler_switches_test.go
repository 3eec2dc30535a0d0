package engine

import (
	"fmt"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The change of an app's switch applies to some thousand triggers, and the handler applies it to all others.
func TestHandlerLetsAllTriggersFollowTheirAppsSwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = "rate(1h)"
	for i := range 33 {
		job := dispatcher.Job{App: "app", Name: fmt.Sprint("job-", i),
			JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
		for k := range 100 {
			job.Triggers[fmt.Sprint("t", k)] = trigger
		}
		if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.store.PutApp(t.Context(), access.App{Name: "app"}, input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	if err := r.chores.Round(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	if left, more, err := r.store.FollowSwitches(t.Context(), 10); err != nil || left != 0 || more {
		t.Errorf("after a round of the handler %d triggers and more (%t) are left to follow, %v; want none", left, more, err)
	}
}
