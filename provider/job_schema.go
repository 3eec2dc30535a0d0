package provider

import (
	"context"
	"math/big"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

func (r *jobResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "A job: a target to call, a payload to send, and named triggers that say when. " +
			"Import by `app/job`.\n\n" +
			"Expressions, time zones, durations, URLs and headers are checked at plan, by the rules of the API itself. " +
			"A plan that is applied after somebody else changed the job is refused.\n\n" +
			"**Check the spelling of optional attributes inside `target`, `webhook` and `triggers`:** Terraform drops " +
			"attributes that it does not know there without a word, before the provider sees them, so a misspelt " +
			"`timezone` leaves the default in force. The plan shows every attribute as it will be.",
		Attributes: map[string]schema.Attribute{
			"id": idAttribute(r.kind),
			"app": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the app. Refer to the resource, `carillon_app.NAME.name`, so that it is " +
					"created first. Changing it replaces the job.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"name": schema.StringAttribute{
				Required:            true,
				MarkdownDescription: "Name of the job: " + nameRule + ". Changing it replaces the job.",
				PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"description": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(""),
				MarkdownDescription: "Free text of at most 1024 characters. Default: empty.",
			},
			"enabled": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether the triggers of the job fire. A job that is switched on again begins with the " +
					"next instant; it does not make up for those of the time between, as it would after an operator's pause. Default: `true`.",
			},
			"priority": schema.NumberAttribute{
				Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(0)),
				MarkdownDescription: "Which fires of the app go first where they wait for a node: those of a higher priority, `0` to `9`. Default: `0`.",
			},
			"delivery": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(string(dispatcher.AtLeastOnce)),
				MarkdownDescription: "What is done about an attempt of which nobody can say how it ended, because its node died: " +
					"`at_least_once` repeats it under the same event id; `at_most_once` commits before it sends, which costs a write to the " +
					"database, and ends the run as lost. Default: `at_least_once`.",
			},
			"retry":                   retryAttribute(),
			"concurrency_policy":      concurrencyPolicyAttribute(),
			"max_concurrency":         maxConcurrencyAttribute(),
			"queue_limit":             queueLimitAttribute(),
			"delete_after_completion": deleteAfterAttribute(),
			"node_labels": schema.MapAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Labels that a node must have to run the job, such as `{ zone = \"a\" }`; nodes get theirs from " +
					"`carillon serve --labels`. While no node has them, fires are owed. Default: any node may run it.",
			},
			"target": targetAttribute(),
			"payload": schema.StringAttribute{
				Optional:   true,
				CustomType: textType[documents]{},
				MarkdownDescription: "JSON that becomes the request's body, best written with `jsonencode`: at most 256 KiB, " +
					"nested at most 32 deep. White space and the order of keys make no difference. Default: a description of " +
					"the fire, with `app`, `job`, `trigger`, `run`, `kind` and `scheduled_at`.",
				PlanModifiers: []planmodifier.String{keepIfSame[documents]{}},
			},
			"triggers": triggersAttribute(),
			"state": schema.StringAttribute{
				Computed: true,
				MarkdownDescription: "Roll-up of the triggers: `ERROR`, `EXECUTING` (a trigger is armed), `PAUSED`, " +
					"`COMPLETE` (no fire is left) or `INIT` (nothing is scheduled).",
			},
			"revision": schema.Int64Attribute{
				Computed: true,
				MarkdownDescription: "Counts the changes of the job, pauses by operators included. An update that was " +
					"planned for another revision is refused.",
			},
			"next_fire_times": schema.MapAttribute{
				Computed:    true,
				ElementType: timetypes.RFC3339Type{},
				MarkdownDescription: "The next fire time of each trigger that has one, in RFC 3339 and UTC, as of the latest " +
					"refresh. It moves with time, which is never a reason for an update.",
			},
		},
	}
}

// dropsUnknown tells what Terraform does to objects in attributes, and no provider can see.
const dropsUnknown = "**Terraform silently drops attributes in here that are misspelt**; compare the plan."

func targetAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: "What a run calls: `webhook` or `lambda`. " + dropsUnknown,
		Attributes:          map[string]schema.Attribute{"webhook": webhookAttribute(), "lambda": lambdaAttribute()},
	}
}

func triggersAttribute() schema.Attribute {
	return schema.MapNestedAttribute{
		Required: true,
		MarkdownDescription: "The schedules of the job by name (" + nameRule + "), at most 100. With `{}` the job runs only " +
			"by hand. As in every map of Terraform, of a name that is written twice the last one silently wins. " +
			dropsUnknown,
		NestedObject: schema.NestedAttributeObject{Attributes: triggerAttributes()},
	}
}

// codes lists words for a description: `A`, `B` or `C`.
func codes[S ~string](words []S) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("`" + string(word) + "`")
	}
	return b.String()
}
