package protocol

import (
	"context"
	"maps"
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

	"github.com/carillon-dev/carillon/provider/binding"
)

// attribute is the part of a schema's attribute or block that planning and validating need.
type attribute struct {
	kind                          attr.Type
	required, computed, writeOnly bool
	leftOut                       attr.Value // the default, or nil
	unknown, null                 attr.Value
	texts                         []planmodifier.String
	lists                         []planmodifier.List
	inner                         map[string]*attribute // of a block; nil for an attribute
	repeats                       repetition
	sent                          map[string]*attribute // inner as Terraform has it: with the name of a named block
	unclear                       bool                  // it has something that a table does not support
}

// repetition is how often a block may stand in its place.
type repetition int

const (
	single   repetition = iota
	repeated            // in a significant order
	named               // by name: a list for Terraform, a map here
)

// nameOfBlock is the attribute by which a repeated block is named: one that all must have.
const nameOfBlock = "name"

// attributesIn returns the attributes of a schema.
func attributesIn(ctx context.Context, attributes map[string]schema.Attribute) map[string]*attribute {
	all := map[string]*attribute{}
	for name, a := range attributes {
		one := &attribute{kind: a.GetType(), required: a.IsRequired(), computed: a.IsComputed(), writeOnly: a.IsWriteOnly()}
		one.describe(ctx, a)
		of := one.kind.TerraformType(ctx)
		var errUnknown, errNull error
		one.unknown, errUnknown = one.kind.ValueFromTerraform(ctx, tftypes.NewValue(of, tftypes.UnknownValue))
		one.null, errNull = one.kind.ValueFromTerraform(ctx, tftypes.NewValue(of, nil))
		one.unclear = one.unclear || errUnknown != nil || errNull != nil
		all[name] = one
	}
	return all
}

// holds records the contents of a block, and the type of its values.
func (a *attribute) holds(ctx context.Context, repeats repetition, contents map[string]schema.Attribute) {
	a.sent, a.repeats = attributesIn(ctx, contents), repeats
	a.inner = a.sent
	if name := a.sent[nameOfBlock]; repeats == repeated && name != nil && name.required {
		a.inner, a.repeats = maps.Clone(a.sent), named
		delete(a.inner, nameOfBlock)
	}
	block := objectOf(a.inner)
	switch a.repeats {
	case single:
		a.kind = block
	case repeated:
		a.kind = types.ListType{ElemType: block}
	case named:
		a.kind = types.MapType{ElemType: block}
	}
}

// objectOf returns the type of an object.
func objectOf(attributes map[string]*attribute) types.ObjectType {
	kinds := make(map[string]attr.Type, len(attributes))
	for name, a := range attributes {
		kinds[name] = a.kind
	}
	return types.ObjectType{AttrTypes: kinds}
}

// block returns the type of one block.
func (a *attribute) block() types.ObjectType {
	switch kind := a.kind.(type) {
	case types.ListType:
		return kind.ElemType.(types.ObjectType)
	case types.MapType:
		return kind.ElemType.(types.ObjectType)
	}
	return a.kind.(types.ObjectType)
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
		a.holds(ctx, single, from.Attributes)
		a.lacks(len(from.Validators)+len(from.PlanModifiers), from.Default)
		a.unclear = a.unclear || from.Computed
	case schema.ListNestedAttribute:
		a.holds(ctx, repeated, from.NestedObject.Attributes)
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

func known(value attr.Value) bool { return !value.IsNull() && !value.IsUnknown() }

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

// elementsOf returns the elements of a list, or nil for other values.
func elementsOf(value attr.Value) []attr.Value {
	list, _ := value.(types.List)
	return list.Elements()
}

// at returns an element, or nil if there are fewer.
func at(elements []attr.Value, i int) attr.Value {
	if i < len(elements) {
		return elements[i]
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
type object struct{ config, plan, prior binding.Values }

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

// eachInside is each for the blocks of an attribute.
func (p *place) eachInside(change func(place) (attr.Value, diag.Diagnostics)) diag.Diagnostics {
	of := p.block()
	one := func(at path.Path, config, plan, prior attr.Value) (attr.Value, diag.Diagnostics) {
		if !known(plan) {
			return plan, nil
		}
		whole := object{inside(config), inside(plan), inside(prior)}
		all := whole.each(p.inner, at, change)
		value, diags := types.ObjectValue(of.AttrTypes, whole.plan)
		return value, append(all, diags...)
	}
	var all, diags diag.Diagnostics
	switch plan := p.plan.(type) {
	case types.Map:
		blocks, config, prior := plan.Elements(), inside(p.config), inside(p.prior)
		for key, block := range blocks {
			blocks[key], diags = one(p.at.AtMapKey(key), config[key], block, prior[key])
			all.Append(diags...)
		}
		p.plan, diags = types.MapValue(of, blocks)
	case types.List:
		blocks, config, prior := plan.Elements(), elementsOf(p.config), elementsOf(p.prior)
		for i, block := range blocks {
			blocks[i], diags = one(p.at.AtListIndex(i), at(config, i), block, at(prior, i))
			all.Append(diags...)
		}
		p.plan, diags = types.ListValue(of, blocks)
	default:
		p.plan, diags = one(p.at, p.config, p.plan, p.prior)
	}
	return append(all, diags...)
}

// leftOutByConfig reports whether the configuration omits an attribute.
func (p place) leftOutByConfig() bool { return p.config == nil || p.config.IsNull() }

// filledIn is a change for each: where a configuration leaves an attribute out, it sets the default, or keeps what the
// API decided before. It removes values that a plan must not have.
func filledIn(p place) (attr.Value, diag.Diagnostics) {
	switch {
	case p.writeOnly:
		return p.null, nil
	case !p.leftOutByConfig():
	case p.leftOut != nil:
		return p.leftOut, nil
	case p.computed && p.prior != nil:
		return p.prior, nil
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
