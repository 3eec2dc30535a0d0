package provider

import (
	"context"
	"math/big"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

// The functions in this file turn fields of the domain into Terraform values; expand.go holds
// the way back. Some take prior, the value that the plan or state holds: an empty map or list
// and none are the same on the wire, so the result keeps the form that the user wrote.

// flattenOptional is the inverse of expandOptional: the empty string becomes null.
func flattenOptional[S ~string](value S) types.String {
	if value == "" {
		return types.StringNull()
	}
	return types.StringValue(string(value))
}

func flattenNumber(n int) types.Number { return types.NumberValue(big.NewFloat(float64(n))) }

func flattenDuration(d dispatcher.Duration) durationString {
	return newSemanticString[durations](formatDuration(d))
}

func flattenInstant(t *time.Time) instantString {
	if t == nil {
		return instantString{types.StringNull()}
	}
	return newSemanticString[instants](t.UTC().Format(time.RFC3339Nano))
}

// flattenJSON turns an empty document into null.
func flattenJSON(document []byte) jsonString {
	if len(document) == 0 {
		return jsonString{types.StringNull()}
	}
	return newSemanticString[documents](string(document))
}

func flattenStringMap(
	ctx context.Context, diags *diag.Diagnostics, values map[string]string, prior types.Map,
) types.Map {
	switch {
	case len(values) > 0:
		return flattenMap(ctx, diags, types.StringType, values)
	case prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0:
		return types.MapNull(types.StringType)
	}
	return flattenMap(ctx, diags, types.StringType, map[string]string{})
}

// flattenStrings returns null instead of an empty list, unless prior is empty.
func flattenStrings(ctx context.Context, diags *diag.Diagnostics, values []string, prior types.List) types.List {
	if len(values) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.ListNull(types.StringType)
	}
	return flattenList(ctx, diags, types.StringType, values)
}

func flattenMap(ctx context.Context, diags *diag.Diagnostics, element attr.Type, from any) types.Map {
	m, found := types.MapValueFrom(ctx, element, from)
	diags.Append(found...)
	return m
}

// flattenList returns an empty list instead of null.
func flattenList[T any](ctx context.Context, diags *diag.Diagnostics, element attr.Type, from []T) types.List {
	list, found := types.ListValueFrom(ctx, element, append([]T{}, from...))
	diags.Append(found...)
	return list
}

func flattenObject(ctx context.Context, diags *diag.Diagnostics, of types.ObjectType, model any) types.Object {
	object, found := types.ObjectValueFrom(ctx, of.AttrTypes, model)
	diags.Append(found...)
	return object
}

func nullObject(of types.ObjectType) types.Object { return types.ObjectNull(of.AttrTypes) }

// objectType returns the type of an object attribute of an object.
func objectType(of types.ObjectType, name string) types.ObjectType {
	return of.AttrTypes[name].(types.ObjectType)
}

// setState stores a model, unless flattening it has failed.
func setState(ctx context.Context, state *tfsdk.State, diags *diag.Diagnostics, model any) {
	if !diags.HasError() {
		diags.Append(state.Set(ctx, model)...)
	}
}
