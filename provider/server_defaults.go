package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// defaultOf says which value an attribute has if the configuration leaves it out.
type defaultOf struct {
	value   *tftypes.Value // nil: no default
	inner   map[string]*defaultOf
	keyed   bool // inner is of each element of a map
	unclear bool // the attribute has a default of a kind that hold does not know
}

// defaultsOf returns the attributes that have a default, or inner attributes that do.
func defaultsOf(ctx context.Context, attributes map[string]schema.Attribute) map[string]*defaultOf {
	all := map[string]*defaultOf{}
	for name, a := range attributes {
		d := &defaultOf{}
		var value attr.Value
		switch a := a.(type) {
		case schema.StringAttribute:
			if a.Default != nil {
				var resp defaults.StringResponse
				a.Default.DefaultString(ctx, defaults.StringRequest{}, &resp)
				value = resp.PlanValue
			}
		case schema.BoolAttribute:
			if a.Default != nil {
				var resp defaults.BoolResponse
				a.Default.DefaultBool(ctx, defaults.BoolRequest{}, &resp)
				value = resp.PlanValue
			}
		case schema.NumberAttribute:
			if a.Default != nil {
				var resp defaults.NumberResponse
				a.Default.DefaultNumber(ctx, defaults.NumberRequest{}, &resp)
				value = resp.PlanValue
			}
		case schema.ListAttribute:
			if a.Default != nil {
				var resp defaults.ListResponse
				a.Default.DefaultList(ctx, defaults.ListRequest{}, &resp)
				value = resp.PlanValue
			}
		case schema.MapAttribute:
			d.unclear = a.Default != nil
		case schema.Int64Attribute:
			d.unclear = a.Default != nil
		case schema.SingleNestedAttribute:
			d.unclear, d.inner = a.Default != nil, defaultsOf(ctx, a.Attributes)
		case schema.MapNestedAttribute:
			d.unclear, d.inner, d.keyed = a.Default != nil, defaultsOf(ctx, a.NestedObject.Attributes), true
		default:
			d.unclear = true
		}
		if value != nil {
			raw, err := value.ToTerraformValue(ctx)
			d.value, d.unclear = &raw, err != nil
		}
		if d.value != nil || d.unclear || len(d.inner) > 0 {
			all[name] = d
		}
	}
	return all
}

// hold reports whether each attribute that the configuration leaves out has its default in the state. Both are objects,
// and the configuration may be null.
func hold(defaults map[string]*defaultOf, config, state tftypes.Value) bool {
	var given, have map[string]tftypes.Value
	if !config.IsKnown() || config.As(&given) != nil || state.As(&have) != nil {
		return false
	}
	for name, d := range defaults {
		value, ok := given[name]
		missing := !ok || value.IsNull()
		switch {
		case d.unclear:
			return false
		case d.value != nil:
			if missing && !d.value.Equal(have[name]) {
				return false
			}
		case have[name].IsNull():
		case d.keyed:
			if !holdForEach(d.inner, value, have[name]) {
				return false
			}
		case !hold(d.inner, value, have[name]):
			return false
		}
	}
	return true
}

func holdForEach(defaults map[string]*defaultOf, config, state tftypes.Value) bool {
	var given, have map[string]tftypes.Value
	if !config.IsKnown() || config.As(&given) != nil || state.As(&have) != nil {
		return false
	}
	for key, element := range have {
		value, ok := given[key]
		if !ok || !hold(defaults, value, element) {
			return false
		}
	}
	return true
}
