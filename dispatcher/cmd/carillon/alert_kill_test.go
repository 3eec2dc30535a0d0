package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// pagerServer fails the runs of every other second, and records the event ids and transitions of notifications.
type pagerServer struct {
	*httptest.Server
	mu   sync.Mutex
	told map[alertSequence]map[string]target.AlertTransition
}

// alertSequence names a transition of the one alert.
type alertSequence struct {
	job       string
	condition target.AlertCondition
	number    int64
}

func newPagerServer(t *testing.T) *pagerServer {
	t.Helper()
	p := &pagerServer{told: map[alertSequence]map[string]target.AlertTransition{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/job", func(w http.ResponseWriter, r *http.Request) {
		if at, err := time.Parse(time.RFC3339Nano, r.Header.Get("carillon-scheduled-at")); err != nil || at.Second()%2 == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/pager", func(w http.ResponseWriter, r *http.Request) {
		var n target.AlertNotification
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Errorf("notification: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, n := range n.All() {
			of := alertSequence{n.Job, n.Condition, n.Sequence}
			if p.told[of] == nil {
				p.told[of] = map[string]target.AlertTransition{}
			}
			p.told[of][r.Header.Get("webhook-id")] = n.Transition
		}
		w.WriteHeader(http.StatusNoContent)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// A node is killed between every two steps from the end of a run, or the decision about a missed fire, to the
// delivery of its notification. Each transition is sent under one event id, and none is lost.
func TestKillBetweenAnyTwoStepsOfAnAlertSendsEachTransitionOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		p := newPagerServer(t)
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		p.declare(t, n, alert.AlertConditionsOf{Failure: &alert.Failures{After: 1, RepeatEvery: 1}, Missed: true})
		seldom := webhookJob("kill", "missed", p.URL+"/ok", map[string]string{"a": "0/2 * * * * ?"})
		often := seldom.Triggers["a"]
		often.MisfireAfter, often.MisfirePolicy = input.Duration(time.Second), dispatcher.Skip // while no node runs
		seldom.Triggers["a"] = often
		must[dispatcher.Job](t)(n.PutJob(t.Context(), seldom, client.Condition{}))
		job := webhookJob("kill", "flaky", p.URL+"/job", map[string]string{"a": "* * * * * ?"})
		job.Retry = run.Retry{MaxAttempts: 1, Base: run.DefaultBase, Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		n.kill()
		for _, at := range []failpoint.Point{failpoint.AfterResponse, failpoint.AfterRecord, failpoint.InFollow, failpoint.InAlert,
			failpoint.AfterFollow, failpoint.InPool, failpoint.BeforeSend, failpoint.AfterSend} {
			if at == failpoint.AfterResponse || at == failpoint.InAlert {
				elapse(4 * time.Second) // two fires are missed
			}
			for _, visit := range []int{1, 3} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		for _, name := range []string{"flaky", "missed"} {
			must[dispatcher.Job](t)(last.PauseJob(t.Context(), client.Pausable{App: "kill", Job: name}, dispatcher.PauseRequest{},
				client.Condition{}))
		}
		events := p.checkTold(t, last)
		if events[target.AlertFailure] < 4 || events[target.AlertMissed] == 0 {
			t.Errorf("transitions = %v, want several failures and a missed fire", events)
		}
	})
}

// A node is killed between every two steps from the check for a late fire to the delivery of its
// notification. The late fire is reported once, under one event id.
func TestKillBetweenAnyTwoStepsOfTheAlertWatchReportsALateFireOnce(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program, err := mortal()
	if err != nil {
		t.Fatal(err)
	}
	onBothDatabases(t, func(t *testing.T, database string) {
		p := newPagerServer(t)
		token := newToken(t, database)
		args := append(quick(), "--dead-after=2s", "--breaker-failures=0")
		n := startNode(t, database, token, args...)
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "kill", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		p.declare(t, n, alert.AlertConditionsOf{LateAfter: input.Duration(time.Second)})
		late := webhookJob("kill", "late", p.URL+"/ok", map[string]string{"a": "0/2 * * * * ?"})
		must[dispatcher.Job](t)(n.PutJob(t.Context(), late, client.Condition{}))
		n.kill()
		for _, at := range []failpoint.Point{failpoint.LockTaken, failpoint.InAlert, failpoint.AfterAlertWatch, failpoint.BeforeSend,
			failpoint.AfterSend, failpoint.AfterRecord} {
			of := args
			if at == failpoint.LockTaken || at == failpoint.InAlert || at == failpoint.AfterAlertWatch {
				of = append(args[:len(args):len(args)], "--apps=other") // it checks for late fires, and claims none
			}
			victim := launchNodeIn(t, surroundings{program: program}, database, token, []string{fmt.Sprintf("CHAOS=%s:kill", at)}, of...)
			victim.awaitDeath(t, fmt.Sprint("its first visit of ", at))
		}
		last := startNode(t, database, token, args...)
		must[dispatcher.Job](t)(last.PauseJob(t.Context(), client.Pausable{App: "kill", Job: "late"}, dispatcher.PauseRequest{},
			client.Condition{}))
		if events := p.checkTold(t, last); events[target.AlertLate] == 0 {
			t.Errorf("transitions = %v, want one that tells of the late fire", events)
		}
	})
}

// declare declares the alert.
func (p *pagerServer) declare(t *testing.T, n *process, watches alert.AlertConditionsOf) {
	t.Helper()
	a := alert.Alert{App: "kill", Name: "pager"}
	a.SetDefaults()
	a.AlertConditionsOf = watches
	a.Destination.Webhook = &target.AlertWebhook{}
	a.Destination.Webhook.SetDefaults()
	a.Destination.Webhook.URL = p.URL + "/pager"
	a.Retry.Base, a.Retry.Cap = input.Duration(time.Second), input.Duration(time.Second)
	must[alert.Alert](t)(n.PutAlert(t.Context(), a, client.Condition{}))
}

// checkTold waits until all runs have ended. It compares the failure transitions with the failed
// runs of the ledger, and the notifications with the transitions. A notification that a later one
// overtook while its node was dead is not sent. checkTold returns the number of
// transitions of each condition.
func (p *pagerServer) checkTold(t *testing.T, n *process) map[target.AlertCondition]int {
	t.Helper()
	var events []alert.Event
	var runs []run.Run
	until(t, "all runs to end, and as many transitions as failures", func() bool {
		list, err := n.AlertEvents(t.Context(), alert.EventQuery{App: "kill", Page: input.Page{Limit: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		events, runs = list.Items, n.allRuns("kill")
		if slices.ContainsFunc(runs, func(r run.Run) bool { return r.EndedAt == nil }) {
			return false
		}
		return len(events) > 0 && len(toldFailures(events)) >= len(failures(runs))
	})
	if diff := cmp.Diff(failures(runs), toldFailures(events)); diff != "" {
		t.Errorf("runs that failed (-in the ledger +of transitions):\n%s", diff)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	count, latest, holds := map[target.AlertCondition]int{}, map[alertSequence]int64{}, map[alertSequence]bool{}
	untold := map[alertSequence]bool{}
	for _, e := range slices.Backward(events) { // the earliest first
		count[e.Condition]++
		of := alertSequence{job: e.Job, condition: e.Condition}
		latest[of]++
		if e.Kept == alert.KeptTooSoon || e.Kept == alert.KeptUntold {
			continue // it came and went within minutes
		}
		if e.Sequence != latest[of] || (e.Transition == target.AlertFiring) == holds[of] || e.Kept != "" {
			t.Errorf("event %+v is %s %d, notified %t; want number %d, notified, and that it held before: %t", of, e.Transition, e.Sequence,
				e.Kept == "", latest[of], e.Transition != target.AlertFiring)
		}
		holds[of] = e.Transition != target.AlertResolved
		ids := p.told[alertSequence{e.Job, e.Condition, e.Sequence}]
		if untold[of] = len(ids) == 0; len(ids) > 1 {
			t.Errorf("transition %+v was told under %d event ids, want 1: %v", of, len(ids), ids)
		}
		for _, told := range ids {
			if told != e.Transition {
				t.Errorf("transition %+v was told as %s, want %s", of, told, e.Transition)
			}
		}
	}
	for of, is := range untold {
		if is { // one that a later one overtook is not told
			t.Errorf("the latest transition of %s of job %s was not told", of.condition, of.job)
		}
	}
	t.Logf("transitions: %v", count)
	return count
}

// failures returns the runs of the jobs that failed for good, in the order of their ids.
func failures(runs []run.Run) (ids []string) {
	for _, r := range runs {
		failed := r.State == run.Failed || r.State == run.TimedOut || r.State == run.Lost
		if r.Kind != run.KindAlert && failed {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// toldFailures returns the failed runs in the events, in the order of their ids.
func toldFailures(events []alert.Event) (ids []string) {
	for _, e := range events {
		if e.Condition == target.AlertFailure && e.Transition != target.AlertResolved {
			ids = append(ids, e.Run)
		}
	}
	slices.Sort(ids)
	return ids
}
