package provider

import (
	"context"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

type triggerModel struct {
	Expression    types.String   `tfsdk:"expression"`
	Dialect       types.String   `tfsdk:"dialect"`
	Timezone      types.String   `tfsdk:"timezone"`
	StartAt       instantString  `tfsdk:"start_at"`
	EndAt         instantString  `tfsdk:"end_at"`
	RepeatCount   types.Number   `tfsdk:"repeat_count"`
	Gap           types.String   `tfsdk:"gap"`
	Overlap       types.String   `tfsdk:"overlap"`
	DriftHour     types.Bool     `tfsdk:"drift_hour"`
	Calendar      types.String   `tfsdk:"calendar"`
	OnExcluded    types.String   `tfsdk:"on_excluded"`
	Jitter        durationString `tfsdk:"jitter"`
	MisfireAfter  durationString `tfsdk:"misfire_after"`
	MisfirePolicy types.String   `tfsdk:"misfire_policy"`
	CatchUpWindow durationString `tfsdk:"catch_up_window"`
	Enabled       types.Bool     `tfsdk:"enabled"`
	RenamedFrom   types.String   `tfsdk:"renamed_from"`
}

func triggerAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional: true,
		MarkdownDescription: "A schedule of the job; its label is its name (" + nameRule + "). A job has at most 100. " +
			"Default: none, so the job runs only manually.",
		NestedObject: schema.NestedAttributeObject{Attributes: triggerAttributes()},
	}
}

func triggerAttributes() map[string]schema.Attribute {
	window := formatDuration(dispatcher.MaxCatchUpWindow)
	dialects := []schedule.Dialect{
		schedule.DialectQuartz, schedule.DialectUnix, schedule.DialectAWS, schedule.DialectInterval,
		schedule.DialectCalendarInterval, schedule.DialectDailyInterval, schedule.DialectAt,
	}
	return map[string]schema.Attribute{
		"expression": requiredString("When to fire, at most 256 bytes: a Quartz expression of six or seven fields " +
			"(`0 0 2 ? * MON-FRI`), a Unix one of five (`*/10 * * * *`) or a macro (`@daily`), an Amazon EventBridge one " +
			"(`cron(0 2 ? * MON-FRI *)`), an interval of elapsed time (`rate(5 minutes)`, `@every 90s`, or `delay(30s)` after the " +
			"end of the previous run), a calendar interval (`every 3 months`), a daily interval (`every 45 minutes from 9:00 to 17:00 " +
			"on MON-FRI`), or one instant (`at(2030-05-01T10:00:00Z)`). In cron fields, `H` is a value hashed from the names with " +
			"which app, job and trigger were created. A new or changed instant in the past is refused. An expression that is allowed " +
			"but probably a mistake, such as a time that daylight saving skips, gives a warning."),
		"dialect": resolvedString("How to read `expression`: " + either(dialects) + ". Default: detected from the expression and " +
			"shown in the plan; set `aws` to read `rate` and `at` as Amazon EventBridge does."),
		"timezone": resolvedString("IANA time zone of the expression's wall clock, such as `Europe/Berlin`; case matters. " +
			"Default: the `default_timezone` of the app. Without one, an expression that follows the wall clock must name its zone."),
		"start_at": optionalEquivalent[instants]("First instant at which the trigger may fire, inclusive, in RFC 3339 with a time zone. " +
			"Default: no limit."),
		"end_at": optionalEquivalent[instants]("Last instant at which the trigger may fire, inclusive, in RFC 3339 with a time zone. A new or " +
			"changed one in the past is refused. Default: no limit."),
		"repeat_count": numberWithDefault(0, "How many times the trigger fires in total; `0` means no limit."),
		"gap": resolvedString("What happens at local times that do not exist because the clock goes forward: `skip` (they do not " +
			"fire) or `next` (they fire once, when the gap ends). Default: `skip` for cron expressions and daily intervals."),
		"overlap": resolvedString("What happens at local times that occur twice because the clock goes back: `last` (the second " +
			"occurrence fires), `first` or `both`. Default: `last`, but `both` for expressions that cover all 24 hours and `first` " +
			"for calendar intervals."),
		"drift_hour": boolWithDefault(false, "Whether a calendar interval of days or longer keeps the UTC offset of its start "+
			"instead of the local hour."),
		"calendar": optionalString("Name of a calendar of the app whose exclusions apply. Refer to the resource, " +
			"`carillon_calendar.NAME.name`, so that Terraform creates it first. Default: none."),
		"on_excluded": optionalString("What happens to fires that `calendar` excludes: `skip` (they do not fire), `next_day` or " +
			"`previous_day` (they fire at their own time of day, on the nearest day on which the calendar allows that time), or " +
			"`next_included` (they fire once, when the calendar no longer excludes them, at whatever hour that is). A `delay(...)` needs " +
			"`next_included`. Default: `skip`."),
		"jitter": durationWithDefault(0, "Spreads fires: each runs up to this much later than scheduled, by an amount hashed from "+
			"the names that `H` uses, and the scheduled time. At most `24h`."),
		"misfire_after": durationWithDefault(dispatcher.DefaultMisfireAfter, "How late a fire may be before it is a misfire, from "+
			"`1s` to `24h`."),
		"misfire_policy": resolvedString("What happens to misfires: `fire_once` (one catch-up run stands for " +
			"all of them, and says so), `fire_all` (each runs late, one after the other with pauses, at most the latest " +
			strconv.Itoa(dispatcher.MostCaughtUp) + ") or `skip` (none runs). Misfires that do not run are recorded. " +
			"Default: the `default_misfire_policy` of the app, or `fire_once`."),
		"catch_up_window": durationWithDefault(dispatcher.MaxCatchUpWindow, "How old a misfire may be to be caught up, from "+
			"`misfire_after` to `"+window+"`. Older ones are skipped and recorded."),
		"enabled": boolWithDefault(true, "Whether the trigger fires; see `enabled` of the job."),
		"renamed_from": optionalString("The former name of the trigger, so that another label renames it. It keeps its history, pause, " +
			"fire times and event ids; without, it would be another trigger. Once it is renamed, the attribute has no effect: to remove " +
			"it changes the state, and nothing on the server. Two triggers can swap their names. Default: none."),
	}
}

var triggerType = sync.OnceValue(func() types.ObjectType {
	return triggerAttribute().GetType().(types.MapType).ElemType.(types.ObjectType)
})

func expandTriggers(ctx context.Context, e *expander, m jobModel) map[string]dispatcher.Trigger {
	triggers := map[string]dispatcher.Trigger{}
	if e.markUnknown("/triggers", m.Triggers) {
		return triggers
	}
	for name, element := range m.Triggers.Elements() {
		pointer := input.Pointer("triggers", name)
		object, _ := element.(types.Object)
		t := expandTrigger(ctx, e, pointer, object)
		if (m.App.IsUnknown() || m.Name.IsUnknown()) && schedule.UsesHash(t.Expression) {
			e.unknown = append(e.unknown, pointer+"/expression") // H hashes both names
		}
		triggers[name] = t
	}
	return triggers
}

func expandTrigger(ctx context.Context, e *expander, pointer string, object types.Object) dispatcher.Trigger {
	var t dispatcher.Trigger
	t.SetDefaults()
	var m triggerModel
	if !e.object(ctx, pointer, object, &m) {
		return t
	}
	t.Expression = e.required(pointer+"/expression", m.Expression)
	expandOptional(e, pointer+"/dialect", m.Dialect, &t.Dialect)
	e.markUnknown(pointer+"/expression", m.Dialect) // the dialect decides what the expression means
	expandOptional(e, pointer+"/timezone", m.Timezone, &t.Timezone)
	if m.Timezone.IsUnknown() {
		t.Timezone = utc // without any zone, a local instant in the expression would be a problem
	}
	t.StartAt = e.instant(pointer+"/start_at", m.StartAt)
	t.EndAt = e.instant(pointer+"/end_at", m.EndAt)
	t.RepeatCount = e.whole(pointer+"/repeat_count", m.RepeatCount, 0, input.CodeRepeatRange,
		"give how many times the trigger fires, or 0 for no limit")
	expandOptional(e, pointer+"/gap", m.Gap, &t.Gap)
	expandOptional(e, pointer+"/overlap", m.Overlap, &t.Overlap)
	t.DriftHour = e.bool(pointer+"/drift_hour", m.DriftHour, false)
	expandOptional(e, pointer+"/calendar", m.Calendar, &t.Calendar)
	expandOptional(e, pointer+"/on_excluded", m.OnExcluded, &t.OnExcluded)
	e.markUnknown(pointer+"/on_excluded", m.Calendar) // it is a problem only without a calendar
	t.Jitter = e.duration(pointer+"/jitter", m.Jitter, 0)
	t.MisfireAfter = e.duration(pointer+"/misfire_after", m.MisfireAfter, t.MisfireAfter)
	expandOptional(e, pointer+"/misfire_policy", m.MisfirePolicy, &t.MisfirePolicy)
	t.CatchUpWindow = e.duration(pointer+"/catch_up_window", m.CatchUpWindow, t.CatchUpWindow)
	e.markUnknown(pointer+"/catch_up_window", m.MisfireAfter) // which is its minimum
	if t.CatchUpWindow == 0 {                                 // the API takes zero for "left out"
		e.problems.Add(pointer+"/catch_up_window", input.CodeDurationMin,
			"duration 0s is less than misfire_after, so nothing would be caught up; for that, set misfire_policy to skip")
	}
	t.Enabled = e.bool(pointer+"/enabled", m.Enabled, t.Enabled)
	return t
}

// flattenTrigger returns the model of a trigger from the API. renamedFrom is what the plan or state says of it: the API
// knows present names only.
func flattenTrigger(t dispatcher.Trigger, renamedFrom string) triggerModel {
	return triggerModel{
		Expression:    types.StringValue(t.Expression),
		Dialect:       flattenOptional(t.Dialect),
		Timezone:      flattenOptional(t.Timezone),
		StartAt:       flattenInstant(t.StartAt),
		EndAt:         flattenInstant(t.EndAt),
		RepeatCount:   flattenNumber(t.RepeatCount),
		Gap:           flattenOptional(t.Gap),
		Overlap:       flattenOptional(t.Overlap),
		DriftHour:     types.BoolValue(t.DriftHour),
		Calendar:      flattenOptional(t.Calendar),
		OnExcluded:    flattenOptional(t.OnExcluded),
		Jitter:        flattenDuration(t.Jitter),
		MisfireAfter:  flattenDuration(t.MisfireAfter),
		MisfirePolicy: types.StringValue(string(t.MisfirePolicy)),
		CatchUpWindow: flattenDuration(t.CatchUpWindow),
		Enabled:       types.BoolValue(t.Enabled),
		RenamedFrom:   flattenOptional(renamedFrom),
	}
}
