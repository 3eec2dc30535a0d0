package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/view"
	"github.com/carillon-dev/carillon/test/clientcert"
)

// The faults of TestOnCallRehearsal in a node's dependencies, and in things that people forget.

// clockWrong sets the clock of the database, which decides, ten minutes ahead of that of the node.
func clockWrong(t *testing.T, s *stage) symptom {
	t.Helper()
	s.shift(10 * time.Minute)
	until(t, "the node to notice its clock", func() bool { return s.metric(t, "carillon_clock_offset_seconds") < -500 })
	nodes := func() []dispatcher.Node { return must[client.List[dispatcher.Node]](t)(s.Nodes(t.Context())).Items }
	until(t, "the node to report it", func() bool { return nodes()[0].ClockOffset.Std() < -500*time.Second })
	return s.at("night-1", `data-state="clock"`, "−10 min")
}

// databaseAway makes the database unreachable.
func databaseAway(t *testing.T, s *stage) symptom {
	t.Helper()
	s.gate.close()
	until(t, "the node to notice", func() bool { return s.metric(t, "carillon_database_reachable") == 0 })
	found := s.at("The database cannot be reached", "This node last reached its database at", "Nothing is lost")
	found.away = true
	return found
}

// pauseForgotten pauses a job for eight days.
func pauseForgotten(t *testing.T, s *stage) symptom {
	t.Helper()
	job := webhookJob("night", "asleep", "http://127.0.0.1:1", map[string]string{"a": "0 0 3 * * ?"})
	must[dispatcher.Job](t)(s.PutJob(t.Context(), job, client.Condition{}))
	why := dispatcher.PauseRequest{Reason: "while the warehouse moves"}
	paused := must[dispatcher.Job](t)(s.PauseJob(t.Context(), client.Pausable{App: "night", Job: "asleep"}, why,
		client.Condition{Existing: true}))
	s.shift(8 * 24 * time.Hour)
	until(t, "the pause to count as forgotten", func() bool { return s.metric(t, "carillon_forgotten_pauses") > 0 })
	return s.at("night/asleep", "e2e", "while the warehouse moves", `datetime="`+input.FormatInstant(*paused.PausedAt)+`"`)
}

// secretRotated replaces the secret of a job by one that its target refuses.
func secretRotated(t *testing.T, s *stage) symptom {
	t.Helper()
	const right, wrong = "hunter-one-right", "hunter-two-wrong"
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+right {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(to.Close)
	file := filepath.Join(s.dir, "night", "token")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(right)
	job := webhookJob("night", "signs-in", to.URL, map[string]string{"a": "rate(1s)"})
	job.Retry = run.Retry{MaxAttempts: 1, Base: run.DefaultBase, Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}
	job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "file:night/token"}}}
	must[dispatcher.Job](t)(s.PutJob(t.Context(), job, client.Condition{}))
	until(t, "a success", func() bool {
		runs := s.allRuns("night")
		return len(runs) > 0 && runs[0].State == run.Succeeded
	})
	write(wrong)
	until(t, "the target to refuse the secret", func() bool {
		return s.metric(t, `carillon_credential_failures_total{app="night",reason="refused"}`) > 1
	})
	until(t, "the failure to be recorded", func() bool {
		found := must[view.Attention](t)(s.Attention(t.Context(), "night"))
		return len(found.Credentials.Items) > 0
	})
	found := s.at("night/signs-in", "file:night/token", "401", "The target refuses the secret")
	found.never = wrong
	return found
}

// fleetGone stops the registrations of a group's only executor.
func fleetGone(t *testing.T, s *stage) symptom {
	t.Helper()
	group := target.EndpointGroup{App: "night", Name: "fleet"}
	group.SetDefaults()
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}, Ports: []int{9999},
		Heartbeat: input.Duration(time.Second), ExpireAfter: input.Duration(2 * time.Second)}
	must[target.EndpointGroup](t)(s.PutGroup(t.Context(), group, client.Condition{}))
	executor := target.StaticEndpoint{URL: "http://127.0.0.1:9999"}
	registered := must[target.Endpoint](t)(s.RegisterEndpoint(t.Context(), "night", "fleet", "executor-1", executor)).RegisteredAt
	job := dispatcher.Job{App: "night", Name: "packs", JobSpec: dispatcher.JobSpec{Enabled: true,
		Target: target.Target{Group: &target.GroupTarget{Name: "fleet", Method: http.MethodPost, Timeout: target.DefaultTimeout}}}}
	must[dispatcher.Job](t)(s.PutJob(t.Context(), job, client.Condition{}))
	until(t, "the group to count as empty", func() bool { return s.metric(t, "carillon_groups_without_endpoint") > 0 })
	return s.at("night/fleet", "stopped registering", "packs", registered.UTC().Format("<td><time datetime=\"2006-01-02T"))
}

// retentionBehind keeps a session's lock on a day of the history that retention should remove.
func retentionBehind(t *testing.T, s *stage) symptom {
	t.Helper()
	brief := access.App{Name: "night", AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(24 * time.Hour)}}
	must[access.App](t)(s.PutApp(t.Context(), brief, client.Condition{Existing: true}))
	forgotten := must[*pgx.Conn](t)(pgx.Connect(t.Context(), s.database))
	t.Cleanup(func() { _ = forgotten.Close(t.Context()) })
	today := time.Now().UTC()
	s.terminate()
	// A node removes history at its start and then every ten minutes. Its counts at the start may
	// interfere, so that the first pass leaves some of the previous day.
	for _, table := range []string{"runs", "attempts", "responses", "broadcasts", "run_inputs"} {
		if _, err := forgotten.Exec(t.Context(), "DROP TABLE "+table+today.AddDate(0, 0, -1).Format("_20060102")); err != nil {
			t.Fatal(err)
		}
	}
	lock := must[pgx.Tx](t)(forgotten.Begin(t.Context()))
	if _, err := lock.Exec(t.Context(), "LOCK TABLE "+today.Format("runs_20060102")+" IN ACCESS SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	const later = 10 * 24 * time.Hour
	s.shift(later)
	// It is not ready, because its clock is far from that of the database, but it serves.
	left := launchNode(t, s.database, s.token, nil, append(quick(), "--node-name=night-2")...)
	until(t, "the other node to serve", func() bool {
		apps, err := left.Apps(t.Context(), input.Page{Limit: 1})
		return err == nil && len(apps.Items) == 1
	})
	s.shift(later + 2*time.Minute) // to the next count
	// Nine days later, the history of a day is due for removal, with the day after it.
	until(t, "retention to be behind", func() bool { return left.metric(t, "carillon_retention_behind_seconds") == 7*86400 })
	return symptom{left: left, watched: left, says: []string{"Retention that is behind", "All apps", "<td>1 d</td>", "<td>7 d</td>",
		today.Format("2006-01-02") + " 00:00:00", "lock"}}
}

// certificateEnds declares a job with a client certificate that expires within an hour.
func certificateEnds(t *testing.T, s *stage) symptom {
	t.Helper()
	certificate, _ := clientcert.New(t)
	job := webhookJob("night", "presents", "https://127.0.0.1:1", map[string]string{"a": "0 0 3 * * ?"})
	job.Target.Webhook.TLS = &target.TLS{ClientCertificate: certificate, ClientKey: &target.Secret{Reference: "file:night/key"}}
	must[dispatcher.Job](t)(s.PutJob(t.Context(), job, client.Condition{}))
	until(t, "the certificate to be counted", func() bool {
		return strings.Contains(s.get(t, "/metrics"), "\ncarillon_target_certificate_expiry_timestamp_seconds ")
	})
	ends := job.Target.Webhook.TLS.CertificateEnd()
	return s.at("Certificates that end", "night/presents", ends.Format("2006-01-02 15:04:05"))
}
