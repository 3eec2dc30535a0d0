package provider

import "github.com/hashicorp/terraform-plugin-framework/resource/schema"

// traceContextAttribute is the attribute of every kind of target; how says where the target finds the context.
func traceContextAttribute(how string) schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true,
		MarkdownDescription: "Whether the target gets the W3C trace context of the attempt, " + how + ", to continue the trace of the " +
			"run. Set it for targets of your own, not for those of others. Default: `false`.",
	}
}
