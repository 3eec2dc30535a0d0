package provider

import (
	"reflect"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// unchangedJob is a configuration with what it leaves out, and the state that it leads to.
func unchangedJob(t *testing.T, u unchangedJobs) (config, state map[string]tftypes.Value) {
	t.Helper()
	null := func(of tftypes.Type) map[string]tftypes.Value {
		values := map[string]tftypes.Value{}
		for name, kind := range of.(tftypes.Object).AttributeTypes {
			values[name] = tftypes.NewValue(kind, nil)
		}
		return values
	}
	types := u.kind.(tftypes.Object).AttributeTypes
	target := types["target"].(tftypes.Object)
	webhook := target.AttributeTypes["webhook"].(tftypes.Object)
	triggers := types["trigger"].(tftypes.Map)
	build := func(fill func(defaults map[string]*defaultOf, values map[string]tftypes.Value)) map[string]tftypes.Value {
		hook, aim, trigger, job := null(webhook), null(target), null(triggers.ElementType), null(u.kind)
		hook["url"] = tftypes.NewValue(tftypes.String, "https://example.com/hook")
		fill(u.defaults["target"].inner["webhook"].inner, hook)
		aim["webhook"] = tftypes.NewValue(webhook, hook)
		trigger["expression"] = tftypes.NewValue(tftypes.String, "0 0 2 * * ?")
		trigger["timezone"] = tftypes.NewValue(tftypes.String, "Europe/Berlin")
		fill(u.defaults["trigger"].inner, trigger)
		job["app"], job["name"] = tftypes.NewValue(tftypes.String, "crm"), tftypes.NewValue(tftypes.String, "nightly")
		job["target"] = tftypes.NewValue(target, aim)
		job["trigger"] = tftypes.NewValue(triggers, map[string]tftypes.Value{"t": tftypes.NewValue(triggers.ElementType, trigger)})
		fill(u.defaults, job)
		return job
	}
	config = build(func(map[string]*defaultOf, map[string]tftypes.Value) {})
	state = build(func(defaults map[string]*defaultOf, values map[string]tftypes.Value) {
		for name, d := range defaults {
			if d.value != nil {
				values[name] = *d.value
			}
		}
	})
	return config, state
}

func TestOnlyJobsWithTheirDefaultsCountAsUnchanged(t *testing.T) {
	t.Parallel()
	u := newUnchangedJobs(t.Context())
	config, state := unchangedJob(t, u)
	holds := func() bool {
		return hold(u.defaults, tftypes.NewValue(u.kind, config), tftypes.NewValue(u.kind, state))
	}
	if !holds() {
		t.Error("a job with all its defaults counts as changed")
	}
	for name, value := range map[string]tftypes.Value{
		"enabled":     tftypes.NewValue(tftypes.Bool, false),
		"description": tftypes.NewValue(tftypes.String, "edited outside"),
		"priority":    tftypes.NewValue(tftypes.Number, 3),
	} {
		before := state[name]
		if state[name] = value; holds() {
			t.Errorf("%s is not its default in the state, and the job counts as unchanged", name)
		}
		if config[name] = value; !holds() {
			t.Errorf("%s is configured as it is in the state, and the job counts as changed", name)
		}
		config[name], state[name] = tftypes.NewValue(value.Type(), nil), before
	}
}

func TestUnchangedJobsPassNoUnknownDefault(t *testing.T) {
	t.Parallel()
	var walk func(at string, defaults map[string]*defaultOf)
	walk = func(at string, defaults map[string]*defaultOf) {
		for name, d := range defaults {
			if d.unclear {
				t.Errorf("%s%s: defaultsOf does not know the default of an attribute of this kind", at, name)
			}
			walk(at+name+".", d.inner)
		}
	}
	walk("", newUnchangedJobs(t.Context()).defaults)
}

func TestChangedJobsAreLeftToTheFramework(t *testing.T) {
	t.Parallel()
	u := newUnchangedJobs(t.Context())
	config, state := unchangedJob(t, u)
	encode := func(values map[string]tftypes.Value) *tfprotov6.DynamicValue {
		value, err := tfprotov6.NewDynamicValue(u.kind, tftypes.NewValue(u.kind, values))
		if err != nil {
			t.Fatal(err)
		}
		return &value
	}
	prior := encode(state)
	state["description"] = tftypes.NewValue(tftypes.String, "another")
	null, err := tfprotov6.NewDynamicValue(u.kind, tftypes.NewValue(u.kind, nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]*tfprotov6.PlanResourceChangeRequest{
		"changed": {TypeName: jobType, Config: encode(config), PriorState: prior, ProposedNewState: encode(state)},
		"new":     {TypeName: jobType, Config: encode(config), PriorState: &null, ProposedNewState: prior},
		"removed": {TypeName: jobType, Config: &null, PriorState: prior, ProposedNewState: &null},
		"app":     {TypeName: "carillon_app", Config: prior, PriorState: prior, ProposedNewState: prior},
	} {
		if resp, err := u.plan(t.Context(), &connection{}, req); resp != nil || err != nil {
			t.Errorf("%s: planned without the framework: %v, %v", name, resp, err)
		}
	}
}

func TestReadKeepsWhatMeansTheSame(t *testing.T) {
	t.Parallel()
	u := newUnchangedJobs(t.Context())
	_, state := unchangedJob(t, u)
	nested := func(job map[string]tftypes.Value, timeout string, at string) tftypes.Value {
		var target, hook map[string]tftypes.Value
		if job["target"].As(&target) != nil || target["webhook"].As(&hook) != nil {
			t.Fatal("the target is no object")
		}
		hook["timeout"] = tftypes.NewValue(tftypes.String, timeout)
		target["webhook"] = tftypes.NewValue(target["webhook"].Type(), hook)
		job["target"] = tftypes.NewValue(job["target"].Type(), target)
		times := u.kind.(tftypes.Object).AttributeTypes["next_fire_times"]
		job["next_fire_times"] = tftypes.NewValue(times, map[string]tftypes.Value{"t": tftypes.NewValue(tftypes.String, at)})
		return tftypes.NewValue(u.kind, job)
	}
	prior := nested(state, "60s", "2030-01-01T00:00:00Z")
	same, err := settle(t.Context(), u.schema.Type(), prior, nested(state, "1m", "2030-01-01T00:00:00Z"))
	if err != nil || !same.Equal(prior) {
		t.Errorf("1m replaces 60s: %v, %v", same, err)
	}
	read := nested(state, "2m", "2030-01-02T00:00:00Z")
	if got, err := settle(t.Context(), u.schema.Type(), prior, read); err != nil || !got.Equal(read) {
		t.Errorf("got %v, %v, want what was read", got, err)
	}
}

func TestJobsHaveNoValidatorsThatValidateLeavesOut(t *testing.T) {
	t.Parallel()
	var walk func(at string, attributes map[string]schema.Attribute)
	walk = func(at string, attributes map[string]schema.Attribute) {
		for name, a := range attributes {
			if validators := reflect.ValueOf(a).FieldByName("Validators"); validators.IsValid() && validators.Len() > 0 {
				t.Errorf("%s%s has a validator, which unchangedJobs.validate does not run", at, name)
			}
			switch a := a.(type) {
			case schema.SingleNestedAttribute:
				walk(at+name+".", a.Attributes)
			case schema.MapNestedAttribute:
				walk(at+name+".", a.NestedObject.Attributes)
			}
		}
	}
	walk("", newUnchangedJobs(t.Context()).schema.Attributes)
}

func TestIncompleteJobsAreLeftToTheFramework(t *testing.T) {
	t.Parallel()
	u := newUnchangedJobs(t.Context())
	config, _ := unchangedJob(t, u)
	if !complete(u.required, tftypes.NewValue(u.kind, config)) {
		t.Error("a job with all that is required counts as incomplete")
	}
	triggers := u.kind.(tftypes.Object).AttributeTypes["trigger"].(tftypes.Map)
	none := map[string]tftypes.Value{}
	for name, kind := range triggers.ElementType.(tftypes.Object).AttributeTypes {
		none[name] = tftypes.NewValue(kind, nil)
	}
	for name, value := range map[string]tftypes.Value{
		"name": tftypes.NewValue(tftypes.String, nil),
		"trigger": tftypes.NewValue(triggers, map[string]tftypes.Value{
			"t": tftypes.NewValue(triggers.ElementType, none),
		}),
	} {
		before := config[name]
		config[name] = value
		if complete(u.required, tftypes.NewValue(u.kind, config)) {
			t.Errorf("%s lacks what is required, and the job counts as complete", name)
		}
		config[name] = before
	}
}
