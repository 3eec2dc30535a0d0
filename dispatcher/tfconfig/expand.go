package tfconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
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
func appOf(r *Resource) (dispatcher.App, error) {
	var app dispatcher.App
	app.SetDefaults()
	if defaults := r.root.part("defaults"); defaults != nil {
		app.Defaults = &dispatcher.JobDefaults{}
		if defaults.part("retry") != nil { // what a given policy leaves out has its default
			app.Defaults.Retry = &dispatcher.Retry{}
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
func groupOf(r *Resource) (dispatcher.EndpointGroup, error) {
	var group dispatcher.EndpointGroup
	group.SetDefaults()
	if r.root.part("registration") != nil {
		group.Registration = &dispatcher.Registration{}
		group.Registration.SetDefaults()
	}
	return group, decode(r.root.json(), &group)
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
	target, _ := all["target"].(map[string]any)
	if _, is := target["webhook"]; is {
		job.Target.Webhook = &dispatcher.Webhook{}
		job.Target.Webhook.SetDefaults()
	}
	if _, is := target["lambda"]; is {
		job.Target.Lambda = &dispatcher.Lambda{}
		job.Target.Lambda.SetDefaults()
	}
	if _, is := target["group"]; is {
		job.Target.Group = &dispatcher.GroupTarget{}
		job.Target.Group.SetDefaults()
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
