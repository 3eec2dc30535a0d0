package provider

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
	"github.com/carillon-dev/carillon/provider/protocol"
)

func TestAttributePathFollowsJSONPointer(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]string{
		"":                                  "",
		"/name":                             "name",
		"/triggers":                         "trigger",
		"/triggers/nightly":                 `trigger["nightly"]`,
		"/triggers/triggers/expression":     `trigger["triggers"].expression`,
		"/triggers/headers/timezone":        `trigger["headers"].timezone`,
		"/triggers//expression":             `trigger[""].expression`,
		"/triggers/a~1b~0c/expression":      `trigger["a/b~c"].expression`,
		"/target/webhook/url":               "target.webhook.url",
		"/target/webhook/headers/X-Api-Key": `target.webhook.headers["X-Api-Key"]`,
		"/target/webhook/signing/secrets/a": `target.webhook.signing.secret["a"]`,
		"/payload/a/b":                      "payload",
		"/rules/0":                          "rule[0]",
		"/rules/10/from":                    "rule[10].from",
		"/rules/0/days_of_month/1":          "rule[0].days_of_month[1]",
		"/bases/1":                          "bases[1]",
		"/triggers/rules/calendar":          `trigger["rules"].calendar`,
		"/triggers/0/calendar":              `trigger["0"].calendar`,
		"/defaults/timezone":                "default_timezone",
		"/defaults/headers/X-A":             `default_headers["X-A"]`,
		"/defaults/retry/delays/1":          "default_retry.delays[1]",
		"/triggers/defaults/expression":     `trigger["defaults"].expression`,
		"/target/webhook/success_codes/0":   "target.webhook.success_codes[0]",
	} {
		if got := paths().Of(pointer).String(); got != want {
			t.Errorf("paths().Of(%q) = %s, want %s", pointer, got, want)
		}
	}
}

func TestMessagesNameTheirAttributeOnce(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]input.Problem{
		`rule[0].dates[1]: "25.12.": no such date`: {Path: "/rules/0/dates/1", Message: `rules/0/dates/1 "25.12.": no such date`},
		`rule[0]: a rule has exactly one of them`:  {Path: "/rules/0", Message: `rules/0: a rule has exactly one of them`},
		`timezone: "CEST": no zone`:                {Path: "/timezone", Message: `timezone "CEST": no zone`},
		`trigger["t"].timezone: "CEST": no zone`:   {Path: "/triggers/t/timezone", Message: `timezone "CEST": no zone`},
		`payload: payload is not JSON`:             {Path: "/payload", Message: `payload is not JSON`},
		`the app is disabled`:                      {Message: `the app is disabled`},
	} {
		if got := paths().Message(f); got != want {
			t.Errorf("paths().Message(%v) = %s, want %s", f, got, want)
		}
	}
}

func TestDurationsAreFormattedWithoutZeroParts(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m1s",
		10 * time.Minute: "10m", 20 * time.Hour: "20h", 250 * time.Millisecond: "250ms", 0: "0s", 30 * time.Second: "30s",
	} {
		got := binding.FormatDuration(input.Duration(d))
		if got != want || !(binding.DurationText{}).Equivalent(context.Background(), got, d.String()) && d != 0 {
			t.Errorf("formatDuration(%s) = %s, want %s", d, got, want)
		}
	}
}

func TestInstantInThePastIsRefusedOnlyWhenNewOrChanged(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := &jobResource{now: func() time.Time { return now }}
	declare := func(expression string) dispatcher.Job {
		trigger := dispatcher.Trigger{
			TriggerSpec: dispatcher.TriggerSpec{
				Schedule: dispatcher.Schedule{Expression: expression, Dialect: "at", Timezone: "UTC"},
				Enabled:  true, MisfireAfter: dispatcher.DefaultMisfireAfter,
			},
		}
		return dispatcher.Job{JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"t": trigger}}}
	}
	past, otherPast, future := declare("at(2026-11-20T11:00:00Z)"), declare("at(2026-11-20T10:00:00Z)"), declare("at(2026-11-20T13:00:00Z)")
	for name, tt := range map[string]struct {
		old  *dispatcher.Job
		job  dispatcher.Job
		want bool
	}{
		"new and in the past":           {nil, past, true},
		"new and in the future":         {nil, future, false},
		"unchanged and now in the past": {&past, past, false},
		"changed to the past":           {&otherPast, past, true},
		"changed to the future":         {&past, future, false},
	} {
		var problem *input.Problem
		var problems input.Problems
		_, err := r.resolve(tt.old, tt.job, "t")
		if errors.As(err, &problems) {
			problem = &problems[0]
		}
		if got := problem != nil && problem.Code == input.CodeAtPast && problem.Path == "/triggers/t/expression"; got != tt.want {
			t.Errorf("%s: refused as past = %v (%v), want %v", name, got, err, tt.want)
		}
	}
}

func TestProblemsAreReportedOnceAndNeverForUnknownValues(t *testing.T) {
	t.Parallel()
	trigger := nullsOf(t, triggerRows)
	trigger["expression"], trigger["timezone"] = types.StringUnknown(), types.StringValue("CEST")
	trigger["misfire_after"] = textIn(t, triggerRows, "misfire_after", "1w")
	m := nullsOf(t, jobRows)
	m["name"], m["target"] = types.StringUnknown(), types.ObjectUnknown(targetRows.Type.AttrTypes)
	m["trigger"] = types.MapValueMust(triggerRows.Type, map[string]attr.Value{
		"t": types.ObjectValueMust(triggerRows.Type.AttrTypes, trigger),
	})
	var e binding.Expander
	job := jobs(nil).expand(&e, m)
	var got []string
	for _, p := range e.ProblemsWith(job.Validate()) {
		got = append(got, p.Path+" "+p.Code)
	}
	want := []string{"/triggers/t/misfire_after duration_unit", "/triggers/t/timezone tz_unknown"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAPIErrorsKeepTheirMessage(t *testing.T) {
	t.Parallel()
	conn := &connection{Plan: &plan.Plan{Endpoint: "https://host"}}
	for name, tt := range map[string]struct {
		err             error
		summary, detail string
	}{
		"server": {&client.Error{Status: 500, Title: "Internal Server Error", RequestID: "r1"},
			`Carillon's API refused to create job "a/b" (500)`, "500 Internal Server Error\n\nRequest id: r1"},
		"interrupt": {context.Canceled, "Interrupted",
			`The request to create job "a/b" was interrupted before the response arrived. It may have taken effect.`},
		"problems": {
			&client.Error{Status: 400, Problems: input.Problems{
				{Path: "/triggers/t/x", Code: "json_unknown_field", Message: "no x"},
			}},
			"Field unknown to the API",
			`trigger["t"].x: no x; the node is older than the provider: upgrade the nodes first (json_unknown_field)`},
	} {
		var diags diag.Diagnostics
		conn.report(&diags, `create job "a/b"`, tt.err)
		if len(diags) != 1 || diags[0].Summary() != tt.summary || diags[0].Detail() != tt.detail {
			t.Errorf("%s: diagnostics = %v, want %q: %q", name, diags, tt.summary, tt.detail)
		}
	}
}

func TestAutomaticallyDeletedJobGivesAWarning(t *testing.T) {
	t.Parallel()
	m := nullsOf(t, jobRows)
	m["app"], m["name"] = types.StringValue("billing"), types.StringValue("once")
	m["delete_after_completion"] = textIn(t, jobRows, "delete_after_completion", "24h")
	var told, silent diag.Diagnostics
	warnOfDeletion(&told, m)
	warnOfDeletion(&silent, nullsOf(t, jobRows))
	if told.WarningsCount() != 1 || told.HasError() || len(silent) != 0 {
		t.Errorf("with delete_after_completion: %v, without: %v, want one warning and nothing", told, silent)
	}
}

func TestRunWaitingForItsHostShowsHostAndProbe(t *testing.T) {
	t.Parallel()
	probe := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	shown := func(r run.Run) binding.Values {
		var diags diag.Diagnostics
		return singleRunRows.Shown(&diags, &r)
	}
	waits := shown(run.Run{State: run.Retrying, WaitsFor: "api.example.com:443", ProbeAt: &probe})
	if host, at := waits.Text("waits_for").ValueString(), waits.Text("probe_at").ValueString(); host != "api.example.com:443" ||
		at != "2026-05-01T10:00:00Z" {
		t.Errorf("a run waits for host %q until %q, want api.example.com:443 until 2026-05-01T10:00:00Z", host, at)
	}
	if other := shown(run.Run{State: run.Retrying}); !other["waits_for"].IsNull() || !other["probe_at"].IsNull() {
		t.Errorf("a run that waits for no host has waits_for %s and probe_at %s, want null", other["waits_for"], other["probe_at"])
	}
}

// nullsOf returns the attributes of a table, all null.
func nullsOf(t *testing.T, all *binding.Rows) binding.Values {
	t.Helper()
	v := binding.Values{}
	for name, kind := range all.Type.AttrTypes {
		null, err := kind.ValueFromTerraform(t.Context(), tftypes.NewValue(kind.TerraformType(t.Context()), nil))
		if err != nil {
			t.Fatal(err)
		}
		v[name] = null
	}
	return v
}

// textIn returns a text in the type of an attribute.
func textIn(t *testing.T, all *binding.Rows, name, text string) attr.Value {
	t.Helper()
	value, diags := all.Type.AttrTypes[name].(basetypes.StringTypable).ValueFromString(t.Context(), types.StringValue(text))
	if diags.HasError() {
		t.Fatal(diags)
	}
	return value
}

// If a table lacks something of a schema, resources would be planned differently than the schema says.
func TestTablesSupportTheWholeSchemas(t *testing.T) {
	t.Parallel()
	for _, of := range kinds {
		about := of(nil).about()
		for _, name := range protocol.Of(t.Context(), about.schema()).Unclear {
			t.Errorf("%s: %s has a default, validator or plan modifier that the table does not hold", about.kind, name)
		}
	}
}
