package provider

import (
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/provider/binding"
)

var triggerRows = binding.Of(binding.Fresh[dispatcher.Trigger],
	binding.Text("expression", func(t *dispatcher.Trigger) *string { return &t.Expression }, binding.Required,
		"When to fire, at most 256 bytes: a Quartz expression of six or seven fields (`0 0 2 ? * MON-FRI`), a Unix one of five "+
			"(`*/10 * * * *`) or a macro (`@daily`), an Amazon EventBridge one (`cron(0 2 ? * MON-FRI *)`), an interval of elapsed time "+
			"(`rate(5 minutes)`, `@every 90s`, or `delay(30s)` after the end of the previous run), a calendar interval (`every 3 "+
			"months`), a daily interval (`every 45 minutes from 9:00 to 17:00 on MON-FRI`), or one instant (`at(2030-05-01T10:00:00Z)`). "+
			"In cron fields, `H` is a value hashed from the names with which app, job and trigger were created. A new or changed instant "+
			"in the past is refused. An expression that is allowed but probably a mistake, such as a time that daylight saving skips, "+
			"gives a warning.", binding.Data("When it fires.")),
	binding.Text("dialect", func(t *dispatcher.Trigger) *schedule.Dialect { return &t.Dialect }, binding.Resolved,
		"How to read `expression`: "+
			either([]schedule.Dialect{
				schedule.DialectQuartz, schedule.DialectUnix, schedule.DialectAWS, schedule.DialectInterval, schedule.DialectCalendarInterval,
				schedule.DialectDailyInterval, schedule.DialectAt,
			})+". Default: detected from the expression and shown in the plan; set `aws` to read `rate` and `at` as Amazon EventBridge does.",
		binding.Hides("expression"), // whose meaning it decides
		binding.Data("How `expression` is read.")),
	binding.Text("timezone", func(t *dispatcher.Trigger) *string { return &t.Timezone }, binding.Resolved, "IANA time zone of the "+
		"expression's wall clock, such as `Europe/Berlin`; case matters. Default: the `default_timezone` of the app. Without one, an "+
		"expression that follows the wall clock must name its zone.", binding.Data("Time zone of the expression's wall clock.")),
	binding.Instant("start_at", func(t *dispatcher.Trigger) **time.Time { return &t.StartAt }, binding.Optional,
		"First instant at which the trigger may fire, inclusive, in RFC 3339 with a time zone. Default: no limit.", binding.Data(
			"First instant at which it may fire; null if there is none.")),
	binding.Instant("end_at", func(t *dispatcher.Trigger) **time.Time { return &t.EndAt }, binding.Optional, "Last instant at which "+
		"the trigger may fire, inclusive, in RFC 3339 with a time zone. A new or changed one in the past is refused. Default: no limit.",
		binding.Data("Last instant at which it may fire; null if there is none.")),
	binding.Whole("repeat_count", func(t *dispatcher.Trigger) *int { return &t.RepeatCount }, binding.Default,
		"How many times the trigger fires in total; `0` means no limit.", binding.Advice(input.CodeRepeatRange,
			"give how many times the trigger fires, or 0 for no limit"), binding.Data("How many times it fires in total; `0` means no "+
			"limit.")),
	binding.Text("gap", func(t *dispatcher.Trigger) *schedule.Gap { return &t.Gap }, binding.Resolved, "What happens at local times "+
		"that do not exist because the clock goes forward: `skip` (they do not fire) or `next` (they fire once, when the gap ends). "+
		"Default: `skip` for cron expressions and daily intervals.", binding.Data("What happens at local times that do not exist "+
		"because the clock goes forward.")),
	binding.Text("overlap", func(t *dispatcher.Trigger) *schedule.Overlap { return &t.Overlap }, binding.Resolved,
		"What happens at local times that occur twice because the clock goes back: `last` (the second occurrence fires), `first` or "+
			"`both`. Default: `last`, but `both` for expressions that cover all 24 hours and `first` for calendar intervals.", binding.Data(
			"What happens at local times that occur twice because the clock goes back.")),
	binding.Bool("drift_hour", func(t *dispatcher.Trigger) *bool { return &t.DriftHour }, binding.Default,
		"Whether a calendar interval of days or longer keeps the UTC offset of its start instead of the local hour.", binding.Data(
			"Whether a calendar interval of days or longer keeps the UTC offset of its start.")),
	binding.Text("calendar", func(t *dispatcher.Trigger) *string { return &t.Calendar }, binding.Optional,
		"Name of a calendar of the app whose exclusions "+
			"apply. Refer to the resource, `carillon_calendar.NAME.name`, so that Terraform creates it first. Default: none.",
		binding.Hides("on_excluded"), // which is a problem only without a calendar
		binding.Data("Name of the calendar whose exclusions apply; null if there is none.")),
	binding.Text("on_excluded", func(t *dispatcher.Trigger) *schedule.OnExcluded { return &t.OnExcluded }, binding.Optional,
		"What happens to fires that `calendar` excludes: `skip` (they do not fire), `next_day` or `previous_day` (they fire at their "+
			"own time of day, on the nearest day on which the calendar allows that time), or `next_included` (they fire once, when the "+
			"calendar no longer excludes them, at whatever hour that is). A `delay(...)` needs `next_included`. Default: `skip`.",
		binding.Data("What happens to fires that `calendar` excludes; null without one.")),
	binding.Duration("jitter", func(t *dispatcher.Trigger) *input.Duration { return &t.Jitter }, binding.Default,
		"Spreads fires: each runs up to this much later than scheduled, by an amount hashed from the names that `H` uses, and the "+
			"scheduled time. At most `24h`.", binding.Data("How much later than scheduled it fires at most.")),
	binding.Duration("misfire_after", func(t *dispatcher.Trigger) *input.Duration { return &t.MisfireAfter }, binding.Default,
		"How late a fire may be "+
			"before it is a misfire, from `1s` to `24h`.", binding.Hides("catch_up_window"), // whose minimum it is
		binding.Data("How late a fire may be before it is a misfire.")),
	binding.Text("misfire_policy", func(t *dispatcher.Trigger) *dispatcher.MisfirePolicy { return &t.MisfirePolicy }, binding.Resolved,
		"What happens to misfires: `fire_once` (one catch-up run stands for all of them, and says so), `fire_all` (each runs late, "+
			"one after the other with pauses, at most the latest "+strconv.Itoa(dispatcher.MostCaughtUp)+") or `skip` (none runs). "+
			"Misfires that do not run are recorded. Default: the `default_misfire_policy` of the app, or `fire_once`.", binding.Data(
			"What happens to misfires.")),
	binding.Duration("catch_up_window", func(t *dispatcher.Trigger) *input.Duration { return &t.CatchUpWindow }, binding.Default,
		"How old a misfire may be to be caught up, from `misfire_after` to `"+binding.FormatDuration(dispatcher.MaxCatchUpWindow)+
			"`. Older ones are skipped and recorded.", binding.NotZero(input.CodeDurationMin, "duration 0s is less than misfire_after, "+
			"so nothing would be caught up; for that, set misfire_policy to skip"), binding.Data("How old a misfire may be to be caught up.")),
	binding.Bool("enabled", func(t *dispatcher.Trigger) *bool { return &t.Enabled }, binding.Default, "Whether the trigger fires; "+
		"see `enabled` of the job.", binding.Data("Whether it fires.")),
	binding.Kept("renamed_from", "The former name of the trigger, so that another label renames it. It keeps its history, pause, "+
		"fire times and event ids; without, it would be another trigger. Once it is renamed, the attribute has no effect: to remove "+
		"it changes the state, and nothing on the server. Two triggers can swap their names. Default: none."),
	binding.Text("state", func(t *dispatcher.Trigger) *dispatcher.TriggerState { return &t.State }, binding.InData,
		"`waiting`, `paused`, `complete` (no fire is left) or `error`."),
	binding.Text("error", func(t *dispatcher.Trigger) *string { return &t.Error }, binding.InData, "The reason of the state `error`; "+
		"null in all others.", binding.EmptyIsNull),
	binding.Instant("prev_fire_time", func(t *dispatcher.Trigger) **time.Time { return &t.PrevFireTime }, binding.InData,
		"Its latest fire; null before the first one."),
	binding.Instant("next_fire_time", func(t *dispatcher.Trigger) **time.Time { return &t.NextFireTime }, binding.InData,
		"Its next fire; null if there is none."),
	binding.Rule(func(_ *binding.Expander, _ string, v binding.Values, of any) {
		if v.Text("timezone").IsUnknown() {
			of.(*dispatcher.Trigger).Timezone = utc // without any zone, a local instant in the expression would be a problem
		}
	}),
)
