package main

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// addGroups adds a group with a declared and a registered endpoint, a job that uses it, and a group that no job uses.
func (s *shop) addGroups(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	group := dispatcher.EndpointGroup{App: "shop", Name: "workers", Description: hostile, Path: "/jobs", Strategy: "weighted",
		Endpoints: map[string]dispatcher.StaticEndpoint{
			"a": {URL: "https://a.example.com", Weight: 3, Labels: dispatcher.Labels{"zone": "a"}},
			"b": {URL: "https://b.example.com", Backup: true},
		},
		Registration: &dispatcher.Registration{Networks: []string{"10.0.0.0/16"}, Ports: []int{8080, 8081}},
	}
	must[dispatcher.EndpointGroup](t)(s.PutGroup(ctx, group, client.Condition{}))
	must[dispatcher.EndpointGroup](t)(s.PutGroup(ctx, dispatcher.EndpointGroup{App: "shop", Name: "idle"}, client.Condition{}))
	must[dispatcher.Endpoint](t)(s.RegisterEndpoint(ctx, "shop", "workers", "w-1", dispatcher.StaticEndpoint{URL: "http://10.0.3.4:8080"}))
	job := dispatcher.Job{App: "shop", Name: "grouped"}
	job.SetDefaults()
	job.Target.Group = &dispatcher.GroupTarget{Name: "workers", Path: "/nightly"}
	job.Target.Group.SetDefaults()
	must[dispatcher.Job](t)(s.PutJob(ctx, job, client.Condition{}))
}
