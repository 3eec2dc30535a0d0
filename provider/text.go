package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher"
)

// meaning says when two texts mean the same.
type meaning interface {
	same(ctx context.Context, a, b string) bool
}

// durations compares lengths of time: 60s is 1m0s.
type durations struct{}

func (durations) same(_ context.Context, a, b string) bool {
	x, errX := dispatcher.ParseDuration(a)
	y, errY := dispatcher.ParseDuration(b)
	return errX == nil && errY == nil && x == y
}

// instants compares points in time: 10:00+02:00 is 08:00Z. (timetypes.RFC3339 compares the
// texts and so would see a change where the API answers in UTC.)
type instants struct{}

func (instants) same(_ context.Context, a, b string) bool {
	x, errX := dispatcher.ParseInstant(a)
	y, errY := dispatcher.ParseInstant(b)
	return errX == nil && errY == nil && x.Equal(y)
}

// documents compares JSON: neither white space nor the order of keys matters. (The type
// jsontypes.Normalized shows the whole text where it is no JSON; a payload may be large or
// secret.)
type documents struct{}

func (documents) same(ctx context.Context, a, b string) bool {
	same, diags := jsontypes.NewNormalizedValue(a).StringSemanticEquals(ctx, jsontypes.NewNormalizedValue(b))
	return same && !diags.HasError()
}

// formatDuration writes a duration without the zero parts that Go adds: 1m, not 1m0s.
func formatDuration(d dispatcher.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// textType is the type of a text whose meaning decides whether it differs. What the API
// answers in other words than the plan's is taken as the plan's.
type textType[M meaning] struct{ basetypes.StringType }

var _ basetypes.StringTypable = textType[durations]{}

func (t textType[M]) Equal(o attr.Type) bool {
	_, ok := o.(textType[M])
	return ok
}

func (t textType[M]) String() string { return fmt.Sprintf("text of %T", *new(M)) }

func (t textType[M]) ValueType(context.Context) attr.Value { return text[M]{} }

func (t textType[M]) ValueFromString(_ context.Context, v basetypes.StringValue) (basetypes.StringValuable, diag.Diagnostics) {
	return text[M]{v}, nil
}

func (t textType[M]) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	v, err := t.StringType.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, err
	}
	return text[M]{v.(basetypes.StringValue)}, nil
}

// text is a value of textType.
type text[M meaning] struct{ basetypes.StringValue }

var _ basetypes.StringValuableWithSemanticEquals = text[durations]{}

func newText[M meaning](value string) text[M] { return text[M]{basetypes.NewStringValue(value)} }

func (v text[M]) Type(context.Context) attr.Type { return textType[M]{} }

func (v text[M]) Equal(o attr.Value) bool {
	other, ok := o.(text[M])
	return ok && v.StringValue.Equal(other.StringValue)
}

func (v text[M]) StringSemanticEquals(ctx context.Context, o basetypes.StringValuable) (bool, diag.Diagnostics) {
	other, ok := o.(text[M])
	return ok && (*new(M)).same(ctx, v.ValueString(), other.ValueString()), nil
}

// keepIfSame plans the text in state if the configured one means the same, so that
// rewriting 60s as 1m, or importing, is no change.
type keepIfSame[M meaning] struct{}

var _ planmodifier.String = keepIfSame[durations]{}

func (keepIfSame[M]) Description(context.Context) string {
	return "A text that means the same is no change."
}

func (m keepIfSame[M]) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

func (keepIfSame[M]) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	unset := req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown()
	if !unset && (*new(M)).same(ctx, req.StateValue.ValueString(), req.PlanValue.ValueString()) {
		resp.PlanValue = req.StateValue
	}
}
