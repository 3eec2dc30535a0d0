package provider

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// followModel is one of the blocks on_success, on_failure and on_misfire of a job.
type followModel struct {
	Jobs    types.List   `tfsdk:"jobs"`
	Payload types.String `tfsdk:"payload"`
	Target  types.Object `tfsdk:"target"`
}

// followKinds are the kinds of target that can be told how a run ended. A request to an endpoint group is a job of its own.
var followKinds = sync.OnceValue(func() []targetKind {
	return slices.DeleteFunc(slices.Clone(targetKinds), func(kind targetKind) bool { return kind.name() == string(target.KindGroup) })
})

// followAttribute is the block of an event; after says which runs or fires it follows.
func followAttribute(after string) schema.SingleNestedAttribute {
	target := map[string]schema.Attribute{}
	var names []string
	for _, kind := range followKinds() {
		a := kind.attribute()
		a.MarkdownDescription = asInTarget + kind.name() + "` in `target` of the job. Default: the target is of another kind."
		target[kind.name()] = a
		names = append(names, kind.name())
	}
	return optionalObject("What follows "+after+": other jobs, a target that is told, or both. Default: nothing.",
		map[string]schema.Attribute{
			"jobs": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: fmt.Sprintf("Names of jobs of the app that run then, once each, at most %d. Refer to the resources, "+
					"`[carillon_job.NAME.name]`, so that Terraform creates them first. Jobs cannot follow one another in a circle. "+
					"Default: none.", dispatcher.MostFollowers),
			},
			"payload": stringWithDefault(dispatcher.FollowOwn, "What these jobs get: `own` is the payload that they declare, `result` a "+
				"document with the run that they follow and its response."),
			"target": optionalObject("What is told, by a run of its own with the `default_retry` of the app: exactly one of "+either(names)+
				". It gets the document that `payload = \"result\"` means, unless it has a `body`. Default: nothing is told.", target),
		})
}

// asInTarget begins the description of a block that the job has in its target, too.
const asInTarget = "As `"

var followType = sync.OnceValue(func() types.ObjectType { return followAttribute("").GetType().(types.ObjectType) })

// expandFollow returns nil if the block is left out.
func expandFollow(ctx context.Context, e *expander, at string, object types.Object) *dispatcher.Follow {
	var m followModel
	if !e.object(ctx, at, object, &m) {
		return nil
	}
	f := dispatcher.Follow{Payload: dispatcher.FollowOwn}
	f.Jobs = e.stringList(at+"/jobs", m.Jobs)
	expandOptional(e, at+"/payload", m.Payload, &f.Payload)
	if e.markUnknown(at+"/target", m.Target) || !m.Target.IsNull() {
		target := expandTarget(ctx, e, at+"/target", followKinds(), m.Target)
		f.Target = &target
	}
	if m.Jobs.IsUnknown() || m.Target.IsUnknown() { // there must be one of them
		e.incomplete = append(e.incomplete, at)
	}
	return &f
}

func flattenFollow(ctx context.Context, diags *diag.Diagnostics, f *dispatcher.Follow, prior types.Object) types.Object {
	of := followType()
	if f == nil {
		return nullObject(of)
	}
	var before followModel
	(&expander{}).object(ctx, "", prior, &before)
	m := followModel{
		Jobs:    flattenStrings(ctx, diags, f.Jobs, before.Jobs),
		Payload: types.StringValue(string(f.Payload)),
		Target:  nullObject(objectType(of, "target")),
	}
	if f.Target != nil {
		m.Target = flattenTarget(ctx, diags, objectType(of, "target"), followKinds(), *f.Target, before.Target)
	}
	return flattenObject(ctx, diags, of, m)
}
