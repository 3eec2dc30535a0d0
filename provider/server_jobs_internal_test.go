package provider

import (
	"math"
	"math/big"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/carillon-dev/carillon/provider/binding"
)

// Where the table of attributes lacks something, jobs would be planned in another way than the schema says.
func TestTableOfJobsHoldsAllThatTheSchemaSays(t *testing.T) {
	t.Parallel()
	var walk func(at string, attributes map[string]*attribute)
	walk = func(at string, attributes map[string]*attribute) {
		for name, a := range attributes {
			if a.unclear {
				t.Errorf("%s%s has a default, validator or plan modifier that the table does not hold", at, name)
			}
			walk(at+name+".", a.inner)
		}
	}
	walk("", newJobServer(t.Context()).attributes)
}

// configuredJob is a configuration as Terraform sends it.
func configuredJob(t *testing.T, s jobServer) *tfprotov6.DynamicValue {
	t.Helper()
	null := func(attributes map[string]*attribute) map[string]attr.Value {
		all := map[string]attr.Value{}
		for name, a := range attributes {
			all[name] = a.null
		}
		return all
	}
	target, hook := null(s.attributes["target"].inner), null(s.attributes["target"].inner["webhook"].inner)
	hook["url"] = types.StringValue("https://example.com/hook")
	target["webhook"] = types.ObjectValueMust(webhookRows.Type.AttrTypes, hook)
	job := null(s.attributes)
	job["app"], job["name"] = types.StringValue("crm"), types.StringValue("nightly")
	job["target"] = types.ObjectValueMust(targetRows.Type.AttrTypes, target)
	job["trigger"] = types.MapValueMust(triggerRows.Type, map[string]attr.Value{})
	config, err := encodeObject(t.Context(), types.ObjectValueMust(s.kind.AttrTypes, job))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestRareRequestsAboutJobsAreLeftToTheFramework(t *testing.T) {
	t.Parallel()
	s, conn := newJobServer(t.Context()), unconfigured()
	config, none := configuredJob(t, s), &tfprotov6.DynamicValue{MsgPack: []byte{0xc0}}
	for name, tt := range map[string]struct {
		kind                    string
		config, prior, proposed *tfprotov6.DynamicValue
		want                    bool
	}{
		"create":     {jobType, config, none, config, true},
		"update":     {jobType, config, config, config, true},
		"remove":     {jobType, none, config, none, false},
		"an app":     {"carillon_app", config, none, config, false},
		"unreadable": {jobType, &tfprotov6.DynamicValue{MsgPack: []byte{1}}, none, config, false},
	} {
		req := &tfprotov6.PlanResourceChangeRequest{
			TypeName: tt.kind, Config: tt.config, PriorState: tt.prior, ProposedNewState: tt.proposed,
		}
		if resp, err := s.plan(t.Context(), conn, req); (resp != nil) != tt.want || err != nil {
			t.Errorf("%s: planned without the framework: %v, %v, want %v", name, resp != nil, err, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		capabilities *tfprotov6.ValidateResourceConfigClientCapabilities
		want         bool
	}{
		"a client with write-only arguments":    {&tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true}, true},
		"a client without write-only arguments": {&tfprotov6.ValidateResourceConfigClientCapabilities{}, false},
		"an old client":                         {nil, false},
	} {
		req := &tfprotov6.ValidateResourceConfigRequest{TypeName: jobType, Config: config, ClientCapabilities: tt.capabilities}
		if resp := s.validate(t.Context(), nil, req); (resp != nil) != tt.want {
			t.Errorf("%s: validated without the framework: %v, want %v", name, resp != nil, tt.want)
		}
	}
	imported := &tfprotov6.ReadResourceRequest{TypeName: jobType, CurrentState: config, Private: []byte("{}")}
	if resp, err := s.read(t.Context(), conn, imported); resp != nil || err != nil {
		t.Errorf("what was just imported was read without the framework: %v, %v", resp, err)
	}
}

func TestValuesAreDecodedAsTheyWereEncoded(t *testing.T) {
	t.Parallel()
	of := types.ObjectType{AttrTypes: map[string]attr.Type{
		"text": types.StringType, "duration": binding.SemanticType[binding.DurationText]{}, "on": types.BoolType, "revision": types.Int64Type,
		"number": types.NumberType, "list": types.ListType{ElemType: types.NumberType}, "map": types.MapType{ElemType: types.StringType},
		"inner": triggerRows.Type,
	}}
	precise, _, err := big.ParseFloat("12345678901234567890.5", 10, 512, big.ToNearestEven)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]map[string]attr.Value{
		"known": {
			"text": types.StringValue("a"), "duration": binding.NewSemanticString[binding.DurationText]("60s"), "on": types.BoolValue(true),
			"revision": types.Int64Value(math.MaxInt64), "number": types.NumberValue(precise),
			"list":  types.ListValueMust(types.NumberType, []attr.Value{binding.FlattenNumber(1), types.NumberNull(), types.NumberUnknown()}),
			"map":   types.MapValueMust(types.StringType, map[string]attr.Value{"a": types.StringValue(""), "b": types.StringUnknown()}),
			"inner": types.ObjectUnknown(triggerRows.Type.AttrTypes),
		},
		"null": {
			"text": types.StringNull(), "duration": binding.DurationString{StringValue: types.StringNull()}, "on": types.BoolNull(),
			"revision": types.Int64Null(),
			"number":   types.NumberNull(), "list": types.ListNull(types.NumberType), "map": types.MapNull(types.StringType),
			"inner": types.ObjectNull(triggerRows.Type.AttrTypes),
		},
		"unknown": {
			"text": types.StringUnknown(), "duration": binding.DurationString{StringValue: types.StringUnknown()}, "on": types.BoolUnknown(),
			"revision": types.Int64Unknown(), "number": types.NumberUnknown(), "list": types.ListUnknown(types.NumberType),
			"map": types.MapUnknown(types.StringType), "inner": types.ObjectNull(triggerRows.Type.AttrTypes),
		},
	} {
		given := types.ObjectValueMust(of.AttrTypes, values)
		text, err := encodeObject(t.Context(), given)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeObject(t.Context(), of, text.MsgPack); err != nil || !got.Equal(given) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, given)
		}
	}
}

func TestNumbersOfEveryFormAreDecoded(t *testing.T) {
	t.Parallel()
	of := types.ObjectType{AttrTypes: map[string]attr.Type{"n": types.NumberType}}
	for want, number := range map[string]any{
		"5": 5, "-200": -200, "70000": 70000, "18446744073709551615": uint64(math.MaxUint64), "-9223372036854775808": int64(math.MinInt64),
		"0.5": 0.5, "1.25": float32(1.25), "12345678901234567890.5": "12345678901234567890.5",
	} {
		text, err := msgpack.Marshal(map[string]any{"n": number})
		if err != nil {
			t.Fatal(err)
		}
		object, err := decodeObject(t.Context(), of, text)
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := object.Attributes()["n"].(types.Number).ValueBigFloat().Text('f', -1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for name, text := range map[string]string{"cut off": "\x81\xa1n", "unknown name": "\x81\xa1x\x01", "no number": "\x81\xa1n\xc3"} {
		if got, err := decodeObject(t.Context(), of, []byte(text)); err == nil {
			t.Errorf("%s: decoded as %v", name, got)
		}
	}
}

func TestReadKeepsWhatMeansTheSame(t *testing.T) {
	t.Parallel()
	of := types.ObjectType{AttrTypes: map[string]attr.Type{
		"timeout": binding.SemanticType[binding.DurationText]{}, "at": types.ListType{ElemType: binding.SemanticType[binding.InstantText]{}},
		"waits": types.MapType{ElemType: binding.SemanticType[binding.DurationText]{}},
	}}
	object := func(timeout, at, wait string) types.Object {
		return types.ObjectValueMust(of.AttrTypes, map[string]attr.Value{
			"timeout": binding.NewSemanticString[binding.DurationText](timeout),
			"at": types.ListValueMust(binding.SemanticType[binding.InstantText]{},
				[]attr.Value{binding.NewSemanticString[binding.InstantText](at)}),
			"waits": types.MapValueMust(binding.SemanticType[binding.DurationText]{},
				map[string]attr.Value{"a": binding.NewSemanticString[binding.DurationText](wait)}),
		})
	}
	prior := object("60s", "2030-01-01T02:00:00+02:00", "1h")
	if got, err := settle(t.Context(), prior, object("1m", "2030-01-01T00:00:00Z", "60m")); err != nil || !got.Equal(prior) {
		t.Errorf("got %v, %v, want %v", got, err, prior)
	}
	read := object("2m", "2030-01-01T00:00:01Z", "2h")
	if got, err := settle(t.Context(), prior, read); err != nil || !got.Equal(read) {
		t.Errorf("got %v, %v, want %v", got, err, read)
	}
	if got, err := settle(t.Context(), types.ObjectNull(of.AttrTypes), read); err != nil || !got.Equal(read) {
		t.Errorf("got %v, %v, want %v", got, err, read)
	}
}
