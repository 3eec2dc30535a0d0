package dispatcher_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Words of other schedulers, with a hyphen or in capitals, lead to the intended word.
func TestMisspeltValuesNameTheNearest(t *testing.T) {
	t.Parallel()
	webhook := func(edit func(*target.Webhook)) func(*dispatcher.Job) {
		return func(j *dispatcher.Job) { edit(j.Target.Webhook) }
	}
	trigger := func(edit func(*dispatcher.Trigger)) func(*dispatcher.Job) {
		return func(j *dispatcher.Job) {
			t := j.Triggers["t"]
			edit(&t)
			j.Triggers["t"] = t
		}
	}
	for want, edit := range map[string]func(*dispatcher.Job){
		`concurrency_policy "Forbid" is not one of allow, forbid, queue, replace; did you mean forbid?`: func(j *dispatcher.Job) {
			j.ConcurrencyPolicy = "Forbid"
		},
		`delivery "at-most-once" is not one of at_least_once, at_most_once; did you mean at_most_once?`: func(j *dispatcher.Job) {
			j.Delivery = "at-most-once"
		},
		`misfire_policy "fire-once" is not one of fire_once, fire_all, skip; did you mean fire_once?`: trigger(func(t *dispatcher.Trigger) {
			t.MisfirePolicy = "fire-once"
		}),
		`misfire_policy "DoNothing" is not one of fire_once, fire_all, skip`: trigger(func(t *dispatcher.Trigger) {
			t.MisfirePolicy = "DoNothing"
		}),
		`gap "Next": not one of skip, next; did you mean next?`: trigger(func(t *dispatcher.Trigger) { t.Gap = schedule.Gap("Next") }),
		`"2XX" is neither a status such as 204 nor a class such as 2xx; did you mean 2xx?`: webhook(func(w *target.Webhook) {
			w.SuccessCodes = []target.SuccessCode{"2XX"}
		}),
		`method "post" is not one of GET, HEAD, POST, PUT, PATCH, DELETE; did you mean POST?`: webhook(func(w *target.Webhook) {
			w.Method = "post"
		}),
		`mode "Binary" is not one of binary, structured; did you mean binary?`: webhook(func(w *target.Webhook) {
			w.CloudEvents = "Binary"
		}),
	} {
		job := dispatcher.Job{
			App: "crm", Name: "sync", JobSpec: dispatcher.JobSpec{Enabled: true,
				Target: target.Target{Webhook: &target.Webhook{URL: "https://example.com/"}},
				Triggers: map[string]dispatcher.Trigger{
					"t": {
						TriggerSpec: dispatcher.TriggerSpec{
							Schedule: dispatcher.Schedule{Expression: "0 0 2 * * ?", Timezone: "UTC"},
							Enabled:  true, MisfireAfter: dispatcher.DefaultMisfireAfter,
						},
					},
				}},
		}
		job.SetDefaults()
		job.Target.Webhook.SetDefaults()
		edit(&job)
		err := job.Validate()
		if err == nil || !strings.HasSuffix(err.Error(), want) && !strings.Contains(err.Error(), want+";") {
			t.Errorf("Validate = %v, want %s", err, want)
		}
	}
}
