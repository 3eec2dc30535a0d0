package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher"
)

func jobSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "A job: a target to call, a payload to send, and named triggers that say when. " +
			"Import it by `app/job`.\n\n" +
			"Expressions, time zones, durations, URLs and headers are checked at plan by the rules of the API. " +
			"An apply is refused if someone else changed the job after the plan was made.",
		Attributes: rememberTypes(map[string]schema.Attribute{
			"id":          idAttribute("job"),
			"app":         appAttribute("job"),
			"name":        jobNameAttribute(),
			"description": descriptionAttribute(),
			"enabled": boolWithDefault(true, "Whether the triggers of the job fire. A job that you enable again continues "+
				"with its next fire time. Unlike after a pause, the fires of the time between are not made up for."),
			"priority": numberWithDefault(0, "Which fires of the app go first when they wait for a node: those with the higher "+
				"priority, `0` to `9`."),
			"delivery": stringWithDefault(dispatcher.AtLeastOnce, "What happens to an attempt whose outcome is unknown because its "+
				"node died. `at_least_once` repeats it under the same event id. `at_most_once` ends the run as lost; it stores each "+
				"attempt before sending it, which costs a write to the database."),
			"retry":                   retryAttribute(),
			"concurrency_policy":      concurrencyPolicyAttribute(),
			"max_concurrency":         maxConcurrencyAttribute(),
			"queue_limit":             queueLimitAttribute(),
			"carry_state":             carryStateAttribute(),
			"objective":               objectiveAttribute(),
			"delete_after_completion": deleteAfterAttribute(),
			"node_labels": optionalStringMap("Labels that a node must have to run the job, such as `{ zone = \"a\" }`. Nodes get " +
				"theirs from `carillon serve --labels`. While no node has the labels, fires are owed. Default: any node may run the job."),
			"acknowledge": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Codes of warnings that are meant, so that plans no longer repeat them: " +
					either(dispatcher.WarningCodes) + ". The code ends a warning, in parentheses. An explicit `gap` of the trigger " +
					"answers `dst`, too. Default: none.",
			},
			"labels": optionalStringMap("Labels of the job itself, such as `{ team = \"payments\" }`, by which `carillon job list --label` and " +
				"the API find it. Together with the `default_labels` of the provider at most 16; a label here replaces a default one of the " +
				"same name. Default: none."),
			"labels_all": schema.MapAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "The labels of the job with the `default_labels` of the provider.",
			},
			"target": targetAttribute(),
			"payload": optionalEquivalent[documents]("JSON to send as the request's body, best written with `jsonencode`: at most 256 KiB, " +
				"nested at most 32 deep. White space and the order of keys make no difference. Default: a description of " +
				"the fire, with `app`, `job`, `trigger`, `run`, `kind` and `scheduled_at`."),
			"on_success": followAttribute("a run that succeeded"),
			"on_failure": followAttribute("a run that failed, timed out or was lost, after its last attempt"),
			"on_misfire": followAttribute("a decision about fires that were missed"),
			"trigger":    triggerAttribute(),
			"state": schema.StringAttribute{
				Computed: true,
				MarkdownDescription: "Summary of the triggers: `ERROR`, `EXECUTING` (a trigger has a next fire), `PAUSED`, " +
					"`COMPLETE` (no fire is left) or `INIT` (nothing is scheduled). As of the latest change of the job; it does not " +
					"follow what passes with time.",
			},
			"revision": revisionAttribute("job", ", including pauses by operators"),
			"next_fire_times": schema.MapAttribute{
				Computed:    true,
				ElementType: timetypes.RFC3339Type{},
				MarkdownDescription: "The next fire time that each trigger had when the job, its calendars or the time zone data changed " +
					"last, in RFC 3339 and UTC. A refresh keeps it when only time has passed, so that `terraform plan -refresh-only " +
					"-detailed-exitcode` finds no drift. Unknown in the plan of a change of schedules, because fires may pass before it " +
					"is applied; a warning of the plan shows them.",
			},
		}),
	}
}
