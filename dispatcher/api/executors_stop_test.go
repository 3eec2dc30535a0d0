package api_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// servedExecutor is an executor that accepts everything, and its requests.
type servedExecutor struct {
	url string
	on  func() // is called for each request; may be nil

	mu       sync.Mutex
	requests []string
}

func serveExecutor(t *testing.T) *servedExecutor {
	t.Helper()
	e := &servedExecutor{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.requests = append(e.requests, r.URL.Path)
		if e.on != nil {
			e.on()
		}
		_, _ = io.WriteString(w, `{"code":200}`)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	return e
}

func (e *servedExecutor) got() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.requests, " ")
}

// withExecutor declares a group of one executor, and a job that runs on it.
func withExecutor(t *testing.T, job string) (*world, *servedExecutor) {
	t.Helper()
	w, e := newExecutorWorld(t, gate.Limits{}), serveExecutor(t)
	w.register(t.Context(), 7)
	w.must(http.StatusOK, "PUT", executorGroup, `{"kind":"xxl_job","access_token":{"reference":"file:crm/token"},
		"endpoints":{"e0":{"url":"`+e.url+`"}}}`)
	w.must(http.StatusOK, "PUT", oneJob, job)
	return w, e
}

func TestCancelStopsOnlyAnExecutorThatHasTheRun(t *testing.T) {
	t.Parallel()
	later := time.Now().Add(time.Hour)
	for name, tt := range map[string]struct {
		state run.State
		next  dispatcher.NextAttempt
		want  string
	}{
		"the executor has it": {run.WaitingCallback, *untilCallback(1), "/kill"},
		"its attempt failed":  {run.Failed, dispatcher.NextAttempt{At: later, Until: later.Add(time.Hour), CountsAsFailure: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, e := withExecutor(t, jobOfExecutors)
			r, held, _ := w.executorRun()
			w.recordOutcome(held, run.Outcome{State: tt.state, HTTPStatus: 200, Response: &run.Response{Endpoint: "e0"}}, &tt.next)
			w.must(http.StatusOK, "POST", "/v1/runs/"+r.ID+"/cancel", "")
			if got := e.got(); got != tt.want {
				t.Errorf("requests to the executor: %q, want %q; log: %s", got, tt.want, w.logs)
			}
		})
	}
}

// The executor stops all that it runs of the job. So it is asked while the next run has no slot.
func TestReleaseOfASlotStopsTheExecutorOfTheRunThatItCancels(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		release string
		status  int
		want    string
	}{
		"with cancel":             {`{"reason":"stuck","cancel":true}`, http.StatusOK, "/kill"},
		"without cancel":          {`{"reason":"stuck"}`, http.StatusConflict, ""},
		"without a reason":        {`{"cancel":true}`, http.StatusUnprocessableEntity, ""},
		"of a run without a slot": {`{"reason":"stuck","cancel":true,"run":"06h2r43701nn9romfd4frio2"}`, http.StatusNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, e := withExecutor(t, strings.Replace(jobOfExecutors, `{`, `{"concurrency_policy":"queue",`, 1))
			r, held, id := w.executorRun()
			if granted, err := w.store.Acquire(t.Context(), []run.HeldRun{held}); err != nil || len(granted) != 1 {
				t.Fatalf("granted %v, %v, want the slot", granted, err)
			}
			w.recordOutcome(held, run.Outcome{State: run.WaitingCallback, HTTPStatus: 200, Response: &run.Response{Endpoint: "e0"}},
				untilCallback(id))
			taken := 0
			e.on = func() {
				slots, err := w.store.Slots(t.Context(), "crm", "sync")
				if taken = len(slots); err != nil {
					t.Error(err)
				}
			}
			w.must(tt.status, "POST", oneJob+"/slots/release", tt.release)
			if got := e.got(); got != tt.want || got != "" && taken != 1 {
				t.Errorf("requests to the executor: %q with %d slots taken, want %q with one; log: %s", got, taken, tt.want, w.logs)
			}
			if got := w.stateOf(r).State; (got == run.Cancelled) != (tt.want != "") {
				t.Errorf("the run is %s", got)
			}
		})
	}
}

func TestCancelStopsAnExecutorFromDNS(t *testing.T) {
	t.Parallel()
	server := dnstest.Start(t)
	server.A("executors.test", 60, "127.0.0.1")
	w, e := newExecutorWorld(t, gate.Limits{}), serveExecutor(t)
	asked := newExecutors(t, server.Address)
	w.api = api.New(w.store, api.Options{Executors: asked, Fleet: asked, Logger: slog.New(slog.NewTextHandler(w.logs, nil))})
	w.register(t.Context(), 7)
	port := e.url[strings.LastIndex(e.url, ":")+1:]
	w.must(http.StatusOK, "PUT", executorGroup, `{"kind":"xxl_job","access_token":{"reference":"file:crm/token"},
		"dns":{"all":{"hostname":"executors.test","port":`+port+`}}}`)
	w.must(http.StatusOK, "PUT", oneJob, jobOfExecutors)
	r, held, id := w.executorRun()
	w.recordOutcome(held, run.Outcome{State: run.WaitingCallback, HTTPStatus: 200,
		Response: &run.Response{Endpoint: "127-0-0-1-" + port}}, untilCallback(id))
	w.must(http.StatusOK, "POST", "/v1/runs/"+r.ID+"/cancel", "")
	if got := e.got(); got != "/kill" {
		t.Errorf("requests to the executor: %q, want /kill; log: %s", got, w.logs)
	}
}

// untilCallback is the next attempt after an acceptance.
func untilCallback(id int64) *dispatcher.NextAttempt {
	return &dispatcher.NextAttempt{
		At: time.Now().Add(time.Hour), Callback: &run.Callback{ID: id, Group: "billing", Within: time.Hour},
	}
}

func TestCancelOfABroadcastStopsTheExecutorsOfItsShards(t *testing.T) {
	t.Parallel()
	w := newExecutorWorld(t, gate.Limits{})
	w.register(t.Context(), 7)
	all := []*servedExecutor{serveExecutor(t), serveExecutor(t), serveExecutor(t)}
	w.must(http.StatusOK, "PUT", executorGroup, `{"kind":"xxl_job","access_token":{"reference":"file:crm/token"},"endpoints":{
		"e0":{"url":"`+all[0].url+`"},"e1":{"url":"`+all[1].url+`"},"e2":{"url":"`+all[2].url+`"}}}`)
	w.must(http.StatusOK, "PUT", oneJob, strings.Replace(jobOfExecutors, `"name"`, `"strategy":"broadcast","name"`, 1))
	r, held, _ := w.executorRun()
	if spread, err := w.store.Broadcast(t.Context(), held, []string{"e0", "e1", "e2"}, time.Now()); err != nil || !spread {
		t.Fatalf("spread: %v, %v", spread, err)
	}
	for _, shard := range w.adoptRuns(3) {
		if shard.Shard == 2 { // its executor has reported a failure
			w.recordOutcome(shard, run.Outcome{State: run.Failed, Response: &run.Response{Endpoint: "e1"}}, nil)
			continue
		}
		endpoint := []string{"e0", "e1", "e2"}[shard.Shard-1]
		w.recordOutcome(shard, run.Outcome{State: run.WaitingCallback, HTTPStatus: 200,
			Response: &run.Response{Endpoint: endpoint}}, untilCallback(int64(shard.Shard)))
	}
	w.must(http.StatusOK, "POST", "/v1/runs/"+r.ID+"/cancel", "")
	got := []string{all[0].got(), all[1].got(), all[2].got()}
	if want := []string{"/kill", "", "/kill"}; !slices.Equal(got, want) {
		t.Errorf("requests to the executors: %q, want %q; log: %s", got, want, w.logs)
	}
}
