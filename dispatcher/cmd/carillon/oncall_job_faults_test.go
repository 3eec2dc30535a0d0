package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/clientcert"
)

// secretFaults are faults of secrets, certificates and tokens.
func secretFaults(t *testing.T) []fault {
	certificate, _ := clientcert.New(t)
	bearer := func(reference string) string { return `,"auth":{"bearer":{"token":{"reference":"` + reference + `"}}}` }
	credentials := func(reason, class string) []string {
		return failed(class, "app: credentials job "+reason+" "+class, "CarillonCredentials")
	}
	return []fault{
		{name: "target refuses the secret", respond: responds(http.StatusUnauthorized),
			declares: failing("{target}", bearer("file:{app}/token")), rings: credentials("refused", "http_4xx"), may: attemptsFail},
		{name: "target forbids the call", respond: responds(http.StatusForbidden),
			declares: failing("{target}", bearer("file:{app}/token")), rings: credentials("refused", "http_4xx"), may: attemptsFail},
		{name: "secret is missing", declares: failing("{target}", bearer("file:{app}/missing")),
			rings: credentials("unreadable", "secret"), may: attemptsFail},
		{name: "token endpoint is down", declares: failing("{target}", `,"auth":{"oauth2":{"token_url":"`+closedServer()+
			`/token","client_id":"a","client_secret":{"reference":"file:{app}/token"}}}`),
			rings: credentials("oauth2", "oauth2"), may: attemptsFail},
		{name: "client certificate expires", declares: map[string]string{"jobs/job": fmt.Sprintf(
			`{"target":{"webhook":{"url":"https://127.0.0.1:1","tls":{"client_certificate":%q,"client_key":{"reference":"file:{app}/token"}}}},
			"triggers":{"t":{"expression":"0 0 3 1 1 ?"}}}`, certificate)}, rings: []string{"app: certificates job", "CarillonTargetCertificate"}},
		{name: "token of the API expires", inject: expiringToken, rings: []string{"CarillonTokenExpires"}},
	}
}

// writeSecret writes the file that secrets of the app refer to.
func (w *vigil) writeSecret(app string) {
	w.t.Helper()
	file := filepath.Join(w.dir, app, "token")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("hunter-one"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// expiringToken makes a token that expires within a day.
func expiringToken(w *vigil, app string) (restore func()) {
	w.t.Helper()
	ends := time.Now().Add(24 * time.Hour)
	must[access.IssuedToken](w.t)(w.nodes["a"].PutToken(w.t.Context(), access.APIToken{Name: app,
		TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}, ExpiresAt: &ends}}, client.Condition{}))
	return func() {
		if err := w.nodes["a"].DeleteToken(w.t.Context(), app, client.Condition{Existing: true}); err != nil {
			w.t.Error(err)
		}
	}
}

// jobOf has one job and an alert of each condition.
func jobOf(more, trigger string) map[string]string {
	return map[string]string{"alerts/all": alertsOfAll, "jobs/job": fmt.Sprintf(`{"target":{"webhook":{"url":"{target}","timeout":"10m"}},
		"retry":{"max_attempts":1}%s,"triggers":{"t":{%s}}}`, more, trigger)}
}

// jobFaults are faults of definitions, and of what people forget.
func jobFaults() []fault {
	often := `"expression":"rate(1s)"`
	ages := func(w *vigil, app string) func() { return w.age(app) }
	overruns := []string{"app: alerts job overrun", "app: alert overrun of firing"} // on a slow machine
	blocked := []string{"app: blocked job", "CarillonBlocked"}
	return []fault{
		{name: "slot is held", respond: hang, declares: jobOf(`,"concurrency_policy":"forbid"`, often), inject: ages, rings: blocked,
			may: overruns},
		{name: "queue is full", respond: hang, declares: jobOf(`,"concurrency_policy":"queue","queue_limit":2`, often), inject: ages,
			rings: append(blocked, "app: alerts job late", "app: alert late of firing"), may: overruns},
		{name: "attempt overruns", respond: hang, declares: map[string]string{"jobs/job": jobOf("", `"expression":"rate(1h)"`)["jobs/job"],
			"alerts/all": strings.Replace(alertsOfAll, `"overrun_after":"2m"`, `"overrun_after":"1m"`, 1)}, inject: runsOnce,
			rings: []string{"app: alerts job overrun", "app: alert overrun of firing"}},
		{name: "objective burns", declares: jobOf(`,"objective":{"within":"1ms","of":"99.9%"}`, often), inject: burnBudget,
			rings: []string{"app: objectives job", "app: alerts job objective", "app: alert objective of firing"}},
		{name: "no node has the labels", declares: jobOf(`,"node_labels":{"disk":"none"}`, often),
			rings: []string{"app: overdue job", "app: alerts job late", "app: alert late of firing"},
			// A node that serves the job again decides about the missed fires.
			may: []string{"app: alerts job missed", "app: alert missed of firing", "app: misfires job", "CarillonMisfires"}},
		{name: "schedule has ended", declares: jobOf("", `"expression":"rate(1s)","repeat_count":3`)},
		{name: "calendar leaves no fire", declares: map[string]string{
			"calendars/closed": `{"timezone":"UTC","rules":[{"from":"00:00","to":"12:00"},{"from":"12:00","to":"00:00"}]}`,
			"jobs/job":         jobOf("", `"expression":"rate(1s)","calendar":"closed"`)["jobs/job"], "alerts/all": alertsOfAll}},
		{name: "pause is forgotten", declares: jobOf("", often), inject: forgetPause,
			rings: []string{"app: paused job", "CarillonForgottenPauses"}, may: []string{"app: misfires job", "CarillonMisfires"}},
		{name: "job cannot be read", declares: jobOf("", often), inject: poisonJob,
			rings: []string{"app: quarantined job", "CarillonQuarantined"}, may: []string{"app: misfires"}},
		{name: "fires of a pause are missed", inject: missedByPause, rings: []string{"app: misfires job", "CarillonMisfires"},
			may:      []string{"app: paused", "app: overdue job", "app: alerts job missed", "app: alert missed of firing"},
			declares: jobOf("", `"expression":"rate(5s)","misfire_after":"1s"`)},
	}
}

// execute runs a statement in the database of the fleet.
func (w *vigil) execute(format string, args ...any) {
	w.t.Helper()
	sqlIn(w.t, w.server, watchedDatabase, fmt.Sprintf(format, args...))
}

// jobIn selects the id of the job of a fault.
const jobIn = `(SELECT j.id FROM jobs AS j WHERE j.app = '%s' AND j.name = 'job')`

// age makes a run of the app keep its slot for an hour, as far as the database knows.
func (w *vigil) age(app string) (restore func()) {
	w.t.Helper()
	w.until("a slot to be taken", func() bool {
		slots, err := w.nodes["a"].Slots(w.t.Context(), app, "job")
		return err == nil && len(slots.Items) > 0
	})
	w.execute(`UPDATE slots SET since = since - 3600000 WHERE job_id IN `+jobIn, app)
	return func() {}
}

// burnBudget makes the fires of the latest buckets late, as far as the database has counted: it counts every five minutes.
func burnBudget(w *vigil, app string) (restore func()) {
	w.t.Helper()
	w.until("an objective that burns", func() bool {
		w.execute(`INSERT INTO objective_counts (job_id, minutes, from_at, good, late, missed)
			SELECT o.job_id, 5, o.checked_to - o.checked_to %% 300000 - b.back, 0, 300, 0 FROM objectives AS o, (VALUES (0), (300000)) AS b (back)
			WHERE o.job_id IN `+jobIn+` ON CONFLICT DO NOTHING`, app)
		status, err := w.nodes["a"].Objective(w.t.Context(), app, "job")
		burns, _ := status.Burns()
		return err == nil && burns
	})
	return func() {}
}

func runsOnce(w *vigil, app string) (restore func()) {
	w.t.Helper()
	must[run.Run](w.t)(w.nodes["a"].RunJob(w.t.Context(), app, "job"))
	return func() {}
}

// forgetPause pauses the job eight days ago.
func forgetPause(w *vigil, app string) (restore func()) {
	w.t.Helper()
	w.pause(app)
	w.execute(`UPDATE jobs SET paused_at = paused_at - %d WHERE id IN `+jobIn, (8 * 24 * time.Hour).Milliseconds(), app)
	return func() {}
}

func (w *vigil) pause(app string) {
	w.t.Helper()
	must[dispatcher.Job](w.t)(w.nodes["a"].PauseJob(w.t.Context(), client.Pausable{App: app, Job: "job"}, dispatcher.PauseRequest{},
		client.Condition{Existing: true}))
}

// missedByPause pauses the job until its fires are missed, and resumes it.
func missedByPause(w *vigil, app string) (restore func()) {
	w.t.Helper()
	w.pause(app)
	from := w.nodes["a"].lastHeartbeat()
	w.until("some fires to be owed", func() bool { return w.nodes["a"].lastHeartbeat().Sub(from) > 12*time.Second })
	w.resumes()
	must[dispatcher.Job](w.t)(w.nodes["a"].ResumeJob(w.t.Context(), client.Pausable{App: app, Job: "job"}, client.Condition{Existing: true}))
	return func() {}
}

// poisonJob makes the target of the job unreadable.
func poisonJob(w *vigil, app string) (restore func()) {
	w.t.Helper()
	w.execute(`CREATE TABLE public.targets_before AS SELECT id, target FROM jobs WHERE id IN `+jobIn, app)
	w.execute(`UPDATE jobs SET target = '{', revision = revision + 1 WHERE id IN `+jobIn, app)
	return func() {
		w.execute(`UPDATE jobs SET target = b.target FROM public.targets_before AS b WHERE jobs.id = b.id`)
		w.execute(`DROP TABLE public.targets_before`)
	}
}
