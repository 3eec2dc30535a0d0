package protocol

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// attribute is the part of a schema's attribute that planning and validating need.
type attribute struct {
	kind                          attr.Type
	required, computed, writeOnly bool
	leftOut                       attr.Value // the default, or nil
	unknown, null                 attr.Value
	texts                         []planmodifier.String
	lists                         []planmodifier.List
	inner                         map[string]*attribute
	keyed                         bool // inner describes each element of a map
	unclear                       bool // it has something that a table does not support
}

// attributesIn returns the attributes of a schema.
func attributesIn(ctx context.Context, attributes map[string]schema.Attribute) map[string]*attribute {
	all := map[string]*attribute{}
	for name, a := range attributes {
		kind := a.GetType()
		one := &attribute{kind: kind, required: a.IsRequired(), computed: a.IsComputed(), writeOnly: a.IsWriteOnly()}
		of := kind.TerraformType(ctx)
		var errUnknown, errNull error
		one.unknown, errUnknown = kind.ValueFromTerraform(ctx, tftypes.NewValue(of, tftypes.UnknownValue))
		one.null, errNull = kind.ValueFromTerraform(ctx, tftypes.NewValue(of, nil))
		one.unclear = errUnknown != nil || errNull != nil
		one.describe(ctx, a)
		all[name] = one
	}
	return all
}

// describe records defaults, plan modifiers and nested attributes.
func (a *attribute) describe(ctx context.Context, from schema.Attribute) {
	switch from := from.(type) {
	case schema.StringAttribute:
		a.texts = from.PlanModifiers
		if from.Default != nil {
			var resp defaults.StringResponse
			from.Default.DefaultString(ctx, defaults.StringRequest{}, &resp)
			a.leftOut = a.text(ctx, resp.PlanValue)
		}
		a.lacks(len(from.Validators))
	case schema.BoolAttribute:
		if from.Default != nil {
			var resp defaults.BoolResponse
			from.Default.DefaultBool(ctx, defaults.BoolRequest{}, &resp)
			a.leftOut = resp.PlanValue
		}
		a.lacks(len(from.Validators) + len(from.PlanModifiers))
	case schema.NumberAttribute:
		if from.Default != nil {
			var resp defaults.NumberResponse
			from.Default.DefaultNumber(ctx, defaults.NumberRequest{}, &resp)
			a.leftOut = resp.PlanValue
		}
		a.lacks(len(from.Validators) + len(from.PlanModifiers))
	case schema.Int64Attribute:
		a.lacks(len(from.Validators)+len(from.PlanModifiers), from.Default)
	case schema.ListAttribute:
		a.lists = from.PlanModifiers
		if from.Default != nil {
			var resp defaults.ListResponse
			from.Default.DefaultList(ctx, defaults.ListRequest{}, &resp)
			a.leftOut = resp.PlanValue
		}
		a.lacks(len(from.Validators))
	case schema.MapAttribute:
		a.lacks(len(from.Validators)+len(from.PlanModifiers), from.Default)
	case schema.SingleNestedAttribute:
		a.inner = attributesIn(ctx, from.Attributes)
		a.lacks(len(from.Validators)+len(from.PlanModifiers), from.Default)
		a.unclear = a.unclear || from.Computed
	case schema.MapNestedAttribute:
		a.inner, a.keyed = attributesIn(ctx, from.NestedObject.Attributes), true
		a.lacks(len(from.Validators)+len(from.PlanModifiers)+len(from.NestedObject.Validators)+len(from.NestedObject.PlanModifiers),
			from.Default)
		a.unclear = a.unclear || from.Computed
	default:
		a.unclear = true
	}
}

// lacks records that the attribute has rules, or a default, that the table does not support.
func (a *attribute) lacks(rules int, defaults ...any) {
	a.unclear = a.unclear || rules > 0 || slices.ContainsFunc(defaults, func(one any) bool { return one != nil })
}

// text returns a string in the attribute's type.
func (a *attribute) text(ctx context.Context, s types.String) attr.Value {
	value, diags := a.kind.(basetypes.StringTypable).ValueFromString(ctx, s)
	if diags.HasError() {
		a.unclear = true
	}
	return value
}

// complete reports whether all required attributes are set or unknown.
func complete(required map[string]*attribute, config map[string]attr.Value) bool {
	for name, a := range required {
		value := config[name]
		switch {
		case a.required && value.IsNull():
			return false
		case a.inner == nil || value.IsNull() || value.IsUnknown():
		case a.keyed:
			for _, element := range inside(value) {
				if element.IsNull() || element.IsUnknown() || !complete(a.inner, inside(element)) {
					return false
				}
			}
		case !complete(a.inner, inside(value)):
			return false
		}
	}
	return true
}

// inside returns the attributes of an object or the elements of a map, or nil for other values.
func inside(value attr.Value) map[string]attr.Value {
	switch value := value.(type) {
	case types.Object:
		return value.Attributes()
	case types.Map:
		return value.Elements()
	}
	return nil
}

// place is an attribute somewhere in a plan, with its values there. It has no value in the
// configuration or the prior state if its parent is missing there.
type place struct {
	*attribute
	at                  path.Path
	config, plan, prior attr.Value
}

// object has the values of an object in a change.
type object struct{ config, plan, prior map[string]attr.Value }

// each replaces the attributes of a plan, in place, by the results of change, and returns them.
func (o object) each(
	attributes map[string]*attribute, at path.Path, change func(place) (attr.Value, diag.Diagnostics),
) diag.Diagnostics {
	var all diag.Diagnostics
	for name, a := range attributes {
		p := place{a, at.AtName(name), o.config[name], o.plan[name], o.prior[name]}
		if a.inner != nil && !p.plan.IsNull() && !p.plan.IsUnknown() {
			all.Append(p.eachInside(change)...)
		}
		o.plan[name] = p.plan
		if all.HasError() {
			continue
		}
		value, diags := change(p)
		all.Append(diags...)
		o.plan[name] = value
	}
	return all
}

// eachInside is each for nested attributes.
func (p *place) eachInside(change func(place) (attr.Value, diag.Diagnostics)) diag.Diagnostics {
	whole := object{inside(p.config), inside(p.plan), inside(p.prior)}
	if !p.keyed {
		all := whole.each(p.inner, p.at, change)
		value, diags := types.ObjectValue(p.kind.(types.ObjectType).AttrTypes, whole.plan)
		p.plan = value
		return append(all, diags...)
	}
	of := p.kind.(types.MapType).ElemType
	var all diag.Diagnostics
	for key, element := range whole.plan {
		if element.IsNull() || element.IsUnknown() {
			continue
		}
		one := object{inside(whole.config[key]), inside(element), inside(whole.prior[key])}
		all.Append(one.each(p.inner, p.at.AtMapKey(key), change)...)
		value, diags := types.ObjectValue(of.(types.ObjectType).AttrTypes, one.plan)
		all.Append(diags...)
		whole.plan[key] = value
	}
	elements, diags := types.MapValue(of, whole.plan)
	p.plan = elements
	return append(all, diags...)
}

// leftOutByConfig reports whether the configuration omits an attribute.
func (p place) leftOutByConfig() bool { return p.config == nil || p.config.IsNull() }

// filledIn is a change for each: it sets defaults, and removes values that a plan must not have.
func filledIn(p place) (attr.Value, diag.Diagnostics) {
	switch {
	case p.writeOnly:
		return p.null, nil
	case p.leftOut != nil && p.leftOutByConfig():
		return p.leftOut, nil
	}
	return p.plan, nil
}

// resolved returns a change for each: it marks values of the API as unknown if anything changes, and runs the plan
// modifiers. exists means that a prior state exists; replace collects the attributes that force a replacement.
func resolved(ctx context.Context, changes, exists bool, replace *path.Paths) func(place) (attr.Value, diag.Diagnostics) {
	// The modifiers only check whether the plan and the state exist.
	there := tftypes.NewValue(tftypes.Bool, true)
	plan, state := tfsdk.Plan{Raw: there}, tfsdk.State{}
	if exists {
		state.Raw = there
	}
	return func(p place) (attr.Value, diag.Diagnostics) {
		if changes && p.computed && p.leftOut == nil && p.leftOutByConfig() {
			p.plan = p.unknown
		}
		if p.prior == nil {
			p.prior = p.null
		}
		if p.config == nil {
			p.config = p.null
		}
		var all diag.Diagnostics
		for _, m := range p.texts {
			req := planmodifier.StringRequest{Path: p.at, Plan: plan, State: state}
			all.Append(asText(ctx, p.config, &req.ConfigValue)...)
			all.Append(asText(ctx, p.plan, &req.PlanValue)...)
			all.Append(asText(ctx, p.prior, &req.StateValue)...)
			resp := planmodifier.StringResponse{PlanValue: req.PlanValue}
			m.PlanModifyString(ctx, req, &resp)
			all.Append(resp.Diagnostics...)
			p.plan = p.text(ctx, resp.PlanValue)
			if resp.RequiresReplace {
				replace.Append(p.at)
			}
		}
		for _, m := range p.lists {
			req := planmodifier.ListRequest{Path: p.at, Plan: plan, State: state}
			req.ConfigValue, req.PlanValue, req.StateValue = p.config.(types.List), p.plan.(types.List), p.prior.(types.List)
			resp := planmodifier.ListResponse{PlanValue: req.PlanValue}
			m.PlanModifyList(ctx, req, &resp)
			all.Append(resp.Diagnostics...)
			p.plan = resp.PlanValue
			if resp.RequiresReplace {
				replace.Append(p.at)
			}
		}
		return p.plan, all
	}
}

func asText(ctx context.Context, value attr.Value, text *types.String) (diags diag.Diagnostics) {
	*text, diags = value.(basetypes.StringValuable).ToStringValue(ctx)
	return diags
}
