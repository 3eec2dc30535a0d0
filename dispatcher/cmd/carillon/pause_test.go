package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/test/need"
)

// A team pauses its jobs for two hours, sees that everywhere, and ends the pause early.
func TestPauseByLabelIsSeenByEveryCommand(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	s := newShop(t)
	run := func(command, args string) string {
		t.Helper()
		out, errs, code := s.as("writer", "", command, args)
		if code != 0 {
			t.Fatalf("carillon %s %s: exit %d: %s%s", command, args, code, out, errs)
		}
		return out
	}
	var pause dispatcher.AppPause
	added := run("pause add", "shop --label team=payments --reason migration --until 2h -o json")
	if err := json.Unmarshal([]byte(added), &pause); err != nil {
		t.Fatal(err)
	}
	if pause.Until == nil || pause.Until.Sub(pause.PausedAt).Round(time.Minute) != 2*time.Hour {
		t.Errorf("the pause is from %s until %v, want two hours", pause.PausedAt, pause.Until)
	}
	who := "jobs of app shop with labels team=payments are paused by writer since "
	for _, tt := range []struct{ command, args, want string }{
		{"pause list", "shop", "team=payments"},
		{"pause list", "shop", pause.ID},
		{"job list", "shop", "paused"},
		{"job show", "shop/orders", who},
		{"app show", "shop", who},
		{"audit", "shop --action pause", "pause " + pause.ID},
	} {
		if out := run(tt.command, tt.args); !strings.Contains(out, tt.want) {
			t.Errorf("carillon %s %s prints\n%swithout %q", tt.command, tt.args, out, tt.want)
		}
	}
	forever := run("pause add", "shop")
	if out := run("next", "shop --for 48h"); !strings.Contains(out, "all jobs of app shop are paused") {
		t.Errorf("carillon next does not say that the app is paused:\n%s", out)
	}
	id := strings.Fields(forever[strings.Index(forever, "remove shop ")+len("remove shop "):])[0]
	for _, one := range []string{id, pause.ID} {
		run("pause remove", "shop "+one)
	}
	if out := run("job show", "shop/orders"); strings.Contains(out, "are paused") {
		t.Errorf("after the pauses the job is shown as\n%s", out)
	}
	if _, errs, code := s.as("writer", "", "pause add", "shop --until tomorrow"); code != exitUsage || !strings.Contains(errs, "--until") {
		t.Errorf("--until tomorrow: exit %d: %s", code, errs)
	}
	if out := run("job pause", "shop/orders --until 1h"); !strings.Contains(out, "is paused") {
		t.Errorf("job pause prints %s", out)
	}
	if out := run("job show", "shop/orders"); !strings.Contains(out, ", until ") {
		t.Errorf("the pause of the job shows no end:\n%s", out)
	}
}

func TestNextMarksFiresUntilTheEndOfAPause(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		pause func(*dispatcher.Job, *dispatcher.Trigger)
		want  string
	}{
		"of the app": {func(j *dispatcher.Job, _ *dispatcher.Trigger) {
			j.Pauses = []dispatcher.AppPause{{App: "shop", AppPauseRequest: dispatcher.AppPauseRequest{Until: &end}}}
		}, "all jobs of app shop are paused"},
		"of the job":     {func(j *dispatcher.Job, _ *dispatcher.Trigger) { j.Paused, j.PausedUntil = true, &end }, "the job is paused"},
		"of the trigger": {func(_ *dispatcher.Job, t *dispatcher.Trigger) { t.Paused, t.PausedUntil = true, &end }, "paused"},
	} {
		job, trigger := dispatcher.Job{App: "shop",
			JobSpec: dispatcher.JobSpec{Enabled: true}}, dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Enabled: true}}
		tt.pause(&job, &trigger)
		app := access.App{AppSpec: access.AppSpec{Enabled: true}}
		if got := whyHeld(app, job, trigger, end.Add(-time.Second)); got != tt.want {
			t.Errorf("%s, before its end: held because %q, want %q", name, got, tt.want)
		}
		if got := whyHeld(app, job, trigger, end); got != "" {
			t.Errorf("%s, at its end: held because %q, want nothing", name, got)
		}
	}
}
