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

// Putting a job again repairs it, whichever part is unreadable: its triggers keep their progress, its revision
// increases, and no old part remains.
func TestUnreadableJobIsMendedByAPut(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"target":               `target = '{"webhook":{"timeout":{"s":1}}}'`,
		"kind of target":       `target = '{"queue":{"name":"q"}}'`,
		"target that is empty": `target = ''`,
		"payload":              `payload = '{'`,
		"names of triggers":    `trigger_names = '{"tick":1}'`,
		"origins of triggers":  `trigger_origins = '['`,
		"retries":              `retry = '['`,
		"followers":            `followers = '{'`,
		"all":                  `target = '', payload = '{', trigger_names = '', trigger_origins = '[', retry = '', followers = '{'`,
		"target of a follower": `target = '' WHERE part_of <> 0 OR name = 'bad' AND name = ''`,
		"retry of a follower":  `retry = '[' WHERE part_of <> 0 OR name = 'bad' AND name = ''`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for again, put := range map[string]func(*dispatcher.Job){
				"as it was": func(*dispatcher.Job) {},
				"with another trigger": func(j *dispatcher.Job) {
					j.Triggers = map[string]dispatcher.Trigger{"tock": j.Triggers["tick"]}
				},
				"without followers": func(j *dispatcher.Job) { j.OnFailure = nil },
			} {
				t.Run(again, func(t *testing.T) {
					t.Parallel()
					onBoth(t, func(t *testing.T, s *store.Store) { testMendedJob(t, s, set, put) })
				})
			}
		})
	}
}

func testMendedJob(t *testing.T, s *store.Store, set string, put func(*dispatcher.Job)) {
	t.Helper()
	ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
	job := tick("bad", "", may1, "a")
	job.Triggers = map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
		Schedule: dispatcher.Schedule{Expression: "rate(1h)"}, MisfireAfter: dispatcher.DefaultMisfireAfter, Enabled: true}}}
	job.Payload = []byte(`{"n": 1}`)
	job.OnFailure = &dispatcher.Follow{
		FollowDestination: target.FollowDestination{Webhook: &target.FollowWebhook{URL: "https://example.com/failed"}}}
	first, _, err := s.PutJob(ctx, job, change)
	must(t, err)
	if !strings.Contains(set, "WHERE") {
		set += ` WHERE name = 'bad'`
	}
	must(t, store.Exec(ctx, s, `UPDATE jobs SET `+set))

	put(&job)
	stored, created, err := s.PutJob(ctx, job, change)
	if err != nil || created {
		t.Fatalf("put again: created %t, %v", created, err)
	}
	read, err := s.Job(ctx, "app", "bad")
	must(t, err)
	if read.Revision != stored.Revision || read.Target.Webhook == nil || read.Revision < first.Revision || len(read.Triggers) != 1 {
		t.Errorf("read back: %+v, want what was put", read)
	}
	if is, still := read.Triggers["tick"]; still && !is.NextFireTime.Equal(*first.Triggers["tick"].NextFireTime) {
		t.Errorf("its next fire is %s, want %s as before", is.NextFireTime, first.Triggers["tick"].NextFireTime)
	}
	parts := 0
	if job.OnFailure != nil {
		parts = 1
	}
	for query, want := range map[string]int{
		`SELECT count(*) FROM triggers WHERE deleted_at IS NULL`:                             1,
		`SELECT count(*) FROM jobs WHERE part_of <> 0 AND deleted_at IS NULL`:                parts,
		`SELECT count(*) FROM followers`:                                                     parts,
		`SELECT count(*) FROM jobs WHERE name = 'bad' AND (follows & 7) <> 0`:                parts,
		`SELECT count(*) FROM trigger_clock WHERE next_fire_time IS NOT NULL`:                1,
		`SELECT jobs FROM app_usage WHERE app_id = (SELECT id FROM apps WHERE name = 'app')`: 1,
	} {
		if n, err := store.Count(ctx, s, query); err != nil || int(n) != want {
			t.Errorf("%s: got %d, %v, want %d", query, n, err, want)
		}
	}
	if again, _, err := s.PutJob(ctx, job, change); err != nil || again.Revision != stored.Revision {
		t.Errorf("put once more: revision %d, %v, want %d", again.Revision, err, stored.Revision)
	}
	must(t, s.DeleteJob(ctx, "app", "bad", change))
}

// The same holds for a group, an alert, a calendar and the defaults of an app.
func TestUnreadableDefinitionsAreMendedByAPut(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *store.Store) {
		ctx, change := t.Context(), input.Change{Actor: "test", Now: may1}
		_, _, err := s.PutJob(ctx, tick("job", "", may1, "a"), change)
		must(t, err)
		group := target.EndpointGroup{App: "app", Name: "bad", EndpointGroupSpec: target.EndpointGroupSpec{
			Registration: &target.Registration{Networks: []string{"10.0.0.0/8"}, Ports: []int{80}}}}
		group.SetDefaults()
		bell := alert.Alert{App: "app", Name: "bad", Spec: alert.Spec{Jobs: []string{"job"}}}
		bell.SetDefaults()
		bell.Missed = true
		bell.Destination.Webhook = &target.AlertWebhook{
			Webhook: target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}
		puts := map[string]func() (bool, error){
			"endpoint_groups": func() (bool, error) { _, created, err := s.PutGroup(ctx, group, change); return created, err },
			"alerts":          func() (bool, error) { _, created, err := s.PutAlert(ctx, bell, change); return created, err },
			"calendars": func() (bool, error) {
				_, created, err := s.PutCalendar(ctx, dispatcher.Calendar{App: "app", Name: "bad"}, change)
				return created, err
			},
			"apps": func() (bool, error) {
				_, created, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true,
					Defaults: &dispatcher.JobDefaults{Timezone: "Europe/Berlin"}}}, change)
				return created, err
			},
		}
		for table, put := range puts {
			if created, err := put(); err != nil || created != (table != "apps") {
				t.Fatalf("%s: created %t, %v", table, created, err)
			}
			damage := `definition = '{' WHERE name = 'bad'`
			if table == "apps" {
				damage = `defaults = '{'`
			}
			must(t, store.Exec(ctx, s, `UPDATE `+table+` SET `+damage))
			if created, err := put(); err != nil || created {
				t.Errorf("%s, put again: created %t, %v, want it mended", table, created, err)
			}
		}
		// The attached job of an alert is repaired with it.
		must(t, store.Exec(ctx, s, `UPDATE jobs SET target = '' WHERE part_of <> 0`))
		bell.Description = "changed"
		if _, err := puts["alerts"](); err != nil {
			t.Errorf("an alert whose destination cannot be read, put again: %v", err)
		}
		_, errGroup := s.Group(ctx, "app", "bad")
		_, errAlert := s.Alert(ctx, "app", "bad")
		_, errCalendar := s.Calendar(ctx, "app", "bad")
		must(t, errGroup)
		must(t, errAlert)
		must(t, errCalendar)
	})
}
