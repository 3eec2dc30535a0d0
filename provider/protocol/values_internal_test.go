package protocol

import (
	"math"
	"math/big"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/carillon-dev/carillon/provider/binding"
)

func TestValuesAreDecodedAsTheyWereEncoded(t *testing.T) {
	t.Parallel()
	inner := types.ObjectType{AttrTypes: map[string]attr.Type{"expression": types.StringType}}
	expression := map[string]schema.Attribute{"expression": schema.StringAttribute{Optional: true}}
	rule := types.ObjectValueMust(inner.AttrTypes, map[string]attr.Value{"expression": types.StringValue("@daily")})
	of := schema.Schema{Attributes: map[string]schema.Attribute{
		"text":     schema.StringAttribute{Optional: true},
		"duration": schema.StringAttribute{Optional: true, CustomType: binding.SemanticType[binding.DurationText]{}},
		"on":       schema.BoolAttribute{Optional: true}, "revision": schema.Int64Attribute{Optional: true},
		"number": schema.NumberAttribute{Optional: true}, "list": schema.ListAttribute{Optional: true, ElementType: types.NumberType},
		"map":   schema.MapAttribute{Optional: true, ElementType: types.StringType},
		"inner": schema.SingleNestedAttribute{Optional: true, Attributes: expression},
		"rules": schema.ListNestedAttribute{Optional: true, NestedObject: schema.NestedAttributeObject{Attributes: expression}},
	}}
	precise, _, err := big.ParseFloat("12345678901234567890.5", 10, 512, big.ToNearestEven)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]binding.Values{
		"known": {
			"text": types.StringValue("a"), "duration": binding.NewSemanticString[binding.DurationText]("60s"), "on": types.BoolValue(true),
			"revision": types.Int64Value(math.MaxInt64), "number": types.NumberValue(precise),
			"list":  types.ListValueMust(types.NumberType, []attr.Value{binding.FlattenNumber(1), types.NumberNull(), types.NumberUnknown()}),
			"map":   types.MapValueMust(types.StringType, map[string]attr.Value{"a": types.StringValue(""), "b": types.StringUnknown()}),
			"inner": types.ObjectUnknown(inner.AttrTypes), "rules": types.ListValueMust(inner, []attr.Value{rule}),
		},
		"null": {
			"text": types.StringNull(), "duration": binding.DurationString{StringValue: types.StringNull()}, "on": types.BoolNull(),
			"revision": types.Int64Null(),
			"number":   types.NumberNull(), "list": types.ListNull(types.NumberType), "map": types.MapNull(types.StringType),
			"inner": types.ObjectNull(inner.AttrTypes), "rules": types.ListNull(inner),
		},
		"unknown": {
			"text": types.StringUnknown(), "duration": binding.DurationString{StringValue: types.StringUnknown()}, "on": types.BoolUnknown(),
			"revision": types.Int64Unknown(), "number": types.NumberUnknown(), "list": types.ListUnknown(types.NumberType),
			"map": types.MapUnknown(types.StringType), "inner": types.ObjectNull(inner.AttrTypes), "rules": types.ListUnknown(inner),
		},
	} {
		table := Of(t.Context(), of)
		text, err := table.Encode(t.Context(), values, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := table.Decode(t.Context(), text); err != nil || !got[0].Equal(values) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, values)
		}
	}
}

func TestNumbersOfEveryFormAreDecoded(t *testing.T) {
	t.Parallel()
	of := Of(t.Context(), schema.Schema{Attributes: map[string]schema.Attribute{"n": schema.NumberAttribute{Optional: true}}})
	for want, number := range map[string]any{
		"5": 5, "-200": -200, "70000": 70000, "18446744073709551615": uint64(math.MaxUint64), "-9223372036854775808": int64(math.MinInt64),
		"0.5": 0.5, "1.25": float32(1.25), "12345678901234567890.5": "12345678901234567890.5",
	} {
		text, err := msgpack.Marshal(map[string]any{"n": number})
		if err != nil {
			t.Fatal(err)
		}
		object, err := of.Decode(t.Context(), &tfprotov6.DynamicValue{MsgPack: text})
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := object[0].Values["n"].(types.Number).ValueBigFloat().Text('f', -1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for name, text := range map[string]string{"cut off": "\x81\xa1n", "unknown name": "\x81\xa1x\x01", "no number": "\x81\xa1n\xc3"} {
		if got, err := of.Decode(t.Context(), &tfprotov6.DynamicValue{MsgPack: []byte(text)}); err == nil {
			t.Errorf("%s: decoded as %v", name, got)
		}
	}
}

func TestReadKeepsEquivalentTexts(t *testing.T) {
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
