package provider

import (
	"math/big"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// The functions in this file turn fields of the domain into Terraform values; expand.go holds the way back.

// flattenOptional turns the empty string, which means "left out" in the domain, into null.
func flattenOptional[S ~string](value S) types.String {
	if value == "" {
		return types.StringNull()
	}
	return types.StringValue(string(value))
}

func flattenNumber(n int) types.Number { return types.NumberValue(big.NewFloat(float64(n))) }

func flattenInstant(t *time.Time) instantString {
	if t == nil {
		return instantString{types.StringNull()}
	}
	return newSemanticString[instants](t.UTC().Format(time.RFC3339Nano))
}

// flattenStringMap takes prior, the value that the plan or state holds: an empty map and none are the same on the wire, so the
// result keeps the form that the user wrote.
func flattenStringMap(diags *diag.Diagnostics, texts map[string]string, prior types.Map) types.Map {
	if len(texts) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.MapNull(types.StringType)
	}
	elements := make(map[string]attr.Value, len(texts))
	for name, text := range texts {
		elements[name] = types.StringValue(text)
	}
	return flattenMap(diags, types.StringType, elements)
}

// flattenMap returns an empty map instead of null.
func flattenMap(diags *diag.Diagnostics, element attr.Type, elements map[string]attr.Value) types.Map {
	m, found := types.MapValue(element, elements)
	diags.Append(found...)
	return m
}
