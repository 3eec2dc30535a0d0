package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// callbackModel is when a target that accepts an attempt has to finish it.
type callbackModel struct {
	Timeout durationString `tfsdk:"timeout"`
}

func callbackAttribute(description string) schema.SingleNestedAttribute {
	return optionalObject(description, map[string]schema.Attribute{
		"timeout": durationWithDefault(run.DefaultCallbackTimeout, "How long after the acceptance, and after each heartbeat, the "+
			"callback may come, such as `90s` or `2h`; from `1s` to `168h`. After that, the attempt has timed out. With heartbeats, an "+
			"attempt waits for at most `168h` in total."),
	})
}

func expandCallback(ctx context.Context, e *expander, pointer string, object types.Object) *target.CallbackPolicy {
	var m callbackModel
	if !e.object(ctx, pointer, object, &m) {
		return nil
	}
	var c target.CallbackPolicy
	c.SetDefaults()
	c.Timeout = e.duration(pointer+"/timeout", m.Timeout, c.Timeout)
	return &c
}

func flattenCallback(ctx context.Context, diags *diag.Diagnostics, c *target.CallbackPolicy) types.Object {
	of := callbackAttribute("").GetType().(types.ObjectType)
	if c == nil {
		return nullObject(of)
	}
	return flattenObject(ctx, diags, of, callbackModel{Timeout: flattenDuration(c.Timeout)})
}
