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
	"github.com/carillon-dev/carillon/dispatcher/schedule"
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
			"id": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "The import id, `app/job`.",
			},
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
	var defaults dispatcher.Webhook
	defaults.SetDefaults()
	return schema.SingleNestedAttribute{
		Required:            true,
		MarkdownDescription: "What a run calls. " + dropsUnknown,
		Attributes: map[string]schema.Attribute{
			"webhook": schema.SingleNestedAttribute{
				Required:            true,
				MarkdownDescription: "An HTTP request to make. Any 2xx answer is a success; redirects are not followed. " + dropsUnknown,
				Attributes: map[string]schema.Attribute{
					"url": schema.StringAttribute{
						Required: true,
						MarkdownDescription: "Absolute URL, `http` or `https`, of at most 2048 characters, without user, password " +
							"and fragment.",
					},
					"method": schema.StringAttribute{
						Optional: true, Computed: true, Default: stringdefault.StaticString(defaults.Method),
						MarkdownDescription: "HTTP method: " + codes(dispatcher.Methods) + ". `GET` and `HEAD` send no body. Default: `" +
							defaults.Method + "`.",
					},
					"headers": schema.MapAttribute{
						Optional:    true,
						ElementType: types.StringType,
						MarkdownDescription: "Headers to send: at most 50, each value at most 8 KiB. Those that frame the request or " +
							"say who sends it (`Host`, `Content-Length`, `User-Agent`, `webhook-*` and the like) are " +
							"refused. Values are kept in the state, as everything is; give those that are secret by a " +
							"variable marked `sensitive`. Default: none.",
					},
					"timeout": schema.StringAttribute{
						Optional: true, Computed: true, Default: stringdefault.StaticString(formatDuration(defaults.Timeout)),
						CustomType: textType[durations]{},
						MarkdownDescription: "How long one attempt may take from dialling to the last byte: a duration such as `500ms`, " +
							"`30s` or `1h30m`, from `100ms` to `24h`. Default: `" + formatDuration(defaults.Timeout) + "`.",
						PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
					},
				},
			},
		},
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

func triggerAttributes() map[string]schema.Attribute {
	misfireAfter := formatDuration(dispatcher.DefaultMisfireAfter)
	return map[string]schema.Attribute{
		"expression": schema.StringAttribute{
			Required: true,
			MarkdownDescription: "When to fire: a Quartz expression of six or seven fields (`0 0 2 ? * MON-FRI`), a unix one of " +
				"five (`*/10 * * * *`) or a macro (`@daily`), one of Amazon EventBridge (`cron(0 2 ? * MON-FRI *)`), an " +
				"interval of elapsed time (`rate(5 minutes)`, `@every 90s`, or `delay(30s)` after the end of the run before), of " +
				"the calendar (`every 3 months`) or of the day (`every 45 minutes from 9:00 to 17:00 on MON-FRI`), or one " +
				"instant (`at(2030-05-01T10:00:00Z)`). In cron fields `H` is a value hashed from the names of app, job and " +
				"trigger. At most 256 bytes. An instant that is past is refused when it is new or changed. What is allowed but probably not " +
				"meant, such as a time that daylight saving skips, gives a warning.",
		},
		"dialect": schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "How to read `expression`: " + codes([]schedule.Dialect{
				schedule.DialectQuartz, schedule.DialectUnix, schedule.DialectAWS, schedule.DialectInterval,
				schedule.DialectCalendarInterval, schedule.DialectDailyInterval, schedule.DialectAt,
			}) + ". Default: recognised, and stated in the plan; `rate` and `at` are read as Amazon EventBridge reads them only " +
				"with `aws`.",
		},
		"timezone": schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "IANA zone whose wall clock the expression describes, such as `Europe/Berlin`; upper and lower case " +
				"matter. Default: `UTC`, stated in the plan.",
		},
		"start_at": schema.StringAttribute{
			Optional:            true,
			CustomType:          textType[instants]{},
			MarkdownDescription: "First instant at which the trigger may fire, inclusive, in RFC 3339 with a zone. Default: no bound.",
			PlanModifiers:       []planmodifier.String{keepIfSame[instants]{}},
		},
		"end_at": schema.StringAttribute{
			Optional:            true,
			CustomType:          textType[instants]{},
			MarkdownDescription: "Last instant at which the trigger may fire, inclusive, in RFC 3339 with a zone. One that is past is refused when it is new or changed. Default: no bound.",
			PlanModifiers:       []planmodifier.String{keepIfSame[instants]{}},
		},
		// A number, so that 1.5 gets to where it is refused with its name; see reader.whole.
		"repeat_count": schema.NumberAttribute{
			Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(0)),
			MarkdownDescription: "How many times the trigger fires in total; `0` means no limit. Default: `0`.",
		},
		"gap": schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "What becomes of local times that do not exist because the clock is put forward: `skip` (they do not " +
				"fire) or `next` (they fire once, when the gap ends). Default: `skip` for cron expressions and what fires by the day.",
		},
		"overlap": schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "What becomes of local times that come twice because the clock is put back: `last` (the last pass " +
				"fires), `first` or `both`. Default: `last`, but `both` for expressions that cover all 24 hours and `first` " +
				"for intervals of the calendar.",
		},
		"drift_hour": schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			MarkdownDescription: "Whether an interval of the calendar of days and longer keeps the offset of its start instead of " +
				"the local hour. Default: `false`.",
		},
		"calendar": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Name of a calendar of the app whose exclusions hold. Refer to the resource, " +
				"`carillon_calendar.NAME.name`, so that it is created first. Default: none.",
		},
		"on_excluded": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "What becomes of fires that `calendar` excludes: `skip` (they do not fire) or `next_included` (they " +
				"fire once when the calendar allows again; a `delay(...)` needs it). Default: `skip`.",
		},
		"jitter": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString("0s"),
			CustomType: textType[durations]{},
			MarkdownDescription: "Spreads fires: each runs up to so much later than its instant, by an amount hashed from the names " +
				"and the instant. At most `24h`. Default: `0s`.",
			PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
		},
		"misfire_after": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(misfireAfter),
			CustomType: textType[durations]{},
			MarkdownDescription: "How late a fire may be before it counts as missed and is settled by a recorded decision: a duration " +
				"from `1s` to `24h`. Default: `" + misfireAfter + "`.",
			PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
		},
		"enabled": schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(true),
			MarkdownDescription: "Whether the trigger fires; see the job's `enabled`. Default: `true`.",
		},
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
