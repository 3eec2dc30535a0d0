package provider

import (
	"context"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// targetKind is a kind of target. Each is an attribute of target, with its own file.
type targetKind interface {
	// name is the attribute's name, which is also the field's name in the API.
	name() string
	attribute() schema.SingleNestedAttribute
	// expand sets the kind's field of target from an object that may be null or unknown.
	expand(ctx context.Context, e *expander, pointer string, object types.Object, target *target.Target)
	// flatten returns null if target is of another kind. prior is the object that the result
	// replaces; flatten.go says why that matters.
	flatten(ctx context.Context, diags *diag.Diagnostics, target target.Target, prior types.Object) types.Object
}

// targetKinds are all kinds of target. To add one, write its file and add it here.
var targetKinds = []targetKind{webhookTarget{}, lambdaTarget{}, groupTarget{}, sqsTarget{}, snsTarget{}}

func targetAttribute() schema.Attribute {
	attributes := map[string]schema.Attribute{}
	var names []string
	for _, kind := range targetKinds {
		attributes[kind.name()] = kind.attribute()
		names = append(names, kind.name())
	}
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: "What a run calls: exactly one of " + either(names) + ".",
		Attributes:          attributes,
	}
}

// targetType, like the other types of objects, is built once: building an attribute costs more than all else that a
// plan does with a job.
var targetType = sync.OnceValue(func() types.ObjectType { return targetAttribute().GetType().(types.ObjectType) })

// expandTarget expands a target whose pointer is at, of some of the kinds.
func expandTarget(ctx context.Context, e *expander, at string, kinds []targetKind, object types.Object) target.Target {
	var target target.Target
	if e.markUnknown(at, object) {
		return target
	}
	unknown := false
	for _, kind := range kinds {
		of, _ := object.Attributes()[kind.name()].(types.Object)
		kind.expand(ctx, e, at+"/"+kind.name(), of, &target)
		unknown = unknown || of.IsUnknown()
	}
	if unknown { // it may turn out to be null, so the number of kinds cannot be checked yet
		for _, kind := range kinds {
			e.incomplete = append(e.incomplete, at+"/"+kind.name())
		}
	}
	return target
}

// flattenTarget returns a target as an object of a type, which has some of the kinds.
func flattenTarget(
	ctx context.Context, diags *diag.Diagnostics, of types.ObjectType, kinds []targetKind, target target.Target, prior types.Object,
) types.Object {
	attributes := map[string]attr.Value{}
	for _, kind := range kinds {
		before, _ := prior.Attributes()[kind.name()].(types.Object)
		attributes[kind.name()] = kind.flatten(ctx, diags, target, before)
	}
	object, found := types.ObjectValue(of.AttrTypes, attributes)
	diags.Append(found...)
	return object
}
