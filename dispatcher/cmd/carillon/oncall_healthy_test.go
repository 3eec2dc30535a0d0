package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
)

// alertsOfAll is an alert of all jobs with each condition.
const alertsOfAll = `{"failure":{"after":1},"missed":true,"late_after":"30s","overrun_after":"2m","no_success_for":"5m",
	"objective":true,"destination":{"webhook":{"url":"{pager}"}}}`

// target of a job at a path of the receiver.
func jobAt(path, more, triggers string) string {
	return fmt.Sprintf(`{"target":{"webhook":{"url":"{receiver}%s","timeout":"30s"}},"objective":{"within":"20s","of":"99%%"}%s,
		"triggers":{%s}}`, path, more, triggers)
}

// everyPolicy has jobs of every policy that a healthy fleet uses, by their paths in the API.
func everyPolicy() map[string]string {
	group := func(name, more string) string {
		return fmt.Sprintf(`{"target":{"group":{"name":%q,"path":"/ok"}}%s,"triggers":{"t":{"expression":"rate(7s)"}}}`, name, more)
	}
	return map[string]string{
		"calendars/closed": `{"timezone":"UTC","rules":[{"dates":["12-24/01-02"]},{"from":"00:00","to":"23:59"}]}`,
		"calendars/minute": `{"timezone":"UTC","rules":[{"expression":"* 0/2 * * * ?"}]}`,
		"groups/workers":   `{"endpoints":{"one":{"url":"{receiver}"},"two":{"url":"{receiver}"}},"health_check":{"path":"/ok","interval":"5s"}}`,
		"groups/shards":    `{"endpoints":{"one":{"url":"{receiver}"},"two":{"url":"{receiver}"}}}`,

		"jobs/allow":   jobAt("/ok", "", `"t":{"expression":"rate(1s)"}`),
		"jobs/bounded": jobAt("/slow", `,"max_concurrency":2`, `"t":{"expression":"rate(3s)"},"u":{"expression":"rate(4s)"}`),
		"jobs/forbid":  jobAt("/slow", `,"concurrency_policy":"forbid"`, `"t":{"expression":"rate(2s)"},"u":{"expression":"rate(3s)"}`),
		"jobs/replace": jobAt("/slow", `,"concurrency_policy":"replace"`, `"t":{"expression":"rate(5s)"},"u":{"expression":"rate(20s)"}`),
		"jobs/queue": jobAt("/slow", `,"concurrency_policy":"queue","queue_limit":10`,
			`"t":{"expression":"0/30 * * * * ?"},"u":{"expression":"0/30 * * * * ?"},"v":{"expression":"0/30 * * * * ?"}`),
		"jobs/state":  jobAt("/ok", `,"concurrency_policy":"queue","carry_state":true`, `"t":{"expression":"rate(10s)"}`),
		"jobs/once":   jobAt("/ok", `,"delivery":"at_most_once","priority":9`, `"t":{"expression":"rate(5s)"}`),
		"jobs/delay":  jobAt("/slow", "", `"t":{"expression":"delay(3s)"}`),
		"jobs/herd":   strings.Replace(jobAt("/ok", "", herdOf(40)), "{receiver}", "{second}", 1),
		"jobs/jitter": jobAt("/ok", "", `"t":{"expression":"0/20 * * * * ?","jitter":"5s"}`),
		"jobs/zones": jobAt("/ok", "", `"t":{"expression":"*/15 * * * * ?","timezone":"Europe/Berlin","gap":"skip","overlap":"both"},
			"u":{"expression":"30 2 * * *","timezone":"America/New_York","gap":"next"}`),
		"jobs/calendar": jobAt("/ok", "", `"t":{"expression":"rate(20s)","calendar":"minute"},
			"u":{"expression":"0/40 * * * * ?","calendar":"closed"}`),
		"jobs/policies": jobAt("/ok", `,"labels":{"team":"night"}`, `"once":{"expression":"rate(10s)","misfire_policy":"fire_once"},
			"all":{"expression":"rate(10s)","misfire_policy":"fire_all"},"skip":{"expression":"rate(10s)","misfire_policy":"skip"}`),
		"jobs/paused": jobAt("/ok", "", `"t":{"expression":"rate(10s)"}`),
		"jobs/flaky":  jobAt("/flaky", `,"retry":{"max_attempts":5,"base":"1s","cap":"2s"}`, `"t":{"expression":"rate(15s)"}`),
		"jobs/callback": strings.Replace(jobAt("/accept", "", `"t":{"expression":"rate(10s)"}`),
			`"timeout":"30s"`, `"callback":{"timeout":"2m"}`, 1),
		"jobs/group":     group("workers", ""),
		"jobs/broadcast": strings.Replace(group("shards", ""), `"path"`, `"strategy":"broadcast","path"`, 1),
		"jobs/follower":  strings.Replace(jobAt("/ok", "", ""), `"objective":{"within":"20s","of":"99%"},`, "", 1),
		"jobs/followed": jobAt("/ok", `,"on_success":{"jobs":["follower"],"payload":"result"},"on_failure":{"jobs":["follower"]},
			"on_misfire":{"jobs":["follower"]}`, `"t":{"expression":"rate(15s)"}`),
		"jobs/repeated": jobAt("/ok", "", `"t":{"expression":"rate(10s)","repeat_count":5}`),
		"jobs/by-hand":  jobAt("/slow", "", ""),

		"alerts/all":     alertsOfAll,
		"alerts/by-hand": `{"jobs":["by-hand"],"failure":{"after":1},"destination":{"webhook":{"url":"{pager}"}}}`,
	}
}

// herdOf has triggers that fire at the same second.
func herdOf(count int) string {
	var all []string
	for i := range count {
		all = append(all, fmt.Sprintf(`"t%d":{"expression":"0 * * * * ?"}`, i))
	}
	return strings.Join(all, ",")
}

// declareEveryPolicy declares the jobs in the app "calm", with receivers that do what jobs expect.
func (w *vigil) declareEveryPolicy() {
	w.t.Helper()
	serve := func(q http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/slow":
			select { // a replaced run hangs up
			case <-time.NewTimer(2 * time.Second).C:
			case <-r.Context().Done():
			}
		case path == "/flaky" && r.Header.Get("Carillon-Attempt") == "1":
			q.WriteHeader(http.StatusServiceUnavailable)
		case path == "/accept":
			q.WriteHeader(http.StatusAccepted)
			go w.complete(r.Header.Get("Carillon-Run"))
		}
	}
	bodies := everyPolicy()
	for _, name := range []string{"{receiver}", "{second}"} {
		receiver := httptest.NewServer(http.HandlerFunc(serve))
		w.t.Cleanup(receiver.Close)
		for path, body := range bodies {
			bodies[path] = strings.ReplaceAll(body, name, receiver.URL)
		}
	}
	w.put("calm", bodies)
}

// complete calls back for a run that its target accepted.
func (w *vigil) complete(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), time.Minute)
	defer cancel()
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C { // until the attempt is recorded
		for _, n := range w.nodes {
			if _, err := n.CompleteRun(ctx, id, "done"); err == nil {
				return
			}
		}
	}
}

// useEverything does what people do with a healthy fleet: they pause and resume, run by hand, cancel and backfill. The
// step is how often it was called before.
func (w *vigil) useEverything(step int) {
	w.t.Helper()
	ctx, n, job := w.t.Context(), w.nodes["a"], client.Pausable{App: "calm", Job: "paused"}
	switch step % 6 {
	case 0:
		must[dispatcher.Job](w.t)(n.PauseJob(ctx, job, dispatcher.PauseRequest{Reason: "a deployment"}, client.Condition{Existing: true}))
	case 1:
		w.resumes()
		must[dispatcher.Job](w.t)(n.ResumeJob(ctx, job, client.Condition{Existing: true}))
		must[run.Run](w.t)(n.RunJob(ctx, "calm", "by-hand"))
	case 2:
		asked := dispatcher.AppPauseRequest{Labels: map[string]string{"team": "night"}, Reason: "a deployment"}
		must[dispatcher.AppPause](w.t)(n.PauseApp(ctx, "calm", asked))
	case 3:
		w.resumes()
		for _, p := range must[client.List[dispatcher.AppPause]](w.t)(n.AppPauses(ctx, "calm")).Items {
			if err := n.EndAppPause(ctx, "calm", p.ID); err != nil {
				w.t.Fatal(err)
			}
		}
	case 4:
		now := time.Now().UTC().Truncate(time.Minute)
		must[repeat.Backfill](w.t)(n.CreateBackfill(ctx, "calm", "zones", repeat.BackfillSpec{Trigger: "t",
			From: now.Add(-26 * time.Hour), To: now.Add(-26*time.Hour + 5*time.Minute), Concurrency: 2,
			Order: repeat.BackfillOldestFirst, Existing: repeat.ExistingSkip}))
	case 5:
		one := must[run.Run](w.t)(n.RunJob(ctx, "calm", "by-hand"))
		_, _ = n.CancelRun(ctx, one.ID) // it may have ended
	}
}

// resumes notes that a pause ends.
func (w *vigil) resumes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resumed = time.Now()
}

// minutes is how long the healthy fleet is watched.
func minutes(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("MINUTES")
	if text == "" {
		text = "3"
	}
	return time.Duration(must[int](t)(strconv.Atoi(text))) * time.Minute
}

// A healthy fleet that uses every policy rings nothing: it sends no alert, nothing needs attention but pauses that stand,
// no probe warns, and no rule of Prometheus fires.
func TestHealthyFleetIsQuiet(t *testing.T) {
	need.Step(t, "oncall")
	w := watch(t, 15*time.Second, "--host-rate=20")
	w.declareEveryPolicy()
	ends := time.After(minutes(t)) // wall clock: the fleet is to have this time
	for step, next := 0, time.Now(); ; {
		select {
		case <-ends:
			w.requireQuiet()
			return
		default:
		}
		w.look()
		if now := time.Now(); !now.Before(next) {
			w.useEverything(step)
			step, next = step+1, now.Add(25*time.Second)
		}
		elapse(250 * time.Millisecond)
	}
}

// requireQuiet requires that nothing has rung. Pauses are listed while they stand, and on a machine that stalled at some
// time, fires were late indeed.
func (w *vigil) requireQuiet() {
	w.t.Helper()
	for _, text := range w.texts(false) {
		if !strings.Contains(text, ": paused") {
			w.t.Errorf("it rings: %s", text)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(w.metrics.ringing(w.t, false))) {
		if lateness.MatchString(rule) && !w.stalled.IsZero() {
			w.t.Logf("the rule %s fires, but this machine was busy", rule)
			continue
		}
		w.t.Errorf("the rule %s fires", rule)
	}
}
