package provider

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupTarget is the kind group.
type groupTarget struct{}

func (groupTarget) name() string { return string(target.KindGroup) }

type groupTargetModel struct {
	requestModel
	Name     types.String `tfsdk:"name"`
	Path     types.String `tfsdk:"path"`
	Strategy types.String `tfsdk:"strategy"`
	HashKey  types.String `tfsdk:"hash_key"`
	// EndpointConcurrency bounds the runs of the job at each endpoint.
	EndpointConcurrency types.String `tfsdk:"endpoint_concurrency"`
	XXLJob              types.Object `tfsdk:"xxl_job"`
}

func (groupTarget) attribute() schema.SingleNestedAttribute {
	var defaults target.GroupTarget
	defaults.SetDefaults()
	attributes := map[string]schema.Attribute{
		"name": requiredString("Name of an endpoint group of the app. Refer to the resource, `carillon_endpoint_group.NAME.name`, so " +
			"that Terraform creates it first."),
		"path": optionalString("What follows the URL of the endpoint and the `path` of the group, such as `/nightly`. It begins with `/` or " +
			"`?` and may be a template, like `body`. Default: nothing follows."),
		"strategy": optionalString("How the endpoint is chosen for this job: " + either(target.Strategies) +
			". Default: the `strategy` of the group."),
		"hash_key": optionalString("With `consistent_hash`, a template of what is hashed, such as `{{json .Payload}}`: requests with " +
			"the same key go to the same endpoint. Default: the names of app and job."),
		"endpoint_concurrency": optionalString("What happens to a run that the strategy sends to an endpoint at which another run of " +
			"this job is under way: `allow` (it goes there, too), `queue` (it waits for that endpoint; at most `queue_limit` runs wait, " +
			"others are skipped), `forbid` (it is skipped) or `replace` (the run under way is cancelled, and the new one begins when that " +
			"has stopped). With the strategies `busyover` and `global_busyover`, another endpoint is chosen instead. The job's " +
			"`concurrency_policy` applies first, over all endpoints. Default: `allow`."),
		"xxl_job": xxlJobAttribute(),
	}
	maps.Copy(attributes, requestAttributes(*webhookOf(&defaults)))
	return optionalObject("An HTTP request to one endpoint of an endpoint group, chosen for each run. The group says how requests "+
		"authenticate and are signed. An endpoint that cannot be reached is passed over for the next one within the same attempt, but "+
		"never after it may have received the request. Default: the target is of another kind.", attributes)
}

// webhookOf returns what a request to a group has in common with a webhook.
func webhookOf(g *target.GroupTarget) *target.Webhook {
	return &target.Webhook{
		Method: g.Method, Headers: g.Headers, Body: g.Body, Timeout: g.Timeout,
		SuccessCodes: g.SuccessCodes, ExpectBody: g.ExpectBody, CloudEvents: g.CloudEvents, Callback: g.Callback,
		TraceContext: g.TraceContext,
	}
}

func (groupTarget) expand(
	ctx context.Context, e *expander, pointer string, object types.Object, to *target.Target,
) {
	var m groupTargetModel
	if !e.object(ctx, pointer, object, &m) {
		return
	}
	var g target.GroupTarget
	g.SetDefaults()
	w := webhookOf(&g)
	expandRequest(ctx, e, pointer, m.requestModel, w)
	g.Method, g.Headers, g.Body, g.Timeout = w.Method, w.Headers, w.Body, w.Timeout
	g.SuccessCodes, g.ExpectBody, g.CloudEvents, g.Callback = w.SuccessCodes, w.ExpectBody, w.CloudEvents, w.Callback
	g.TraceContext = w.TraceContext
	g.Name = e.required(pointer+"/name", m.Name)
	expandOptional(e, pointer+"/path", m.Path, &g.Path)
	expandOptional(e, pointer+"/strategy", m.Strategy, &g.Strategy)
	expandOptional(e, pointer+"/hash_key", m.HashKey, &g.HashKey)
	expandOptional(e, pointer+"/endpoint_concurrency", m.EndpointConcurrency, &g.EndpointConcurrency)
	g.XXLJob = expandXXLJob(ctx, e, pointer+"/xxl_job", m.XXLJob)
	if m.Strategy.IsUnknown() { // only one strategy has a key
		e.incomplete = append(e.incomplete, pointer+"/hash_key")
	}
	to.Group = &g
}

func (k groupTarget) flatten(
	ctx context.Context, diags *diag.Diagnostics, target target.Target, prior types.Object,
) types.Object {
	of := k.attribute().GetType().(types.ObjectType)
	g := target.Group
	if g == nil {
		return nullObject(of)
	}
	var before groupTargetModel
	(&expander{}).object(ctx, "", prior, &before)
	return flattenObject(ctx, diags, of, groupTargetModel{
		requestModel: flattenRequest(ctx, diags, webhookOf(g), before.requestModel),
		Name:         types.StringValue(g.Name),
		Path:         flattenOptional(g.Path),
		Strategy:     flattenOptional(g.Strategy),
		HashKey:      flattenOptional(g.HashKey),

		EndpointConcurrency: flattenOptional(g.EndpointConcurrency),
		XXLJob:              flattenXXLJob(ctx, diags, g.XXLJob),
	})
}
