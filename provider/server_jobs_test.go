package provider_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider"
)

// values are the attributes of an object; missing ones are null.
type values map[string]any

// twin is a server of the provider with its own API. One twin serves jobs by itself, and the other
// leaves them to the framework.
type twin struct {
	*fixture
	tfprotov6.ProviderServer
	schema *tfprotov6.Schema
	kind   tftypes.Type
}

func newTwin(t *testing.T, s tfprotov6.ProviderServer) *twin {
	t.Helper()
	f := newFixture(t)
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
	schema := schemas.ResourceSchemas["carillon_job"]
	return &twin{f, s, schema, schema.ValueType()}
}

// newTwins returns the server that Terraform starts, and the framework's server with the same resources.
func newTwins(t *testing.T) (own, framework *twin) {
	t.Helper()
	return newTwin(t, provider.NewServer(t.Context(), "test")), newTwin(t, providerserver.NewProtocol6(provider.New("test")())())
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

func (w *twin) decoded(t *testing.T, value *tfprotov6.DynamicValue) tftypes.Value {
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

// proposed returns Terraform's proposed state: the configuration, completed from the state where the API may decide.
func proposed(t *testing.T, attributes []*tfprotov6.SchemaAttribute, config, prior tftypes.Value) tftypes.Value {
	t.Helper()
	if config.IsNull() || !config.IsKnown() || prior.IsNull() {
		return config
	}
	var given, before map[string]tftypes.Value
	if config.As(&given) != nil || prior.As(&before) != nil {
		t.Fatal("not an object")
	}
	given = maps.Clone(given) // As returns the map itself
	for _, a := range attributes {
		switch {
		case a.NestedType == nil && a.Computed && given[a.Name].IsNull():
			given[a.Name] = before[a.Name]
		case a.NestedType == nil:
		case a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeMap:
			var elements, old map[string]tftypes.Value
			if given[a.Name].IsNull() || !given[a.Name].IsKnown() || given[a.Name].As(&elements) != nil || before[a.Name].As(&old) != nil {
				continue
			}
			elements = maps.Clone(elements)
			for key, element := range elements {
				if was, there := old[key]; there {
					elements[key] = proposed(t, a.NestedType.Attributes, element, was)
				}
			}
			given[a.Name] = tftypes.NewValue(given[a.Name].Type(), elements)
		default:
			given[a.Name] = proposed(t, a.NestedType.Attributes, given[a.Name], before[a.Name])
		}
	}
	return tftypes.NewValue(config.Type(), given)
}

// plan plans a configuration over a state, which may be null.
func (w *twin) plan(
	t *testing.T, attributes []*tfprotov6.SchemaAttribute, config, prior tftypes.Value,
) *tfprotov6.PlanResourceChangeResponse {
	t.Helper()
	resp, err := w.PlanResourceChange(t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: "carillon_job", Config: encoded(t, config), PriorState: encoded(t, prior),
		ProposedNewState: encoded(t, proposed(t, attributes, config, prior)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (w *twin) apply(t *testing.T, config, prior tftypes.Value, planned *tfprotov6.DynamicValue) *tfprotov6.ApplyResourceChangeResponse {
	t.Helper()
	resp, err := w.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: "carillon_job", Config: encoded(t, config), PriorState: encoded(t, prior), PlannedState: planned,
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// told returns diagnostics and paths as text.
func told(diags []*tfprotov6.Diagnostic, paths ...*tftypes.AttributePath) (all []string) {
	for _, d := range diags {
		all = append(all, fmt.Sprintf("%s %s: %s: %s", d.Severity, d.Attribute, d.Summary, d.Detail))
	}
	for _, p := range paths {
		all = append(all, p.String())
	}
	return all
}

// agree reports differences between the responses of the twins as errors.
func agree(t *testing.T, own, framework tftypes.Value, ownTold, frameworkTold []string) {
	t.Helper()
	if diff := cmp.Diff(frameworkTold, ownTold); diff != "" {
		t.Errorf("diagnostics (-framework +own):\n%s", diff)
	}
	if own.Equal(framework) {
		return
	}
	diffs, err := framework.Diff(own)
	t.Errorf("values differ (framework, own): %v, %v", diffs, err)
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

// plainJob returns crm/nightly with these attributes replaced.
func plainJob(more values) values {
	job := values{
		"app": "crm", "name": "nightly", "target": hookTo(nil), "trigger": values{"a": values{"expression": yearly, "timezone": "UTC"}},
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
			"signing": values{"secret": values{"one": values{"value": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", "value_version": "1"}}},
			"auth":    values{"basic": values{"username": "u", "password": secret("P")}},
			"tls":     values{"min_version": "1.3"},
		}),
		"trigger": values{
			"a": values{"expression": "0 2 * * *", "jitter": "60s", "misfire_policy": "skip", "start_at": "2030-01-01T00:00:00+02:00"},
			"b": values{"expression": "rate(5 minutes)", "enabled": false, "repeat_count": 7},
		},
	})
}

// changedJobs are configurations by their description.
func changedJobs() map[string]values {
	unknown := tftypes.UnknownValue
	lambda := values{"lambda": values{"function": "report", "assume_role": values{"role_arn": "arn:aws:iam::123456789012:role/r"}}}
	full := completeJob()
	full["retry"] = values{"max_attempts": 3, "delays": []any{"1m", "60s"}, "max_age": "1h", "stop_at_next_fire": true}
	full["payload"] = `{"a":[1,2],"b":1}`
	return map[string]values{
		"plain":                       plainJob(nil),
		"full":                        completeJob(),
		"full, written in other ways": full,
		"described":                   plainJob(values{"description": "another"}),
		"without triggers":            plainJob(values{"trigger": values{}}),
		"with another trigger":        plainJob(values{"trigger": values{"b": values{"expression": "0 3 * * *"}}}),
		"renamed":                     plainJob(values{"name": "other"}),
		"in another app":              plainJob(values{"app": "shop", "name": "other"}),
		"with retries":                plainJob(values{"retry": values{}}),
		"with a function":             plainJob(values{"target": lambda}),
		"with an unknown app":         plainJob(values{"app": unknown}),
		"with an unknown URL":         plainJob(values{"target": hookTo(values{"url": unknown})}),
		"with an unknown payload":     plainJob(values{"payload": unknown, "priority": unknown, "labels": unknown}),
		"with an unknown expression":  plainJob(values{"trigger": values{"a": values{"expression": unknown}}}),
		"with unknown triggers":       plainJob(values{"trigger": unknown}),
		"with an unknown trigger":     plainJob(values{"trigger": values{"a": unknown}}),
		"with unknown delays":         plainJob(values{"retry": values{"delays": unknown}}),
		"with a fraction":             plainJob(values{"priority": 1.5}),
		"invalid": plainJob(values{
			"name": "NO", "queue_limit": 0, "delivery": "never", "trigger": values{"a": values{"expression": "x"}},
		}),
		"without a secret":      plainJob(values{"target": hookTo(values{"auth": values{"bearer": values{"token": values{}}}})}),
		"of a missing app":      plainJob(values{"app": "none"}),
		"with a calendar":       plainJob(values{"trigger": values{"a": values{"expression": yearly, "calendar": "none"}}}),
		"without an expression": plainJob(values{"trigger": values{"a": values{}}}),
		"without a name":        plainJob(values{"name": nil}),
	}
}

func TestJobsArePlannedAsTheFrameworkPlansThem(t *testing.T) {
	t.Parallel()
	for was, first := range map[string]values{"nothing": nil, "a plain job": plainJob(nil), "a full job": completeJob()} {
		t.Run(was, func(t *testing.T) {
			t.Parallel()
			own, framework := newTwins(t)
			attributes := framework.schema.Block.Attributes
			null := tftypes.NewValue(own.kind, nil)
			prior := null
			if first != nil {
				config := fill(own.kind, first)
				for _, w := range []*twin{own, framework} {
					resp := w.apply(t, config, null, w.plan(t, attributes, config, null).PlannedState)
					if prior = w.decoded(t, resp.NewState); prior.IsNull() {
						t.Fatalf("not created: %v", told(resp.Diagnostics))
					}
				}
			}
			for name, job := range changedJobs() {
				config := fill(own.kind, job)
				a, b := own.plan(t, attributes, config, prior), framework.plan(t, attributes, config, prior)
				t.Run(name, func(t *testing.T) {
					agree(t, own.decoded(t, a.PlannedState), framework.decoded(t, b.PlannedState),
						told(a.Diagnostics, a.RequiresReplace...), told(b.Diagnostics, b.RequiresReplace...))
				})
			}
		})
	}
}

func TestJobsAreWrittenAndReadAsTheFrameworkDoes(t *testing.T) {
	t.Parallel()
	own, framework := newTwins(t)
	attributes := framework.schema.Block.Attributes
	null := tftypes.NewValue(own.kind, nil)
	prior := map[*twin]tftypes.Value{own: null, framework: null}
	both := func(t *testing.T, do func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic)) {
		t.Helper()
		got, said := map[*twin]tftypes.Value{}, map[*twin][]string{}
		for w := range prior {
			state, diags := do(w)
			got[w], said[w] = w.decoded(t, state), told(diags)
		}
		agree(t, got[own], got[framework], said[own], said[framework])
		prior = got
	}
	put := func(job values) func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
		config := fill(own.kind, job)
		return func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
			planned := w.plan(t, attributes, config, prior[w])
			resp := w.apply(t, config, prior[w], planned.PlannedState)
			return resp.NewState, resp.Diagnostics
		}
	}
	read := func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
		resp, err := w.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{TypeName: "carillon_job", CurrentState: encoded(t, prior[w])})
		if err != nil {
			t.Fatal(err)
		}
		return resp.NewState, resp.Diagnostics
	}
	outside := func(edit func(ctx context.Context, w *twin) error) func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
		return func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
			if err := edit(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			return read(w)
		}
	}
	for _, step := range []struct {
		name string
		do   func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic)
	}{
		{"create", put(completeJob())},
		{"read", read},
		{"update", put(plainJob(values{"retry": values{"delays": []any{"60s"}}, "target": hookTo(values{"timeout": "60s"})}))},
		{"read what was edited", outside(func(ctx context.Context, w *twin) error {
			return w.change(ctx, func(j *dispatcher.Job) { j.Description, j.Labels = "edited", input.Labels{"a": "b"} })
		})},
		{"update what somebody else has changed", func(w *twin) (*tfprotov6.DynamicValue, []*tfprotov6.Diagnostic) {
			config := fill(own.kind, plainJob(nil))
			planned := w.plan(t, attributes, config, prior[w])
			if err := w.change(t.Context(), func(j *dispatcher.Job) { j.Description = "again" }); err != nil {
				t.Fatal(err)
			}
			resp := w.apply(t, config, prior[w], planned.PlannedState)
			for _, d := range resp.Diagnostics {
				d.Detail = "" // it contains the time of the change
			}
			return resp.NewState, resp.Diagnostics
		}},
		{"read what was deleted", outside(func(ctx context.Context, w *twin) error {
			job, err := w.outside.Job(ctx, "crm", "nightly")
			if err != nil {
				return err
			}
			return w.outside.DeleteJob(ctx, "crm", "nightly", client.Condition{Revision: job.Revision})
		})},
		{"create without an app", put(plainJob(values{"app": "none"}))},
	} {
		t.Run(step.name, func(t *testing.T) { both(t, step.do) })
	}
}

func TestJobsAreValidatedAsTheFrameworkDoes(t *testing.T) {
	t.Parallel()
	own, framework := newTwins(t)
	for name, job := range changedJobs() {
		t.Run(name, func(t *testing.T) {
			var said [2][]string
			for i, w := range []*twin{own, framework} {
				resp, err := w.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
					TypeName: "carillon_job", Config: encoded(t, fill(own.kind, job)),
					ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
				})
				if err != nil {
					t.Fatal(err)
				}
				said[i] = told(resp.Diagnostics)
			}
			agree(t, tftypes.Value{}, tftypes.Value{}, said[0], said[1])
		})
	}
}

func TestStatesOfJobsStayAsTheyAreStored(t *testing.T) {
	t.Parallel()
	own, _ := newTwins(t)
	state, err := json.Marshal(map[string]any{"name": "nightly", "priority": 3})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := own.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{
		TypeName: "carillon_job", Version: own.schema.Version, RawState: &tfprotov6.RawState{JSON: state},
	})
	if err != nil || string(resp.UpgradedState.JSON) != string(state) {
		t.Errorf("got %v, %v, want the state as it was", resp, err)
	}
	resp, err = own.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{
		TypeName: "carillon_job", Version: own.schema.Version + 1, RawState: &tfprotov6.RawState{JSON: state},
	})
	if err != nil || len(resp.Diagnostics) == 0 {
		t.Errorf("the state of a later version was taken: %v, %v", resp, err)
	}
}
