package store_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// An app that cannot be read is listed with the reason, hides no other, and can be emptied, deleted and put again.
func TestUnreadableAppCanBeListedAndDeleted(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"bounds":          `bounds = '{'`,
		"type of bounds":  `bounds = '{"quotas": 7}'`,
		"empty bounds":    `bounds = ''`,
		"defaults":        `defaults = '{'`,
		"type of default": `defaults = '[]'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *store.Store) { testUnreadableApp(t, s, set) })
		})
	}
}

func testUnreadableApp(t *testing.T, s *store.Store, set string) {
	t.Helper()
	ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
	for _, app := range []string{"bad", "good"} {
		_, _, err := s.PutApp(ctx, access.App{Name: app, AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
		one := tick("job", "", may1, "a")
		one.App = app
		_, _, err = s.PutJob(ctx, one, change)
		must(t, err)
		_, _, err = s.PutCalendar(ctx, dispatcher.Calendar{App: app, Name: "holidays"}, change)
		must(t, err)
	}
	must(t, store.Exec(ctx, s, `UPDATE apps SET `+set+` WHERE name = 'bad'`))

	apps, err := s.Apps(ctx, input.Page{Limit: 10, Cursor: "app"})
	if err != nil || len(apps) != 2 {
		t.Fatalf("list: got %d apps, %v, want both", len(apps), err)
	}
	one, err := s.App(ctx, "bad")
	must(t, err)
	for _, bad := range []access.App{apps[0], one} {
		if bad.Err == nil || !bad.Bounds.Suspended || !strings.Contains(bad.Bounds.SuspendedReason, "app bad: stored ") {
			t.Errorf("the app: got error %v, bounds %+v, want it suspended, with the reason", bad.Err, bad.Bounds)
		}
	}
	if apps[1].Err != nil || apps[1].Bounds.Suspended {
		t.Errorf("the other app: got %+v", apps[1])
	}
	edited := tick("job2", "", may1, "a")
	edited.App = "bad"
	if _, _, err := s.PutJob(ctx, edited, change); err == nil {
		t.Error("a job was put into an app of which nobody can tell what it may do")
	}
	must(t, s.DeleteJob(ctx, "bad", "job", change))
	must(t, s.DeleteCalendar(ctx, "bad", "holidays", change))
	must(t, s.DeleteApp(ctx, "bad", change))
	_, created, err := s.PutApp(ctx, access.App{Name: "bad", AppSpec: access.AppSpec{Enabled: true, Bounds: &target.Bounds{}}},
		input.Change{Actor: "test", Now: may1, Operator: true})
	if err != nil || !created {
		t.Errorf("put again by an operator: created %t, %v", created, err)
	}
}

// An operator mends an app by putting it with bounds. Nobody else can.
func TestUnreadableAppIsMendedByAnOperator(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		change := input.Change{Actor: "test", Now: may1}
		_, _, err := s.PutApp(t.Context(), access.App{Name: "bad", AppSpec: access.AppSpec{Enabled: true}}, change)
		must(t, err)
		must(t, store.Exec(t.Context(), s, `UPDATE apps SET bounds = '{' WHERE name = 'bad'`))
		again := access.App{Name: "bad", AppSpec: access.AppSpec{Enabled: true, Description: "changed"}}
		if _, _, err := s.PutApp(t.Context(), again, change); err == nil || !strings.Contains(err.Error(), "app bad: stored bounds") {
			t.Errorf("put without bounds: got error %v, want one that names the app", err)
		}
		again.Bounds = &target.Bounds{}
		change.Operator = true
		put, _, err := s.PutApp(t.Context(), again, change)
		if err != nil || put.Err != nil || put.Bounds.Suspended {
			t.Errorf("put with bounds: got %+v, %v", put, err)
		}
	})
}

// A group, an alert or a calendar that cannot be read is listed with the reason, hides no other, and can be deleted.
func TestUnreadableDefinitionsCanBeListedAndDeleted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
		_, _, err := s.PutJob(ctx, tick("job", "", may1, "a"), change)
		must(t, err)
		for _, name := range []string{"bad", "good"} {
			_, _, err := s.PutCalendar(ctx, dispatcher.Calendar{App: "app", Name: name}, change)
			must(t, err)
			group := target.EndpointGroup{App: "app", Name: name, EndpointGroupSpec: target.EndpointGroupSpec{Registration: &target.Registration{
				Networks: []string{"10.0.0.0/8"}, Ports: []int{80}}}}
			group.SetDefaults()
			_, _, err = s.PutGroup(ctx, group, change)
			must(t, err)
			alert := alert.Alert{App: "app", Name: name, Spec: alert.Spec{Jobs: []string{"job"}}}
			alert.SetDefaults()
			alert.Missed = true
			alert.Destination.Webhook = &target.AlertWebhook{
				Webhook: target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}
			_, _, err = s.PutAlert(ctx, alert, change)
			must(t, err)
		}
		for _, table := range []string{"calendars", "endpoint_groups", "alerts"} {
			must(t, store.Exec(ctx, s, `UPDATE `+table+` SET definition = '{' WHERE name = 'bad'`))
		}
		page := input.Page{Limit: 10}
		calendars, err := s.Calendars(ctx, "app", page)
		must(t, err)
		groups, err := s.Groups(ctx, "app", page)
		must(t, err)
		alerts, err := s.Alerts(ctx, "app", page)
		must(t, err)
		for what, why := range map[string]string{"calendar": calendars[0].Description, "group": groups[0].Description,
			"alert": alerts[0].Description} {
			if !strings.Contains(why, what+" app/bad: stored definition") {
				t.Errorf("the %s in the list says %q, want why it cannot be read", what, why)
			}
		}
		if len(calendars) != 2 || len(groups) != 2 || len(alerts) != 2 {
			t.Errorf("lists of %d calendars, %d groups and %d alerts, want 2 of each", len(calendars), len(groups), len(alerts))
		}
		if _, err := s.Group(ctx, "app", "bad"); err == nil {
			t.Error("a group that cannot be read was returned")
		}
		must(t, s.DeleteCalendar(ctx, "app", "bad", change))
		must(t, s.DeleteGroup(ctx, "app", "bad", change))
		must(t, s.DeleteAlert(ctx, "app", "bad", change))
	})
}
