package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

var jobRows = binding.Of(binding.Fresh[dispatcher.Job],
	binding.Shown("id", func(j *dispatcher.Job) string { return j.App + "/" + j.Name }, binding.Computed, "The import id, `app/job`."),
	appRow("job", func(j *dispatcher.Job) *string { return &j.App }),
	binding.Text("name", func(j *dispatcher.Job) *string { return &j.Name }, binding.Required, "Name of the job: "+binding.NameRule+
		". Changing it renames the job, which keeps its history, pauses, fire times and event ids.", binding.Data("Name of the job."),
		binding.AskedFor),
	descriptionRow(func(j *dispatcher.Job) *string { return &j.Description }),
	binding.Text("runbook_url", func(j *dispatcher.Job) *string { return &j.RunbookURL }, binding.Optional, "The http or https URL of "+
		"the page that says what to do when the job fails. Notifications of alerts and the console link to it. Default: none.",
		binding.Data("The URL of the page that says what to do when the job fails.")),
	binding.Bool("enabled", func(j *dispatcher.Job) *bool { return &j.Enabled }, binding.Default, "Whether the triggers of the job "+
		"fire. A job that you enable again continues with its next fire time. Unlike after a pause, the fires of the time between "+
		"are not made up for.", binding.Data("Whether the triggers of the job fire.")),
	binding.Whole("priority", func(j *dispatcher.Job) *int { return &j.Priority }, binding.Default, "Which fires of the app go first "+
		"when they wait for a node: those with the higher priority, `0` to `9`.", binding.Advice(input.CodeCountRange,
		"give a priority from 0 to 9"), binding.Data("Which fires of the app go first when they wait for a node: those with the "+
		"higher priority.")),
	binding.Text("delivery", func(j *dispatcher.Job) *run.Delivery { return &j.Delivery }, binding.Default,
		"What happens to an attempt whose outcome is unknown because its node died. `at_least_once` repeats it under the same event "+
			"id. `at_most_once` ends the run as lost; it stores each attempt before sending it, which costs a write to the database.",
		binding.Data("What happens to an attempt whose outcome is unknown: `at_least_once` repeats it, `at_most_once` does not.")),
	binding.Part("retry", binding.Nested(func(j *dispatcher.Job) *run.Retry { return &j.Retry }, retryRows), binding.Optional,
		"Whether and when a failed run is attempted again, under the same event id. Failures that another attempt cannot change are "+
			"not retried: redirects, responses of status 4xx except 408, 425 and 429, and forbidden addresses. Nor are requests of "+
			"`at_most_once` jobs that may have been sent. A response of status 410 puts the trigger into state `error` until it is "+
			"resumed. Default: the default of each argument.", binding.Data("Whether and when a failed run is attempted again.")),
	binding.Text("concurrency_policy", func(j *dispatcher.Job) *run.ConcurrencyPolicy { return &j.ConcurrencyPolicy }, binding.Resolved,
		"What happens to a run when the job already has as many runs in progress as it may: `allow` (no limit; with "+
			"`max_concurrency`, the same as `queue`), `forbid` (the run is skipped, which is not a failure), `queue` (the run waits) or "+
			"`replace` (the oldest run is cancelled, and the new one begins when that has stopped). It applies to manual runs too. "+
			"Default: the `default_concurrency_policy` of the app, or `allow`.", binding.Data("What happens to a fire while other runs "+
			"of the job are under way: "+either(run.ConcurrencyPolicies)+".")),
	binding.Whole("max_concurrency", func(j *dispatcher.Job) *int { return &j.MaxConcurrency }, binding.Default, fmt.Sprintf(
		"How many runs of the job may be in progress at once, over all nodes, at most `%d`. `0` means no limit with `allow`, and one "+
			"run with the other policies.", dispatcher.MaxMaxConcurrency), binding.Advice(input.CodeCountRange,
		"give how many runs there may be at once, or 0 for the default of the policy"), binding.Data("How many runs of the job there "+
		"may be at once, unless `concurrency_policy` is `allow`.")),
	binding.Whole("queue_limit", func(j *dispatcher.Job) *int { return &j.QueueLimit }, binding.Default, fmt.Sprintf(
		"How many runs may wait, `1` to `%d`. Further runs are skipped.", dispatcher.MaxQueueLimit),
		binding.Advice(input.CodeCountRange, "give how many runs may wait"), binding.NotZero(input.CodeCountRange, fmt.Sprintf(
			"queue_limit 0 is not in 1 to %d; if no run should wait, set concurrency_policy to forbid", dispatcher.MaxQueueLimit)),
		binding.Data("How many runs of the job may wait for others.")),
	binding.Duration("delete_after_completion", func(j *dispatcher.Job) *input.Duration { return &j.DeleteAfterCompletion },
		binding.Optional, "Time from the job's completion until Carillon deletes it, `1m` to `87600h`. A job is complete when its "+
			"`state` is `complete`: no trigger has another fire, and no run is in progress. A job with a disabled trigger is not "+
			"complete. The deletion may be up to ten minutes late, and the history stays for the `retention` of the app. **Terraform "+
			"plans to create a deleted job again**, with a warning. Its triggers would then start over, and instants in the past are "+
			"refused. So use it for jobs that are declared for a while, and remove their resource once they are done. Default: the job "+
			"is never deleted.", binding.NotZero(input.CodeDurationMin, fmt.Sprintf("duration 0s is less than the minimum of %s; leave "+
			"it out to keep the job", dispatcher.MinDeleteAfter)), binding.Data("Time from the job's completion until Carillon deletes "+
			"it; null if it is never deleted.")),
	binding.Map("node_labels", func(j *dispatcher.Job) *input.Labels { return &j.NodeLabels }, binding.Optional,
		"Labels that a node must have to run the job, such as `{ zone = \"a\" }`. Nodes get theirs from `carillon serve --labels`. "+
			"While no node has the labels, fires are owed. Default: any node may run the job.", binding.Data("Labels that a node must "+
			"have to run the job; null if there are none.")),
	binding.Map("labels", func(j *dispatcher.Job) *input.Labels { return &j.Labels }, binding.Optional, "Labels of the job itself, "+
		"such as `{ team = \"payments\" }`, by which `carillon job list --label` and the API find it. Together with the "+
		"`default_labels` of the provider at most 16; a label here replaces a default one of the same name. Default: none.",
		binding.Data("Labels of the job; null if it has none.")),
	binding.Map("labels_all", func(j *dispatcher.Job) *input.Labels { return &j.Labels }, binding.Computed, "The labels of the job "+
		"with the `default_labels` of the provider."),
	binding.Texts("acknowledge", func(j *dispatcher.Job) *[]string { return &j.Acknowledge }, binding.Optional,
		"Codes of warnings that are meant, so that plans no longer repeat them: "+either(dispatcher.WarningCodes)+
			". The code ends a warning, in parentheses. An explicit `gap` of the trigger answers `dst`, too. Default: none.", binding.Data(
			"Codes of warnings that are meant; null if there are none.")),
	binding.Part("target", binding.Nested(func(j *dispatcher.Job) *target.Target { return &j.Target }, targetRows), binding.Required,
		"What a run calls: exactly one of "+either([]string{"webhook", "lambda", "group", "sqs", "sns"})+"."),
	binding.Part("target", binding.Nested(func(j *dispatcher.Job) *target.Target { return &j.Target }, targetRows), binding.InData,
		"What the job calls."),
	binding.JSON("payload", func(j *dispatcher.Job) *json.RawMessage { return &j.Payload }, binding.Optional,
		"JSON to send as the request's body, best written with `jsonencode`: at most 256 KiB, nested at most 32 deep. White space "+
			"and the order of keys make no difference. Default: a description of the fire, with `app`, `job`, `trigger`, `run`, `kind` "+
			"and `scheduled_at`.", binding.IfEmpty(input.CodeJSONSyntax, "payload is empty, which is not JSON; leave it out"), binding.Data(
			"JSON that is sent as the request's body; null if the job has none and a description of the fire is sent.")),
	followRow("on_success", "a run that succeeded", func(j *dispatcher.Job) **dispatcher.Follow { return &j.OnSuccess }),
	followRow("on_failure", "a run that failed, timed out or was lost, after its last attempt",
		func(j *dispatcher.Job) **dispatcher.Follow { return &j.OnFailure }),
	followRow("on_misfire", "a decision about fires that were missed",
		func(j *dispatcher.Job) **dispatcher.Follow { return &j.OnMisfire }),
	binding.Bool("carry_state", func(j *dispatcher.Job) *bool { return &j.CarryState }, binding.Optional, fmt.Sprintf(
		"Whether each run gets a small JSON state from the run before it and may return one for the next, of at most %d KiB. It "+
			"needs `concurrency_policy` `forbid` or `queue` with one run at once. The state itself is not part of the configuration: "+
			"`carillon job state` shows, sets and clears it. Default: `false`.", run.MaxCarriedState>>10), binding.Data(
		"Whether a run hands a state to the next one.")),
	binding.Block("objective", binding.Nested(func(j *dispatcher.Job) **dispatcher.Objective { return &j.Objective }, objectiveRows),
		binding.Optional, "How many of the fires of the job are to begin in time over 28 days. `carillon objective show` and the data "+
			"source `carillon_job` tell how it does. Default: none."),
	binding.Later("objective", objectiveStatusRows, "How the job does by its objective; null if it has none."),
	binding.Named("trigger", binding.Nested(func(j *dispatcher.Job) *map[string]dispatcher.Trigger { return &j.Triggers }, triggerRows),
		binding.Optional, "A schedule of the job. A job has at most 100, in any order. Default: none, so the job runs only manually.",
		binding.Key("Name of the trigger, unique within the job"), binding.Token("triggers")),
	binding.Named("triggers", binding.Nested(func(j *dispatcher.Job) *map[string]dispatcher.Trigger { return &j.Triggers }, triggerRows),
		binding.InData, "The triggers by name."),
	binding.Text("state", func(j *dispatcher.Job) *dispatcher.JobState { return &j.State }, binding.Computed,
		"Summary of the triggers: `error`, `executing` (a trigger has a next fire), `paused`, `complete` (no fire is left) or `init` "+
			"(nothing is scheduled). As of the latest change of the job; it does not follow what passes with time.", binding.Data(
			"Summary of the triggers: `error`, `executing`, `paused`, `complete` or `init`.")),
	revisionRow("job", ", including pauses by operators", func(j *dispatcher.Job) *int64 { return &j.Revision }),
	binding.Value("next_fire_times", types.MapType{ElemType: timetypes.RFC3339Type{}}, func(job *dispatcher.Job) attr.Value {
		next := map[string]attr.Value{}
		for name, t := range job.Triggers {
			if t.NextFireTime != nil {
				next[name] = timetypes.NewRFC3339TimeValue(t.NextFireTime.UTC())
			}
		}
		return types.MapValueMust(timetypes.RFC3339Type{}, next)
	}, binding.Computed,
		"The next fire time that each trigger had when the job, its calendars or the time zone data changed last, in RFC 3339 and "+
			"UTC. A refresh keeps it when only time has passed, so that `terraform plan -refresh-only -detailed-exitcode` finds no "+
			"drift. Unknown in the plan of a change of schedules, because fires may pass before it is applied; a warning of the plan "+
			"shows them."),
	binding.Rule(func(e *binding.Expander, at string, v binding.Values, _ any) {
		// The app may provide the policy.
		if policy := v.Text("concurrency_policy"); policy.IsNull() || policy.IsUnknown() || v.Number("max_concurrency").IsUnknown() ||
			!e.AllKnown(at+"/target") {
			e.Incomplete = append(e.Incomplete, at+"/carry_state")
		}
	}),
	binding.Rule(func(e *binding.Expander, at string, v binding.Values, of any) {
		if !v.Text("app").IsUnknown() && !v.Text("name").IsUnknown() { // H hashes both
			return
		}
		for name, t := range of.(*dispatcher.Job).Triggers {
			if schedule.UsesHash(t.Expression) {
				e.Unknown = append(e.Unknown, at+input.Pointer("triggers", name, "expression"))
			}
		}
	}),
)

// followRow is the block of an event; after names the runs or fires that it follows.
func followRow(name, after string, field func(*dispatcher.Job) **dispatcher.Follow) *binding.Row {
	return binding.Block(name, binding.Nested(field, followRows), binding.Optional, "What follows "+after+": other `jobs`, the "+
		"destination of an `alert`, and at most one of `webhook`, `lambda`, `sqs` and `sns`. That gets the document that "+
		"`payload = \"result\"` means, in a run of its own with the `default_retry` of the app. "+
		"For a request or message with more settings, name a job without triggers in `jobs`. "+
		"Default: nothing follows.",
		binding.Data("What follows "+after+"; null if nothing does."))
}

var followRows = binding.Of(func() *dispatcher.Follow { return &dispatcher.Follow{Payload: dispatcher.FollowOwn} },
	binding.Texts("jobs", func(f *dispatcher.Follow) *[]string { return &f.Jobs }, binding.Optional,
		fmt.Sprintf("Names of jobs of the app that run then, "+
			"once each, at most %d. They need not exist yet: nothing follows under a name until a job has it. Jobs cannot follow one another "+
			"in a circle. Default: none.", dispatcher.MostFollowers), somethingFollows,
		binding.Data("Names of jobs of the app that run then; null if there are none.")),
	binding.Text("payload", func(f *dispatcher.Follow) *dispatcher.FollowPayload { return &f.Payload }, binding.Default,
		"What these jobs get: `own` is the payload that they declare, `result` a document with the run that they follow and its "+
			"response.", binding.Data("What these jobs get: `own` or `result`.")),
	binding.Text("alert", func(f *dispatcher.Follow) *string { return &f.Alert }, binding.Optional,
		"Name of an alert of the app. Its destination, as it is then, gets a notification about the run in its format, whatever "+
			"the alert watches and although it may be muted. It need not exist yet. Default: none.", somethingFollows, binding.Data(
			"Name of an alert with a destination that gets a notification then; null if there is none.")),
	destinationRow("webhook", "An HTTP request with method `POST`.",
		binding.Nested(func(f *dispatcher.Follow) **target.FollowWebhook { return &f.Webhook }, binding.Of(binding.Fresh[target.FollowWebhook],
			settingRow("url", "webhook", func(w *target.FollowWebhook) *string { return &w.URL }),
			signingRow(func(w *target.FollowWebhook) **target.Signing { return &w.Signing })))),
	destinationRow("lambda", "An AWS Lambda function.",
		binding.Nested(func(f *dispatcher.Follow) **target.FollowLambda { return &f.Lambda }, binding.Of(binding.Fresh[target.FollowLambda],
			settingRow("function", "lambda", func(l *target.FollowLambda) *string { return &l.Function })))),
	destinationRow("sqs", "An Amazon SQS queue.",
		binding.Nested(func(f *dispatcher.Follow) **target.FollowQueue { return &f.SQS }, binding.Of(binding.Fresh[target.FollowQueue],
			settingRow("queue_arn", "sqs", func(q *target.FollowQueue) *string { return &q.QueueARN })))),
	destinationRow("sns", "An Amazon SNS topic.",
		binding.Nested(func(f *dispatcher.Follow) **target.FollowTopic { return &f.SNS }, binding.Of(binding.Fresh[target.FollowTopic],
			settingRow("topic_arn", "sns", func(t *target.FollowTopic) *string { return &t.TopicARN })))),
)

// somethingFollows is an option of what can follow: at least one is required, which cannot be checked while one may be null.
var somethingFollows = binding.Decides("")

// destinationRow is a kind of destination of what follows.
func destinationRow[Q comparable](kind, text string, in binding.Nest[*dispatcher.Follow, *Q]) *binding.Row {
	return binding.Block(kind, in, binding.Optional, text+" Default: none.", somethingFollows, binding.Data(text+" Null if it is not there."))
}

// settingRow is the setting that says where a destination of a kind is.
func settingRow[P any](name, kind string, field func(P) *string) *binding.Row {
	return binding.Text(name, field, binding.Required, "As in `"+kind+"` of `target`.", binding.Data("As in `"+kind+"` of `target`."))
}

var objectiveRows = binding.Of(binding.Fresh[dispatcher.Objective],
	binding.Duration("within", func(o *dispatcher.Objective) *input.Duration { return &o.Within }, binding.Required,
		"How long after its scheduled time a fire is in time, such as `1s`; from `1ms` to `24h`, and longer than the `jitter` of "+
			"each trigger."),
	binding.Text("of", func(o *dispatcher.Objective) *string { return &o.Of }, binding.Required, "The share of fires that are to be "+
		"in time, such as `99.9%`; from `50%` to `99.999%`."),
)

var retryRows = binding.Of(binding.Fresh[run.Retry],
	binding.Whole("max_attempts", func(r *run.Retry) *int { return &r.MaxAttempts }, binding.Default,
		"How many attempts may fail, including the "+
			"first, `1` to `100`. With `1` a failed run is not retried. Attempts that were lost with their node do not count.",
		binding.Advice(input.CodeAttemptsRange, "give how many attempts may fail, from 1 to 100"),
		binding.Decides("delays"), // fewer are required
		binding.Data("How many attempts may fail, including the first.")),
	binding.Duration("base", func(r *run.Retry) *input.Duration { return &r.Base }, binding.Default,
		"Upper bound of the wait before the second "+
			"attempt, from `100ms` to `24h`. The bound doubles for each further attempt, up to `cap`. Each wait is random between zero and "+
			"its bound.", binding.Decides("cap"), // which must not be less
		binding.Data("Upper bound of the wait before the second attempt. It doubles for each further one.")),
	binding.Duration("cap", func(r *run.Retry) *input.Duration { return &r.Cap }, binding.Default, "The longest wait, from `100ms` "+
		"to `24h`. It also limits the wait that a target asks for with `Retry-After`.", binding.Decides("cap"), binding.Data(
		"The longest wait.")),
	binding.Duration("max_age", func(r *run.Retry) *input.Duration { return &r.MaxAge }, binding.Default, "How long after its first "+
		"attempt began or was deferred a run may be attempted, from `1s` to `24h`.", binding.Data("How long after its first attempt "+
		"a run may be attempted.")),
	binding.Bool("stop_at_next_fire", func(r *run.Retry) *bool { return &r.StopAtNextFire }, binding.Default, "Whether the run ends "+
		"instead of making an attempt at or after the next fire of its trigger.", binding.Data("Whether the run ends instead of "+
		"making an attempt at or after the next fire.")),
	binding.Durations("delays", func(r *run.Retry) *[]input.Duration { return &r.Delays }, binding.Optional,
		"Fixed waits that replace `base` and its doubling, from `0s` to `24h` each, such as `[\"1s\", \"1m\"]`; fewer than "+
			"`max_attempts`. The last one repeats. Default: none.", binding.Decides("cap"), binding.Data("Fixed waits that replace "+
			"`base` and its doubling; null if there are none.")),
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
		binding.Hides("expression"), // it decides what the expression means
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
		binding.Hides("on_excluded"), // a problem only without a calendar
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
			"before it is a misfire, from `1s` to `24h`.", binding.Hides("catch_up_window"), // it is the minimum
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
	binding.Kept("renamed_from", "The former name of the trigger, so that another `name` renames it. It keeps its history, pause, "+
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
			of.(*dispatcher.Trigger).Timezone = utc // without a zone, a local time in the expression would be a problem
		}
	}),
)

// jobSource is carillon_job: the current job.
var jobSource = dataSource{
	name: "job", attributes: jobRows.DataAttributes, read: readNamed("job", jobRows, (*client.Client).Job, addObjective),
	text: "A job as it is now, with the latest and the next fire of each trigger. Unlike `next_fire_times` of the " +
		"resource, each plan reads these again.",
}

func addObjective(ctx context.Context, c *connection, diags *diag.Diagnostics, job dispatcher.Job, shown binding.Values) {
	if job.Objective == nil {
		return
	}
	switch status, err := c.Objective(ctx, job.App, job.Name); {
	case err == nil:
		shown["objective"] = objectiveStatusRows.ShownObject(diags, &status)
	case !errors.Is(err, dispatcher.ErrNotFound): // otherwise it was just removed
		c.report(diags, fmt.Sprintf("read the objective of job %q", job.App+"/"+job.Name), err)
	}
}

// objectiveStatusRows are the status of a job's objective.
var objectiveStatusRows = binding.Of(binding.Fresh[dispatcher.ObjectiveStatus],
	binding.Shown("within", func(s *dispatcher.ObjectiveStatus) string { return s.Within.String() }, binding.InData,
		"How long after its scheduled time a fire is in time."),
	binding.Text("of", func(s *dispatcher.ObjectiveStatus) *string { return &s.Of }, binding.InData, "The share of fires that are to "+
		"be in time."),
	binding.Instant("from", func(s *dispatcher.ObjectiveStatus) **time.Time { return new(&s.From) }, binding.InData,
		"Fires that were scheduled from then on are counted."),
	binding.Instant("to", func(s *dispatcher.ObjectiveStatus) **time.Time { return new(&s.To) }, binding.InData,
		"Fires that were scheduled before are counted. It follows the clock by five to ten minutes."),
	binding.Whole("good", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Good }, binding.InData, "How many fires began in time."),
	binding.Whole("late", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Late }, binding.InData, "How many fires began "+
		"later, or ended without an attempt."),
	binding.Whole("missed", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Missed }, binding.InData, "How many fires were missed."),
	binding.Whole("pending", func(s *dispatcher.ObjectiveStatus) *int64 { return &s.Pending }, binding.InData,
		"How many fires are not counted yet, because their first attempt is not over."),
	binding.Value("attained", types.Float64Type,
		func(s *dispatcher.ObjectiveStatus) attr.Value { return types.Float64PointerValue(s.Attained) }, binding.InData,
		"The share of fires that were in time, in percent; null if there were none."),
	binding.Value("budget_left", types.Float64Type,
		func(s *dispatcher.ObjectiveStatus) attr.Value { return types.Float64Value(s.BudgetLeft) }, binding.InData,
		"The share of the error budget that is left, in percent. Below 0, more fires were late or missed than the objective allows."),
	binding.Value("burn_rates", types.MapType{ElemType: types.Float64Type}, func(s *dispatcher.ObjectiveStatus) attr.Value {
		rates := map[string]attr.Value{}
		for span, rate := range s.BurnRates {
			rates[span] = types.Float64Value(rate)
		}
		return types.MapValueMust(types.Float64Type, rates)
	}, binding.InData, "How fast the error budget "+
		"goes, over the last `5m`, `30m`, `1h`, `6h` and `3d`. `1` uses it up in 28 days."),
)
