package dispatcher_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestDefaultsFillMissingFieldsOfAJob(t *testing.T) {
	t.Parallel()
	defaults := &dispatcher.JobDefaults{
		Timezone: "Europe/Berlin", Retry: &run.Retry{MaxAttempts: 7, Base: 1, Cap: 2, MaxAge: 3},
		Headers:       map[string]string{"X-Team": "finance", "x-source": "carillon"},
		MisfirePolicy: dispatcher.Skip, ConcurrencyPolicy: run.ConcurrencyQueue,
	}
	trigger := func(expression, zone string, policy dispatcher.MisfirePolicy) dispatcher.Trigger {
		return dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: expression, Timezone: zone},
			MisfirePolicy: policy}}
	}
	bare := func() dispatcher.Job {
		return dispatcher.Job{
			JobSpec: dispatcher.JobSpec{
				Target: target.Target{Webhook: &target.Webhook{Headers: map[string]string{"X-Source": "mine"}}},
				Triggers: map[string]dispatcher.Trigger{
					"cron": trigger("0 2 * * *", "", ""), "utc": trigger("0 2 * * *", "UTC", dispatcher.FireAll), "rate": trigger("rate(5m)", "", ""),
					"local": trigger("at(2030-01-01T08:00:00)", "", ""), "instant": trigger("at(2030-01-01T08:00:00Z)", "", ""),
				},
			},
		}
	}
	filled := bare()
	defaults.Fill(&filled)
	want := bare()
	want.Retry, want.ConcurrencyPolicy = *defaults.Retry, run.ConcurrencyQueue
	want.Target.Webhook.Headers = map[string]string{"X-Source": "mine", "X-Team": "finance"}
	want.Triggers = map[string]dispatcher.Trigger{
		"cron": trigger("0 2 * * *", "Europe/Berlin", dispatcher.Skip), "utc": trigger("0 2 * * *", "UTC", dispatcher.FireAll),
		"rate":    trigger("rate(5m)", "", dispatcher.Skip), // its fires do not depend on a zone
		"local":   trigger("at(2030-01-01T08:00:00)", "Europe/Berlin", dispatcher.Skip),
		"instant": trigger("at(2030-01-01T08:00:00Z)", "", dispatcher.Skip),
	}
	if diff := cmp.Diff(want, filled); diff != "" {
		t.Errorf("filled by the app (-want +got):\n%s", diff)
	}

	grouped := bare()
	grouped.Target = target.Target{Group: &target.GroupTarget{Name: "workers", Headers: map[string]string{"X-Source": "mine"}}}
	defaults.Fill(&grouped)
	if diff := cmp.Diff(want.Target.Webhook.Headers, grouped.Target.Group.Headers); diff != "" {
		t.Errorf("headers of a request to a group (-want +got):\n%s", diff)
	}

	given := bare()
	given.Retry, given.ConcurrencyPolicy = run.Retry{MaxAttempts: 1}, run.ConcurrencyForbid
	defaults.Fill(&given)
	if given.Retry.MaxAttempts != 1 || given.Retry.Base != 0 || given.ConcurrencyPolicy != run.ConcurrencyForbid {
		t.Errorf("a job's own retry %+v and policy %s were overwritten", given.Retry, given.ConcurrencyPolicy)
	}

	general := bare()
	(*dispatcher.JobDefaults)(nil).Fill(&general)
	if got := general.Triggers["cron"]; got.Timezone != "" || got.MisfirePolicy != dispatcher.FireOnce ||
		general.ConcurrencyPolicy != run.ConcurrencyAllow || general.Retry.MaxAttempts != run.DefaultAttempts {
		t.Errorf("an app without defaults gives %+v, %+v", general, got)
	}
}

func TestDefaultsAreCheckedLikeTheFieldsTheyFill(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		defaults dispatcher.JobDefaults
		want     string // "path code"
	}{
		"a zone":           {dispatcher.JobDefaults{Timezone: "Mars/Olympus"}, "/defaults/timezone tz_unknown"},
		"a misfire policy": {dispatcher.JobDefaults{MisfirePolicy: "never"}, "/defaults/misfire_policy enum"},
		"a policy":         {dispatcher.JobDefaults{ConcurrencyPolicy: "Forbid"}, "/defaults/concurrency_policy enum"},
		"attempts": {dispatcher.JobDefaults{Retry: &run.Retry{MaxAttempts: 101, Base: 1e9, Cap: 1e9, MaxAge: 1e9}},
			"/defaults/retry/max_attempts attempts_range"},
		"no retry":           {dispatcher.JobDefaults{Retry: &run.Retry{}}, "/defaults/retry/max_attempts required"},
		"a header":           {dispatcher.JobDefaults{Headers: map[string]string{"Host": "a"}}, "/defaults/headers/Host header_reserved"},
		"a header's content": {dispatcher.JobDefaults{Headers: map[string]string{"X": "{{.Nothing}}"}}, "/defaults/headers/X template_field"},
		"nothing":            {dispatcher.JobDefaults{}, ""},
		"all": {dispatcher.JobDefaults{Timezone: "Europe/Berlin", Headers: map[string]string{"X-Run": "{{.Run}}"},
			MisfirePolicy: dispatcher.Skip, ConcurrencyPolicy: run.ConcurrencyForbid}, ""},
	} {
		var problems input.Problems
		err := access.App{Name: "shop", AppSpec: access.AppSpec{Defaults: &tt.defaults}}.Validate()
		switch errors.As(err, &problems); {
		case tt.want == "" && err == nil:
		case len(problems) != 1 || problems[0].Path+" "+problems[0].Code != tt.want:
			t.Errorf("%s: %v, want %s", name, problems, tt.want)
		}
	}
}

func TestWallClockExpressionsNeedAZone(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]bool{
		"0 2 * * *": true, "0 0 2 * * ?": true, "@daily": true, "every 45 minutes from 9:00 to 17:00": true, "cron(0 2 * * ? *)": true,
		"every 3 months": true, "every 1 day": true, "every 2 hours": false, "rate(1 day)": false, "@every 5m": false, "delay(30s)": false,
		"at(2030-01-01T08:00:00Z)": false, "2030-01-01T08:00:00+02:00": false, "": false, "nonsense": false,
		"at(2030-01-01T08:00:00)": false, // Validate reports the missing zone or offset
	} {
		err := dispatcher.Schedule{Expression: expression}.CheckTimezone()
		var problem *input.Problem
		if got := errors.As(err, &problem); got != want || got && (problem.Code != input.CodeTZRequired || problem.Path != "/timezone") {
			t.Errorf("%q without a zone: %v, want it to be refused: %t", expression, err, want)
		}
		if err := (dispatcher.Schedule{Expression: expression, Timezone: "UTC"}).CheckTimezone(); err != nil {
			t.Errorf("%q in UTC: %v", expression, err)
		}
	}
	if !schedule.WallClock("at(2030-01-01T08:00:00)", schedule.DialectAWS) || schedule.WallClock("rate(1 day)", schedule.DialectAWS) {
		t.Error("of EventBridge's expressions, at(...) is a local time and rate(...) is not")
	}
}
