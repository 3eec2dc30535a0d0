package client_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestClientCallsTheRoutesOfGroups(t *testing.T) {
	t.Parallel()
	_, server, token := newServer(t)
	c, ctx := newClient(t, server.URL, token, nil), t.Context()
	if _, err := c.PutApp(ctx, access.App{Name: "crm", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{Absent: true}); err != nil {
		t.Fatal(err)
	}
	declared := target.EndpointGroup{
		App: "crm", Name: "workers", EndpointGroupSpec: target.EndpointGroupSpec{Probe: target.Probe{AlivePath: "/up"},
			Endpoints:    map[string]target.StaticEndpoint{"a": {URL: "https://a.example.com"}},
			Registration: &target.Registration{Networks: []string{"10.0.0.0/8"}, Ports: []int{8080}}},
	}
	group, err := c.PutGroup(ctx, declared, client.Condition{Absent: true})
	if err != nil || group.Revision != 1 || !group.Declares(declared) {
		t.Fatalf("PutGroup = %+v, %v", group, err)
	}
	if got, err := c.Group(ctx, "crm", "workers"); err != nil || !cmp.Equal(got, group) {
		t.Errorf("Group = %+v, %v, want %+v", got, err, group)
	}
	if got, err := c.Groups(ctx, "crm", input.Page{Limit: 1}); err != nil || len(got.Items) != 1 {
		t.Errorf("Groups = %+v, %v", got, err)
	}
	for _, port := range []string{":8080", ":8080", ":8080/base"} { // it registers, sends a heartbeat and moves
		self := target.StaticEndpoint{URL: "http://10.0.0.1" + port}
		e, err := c.RegisterEndpoint(ctx, "crm", "workers", "w1", self)
		if err != nil || e.URL != self.URL || e.ExpiresAt == nil {
			t.Errorf("RegisterEndpoint = %+v, %v", e, err)
		}
	}
	_, err = c.RegisterEndpoint(ctx, "crm", "workers", "a", target.StaticEndpoint{URL: "http://10.0.0.1:8080"})
	if !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("RegisterEndpoint of a declared one = %v, want ErrConflict", err)
	}
	if got, err := c.Endpoints(ctx, "crm", "workers", input.Page{Limit: 1, Cursor: "a"}); err != nil || len(got.Items) != 1 ||
		got.Items[0].ID != "w1" {
		t.Errorf("Endpoints after a = %+v, %v", got, err)
	}
	for _, draining := range []bool{true, false} {
		if e, err := c.DrainEndpoint(ctx, "crm", "workers", "w1", draining); err != nil || e.Draining != draining {
			t.Errorf("DrainEndpoint(%v) = %+v, %v", draining, e, err)
		}
	}
	if err := c.DeregisterEndpoint(ctx, "crm", "workers", "w1"); err != nil {
		t.Error(err)
	}
	if err := c.DeregisterEndpoint(ctx, "crm", "workers", "w1"); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("DeregisterEndpoint of none = %v, want ErrNotFound", err)
	}
	job := dispatcher.Job{App: "crm", Name: "sync",
		JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Group: &target.GroupTarget{Name: "workers"}}}}
	if got, err := c.PutJob(ctx, job, client.Condition{}); err != nil || got.Target.Group.Method != "POST" {
		t.Errorf("PutJob of a group = %+v, %v", got.Target, err)
	}
	if err := c.DeleteGroup(ctx, "crm", "workers", client.Condition{Existing: true}); !errors.Is(err, dispatcher.ErrConflict) {
		t.Errorf("DeleteGroup of one in use = %v, want ErrConflict", err)
	}
	if err := c.DeleteJob(ctx, "crm", "sync", client.Condition{Existing: true}); err != nil {
		t.Error(err)
	}
	if err := c.DeleteGroup(ctx, "crm", "workers", client.Condition{Existing: true}); err != nil {
		t.Error(err)
	}
}
