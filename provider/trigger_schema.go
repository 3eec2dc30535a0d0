package provider

import (
	"maps"
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func triggerAttributes() map[string]schema.Attribute {
	misfireAfter, window := formatDuration(dispatcher.DefaultMisfireAfter), formatDuration(dispatcher.MaxCatchUpWindow)
	attributes := scheduleAttributes()
	maps.Copy(attributes, map[string]schema.Attribute{
		"misfire_after": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(misfireAfter),
			CustomType: textType[durations]{},
			MarkdownDescription: "How late a fire may be before it counts as missed and is settled by a recorded decision: a duration " +
				"from `1s` to `24h`. Default: `" + misfireAfter + "`.",
			PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
		},
		"misfire_policy": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(string(dispatcher.FireOnce)),
			MarkdownDescription: "What becomes of missed fires: `fire_once` (one catch-up run stands for all of them, and says so), " +
				"`fire_all` (each runs late, one after the other with pauses, the latest " + strconv.Itoa(dispatcher.MostCaughtUp) +
				" at most) or `skip` (none runs). What does not run is recorded. Default: `fire_once`.",
		},
		"catch_up_window": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(window),
			CustomType: textType[durations]{},
			MarkdownDescription: "How old a missed fire may be to be caught up; older ones are skipped, and recorded: a duration from " +
				"`misfire_after` to `" + window + "`. Default: `" + window + "`.",
			PlanModifiers: []planmodifier.String{keepIfSame[durations]{}},
		},
		"enabled": schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(true),
			MarkdownDescription: "Whether the trigger fires; see the job's `enabled`. Default: `true`.",
		},
	})
	return attributes
}

// scheduleAttributes are those of dispatcher.Schedule.
func scheduleAttributes() map[string]schema.Attribute {
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
	}
}
