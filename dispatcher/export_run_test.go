package dispatcher_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

var exportedAt = time.Date(2027, 3, 1, 6, 0, 0, 0, time.UTC)

// movingApp returns an export of a job "parent", which "child" and a delivery follow, and of an alert "night".
func movingApp() access.Export {
	one := func(name string) access.ExportedJob {
		trigger := dispatcher.Trigger{}
		trigger.SetDefaults()
		trigger.Expression = "rate(10m)"
		job := dispatcher.Job{App: "app", Name: name, JobSpec: dispatcher.JobSpec{Triggers: map[string]dispatcher.Trigger{"t": trigger}}}
		job.SetDefaults()
		job.Target.Webhook = &target.Webhook{URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout}
		(*dispatcher.JobDefaults)(nil).Fill(&job)
		return access.ExportedJob{Job: job, Revision: 1, Triggers: map[string]dispatcher.ExportedTrigger{
			"t": {State: dispatcher.TriggerWaiting, AnchorAt: exportedAt}}}
	}
	parent, child := one("parent"), one("child")
	parent.Job.OnFailure = &dispatcher.Follow{Jobs: []string{"child"},
		FollowDestination: target.FollowDestination{Webhook: &target.FollowWebhook{URL: "https://example.com/"}}}
	a := alert.Alert{App: "app", Name: "night",
		Spec: alert.Spec{AlertConditionsOf: alert.AlertConditionsOf{Failure: &alert.Failures{After: 1}}}}
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = "https://pager.example.com/"
	return access.Export{
		Format: access.ExportFormat, Installation: "there", ExportedAt: exportedAt, App: access.App{Name: "app",
			AppStatus: access.AppStatus{Revision: 1}},
		Jobs: []access.ExportedJob{parent, child}, Alerts: []alert.Alert{a.Resolved()},
	}
}

// waiting returns a waiting run of a job. A run with an id of its own has that of key, and input names its cause.
func waiting(job string, kind run.Kind, key run.Key, input *run.Input) access.ExportedRun {
	run := access.ExportedRun{Job: job, Kind: kind, ScheduledAt: exportedAt, State: run.Retrying, Attempt: 1, Input: input}
	if kind.HasOwnID() {
		run.Run = key.String()
	}
	return run
}

// endedRun returns the key of a run of a trigger of an app.
func endedRun(app, job string) run.Key {
	return run.Key{TriggerID: run.TriggerID(app, job, "t"), ScheduledAt: exportedAt, Kind: run.KindSchedule}
}

func cause(of run.Key, on run.FollowEvent) *run.Input {
	return &run.Input{Cause: &run.Cause{Run: of.String(), On: string(on)}}
}

// notification returns the input of a run that delivers a notification about a job.
func notification(job string, condition target.AlertCondition, transition target.AlertTransition) *run.Input {
	text, _ := json.Marshal(target.AlertNotification{App: "app", Alert: "night", Job: job, Condition: condition, Transition: transition})
	return &run.Input{Payload: text, Cause: &run.Cause{Alert: "night"}}
}

func problemsOf(t *testing.T, err error) (found []string) {
	t.Helper()
	var problems input.Problems
	if err != nil && !errors.As(err, &problems) {
		t.Fatalf("got error %v, want problems", err)
	}
	for _, one := range problems {
		found = append(found, one.Code+" "+one.Path)
	}
	return found
}

// The id of a run that follows another one, or notifies of an alert, does not show the job that it belongs to. An
// import accepts it only if the run's cause and jobs give that id: another id may belong to another app.
func TestImportedRunsBelongToTheirJobs(t *testing.T) {
	t.Parallel()
	follower := func(of run.Key, on run.FollowEvent, app, job string, kind run.Kind) run.Key {
		return dispatcher.FollowerKey(nil, of, on, run.JobID(app, job), kind)
	}
	told := func(app, alert, job string, condition target.AlertCondition) run.Key {
		id := int64(0)
		if job != "" {
			id = run.JobID(app, job)
		}
		return run.Key{TriggerID: dispatcher.AlertStateID(nil, dispatcher.AlertID(app, alert), id, condition), ScheduledAt: exportedAt,
			Kind: run.KindAlert}
	}
	const chain, follow, alert = run.KindChain, run.KindFollow, run.KindAlert
	own, theirs := endedRun("app", "parent"), endedRun("victim", "parent")
	missed := own
	missed.Kind = ""
	ofMissed := &run.Input{Missed: own.String(), Cause: &run.Cause{On: string(run.OnMisfire)}}
	for name, tt := range map[string]struct {
		run  access.ExportedRun
		want string
	}{
		"a run that follows one of the app": {
			waiting("child", chain, follower(own, run.OnFailure, "app", "child", chain), cause(own, run.OnFailure)), ""},
		"a delivery": {waiting("parent.on_failure", follow, follower(own, run.OnFailure, "app", "parent.on_failure", follow),
			cause(own, run.OnFailure)), ""},
		"a run that follows missed fires": {
			waiting("child", chain, follower(missed, run.OnMisfire, "app", "child", chain), ofMissed), ""},
		"a notification": {waiting("night.alert", alert, told("app", "night", "parent", target.AlertFailure),
			notification("parent", target.AlertFailure, target.AlertFiring)), ""},
		"a notification about a deleted job": {waiting("night.alert", alert, told("app", "night", "gone", target.AlertFailure),
			notification("gone", target.AlertFailure, target.AlertResolved)), ""},
		"a test of an alert": {waiting("night.alert", alert, told("app", "night", "", ""),
			notification("", target.AlertFailure, target.AlertTest)), ""},

		"a run of another app": {
			waiting("child", chain, follower(theirs, run.OnFailure, "victim", "child", chain), cause(theirs, run.OnFailure)),
			"enum /waiting_runs/0/run"},
		"a run of another app without a cause": {
			waiting("child", chain, follower(theirs, run.OnFailure, "victim", "child", chain), nil), "enum /waiting_runs/0/run"},
		"a run of another app, after an own run": {
			waiting("child", chain, follower(theirs, run.OnFailure, "victim", "child", chain), cause(own, run.OnFailure)),
			"enum /waiting_runs/0/run"},
		"a run of another event": {
			waiting("child", chain, follower(own, run.OnSuccess, "app", "child", chain), cause(own, run.OnFailure)),
			"enum /waiting_runs/0/run"},
		"a run of an unknown event": {
			waiting("child", chain, follower(own, "on_fire", "app", "child", chain), cause(own, "on_fire")), "enum /waiting_runs/0/run"},
		"a run of another job of the app": {
			waiting("parent", chain, follower(own, run.OnFailure, "app", "child", chain), cause(own, run.OnFailure)),
			"enum /waiting_runs/0/run"},
		"a delivery of another app": {
			waiting("parent.on_failure", follow, follower(theirs, run.OnFailure, "victim", "parent.on_failure", follow),
				cause(theirs, run.OnFailure)), "enum /waiting_runs/0/run"},
		"a run that follows missed fires of another app": {
			waiting("child", chain, follower(missed, run.OnMisfire, "victim", "child", chain), ofMissed), "enum /waiting_runs/0/run"},
		"a notification of another app": {waiting("night.alert", alert, told("victim", "night", "parent", target.AlertFailure),
			notification("parent", target.AlertFailure, target.AlertFiring)), "enum /waiting_runs/0/run"},
		"a notification by a job": {waiting("child", alert, told("app", "night", "parent", target.AlertFailure),
			notification("parent", target.AlertFailure, target.AlertFiring)), "enum /waiting_runs/0/run"},
		"a shard": {waiting("child", chain, run.Key{TriggerID: own.TriggerID, ScheduledAt: exportedAt, Kind: chain, Shard: 2}, nil),
			"enum /waiting_runs/0/run"},
		"a fire of a trigger that the job lacks": {waiting("child", run.KindSchedule, run.Key{}, nil),
			"enum /waiting_runs/0/trigger"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			export := movingApp()
			export.Waiting = []access.ExportedRun{tt.run}
			got := ""
			for _, one := range problemsOf(t, export.Validate()) {
				got += one
			}
			if got != tt.want {
				t.Errorf("problems are %q, want %q", got, tt.want)
			}
		})
	}
}

// The ids of runs depend on the salt of the export: an id made with another salt, or without one, is refused.
func TestImportedRunsHaveIDsMadeWithTheirSalt(t *testing.T) {
	t.Parallel()
	salt, other := run.NewSalt(), run.NewSalt()
	own := endedRun("app", "parent")
	missed := own
	missed.Kind = ""
	condition := target.AlertFailure
	runs := func(salt run.Salt) map[string]access.ExportedRun {
		follower := func(of run.Key, on run.FollowEvent, job string, kind run.Kind) run.Key {
			return dispatcher.FollowerKey(salt, of, on, run.JobID("app", job), kind)
		}
		told := run.Key{ScheduledAt: exportedAt, Kind: run.KindAlert,
			TriggerID: dispatcher.AlertStateID(salt, dispatcher.AlertID("app", "night"), run.JobID("app", "parent"), condition)}
		return map[string]access.ExportedRun{
			"a run of a job": waiting("child", run.KindChain, follower(own, run.OnFailure, "child", run.KindChain),
				cause(own, run.OnFailure)),
			"a delivery": waiting("parent.on_failure", run.KindFollow,
				follower(own, run.OnFailure, "parent.on_failure", run.KindFollow), cause(own, run.OnFailure)),
			"a run after missed fires": waiting("child", run.KindChain, follower(missed, run.OnMisfire, "child", run.KindChain),
				&run.Input{Missed: own.String(), Cause: &run.Cause{On: string(run.OnMisfire)}}),
			"a notification": waiting("night.alert", run.KindAlert, told, notification("parent", condition, target.AlertFiring)),
		}
	}
	for name, tt := range map[string]struct {
		made, file run.Salt
		want       string
	}{
		"the salt of the file":               {salt, salt, ""},
		"no salt, and none in the file":      {nil, nil, ""},
		"no salt, and one in the file":       {nil, salt, "enum /waiting_runs/0/run"},
		"a salt, and none in the file":       {salt, nil, "enum /waiting_runs/0/run"},
		"another salt than that of the file": {other, salt, "enum /waiting_runs/0/run"},
	} {
		for kind, run := range runs(tt.made) {
			export := movingApp()
			export.Salt, export.Waiting = tt.file, []access.ExportedRun{run}
			if got := strings.Join(problemsOf(t, export.Validate()), ", "); got != tt.want {
				t.Errorf("%s with an id of %s: problems are %q, want %q", kind, name, got, tt.want)
			}
		}
	}
}

// Every number and instant of an export must fit into a database, with room for a node to count on.
func TestNumbersOfAnImportAreBounded(t *testing.T) {
	t.Parallel()
	manual := func(change func(*access.ExportedRun)) func(*access.Export) {
		return func(e *access.Export) {
			run := waiting("child", run.KindManual, run.Key{}, nil)
			change(&run)
			e.Waiting = []access.ExportedRun{run}
		}
	}
	trigger := func(change func(*dispatcher.ExportedTrigger)) func(*access.Export) {
		return func(e *access.Export) {
			one := e.Jobs[1].Triggers["t"]
			change(&one)
			e.Jobs[1].Triggers["t"] = one
		}
	}
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	for name, tt := range map[string]struct {
		change func(*access.Export)
		want   string
	}{
		"unchanged":         {func(*access.Export) {}, ""},
		"the most attempts": {manual(func(r *access.ExportedRun) { r.Attempt = access.MostRunAttempts }), ""},
		"too many attempts": {
			manual(func(r *access.ExportedRun) { r.Attempt = 1<<31 - 1 }), "count_range /waiting_runs/0/attempt",
		},
		"one attempt too many": {
			manual(func(r *access.ExportedRun) { r.Attempt = access.MostRunAttempts + 1 }), "count_range /waiting_runs/0/attempt",
		},
		"negative attempts": {
			manual(func(r *access.ExportedRun) { r.Attempt = -1 }), "count_range /waiting_runs/0/attempt",
		},
		"negative failures": {
			manual(func(r *access.ExportedRun) { r.Failures = -1 }), "count_range /waiting_runs/0/failures",
		},
		"more failures than attempts": {
			manual(func(r *access.ExportedRun) { r.Failures = 2 }), "count_range /waiting_runs/0/failures",
		},
		"a run before Unix time": {
			manual(func(r *access.ExportedRun) { r.ScheduledAt = year(1969) }), "time_range /waiting_runs/0/scheduled_at",
		},
		"a part of a millisecond": {
			manual(func(r *access.ExportedRun) { r.ScheduledAt = exportedAt.Add(1) }), "time_range /waiting_runs/0/scheduled_at",
		},
		"an attempt in year 1": {
			manual(func(r *access.ExportedRun) { r.NextAttemptAt = new(year(1)) }), "time_range /waiting_runs/0/next_attempt_at",
		},
		"retries until year 12000": {
			manual(func(r *access.ExportedRun) { r.RetryUntil = new(year(12000)) }), "time_range /waiting_runs/0/retry_until",
		},
		"a negative revision of a job":   {func(e *access.Export) { e.Jobs[1].Revision = -1 }, "count_range /jobs/1/revision"},
		"a revision beyond JSON":         {func(e *access.Export) { e.Jobs[1].Revision = 1 << 53 }, "count_range /jobs/1/revision"},
		"a negative revision of the app": {func(e *access.Export) { e.App.Revision = -1 }, "count_range /app/revision"},
		"the largest revision":           {func(e *access.Export) { e.App.Revision = 1<<63 - 1 }, "count_range /app/revision"},
		"negative fires": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.Fired = -1 }), "count_range /jobs/1/triggers/t/fired",
		},
		"more fires than fit": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.Fired = 1 << 31 }), "count_range /jobs/1/triggers/t/fired",
		},
		"no anchor": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.AnchorAt = time.Time{} }), "time_range /jobs/1/triggers/t/anchor_at",
		},
		"a next fire before Unix time": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.NextFireTime = new(year(1000)) }), "time_range /jobs/1/triggers/t/next_fire_time",
		},
		"a last fire before Unix time": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.PrevFireTime = new(year(1000)) }), "time_range /jobs/1/triggers/t/prev_fire_time",
		},
		"a pause until year 12000": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.PausedUntil = new(year(12000)) }), "time_range /jobs/1/triggers/t/paused_until",
		},
		"a pause of a job in year 1": {
			func(e *access.Export) { e.Jobs[1].PausedUntil = new(year(1)) }, "time_range /jobs/1/paused_until",
		},
		"an export without a time": {func(e *access.Export) { e.ExportedAt = time.Time{} }, "time_range /exported_at"},
		"a state that triggers never have": {
			trigger(func(t *dispatcher.ExportedTrigger) { t.State = "gone" }), "enum /jobs/1/triggers/t/state",
		},
		"a mute in year 1": {func(e *access.Export) { e.Alerts[0].Muted = &alert.Mute{Until: new(year(1))} },
			"time_range /alerts/0/muted/until"},
		"a salt":       {func(e *access.Export) { e.Salt = run.NewSalt() }, ""},
		"a short salt": {func(e *access.Export) { e.Salt = run.NewSalt()[1:] }, "count_range /salt"},
		"a long salt":  {func(e *access.Export) { e.Salt = make(run.Salt, 1<<20) }, "count_range /salt"},
		"a run twice": {func(e *access.Export) {
			run := waiting("child", run.KindManual, run.Key{}, nil)
			e.Waiting = []access.ExportedRun{run, run}
		}, "enum /waiting_runs/1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			export := movingApp()
			tt.change(&export)
			got := ""
			for _, one := range problemsOf(t, export.Validate()) {
				got += one
			}
			if got != tt.want {
				t.Errorf("problems are %q, want %q", got, tt.want)
			}
		})
	}
}

// A response lists 100 problems. Validate does not check an export with a million of them to its end.
func TestValidateOfAnExportStopsAtManyProblems(t *testing.T) {
	t.Parallel()
	const many = 5000
	for what, fill := range map[string]func(*access.Export){
		"jobs":      func(e *access.Export) { e.Jobs = make([]access.ExportedJob, many) },
		"alerts":    func(e *access.Export) { e.Alerts = make([]alert.Alert, many) },
		"groups":    func(e *access.Export) { e.Groups = make([]target.EndpointGroup, many) },
		"calendars": func(e *access.Export) { e.Calendars = make([]dispatcher.Calendar, many) },
		"runs":      func(e *access.Export) { e.Waiting = make([]access.ExportedRun, many) },
	} {
		export := movingApp()
		fill(&export)
		var problems input.Problems
		if err := export.Validate(); !errors.As(err, &problems) || len(problems) <= 100 || len(problems) > 150 {
			t.Errorf("%d empty %s: %d problems, want those of the first elements, a few more than 100", many, what, len(problems))
		}
	}
}
