package binding

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// DurationString is a duration, which has several spellings.
type DurationString = SemanticString[DurationText]

// equivalence compares the meaning of two strings.
type equivalence interface {
	Equivalent(ctx context.Context, a, b string) bool
}

// DurationText compares texts as durations: 60s equals 1m0s.
type DurationText struct{}

// Equivalent compares durations; an invalid one equals no other.
func (DurationText) Equivalent(_ context.Context, a, b string) bool { return sameDuration(a, b) }

func sameDuration(a, b string) bool {
	x, errX := input.ParseDuration(a)
	y, errY := input.ParseDuration(b)
	return errX == nil && errY == nil && x == y
}

// InstantText compares texts as points in time: 10:00+02:00 equals 08:00Z. timetypes.RFC3339
// compares the strings, so it would see a change whenever a configuration uses another zone than
// UTC, in which the API responds.
type InstantText struct{}

// Equivalent compares points in time; an invalid one equals no other.
func (InstantText) Equivalent(_ context.Context, a, b string) bool {
	x, errX := input.ParseInstant(a)
	y, errY := input.ParseInstant(b)
	return errX == nil && errY == nil && x.Equal(y)
}

// DocumentText compares texts as JSON, without white space, the order of keys and the spelling of numbers: Terraform
// writes 1 for 1.0.
type DocumentText struct{}

// Equivalent compares JSON; an invalid text equals no other.
func (DocumentText) Equivalent(_ context.Context, a, b string) bool {
	x, validX := document(a)
	y, validY := document(b)
	return validX && validY && reflect.DeepEqual(x, y)
}

// document decodes JSON, with numbers as plainNumber.
func document(text string) (value any, valid bool) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if !json.Valid([]byte(text)) || decoder.Decode(&value) != nil {
		return nil, false
	}
	return plainNumbers(value), true
}

func plainNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		return plainNumber(string(v))
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plainNumbers(v[key])
		}
	}
	return value
}

// plainNumber returns one text for all spellings of a number in JSON. It does not compute the number, which may be 1e999999.
func plainNumber(text string) json.Number {
	mantissa, power, _ := strings.Cut(strings.ToLower(text), "e")
	exponent, err := strconv.Atoi(power)
	if err != nil && power != "" {
		return json.Number(text) // beyond all reason
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return "0"
	}
	if strings.HasPrefix(mantissa, "-") {
		significant = "-" + significant
	}
	return json.Number(significant + "e" + strconv.Itoa(exponent-len(fraction)+len(digits)-len(strings.TrimLeft(significant, "-"))))
}

// FormatDuration writes a duration without the zero parts that Go adds: 1m, not 1m0s.
func FormatDuration(d input.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// SemanticType is the type of SemanticString.
type SemanticType[E equivalence] struct{ basetypes.StringType }

var _ basetypes.StringTypable = SemanticType[DurationText]{}

// Equal reports whether another type compares in the same way.
func (t SemanticType[E]) Equal(o attr.Type) bool {
	_, ok := o.(SemanticType[E])
	return ok
}

func (t SemanticType[E]) String() string { return fmt.Sprintf("string compared as %T", *new(E)) }

// ValueType returns an empty value of the type.
func (t SemanticType[E]) ValueType(context.Context) attr.Value { return SemanticString[E]{} }

// ValueFromString makes a value from a plain string.
func (t SemanticType[E]) ValueFromString(
	_ context.Context, v basetypes.StringValue,
) (basetypes.StringValuable, diag.Diagnostics) {
	return SemanticString[E]{v}, nil
}

// ValueFromTerraform makes a value from one of the protocol.
func (t SemanticType[E]) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	v, err := t.StringType.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, err
	}
	return SemanticString[E]{v.(basetypes.StringValue)}, nil
}

// SemanticString is a string that the framework compares by meaning: if the API responds with an
// equivalent string, the state keeps the one from the plan.
type SemanticString[E equivalence] struct{ basetypes.StringValue }

var _ basetypes.StringValuableWithSemanticEquals = SemanticString[DurationText]{}

// NewSemanticString returns a string that is compared by meaning.
func NewSemanticString[E equivalence](value string) SemanticString[E] {
	return SemanticString[E]{basetypes.NewStringValue(value)}
}

func (v SemanticString[E]) asText() basetypes.StringValue { return v.StringValue }

// Type returns the type of the value.
func (v SemanticString[E]) Type(context.Context) attr.Type { return SemanticType[E]{} }

// Equal reports whether another value is the same string.
func (v SemanticString[E]) Equal(o attr.Value) bool {
	other, ok := o.(SemanticString[E])
	return ok && v.StringValue.Equal(other.StringValue)
}

// StringSemanticEquals reports whether another value means the same.
func (v SemanticString[E]) StringSemanticEquals(
	ctx context.Context, o basetypes.StringValuable,
) (bool, diag.Diagnostics) {
	other, ok := o.(SemanticString[E])
	return ok && (*new(E)).Equivalent(ctx, v.ValueString(), other.ValueString()), nil
}

// keepEquivalent plans the string in the state if the configured one is equivalent, so that a
// change from 60s to 1m, or an import, is no update. The framework itself compares by meaning only
// what the API returns, not the configuration.
type keepEquivalent[E equivalence] struct{ keepEquivalentText }

var _ planmodifier.String = keepEquivalent[DurationText]{}

// keepEquivalentText describes keepEquivalent and its counterpart for lists.
type keepEquivalentText struct{}

func (keepEquivalentText) Description(context.Context) string {
	return "An equivalent value is no change."
}

func (t keepEquivalentText) MarkdownDescription(ctx context.Context) string {
	return t.Description(ctx)
}

func (keepEquivalent[E]) PlanModifyString(
	ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse,
) {
	unset := req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown()
	if !unset && (*new(E)).Equivalent(ctx, req.StateValue.ValueString(), req.PlanValue.ValueString()) {
		resp.PlanValue = req.StateValue
	}
}

// keepEquivalentDelays is keepEquivalent for a list of durations.
type keepEquivalentDelays struct{ keepEquivalentText }

func (keepEquivalentDelays) PlanModifyList(
	ctx context.Context, req planmodifier.ListRequest, resp *planmodifier.ListResponse,
) {
	before, after := req.StateValue.Elements(), req.PlanValue.Elements()
	if req.PlanValue.IsNull() != req.StateValue.IsNull() || req.PlanValue.IsUnknown() || len(before) != len(after) {
		return
	}
	for i := range after {
		old, _ := before[i].(types.String)
		planned, _ := after[i].(types.String)
		if planned.IsUnknown() || !(DurationText{}).Equivalent(ctx, old.ValueString(), planned.ValueString()) {
			return
		}
	}
	resp.PlanValue = req.StateValue
}
