package provider_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/provider"
)

// values are the attributes of an object; missing ones are null.
type values map[string]any

// apiServer is a server of the provider with its own API.
type apiServer struct {
	*fixture
	tfprotov6.ProviderServer
	kind tftypes.Type // of a job
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	f, s := newFixture(t), provider.NewServer(t.Context(), "test")
	for _, name := range []string{"crm", "shop"} {
		a := access.App{Name: name, AppSpec: access.AppSpec{Enabled: true, Defaults: &dispatcher.JobDefaults{Timezone: "Europe/Berlin"}}}
		if _, err := f.outside.PutApp(t.Context(), a, client.Condition{Absent: true}); err != nil {
			t.Fatal(err)
		}
	}
	schemas, err := s.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	settings := fill(schemas.Provider.ValueType(), values{"endpoint": f.endpoint, "token": f.token})
	_, err = s.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: encoded(t, settings)})
	if err != nil {
		t.Fatal(err)
	}
	return &apiServer{f, s, schemas.ResourceSchemas["carillon_job"].ValueType()}
}

// fill returns a value of a type from values, lists, maps and Go values of tftypes.
func fill(kind tftypes.Type, value any) tftypes.Value {
	switch kind := kind.(type) {
	case tftypes.Object:
		given, is := value.(values)
		if !is {
			break
		}
		attributes := map[string]tftypes.Value{}
		for name, of := range kind.AttributeTypes {
			attributes[name] = fill(of, given[name])
		}
		return tftypes.NewValue(kind, attributes)
	case tftypes.Map:
		given, is := value.(values)
		if !is {
			break
		}
		elements := map[string]tftypes.Value{}
		for name, element := range given {
			elements[name] = fill(kind.ElementType, element)
		}
		return tftypes.NewValue(kind, elements)
	case tftypes.List:
		given, is := value.([]any)
		if !is {
			break
		}
		elements := []tftypes.Value{}
		for _, element := range given {
			elements = append(elements, fill(kind.ElementType, element))
		}
		return tftypes.NewValue(kind, elements)
	}
	return tftypes.NewValue(kind, value)
}

func encoded(t *testing.T, value tftypes.Value) *tfprotov6.DynamicValue {
	t.Helper()
	dynamic, err := tfprotov6.NewDynamicValue(value.Type(), value)
	if err != nil {
		t.Fatal(err)
	}
	return &dynamic
}

func (w *apiServer) decoded(t *testing.T, value *tfprotov6.DynamicValue) tftypes.Value {
	t.Helper()
	if value == nil {
		return tftypes.Value{}
	}
	got, err := value.Unmarshal(w.kind)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// plan plans a configuration over a state, which may be null.
func (w *apiServer) plan(t *testing.T, config, prior tftypes.Value) *tfprotov6.PlanResourceChangeResponse {
	t.Helper()
	resp, err := w.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: "carillon_job", Config: encoded(t, config), PriorState: encoded(t, prior), ProposedNewState: encoded(t, config),
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// apply applies a plan and returns the state, which is null if nothing was made.
func (w *apiServer) apply(
	t *testing.T, config, prior tftypes.Value, planned *tfprotov6.DynamicValue,
) (tftypes.Value, []*tfprotov6.Diagnostic) {
	t.Helper()
	resp, err := w.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "carillon_job", Config: encoded(t, config), PriorState: encoded(t, prior), PlannedState: planned,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.decoded(t, resp.NewState), resp.Diagnostics
}

// told returns diagnostics as text.
func told(diags []*tfprotov6.Diagnostic) string {
	var all []string
	for _, d := range diags {
		all = append(all, fmt.Sprintf("%s %s: %s: %s", d.Severity, d.Attribute, d.Summary, d.Detail))
	}
	return strings.Join(all, "\n")
}

// failed reports whether there is an error among diagnostics.
func failed(diags []*tfprotov6.Diagnostic) bool {
	return slices.ContainsFunc(diags, func(d *tfprotov6.Diagnostic) bool { return d.Severity == tfprotov6.DiagnosticSeverityError })
}

const (
	attributeOfWebhook = "webhook"
	yearly             = "0 4 1 1 *" // so that no fire passes during the comparison
)

// hookTo returns a webhook target with these additional attributes.
func hookTo(more values) values {
	hook := values{"url": "https://example.com/hook"}
	for name, value := range more {
		hook[name] = value
	}
	return values{attributeOfWebhook: hook}
}

// blocksOf returns blocks from their names and their other attributes.
func blocksOf(of ...any) []any {
	var all []any
	for i := 0; i < len(of); i += 2 {
		block := values{"name": of[i]}
		maps.Copy(block, of[i+1].(values))
		all = append(all, block)
	}
	return all
}

// plainJob returns crm/nightly with these attributes replaced.
func plainJob(more values) values {
	job := values{
		"app": "crm", "name": "nightly", "target": hookTo(nil), "trigger": blocksOf("a", values{"expression": yearly, "timezone": "UTC"}),
	}
	for name, value := range more {
		job[name] = value
	}
	return job
}

// completeJob has a value for nearly every attribute.
func completeJob() values {
	secret := func(name string) values { return values{"reference": "env:SECRET_CRM_" + name} }
	return plainJob(values{
		"description": "all of it", "enabled": false, "priority": 3, "delivery": "at_most_once", "concurrency_policy": "queue",
		"max_concurrency": 2, "queue_limit": 5, "delete_after_completion": "24h", "acknowledge": []any{"dst"},
		"node_labels": values{"zone": "a"}, "labels": values{"team": "x"}, "payload": `{"b": 1, "a": [1, 2]}`,
		"retry": values{"max_attempts": 3, "delays": []any{"60s", "1m"}, "max_age": "60m", "stop_at_next_fire": true},
		"target": hookTo(values{
			"method": "PUT", "headers": values{"X-A": "1"}, "timeout": "60s", "success_codes": []any{"2xx"}, "expect_body": "ok",
			"signing": values{"secret": blocksOf("one", values{"value": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "value_version": "1"})},
			"auth":    values{"basic": values{"username": "u", "password": secret("P")}},
			"tls":     values{"min_version": "1.3"},
		}),
		"trigger": blocksOf(
			"b", values{"expression": "rate(5 minutes)", "enabled": false, "repeat_count": 7},
			"a", values{"expression": "0 2 * * *", "jitter": "60s", "misfire_policy": "skip", "start_at": "2030-01-01T00:00:00+02:00"},
		),
	})
}

// changedJobs are configurations by their description.
func changedJobs() map[string]values {
	unknown := tftypes.UnknownValue
	full := completeJob()
	full["retry"] = values{"max_attempts": 3, "delays": []any{"1m", "60s"}, "max_age": "1h", "stop_at_next_fire": true}
	full["payload"] = `{"a":[1,2],"b":1}`
	return map[string]values{
		"plain":                       plainJob(nil),
		"full":                        completeJob(),
		"full, written in other ways": full,
		"described":                   plainJob(values{"description": "another"}),
		"without triggers":            plainJob(values{"trigger": []any{}}),
		"with another trigger":        plainJob(values{"trigger": blocksOf("b", values{"expression": "0 3 * * *"})}),
		"renamed":                     plainJob(values{"name": "other"}),
		"in another app":              plainJob(values{"app": "shop", "name": "other"}),
		"with retries":                plainJob(values{"retry": values{}}),
		"with an unknown app":         plainJob(values{"app": unknown}),
		"with an unknown URL":         plainJob(values{"target": hookTo(values{"url": unknown})}),
		"with an unknown payload":     plainJob(values{"payload": unknown, "priority": unknown, "labels": unknown}),
		"with an unknown expression":  plainJob(values{"trigger": blocksOf("a", values{"expression": unknown})}),
		"with unknown triggers":       plainJob(values{"trigger": unknown}),
		"with an unknown name":        plainJob(values{"trigger": blocksOf(unknown, values{"expression": yearly})}),
		"with unknown delays":         plainJob(values{"retry": values{"delays": unknown}}),
	}
}

// promised reports the places where a state differs from the known values of its plan, as Terraform compares them.
func promised(planned, state tftypes.Value) (broken []string) {
	diffs, err := planned.Diff(state)
	if err != nil {
		return []string{err.Error()}
	}
	for _, diff := range diffs {
		known := diff.Value1 != nil && diff.Value1.IsFullyKnown()
		leaf := diff.Value1 == nil || diff.Value1.Type().Is(tftypes.String) || diff.Value1.Type().Is(tftypes.Number) ||
			diff.Value1.Type().Is(tftypes.Bool)
		if (known && leaf || diff.Value1 == nil) && !strings.Contains(diff.Path.String(), "next_fire_times") {
			broken = append(broken, diff.String())
		}
	}
	return broken
}

// An apply makes what the plan promised, and the next plan is empty: for every change from every state.
func TestAppliesKeepThePromisesOfPlans(t *testing.T) {
	t.Parallel()
	for was, first := range map[string]values{"nothing": nil, "a plain job": plainJob(nil), "a full job": completeJob()} {
		for name, job := range changedJobs() {
			t.Run(was+" to "+name, func(t *testing.T) {
				t.Parallel()
				w := newAPIServer(t)
				prior := tftypes.NewValue(w.kind, nil)
				if first != nil {
					config := fill(w.kind, first)
					var diags []*tfprotov6.Diagnostic
					if prior, diags = w.apply(t, config, prior, w.plan(t, config, prior).PlannedState); prior.IsNull() {
						t.Fatalf("not created: %s", told(diags))
					}
				}
				config := fill(w.kind, job)
				planned := w.plan(t, config, prior)
				if failed(planned.Diagnostics) {
					t.Fatalf("the plan is refused: %s", told(planned.Diagnostics))
				}
				if !config.IsFullyKnown() {
					return
				}
				before := prior
				if len(planned.RequiresReplace) > 0 {
					before = tftypes.NewValue(w.kind, nil)
					planned = w.plan(t, config, before)
				}
				state, diags := w.apply(t, config, before, planned.PlannedState)
				if failed(diags) {
					t.Fatalf("the apply fails: %s", told(diags))
				}
				if broken := promised(w.decoded(t, planned.PlannedState), state); broken != nil {
					t.Errorf("the state is not as planned: %v", broken)
				}
				again := w.plan(t, config, state)
				if diffs, err := state.Diff(w.decoded(t, again.PlannedState)); len(diffs) > 0 || err != nil {
					t.Errorf("the second plan changes %v, %v", diffs, err)
				}
			})
		}
	}
}

// Terraform compares blocks by position. A plan leaves each one where the state has it.
func TestOrderOfTriggersIsNoChange(t *testing.T) {
	t.Parallel()
	w := newAPIServer(t)
	config := func(names ...string) tftypes.Value {
		var of []any
		for _, name := range names {
			block := values{"expression": yearly, "timezone": "UTC", "jitter": "60s"}
			if now, former, is := strings.Cut(name, "<"); is {
				name, block["renamed_from"] = now, former
			}
			of = append(of, name, block)
		}
		return fill(w.kind, plainJob(values{"trigger": blocksOf(of...)}))
	}
	first := config("a", "b", "c")
	state, diags := w.apply(t, first, tftypes.NewValue(w.kind, nil), w.plan(t, first, tftypes.NewValue(w.kind, nil)).PlannedState)
	if failed(diags) {
		t.Fatal(told(diags))
	}
	for name, tt := range map[string]struct {
		names []string
		want  string
		moves bool
	}{
		"the same":             {[]string{"a", "b", "c"}, "a b c", false},
		"another order":        {[]string{"c", "a", "b"}, "a b c", true},
		"a new one at the end": {[]string{"a", "b", "c", "d"}, "a b c d", false},
		"a new one in front":   {[]string{"d", "a", "b", "c"}, "a b c d", true},
		"another in its place": {[]string{"a", "d", "c"}, "a d c", false},
		"the last one removed": {[]string{"a", "b"}, "a b", false},
		"the first one":        {[]string{"b", "c"}, "c b", true},
		"all but one":          {[]string{"c"}, "c", true},
		"all":                  {nil, "", false},
		"one renamed":          {[]string{"d<c", "a", "b"}, "a b d", true},
	} {
		planned := w.plan(t, config(tt.names...), state)
		if failed(planned.Diagnostics) {
			t.Errorf("%s: %s", name, told(planned.Diagnostics))
			continue
		}
		var attributes map[string]tftypes.Value
		var blocks []tftypes.Value
		if w.decoded(t, planned.PlannedState).As(&attributes) != nil || attributes["trigger"].As(&blocks) != nil {
			t.Fatal("no list of triggers")
		}
		var got []string
		for _, block := range blocks {
			var of map[string]tftypes.Value
			var text string
			if block.As(&of) != nil || of["name"].As(&text) != nil {
				t.Fatal("a block without a name")
			}
			got = append(got, text)
		}
		moves := planned.UnsafeToUseLegacyTypeSystem //nolint:staticcheck // see PlanResourceChange
		if strings.Join(got, " ") != tt.want || moves != tt.moves {
			t.Errorf("%s: planned %v, moves %v, want %s, %v", name, got, moves, tt.want, tt.moves)
		}
	}
}

// A block whose name is unknown may be any of those in the state, and the final plan must agree with the first. So it
// plans all of them as unknown; the others are still checked.
func TestTriggersOfUnknownNamesAreKnownOnlyAtApply(t *testing.T) {
	t.Parallel()
	w := newAPIServer(t)
	null := tftypes.NewValue(w.kind, nil)
	daily := values{"expression": "@daily", "timezone": "UTC"}
	first := fill(w.kind, plainJob(values{"trigger": blocksOf("a", daily, "b", daily, "c", daily)}))
	state, diags := w.apply(t, first, null, w.plan(t, first, null).PlannedState)
	if failed(diags) {
		t.Fatal(told(diags))
	}
	unknown := fill(w.kind, plainJob(values{"trigger": blocksOf(tftypes.UnknownValue, daily, "d", daily)}))
	planned := w.plan(t, unknown, state)
	var attributes map[string]tftypes.Value
	if w.decoded(t, planned.PlannedState).As(&attributes) != nil || attributes["trigger"].IsKnown() || failed(planned.Diagnostics) {
		t.Errorf("triggers = %v, %s, want unknown ones", attributes["trigger"], told(planned.Diagnostics))
	}
	known := fill(w.kind, plainJob(values{"trigger": blocksOf("c", daily, "d", daily)}))
	if _, diags = w.apply(t, known, state, w.plan(t, known, state).PlannedState); failed(diags) {
		t.Error(told(diags))
	}
	job, err := w.readJob(t.Context())
	if err != nil || len(job.Triggers) != 2 {
		t.Errorf("triggers = %v, %v", job.Triggers, err)
	}
	wrong := plainJob(values{"trigger": blocksOf(tftypes.UnknownValue, daily, "e", values{"expression": "99 * * * *"})})
	resp, err := w.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: "carillon_job", Config: encoded(t, fill(w.kind, wrong)),
		ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
	})
	if err != nil || !strings.Contains(told(resp.Diagnostics), `trigger["e"].expression`) {
		t.Errorf("a wrong expression next to an unknown name: %s, %v", told(resp.Diagnostics), err)
	}
}

// A client without write-only arguments would keep the values of secrets in its state.
func TestSecretsAreRefusedFromOldClients(t *testing.T) {
	t.Parallel()
	w := newAPIServer(t)
	for name, capabilities := range map[string]*tfprotov6.ValidateResourceConfigClientCapabilities{
		"says no": {}, "says nothing": nil, "has them": {WriteOnlyAttributesAllowed: true},
	} {
		resp, err := w.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
			TypeName: "carillon_job", Config: encoded(t, fill(w.kind, completeJob())), ClientCapabilities: capabilities,
		})
		if want := name != "has them"; err != nil || strings.Contains(told(resp.Diagnostics), "needs Terraform 1.11") != want {
			t.Errorf("a client that %s: %v, %v", name, told(resp.Diagnostics), err)
		}
	}
}

func TestBlocksOfOneNameAndMissingValuesAreRefused(t *testing.T) {
	t.Parallel()
	w := newAPIServer(t)
	daily := values{"expression": "@daily", "timezone": "UTC"}
	for want, job := range map[string]values{
		`trigger: two trigger blocks have the name "a"`: plainJob(values{"trigger": blocksOf("a", daily, "b", daily, "a", daily)}),
		`trigger["b"].expression is missing`:            plainJob(values{"trigger": blocksOf("a", daily, "b", values{})}),
		`trigger[1].name is missing`:                    plainJob(values{"trigger": blocksOf("a", daily, nil, daily)}),
		`target is missing`:                             plainJob(values{"target": nil}),
		`name is missing`:                               plainJob(values{"name": nil}),
	} {
		resp, err := w.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
			TypeName: "carillon_job", Config: encoded(t, fill(w.kind, job)),
			ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
		})
		if err != nil || len(resp.Diagnostics) != 1 || !strings.Contains(told(resp.Diagnostics), want) {
			t.Errorf("got %s, %v, want %s", told(resp.Diagnostics), err, want)
		}
	}
}
