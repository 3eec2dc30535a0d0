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

// appDefaults is how attributes of an app begin that are, without it, the app's defaults in the API.
const appDefaults = "default_"

// withDefaults gives an app the part that it has in the API, with the same nodes.
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

// appOf returns the app that a resource declares. What is unknown has its default.
func appOf(r *Resource) (access.App, error) {
	var app access.App
	app.SetDefaults()
	if defaults := r.root.part("defaults"); defaults != nil {
		app.Defaults = &dispatcher.JobDefaults{}
		if defaults.part("retry") != nil { // what a given policy leaves out has its default
			app.Defaults.Retry = &run.Retry{}
			app.Defaults.Retry.SetDefaults()
		}
	}
	return app, decode(r.root.json(), &app)
}

// calendarOf returns the calendar that a resource declares.
func calendarOf(r *Resource) (dispatcher.Calendar, error) {
	var calendar dispatcher.Calendar
	return calendar, decode(r.root.json(), &calendar)
}

// groupOf returns the endpoint group that a resource declares.
func groupOf(r *Resource) (target.EndpointGroup, error) {
	var group target.EndpointGroup
	group.SetDefaults()
	if r.root.part("registration") != nil {
		group.Registration = &target.Registration{}
		group.Registration.SetDefaults()
	}
	if r.root.part("health_check") != nil {
		group.HealthCheck = &target.HealthCheck{}
		group.HealthCheck.SetDefaults()
	}
	return group, decode(r.root.json(), &group)
}

// alertOf returns the alert that a resource declares.
func alertOf(r *Resource) (alert.Alert, error) {
	var a alert.Alert
	a.SetDefaults()
	if r.root.part("failure") != nil {
		a.Failure = &alert.Failures{}
		a.Failure.SetDefaults()
	}
	if r.root.part("retry") != nil { // what a given policy leaves out has the default of any policy
		a.Retry.SetDefaults()
	}
	if r.root.part("destination").part("webhook") != nil {
		a.Destination.Webhook = &target.AlertWebhook{}
		a.Destination.Webhook.SetDefaults()
	}
	if r.root.part("destination").part("sns") != nil {
		a.Destination.SNS = &target.AlertTopic{}
		a.Destination.SNS.SetDefaults()
	}
	return a, decode(r.root.json(), &a)
}

// utc stands for a time zone that is unknown: without any, a local instant in an expression would be wrong.
const utc = "UTC"

// jobOf returns the job that a resource declares, with the defaults of its app, which may be nil.
func jobOf(r *Resource, defaults *dispatcher.JobDefaults) (dispatcher.Job, error) {
	var job dispatcher.Job
	job.SetDefaults()
	job.LeaveToApp()
	all, _ := r.root.json().(map[string]any)
	if _, is := all["retry"]; is {
		job.Retry.SetDefaults()
	}
	job.Target = targetDefaults(all["target"])
	for field, follow := range map[string]**dispatcher.Follow{
		string(run.OnSuccess): &job.OnSuccess, string(run.OnFailure): &job.OnFailure, string(run.OnMisfire): &job.OnMisfire,
	} {
		given, is := all[field].(map[string]any)
		if !is {
			continue
		}
		*follow = &dispatcher.Follow{Payload: dispatcher.FollowOwn}
		if target, is := given["target"]; is {
			(*follow).Target = new(targetDefaults(target))
		}
	}
	triggers, _ := all["triggers"].(map[string]any)
	delete(all, "triggers")
	if err := decode(all, &job); err != nil {
		return job, err
	}
	job.Triggers = map[string]dispatcher.Trigger{}
	for name, one := range triggers {
		var t dispatcher.Trigger
		t.SetDefaults()
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

// targetDefaults returns the target that the JSON of one is decoded into.
func targetDefaults(given any) target.Target {
	all, _ := given.(map[string]any)
	var to target.Target
	if _, is := all["webhook"]; is {
		to.Webhook = &target.Webhook{}
		to.Webhook.SetDefaults()
	}
	if _, is := all["lambda"]; is {
		to.Lambda = &target.Lambda{}
		to.Lambda.SetDefaults()
	}
	if _, is := all["group"]; is {
		to.Group = &target.GroupTarget{}
		to.Group.SetDefaults()
	}
	if _, is := all["sqs"]; is {
		to.SQS = &target.SQS{}
		to.SQS.SetDefaults()
	}
	if _, is := all["sns"]; is {
		to.SNS = &target.SNS{}
		to.SNS.SetDefaults()
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
