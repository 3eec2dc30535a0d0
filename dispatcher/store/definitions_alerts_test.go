package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// secretAlert is an alert with this secret.
func secretAlert(token target.Secret) alert.Alert {
	a := alert.Alert{App: "demo", Name: "night"}
	a.SetDefaults()
	a.Failure = &alert.Failures{After: 1}
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = "https://example.com/"
	a.Destination.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: token}}
	return a
}

// The values of the secrets of an alert reach the runs that deliver its notifications, and neither people nor the audit log.
func TestSecretsOfAlertsAreStoredApart(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		s := openWith(t, database, sealKeys(t, "a"))
		_, _, err := s.PutApp(t.Context(), access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{})
		must(t, err)
		stored, _, err := s.PutAlert(t.Context(), secretAlert(value("s3cret")), input.Change{})
		must(t, err)
		if got := stored.Destination.Webhook.Auth.Bearer.Token; got != (target.Secret{Stored: true}) {
			t.Errorf("secret as it is shown = %+v, want that it is stored", got)
		}
		attached := stored.Attached().Key()
		if got := openedOf(t, s, attached)["/alert/webhook/auth/bearer/token"]; got != "s3cret" {
			t.Errorf("secret as runs get it = %q", got)
		}
		again, _, err := s.PutAlert(t.Context(), secretAlert(target.Secret{Stored: true}), input.Change{})
		if must(t, err); again.Revision != stored.Revision {
			t.Errorf("revision after the same was put = %d, want %d", again.Revision, stored.Revision)
		}
		moved := secretAlert(target.Secret{Stored: true})
		moved.Destination.Webhook.URL = "https://evil.example.com/"
		var problems input.Problems
		if _, _, err = s.PutAlert(t.Context(), moved, input.Change{}); !errors.As(err, &problems) ||
			problems[0].Code != input.CodeSecretOrigin || problems[0].Path != "/destination/webhook/auth/bearer/token/stored" {
			t.Errorf("PutAlert of a stored secret with another host: %v", err)
		}
		must(t, s.DeleteAlert(t.Context(), "demo", "night", input.Change{}))
		entries, err := s.AuditEntries(t.Context(), access.AuditQuery{Page: input.Page{Limit: 100}})
		must(t, err)
		text, err := json.Marshal(entries)
		must(t, err)
		if strings.Contains(string(text), "s3cret") || strings.Count(string(text), "hash:") != 2 {
			t.Errorf("the audit log does not have hashes alone: %s", text)
		}
		if n, err := store.Count(t.Context(), s, `SELECT count(*) FROM secrets`); err != nil || n != 0 {
			t.Errorf("secrets after DeleteAlert = %d, %v, want none", n, err)
		}
	})
}

// Ten thousand jobs fail at once and recover, while two nodes judge their ends: each transition is notified once.
func TestTenThousandJobsThatFailAtOnceAreToldOnceEach(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	s := open(t, pgtest.New(t))
	ctx, jobs := t.Context(), 10_000
	_, _, err := s.PutApp(ctx, access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{})
	must(t, err)
	w := target.Webhook{URL: "https://example.com/", Method: "POST", Timeout: target.DefaultTimeout}
	job := dispatcher.Job{App: "demo", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true, Target: target.Target{Webhook: &w}}}
	_, _, err = s.PutJob(ctx, job, input.Change{})
	must(t, err)
	must(t, store.Exec(ctx, s, fmt.Sprintf(`INSERT INTO jobs (id, app_id, name, description, enabled, paused, priority,
			node_labels, delivery, retry, concurrency_policy, max_concurrency, queue_limit, target, payload,
			trigger_names, revision, created_at, updated_at)
		SELECT g, app_id, 'job-' || g, description, enabled, paused, priority, node_labels, delivery, retry, concurrency_policy,
			max_concurrency, queue_limit, target, payload, trigger_names, revision, created_at, updated_at
		FROM jobs, generate_series(1, %d) AS g WHERE name = 'job'`, jobs-1)))
	alert := secretAlert(target.Secret{Reference: "env:SECRET_DEMO_PAGER"})
	_, _, err = s.PutAlert(ctx, alert, input.Change{})
	must(t, err)
	for more := true; more; {
		done, _, err := s.WatchAlerts(ctx, nil, 2000, time.Time{})
		must(t, err)
		more = done.More
	}
	for minute, state := range []string{"failed", "failed", "succeeded"} {
		must(t, store.Exec(ctx, s, fmt.Sprintf(`INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt,
				http_status, state, class, error)
			SELECT 1767225600000 + %[1]d * 60000, id, 1767225600000 + %[1]d * 60000, 1, id, app_id, 1, 500, '%[2]s', '', 'broken'
			FROM jobs WHERE part_of = 0`, minute, state)))
		var nodes sync.WaitGroup
		for range 2 {
			nodes.Go(func() {
				for more := true; more; {
					done, err := s.FollowEnds(ctx, dispatcher.FollowQuery{Limit: 200})
					if err != nil {
						t.Error(err)
						return
					}
					more = done.More
				}
			})
		}
		nodes.Wait()
	}
	for what, query := range map[string]string{
		"deliveries":               `SELECT count(*) FROM live_runs WHERE kind = 6`,
		"events":                   `SELECT count(*) FROM alert_events`,
		"deliveries of recoveries": `SELECT count(*) FROM run_inputs WHERE kind = 6 AND input LIKE '%"transition":"resolved"%'`,
		"states that hold":         `SELECT 2 * count(*) FROM alert_states WHERE firing`,
		"jobs with both notifications": `SELECT 2 * count(*) FROM (
			SELECT trigger_id FROM live_runs WHERE kind = 6 GROUP BY trigger_id HAVING count(*) = 2) AS x`,
		"ends that are yet to be judged": `SELECT count(*) FROM pending_ends`,
	} {
		want := map[string]int64{"deliveries": 20_000, "events": 20_000, "deliveries of recoveries": 10_000,
			"jobs with both notifications": 20_000}[what]
		if n, err := store.Count(ctx, s, query); err != nil || n != want {
			t.Errorf("%s = %d, %v, want %d", what, n, err, want)
		}
	}
}
