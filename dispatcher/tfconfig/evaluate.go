package tfconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// appDefaults is the prefix of attributes of an app that are, without it, the app's defaults in the API.
const appDefaults = "default_"

// withDefaults gives an app the part defaults as in the API, with the same nodes.
func withDefaults(root *node) *node {
	defaults := map[string]*node{}
	for name, part := range root.parts {
		if of, is := strings.CutPrefix(name, appDefaults); is {
			defaults[of] = part
		}
	}
	if len(defaults) > 0 {
		root.parts["defaults"] = &node{at: root.at, name: "defaults", parts: defaults}
	}
	return root
}

// appOf returns the app that a resource declares. Unknown values have their defaults.
func appOf(r *Resource) (access.App, error) {
	app := standard[access.App]()
	if defaults := r.root.part("defaults"); defaults != nil {
		app.Defaults = &dispatcher.JobDefaults{}
		if defaults.part("retry") != nil { // values that a given policy leaves out have their defaults
			app.Defaults.Retry = new(standard[run.Retry]())
		}
	}
	return app, decode(r.root.json(), &app)
}

// calendarOf returns the calendar that a resource declares.
func calendarOf(r *Resource) (dispatcher.Calendar, error) {
	calendar := dispatcher.Calendar{CalendarSpec: dispatcher.CalendarSpec{Timezone: utc}}
	return calendar, decode(r.root.json(), &calendar)
}

// groupOf returns the endpoint group that a resource declares.
func groupOf(r *Resource) (target.EndpointGroup, error) {
	group := standard[target.EndpointGroup]()
	if r.root.part("registration") != nil {
		group.Registration = new(standard[target.Registration]())
	}
	if r.root.part("health_check") != nil {
		group.HealthCheck = new(standard[target.HealthCheck]())
	}
	return group, decode(r.root.json(), &group)
}

// alertOf returns the alert that a resource declares.
func alertOf(r *Resource) (alert.Alert, error) {
	a := standard[alert.Alert]()
	if r.root.part("failure") != nil {
		a.Failure = new(standard[alert.Failures]())
	}
	if r.root.part("retry") != nil { // values that a given policy leaves out have the defaults of any policy
		a.Retry.SetDefaults()
	}
	if r.root.part("destination").part("webhook") != nil {
		a.Destination.Webhook = new(standard[target.AlertWebhook]())
	}
	if r.root.part("destination").part("sns") != nil {
		a.Destination.SNS = new(standard[target.AlertTopic]())
	}
	return a, decode(r.root.json(), &a)
}

// utc stands for an unknown time zone, because without a zone a local instant in an expression would be wrong.
const utc = "UTC"

// jobOf returns the job that a resource declares, with the defaults of its app, which may be nil.
func jobOf(r *Resource, defaults *dispatcher.JobDefaults) (dispatcher.Job, error) {
	job := standard[dispatcher.Job]()
	job.LeaveToApp()
	all, _ := r.root.json().(map[string]any)
	if _, is := all["retry"]; is {
		job.Retry.SetDefaults()
	}
	job.Target = targetDefaults(all["target"])
	for field, follow := range map[string]**dispatcher.Follow{
		string(run.OnSuccess): &job.OnSuccess, string(run.OnFailure): &job.OnFailure, string(run.OnMisfire): &job.OnMisfire,
	} {
		if _, given := all[field]; given {
			*follow = &dispatcher.Follow{Payload: dispatcher.FollowOwn}
		}
	}
	triggers, _ := all["triggers"].(map[string]any)
	delete(all, "triggers")
	if err := decode(all, &job); err != nil {
		return job, err
	}
	job.Triggers = map[string]dispatcher.Trigger{}
	for name, one := range triggers {
		t := standard[dispatcher.Trigger]()
		t.LeaveToApp()
		if err := decode(one, &t); err != nil {
			return job, err
		}
		if r.root.part("triggers").part(name).part("timezone").isUnknown() {
			t.Timezone = utc
		}
		job.Triggers[name] = t
	}
	defaults.Fill(&job)
	return job, nil
}

// targetDefaults returns the target that the JSON of a target is decoded into.
func targetDefaults(given any) target.Target {
	all, _ := given.(map[string]any)
	var to target.Target
	if _, is := all["webhook"]; is {
		to.Webhook = new(standard[target.Webhook]())
	}
	if _, is := all["lambda"]; is {
		to.Lambda = new(standard[target.Lambda]())
	}
	if _, is := all["group"]; is {
		to.Group = new(standard[target.GroupTarget]())
	}
	if _, is := all["sqs"]; is {
		to.SQS = new(standard[target.SQS]())
	}
	if _, is := all["sns"]; is {
		to.SNS = new(standard[target.SNS]())
	}
	return to
}

// decode fills into from the JSON of a part of a resource.
func decode(from, into any) error {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("decode what the files say: %w", err)
	}
	return nil
}
