package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
)

// settle returns a value that the API sent, but keeps each text of prior that means the same.
func settle(ctx context.Context, prior, read attr.Value) (attr.Value, error) {
	if prior == nil || prior.IsNull() || prior.IsUnknown() || read.IsNull() || read.IsUnknown() || read.Equal(prior) {
		return read, nil
	}
	switch read := read.(type) {
	case types.Object:
		attributes, err := settleEach(ctx, inside(prior), read.Attributes())
		if err != nil {
			return nil, err
		}
		return checked(types.ObjectValue(read.AttributeTypes(ctx), attributes))
	case types.Map:
		elements, err := settleEach(ctx, inside(prior), read.Elements())
		if err != nil {
			return nil, err
		}
		return checked(types.MapValue(read.ElementType(ctx), elements))
	case types.List:
		before, _ := prior.(types.List)
		elements, old := read.Elements(), before.Elements()
		for i := range min(len(elements), len(old)) {
			var err error
			if elements[i], err = settle(ctx, old[i], elements[i]); err != nil {
				return nil, err
			}
		}
		return checked(types.ListValue(read.ElementType(ctx), elements))
	case basetypes.StringValuableWithSemanticEquals:
		same, diags := read.StringSemanticEquals(ctx, prior.(basetypes.StringValuable))
		if same && !diags.HasError() {
			return prior, nil
		}
	}
	return read, nil
}

// settleEach settles the attributes of an object or the elements of a map, in place.
func settleEach(ctx context.Context, prior, read map[string]attr.Value) (map[string]attr.Value, error) {
	for name, value := range read {
		settled, err := settle(ctx, prior[name], value)
		if err != nil {
			return nil, err
		}
		read[name] = settled
	}
	return read, nil
}
