package provider

import (
	"context"
	"math/big"
	"reflect"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
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

// flattenOptionalBool leaves out what is false, unless it is written.
func flattenOptionalBool(value bool, prior types.Bool) types.Bool {
	if !value && prior.IsNull() {
		return types.BoolNull()
	}
	return types.BoolValue(value)
}

func flattenNumber(n int) types.Number { return types.NumberValue(big.NewFloat(float64(n))) }

func flattenDuration(d input.Duration) durationString {
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

// flattenMap returns an empty map instead of null.
func flattenMap[T any](ctx context.Context, diags *diag.Diagnostics, element attr.Type, from map[string]T) types.Map {
	elements := make(map[string]attr.Value, len(from))
	for name, one := range from {
		elements[name] = flattenElement(ctx, diags, element, one)
	}
	m, found := types.MapValue(element, elements)
	diags.Append(found...)
	return m
}

// flattenList returns an empty list instead of null.
func flattenList[T any](ctx context.Context, diags *diag.Diagnostics, element attr.Type, from []T) types.List {
	elements := make([]attr.Value, 0, len(from))
	for _, one := range from {
		elements = append(elements, flattenElement(ctx, diags, element, one))
	}
	list, found := types.ListValue(element, elements)
	diags.Append(found...)
	return list
}

// nullIfMissing returns null for a list that the API does not have, because [] means another thing there.
func nullIfMissing[T any](ctx context.Context, from []T, list types.List) types.List {
	if from == nil {
		return types.ListNull(list.ElementType(ctx))
	}
	return list
}

// flattenElement returns a value, or what a text or a model of an object becomes.
func flattenElement(ctx context.Context, diags *diag.Diagnostics, of attr.Type, element any) attr.Value {
	if value, is := element.(attr.Value); is {
		return value
	}
	if object, is := of.(types.ObjectType); is {
		return flattenObject(ctx, diags, object, element)
	}
	return types.StringValue(reflect.ValueOf(element).String())
}

func flattenObject(_ context.Context, diags *diag.Diagnostics, of types.ObjectType, model any) types.Object {
	object, found := types.ObjectValue(of.AttrTypes, attributesOf(model))
	diags.Append(found...)
	return object
}

// attributesOf returns the fields of a model by the names of their attributes; assign is its inverse. The framework's
// ObjectValueFrom would do too, but it compiles a regular expression for each field, which was an eighth of what an
// empty plan cost.
func attributesOf(model any) map[string]attr.Value {
	fields := reflect.ValueOf(model)
	attributes := make(map[string]attr.Value, fields.NumField())
	addFields(attributes, fields)
	return attributes
}

// addFields adds the fields of a struct and of those that it embeds.
func addFields(attributes map[string]attr.Value, fields reflect.Value) {
	for i := range fields.NumField() {
		if fields.Type().Field(i).Anonymous {
			addFields(attributes, fields.Field(i))
			continue
		}
		attributes[fields.Type().Field(i).Tag.Get("tfsdk")] = fields.Field(i).Interface().(attr.Value)
	}
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
