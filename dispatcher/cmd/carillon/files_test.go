package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// declareFinance declares an app with most features of an app, and with texts that a terminal or a
// Terraform template would interpret.
func declareFinance(t *testing.T, n *process) {
	t.Helper()
	ctx, absent := t.Context(), client.Condition{Absent: true}
	app := access.App{Name: "finance", AppSpec: access.AppSpec{Description: "pays ${bills} at %{if} \x22night\x22\n\u202e", Enabled: true,
		Retention: input.Duration(48 * time.Hour), Bounds: &target.Bounds{Lambda: target.LambdaBounds{Functions: []string{"*"}}}}}
	app.Defaults = &dispatcher.JobDefaults{Timezone: "Europe/Berlin", Headers: map[string]string{"X-Default": "d"},
		MisfirePolicy: "skip", ConcurrencyPolicy: "forbid", Retry: &run.Retry{MaxAttempts: 7, Base: run.DefaultBase,
			Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}}
	must[access.App](t)(n.PutApp(ctx, app, absent))
	for _, c := range []dispatcher.Calendar{
		{App: "finance", Name: "holidays", CalendarSpec: dispatcher.CalendarSpec{Timezone: "Europe/Berlin", Rules: []schedule.CalendarRule{
			{Dates: []string{"12-25", "2027-05-01"}}, {From: "22:00", To: "06:00"}, {DaysOfMonth: []int{13}, Only: false}}}},
		{App: "finance", Name: "closed",
			CalendarSpec: dispatcher.CalendarSpec{Timezone: "Europe/Berlin", Bases: []string{"holidays"}, Rules: []schedule.CalendarRule{
				{Weekdays: []string{"SAT", "SUN"}}}}},
	} {
		must[dispatcher.Calendar](t)(n.PutCalendar(ctx, c, absent))
	}
	for _, job := range financeJobs() {
		must[dispatcher.Job](t)(n.PutJob(ctx, job, absent))
	}
}

func financeJobs() []dispatcher.Job {
	start := time.Date(2030, 5, 1, 10, 0, 0, 0, time.UTC)
	nightly := webhookJob("finance", "nightly", "https://example.com/run?a=1&b={{.Job}}", nil)
	nightly.Description = "\x22quoted\x22 \\ ${var.x}"
	nightly.Payload = []byte(`{"sum":12345678901234567890.125,"list":[1,null,true,"<ü>"],"with space":{"k":"${x}"}}`)
	nightly.NodeLabels = input.Labels{"zone": "a"}
	nightly.Retry.SetDefaults()
	nightly.Retry.MaxAttempts = 5
	w := nightly.Target.Webhook
	w.Headers = map[string]string{"X-A": "b", "X-Template": "{{.ScheduledAt}}"}
	w.Timeout = input.Duration(time.Hour)
	w.SuccessCodes = []target.SuccessCode{"204"}
	w.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Value: input.NewSensitive("hunter2")}}}
	w.Signing = &target.Signing{Secrets: map[string]target.Secret{
		"old": {Reference: "env:SECRET_FINANCE_OLD"},
		"new": {Value: input.NewSensitive("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")},
	}}
	for name, s := range map[string]dispatcher.Schedule{
		"berlin":  {Expression: "0 30 8 * * ?", Timezone: "Europe/Berlin", Calendar: "closed", OnExcluded: "skip"},
		"utc":     {Expression: "*/10 * * * *", Timezone: "UTC", Jitter: input.Duration(30 * time.Second)},
		"aws":     {Expression: "rate(1 day)", Dialect: "aws"},
		"overlap": {Expression: "0 0 12 * * ?", Timezone: "Europe/Berlin", Gap: "next", Overlap: "both"},
		"once":    {Expression: "at(2030-05-01T10:00:00Z)", Timezone: "UTC"},
		"later":   {Expression: "rate(5m)", StartAt: &start, RepeatCount: 7},
	} {
		trigger := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: s}}
		trigger.SetDefaults()
		nightly.Triggers[name] = trigger
	}
	lambda := dispatcher.Job{App: "finance", Name: "9lives",
		JobSpec: dispatcher.JobSpec{Enabled: false, Triggers: map[string]dispatcher.Trigger{}}}
	lambda.Target.Lambda = &target.Lambda{}
	lambda.Target.Lambda.SetDefaults()
	lambda.Target.Lambda.Function = "123456789012:function:report:live"
	lambda.Target.Lambda.Region = "eu-central-1"
	lambda.Target.Lambda.ClientContext = []byte(`{"custom":{"a":"b"}}`)
	return []dispatcher.Job{nightly, lambda}
}

// providerFile is the further configuration of a directory with resources of the provider.
const providerFile = `terraform {
  required_providers {
    carillon = {
      source = "carillon-dev/carillon"
    }
  }
}
`

// TestExportIsImportedWithoutAChange moves an app that was declared by hand to Terraform.
func TestExportIsImportedWithoutAChange(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	dir := t.TempDir()
	database := "sqlite:" + filepath.Join(dir, "carillon.db")
	token := newToken(t, database)
	keys := filepath.Join(dir, "keys")
	if err := os.WriteFile(keys, []byte(newKey()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, database, token, "--secret-keys-file", keys)
	declareFinance(t, n)
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + token}

	exported, errs, code := carillon(t, env, "export", "finance")
	if code != 0 {
		t.Fatalf("export: exit %d\n%s", code, errs)
	}
	if strings.Contains(exported, "hunter2") || strings.ContainsAny(exported, "\u202e\x1b") {
		t.Errorf("the export holds a secret or a raw control character:\n%s", exported)
	}
	w := emptyWorkspace(t, n)
	w.env = append(w.env, "TF_VAR_secret_nightly_auth_bearer_token=hunter2",
		"TF_VAR_secret_nightly_signing_secret_new=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	for name, text := range map[string]string{"main.tf": exported, "provider.tf": providerFile} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, errs, code := carillon(t, nil, "lint", w.dir); code != 0 || out != "" {
		t.Errorf("lint of the export: exit %d\n%s%s", code, out, errs)
	}
	if out, code := w.terraform("validate", "-no-color"); code != 0 {
		t.Fatalf("terraform validate: exit %d\n%s\n%s", code, out, exported)
	}
	if out, _ := w.terraform("plan", "-no-color"); !strings.Contains(out, "Plan: 5 to import, 0 to add, 0 to change, 0 to destroy.") {
		t.Errorf("plan of the export:\n%s\n%s", out, exported)
	}
	if out, errs, code := carillon(t, env, "diff", w.dir); code != 0 || out != "" {
		t.Errorf("diff of the export: exit %d\n%s%s", code, out, errs)
	}
	w.apply()
	if out, code := w.terraform("plan", "-no-color", "-detailed-exitcode"); code != 0 {
		t.Errorf("plan after the import: exit %d\n%s", code, out)
	}
}
