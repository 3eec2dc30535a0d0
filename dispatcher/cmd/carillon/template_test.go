package main

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// URL, header and body of a run contain its times: the same on the failed attempt and on the
// attempt of another node after a crash.
func TestTemplatesRenderTheSameAfterACrash(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if a.attempt == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		token := newToken(t, database)
		args := append(quick(), "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "told", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("told", "job", r.URL, map[string]string{"tick": "0/2 * * * * ?"})
		tick := job.Triggers["tick"]
		tick.MisfireAfter = input.Duration(time.Hour) // so that none is missed
		job.Triggers["tick"] = tick
		job.Retry.SetDefaults()
		job.Retry.Delays = []input.Duration{input.Duration(3 * time.Second)}
		w := job.Target.Webhook
		w.URL += `/{{.Run}}/{{.PreviousFire}}/{{date "%s%L" .ScheduledAt}}/{{.NextFire}}`
		w.Headers, w.Body = map[string]string{"X-Attempt": "{{.Attempt}}"}, `{"at":{{json .ScheduledAt}}}`
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))

		again := func(all []arrival) (runs int) {
			for _, a := range all {
				if a.attempt > 1 && a.kind == string(run.KindSchedule) {
					runs++
				}
			}
			return runs
		}
		r.await(t, "runs that fail", func(all []arrival) bool { return len(all) >= 2 })
		n.kill()
		n = startNode(t, database, token, args...)
		r.await(t, "further attempts of those before the crash", func(all []arrival) bool { return again(all) >= 4 })
		for _, a := range r.all() {
			want := fmt.Sprintf("/%s/%s/%d/%s", a.run, input.FormatInstant(a.scheduled.Add(-2*time.Second)),
				a.scheduled.UnixMilli(), input.FormatInstant(a.scheduled.Add(2*time.Second)))
			if a.path != want {
				t.Errorf("attempt %d was told %s, want %s", a.attempt, a.path, want)
			}
		}

		w.Body = "{{.Secrets}}"
		var problems input.Problems
		if _, err := n.PutJob(t.Context(), job, client.Condition{}); !errors.As(err, &problems) || len(problems) != 1 ||
			problems[0].Path != "/target/webhook/body" || problems[0].Code != input.CodeTemplateField {
			t.Errorf("a bad template: %v, want template_field at its body", err)
		}
	})
}
