package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// pagerServer fails every other second's run, and keeps what alerts tell: by sequence, the event ids and transitions that came.
type pagerServer struct {
	*httptest.Server
	mu   sync.Mutex
	told map[int64]map[string]dispatcher.AlertTransition
}

func newPagerServer(t *testing.T) *pagerServer {
	t.Helper()
	p := &pagerServer{told: map[int64]map[string]dispatcher.AlertTransition{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/job", func(w http.ResponseWriter, r *http.Request) {
		if at, err := time.Parse(time.RFC3339Nano, r.Header.Get("carillon-scheduled-at")); err != nil || at.Second()%2 == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/pager", func(w http.ResponseWriter, r *http.Request) {
		var n dispatcher.AlertNotification
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Errorf("notification: %v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.told[n.Sequence] == nil {
			p.told[n.Sequence] = map[string]dispatcher.AlertTransition{}
		}
		p.told[n.Sequence][r.Header.Get("webhook-id")] = n.Transition
		w.WriteHeader(http.StatusNoContent)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

// A node is killed between every two steps from the end of a run to the delivery of what an alert tells of it. Each transition
// is told under one event id, and none is lost.
func TestKillBetweenAnyTwoStepsOfAnAlertTellsEachTransitionOnce(t *testing.T) {
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
		must[dispatcher.App](t)(n.PutApp(t.Context(), dispatcher.App{Name: "kill", Enabled: true}, client.Condition{}))
		alert := dispatcher.Alert{App: "kill", Name: "pager"}
		alert.SetDefaults()
		alert.Failure = &dispatcher.AlertFailures{After: 1}
		alert.Destination.Webhook = &dispatcher.AlertWebhook{}
		alert.Destination.Webhook.SetDefaults()
		alert.Destination.Webhook.URL = p.URL + "/pager"
		alert.Retry.Base, alert.Retry.Cap = dispatcher.Duration(time.Second), dispatcher.Duration(time.Second)
		must[dispatcher.Alert](t)(n.PutAlert(t.Context(), alert, client.Condition{}))
		job := webhookJob("kill", "flaky", p.URL+"/job", map[string]string{"a": "* * * * * ?"})
		job.Retry = dispatcher.Retry{MaxAttempts: 1, Base: dispatcher.DefaultBase, Cap: dispatcher.DefaultCap, MaxAge: dispatcher.DefaultMaxAge}
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		n.kill()
		for _, at := range []failpoint.Point{failpoint.AfterResponse, failpoint.AfterRecord, failpoint.InFollow, failpoint.InAlert,
			failpoint.AfterFollow, failpoint.InPool, failpoint.BeforeSend} {
			for _, visit := range []int{1, 3} {
				victim := launchNodeIn(t, surroundings{program: program}, database, token,
					[]string{fmt.Sprintf("CHAOS=%s:kill,nth=%d", at, visit)}, args...)
				victim.awaitDeath(t, fmt.Sprintf("its visit %d of %s", visit, at))
			}
		}
		last := startNode(t, database, token, args...)
		must[dispatcher.Job](t)(last.PauseJob(t.Context(), "kill", "flaky", "", true, client.Condition{}))
		p.checkTold(t, last)
	})
}

// checkTold waits until everything has ended, and compares what was told with the transitions in the history.
func (p *pagerServer) checkTold(t *testing.T, n *node) {
	t.Helper()
	var events []dispatcher.AlertEvent
	until(t, "all notifications to be delivered", func() bool {
		for _, run := range n.allRuns("kill") {
			if run.EndedAt == nil {
				return false
			}
		}
		list, err := n.AlertEvents(t.Context(), dispatcher.AlertEventQuery{App: "kill", Page: dispatcher.Page{Limit: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		events = list.Items
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(events) > 0 && len(p.told) == len(events)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range events { // latest first
		want := dispatcher.AlertFiring
		if e.Sequence%2 == 0 {
			want = dispatcher.AlertResolved
		}
		if e.Sequence != int64(len(events)-i) || e.Transition != want || !e.Notified {
			t.Errorf("event %d is %s %d, notified %t; want %s %d, notified", i, e.Transition, e.Sequence, e.Notified, want, len(events)-i)
		}
		ids := p.told[e.Sequence]
		if len(ids) != 1 {
			t.Errorf("transition %d was told under %d event ids, want 1: %v", e.Sequence, len(ids), ids)
		}
		for _, told := range ids {
			if told != e.Transition {
				t.Errorf("transition %d was told as %s, want %s", e.Sequence, told, e.Transition)
			}
		}
	}
	t.Logf("%d transitions", len(events))
	if len(events) < 4 {
		t.Errorf("%d transitions, want several", len(events))
	}
}
