package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/servers"
)

// tracedTarget fails the first attempt, keeps the second waiting and lets the others succeed.
type tracedTarget struct {
	*httptest.Server
	second, release chan struct{}

	mu           sync.Mutex
	traceparents []string
	bodies       []string
}

func newTracedTarget(t *testing.T) *tracedTarget {
	t.Helper()
	p := &tracedTarget{second: make(chan struct{}), release: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		p.mu.Lock()
		p.traceparents, p.bodies = append(p.traceparents, r.Header.Get("Traceparent")), append(p.bodies, string(body))
		p.mu.Unlock()
		switch r.Header.Get("Carillon-Attempt") {
		case "1":
			if r.URL.Path == "/canary-path" {
				http.Error(w, "canary-response", http.StatusInternalServerError)
			}
		case "2":
			close(p.second)
			<-p.release
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// A run is attempted by a node, is in flight again when the node is killed, and succeeds on another node. All
// exported spans belong to one trace, each links to the previous attempt, and the following job links to it.
func TestAttemptsOfARunShareATraceOverTheDeathOfANode(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		c, p, token := servers.NewCollector(t), newTracedTarget(t), newToken(t, database)
		env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}
		first := startNodeWith(t, database, token, env, append(quick(), "--node-name=first")...)
		must[access.App](t)(first.PutApp(t.Context(), access.App{Name: "traced", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		after := webhookJob("traced", "after", p.URL+"/after", nil)
		must[dispatcher.Job](t)(first.PutJob(t.Context(), after, client.Condition{}))
		job := webhookJob("traced", "job", p.URL+"/canary-path?key=canary-query", nil)
		job.Target.Webhook.TraceContext = true
		job.Target.Webhook.Headers = map[string]string{"X-Key": "canary-header"}
		job.Payload = json.RawMessage(`"canary-payload"`)
		job.Retry = run.Retry{MaxAttempts: 5, Base: input.Duration(time.Second), Cap: input.Duration(time.Second),
			MaxAge: run.DefaultMaxAge}
		job.OnSuccess = &dispatcher.Follow{Jobs: []string{"after"}}
		must[dispatcher.Job](t)(first.PutJob(t.Context(), job, client.Condition{}))
		const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		run := requestTraced(t, first, "00-"+trace+"-"+span+"-01")
		receive(t, p.second)
		until(t, "the span of the first attempt", func() bool { return len(c.Spans()) == 1 })
		first.kill()
		close(p.release)
		second := startNodeWith(t, database, token, env, append(quick(), "--node-name=second")...)
		until(t, "the spans of the last attempt and of what follows", func() bool { return len(c.Spans()) == 3 })
		checkSpans(t, second, c.Spans(), run, trace+"-"+span)
		if c.Holds("canary") {
			t.Error("a span holds what is secret of the job")
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for n, parent := range p.traceparents[:3] {
			if !strings.HasPrefix(parent, "00-"+hex.EncodeToString(c.Spans()[0].TraceId)+"-") || !strings.HasSuffix(parent, "-01") {
				t.Errorf("attempt %d has traceparent %q, want that of the trace", n+1, parent)
			}
		}
		if got := p.traceparents[3]; got != "" {
			t.Errorf("the job without trace_context sent traceparent %q", got)
		}
		if all := fmt.Sprint(p.bodies); strings.Contains(all, trace) {
			t.Errorf("a target got the trace of the requester: %s", all)
		}
	})
}

// requestTraced runs traced/job with a traced request, and returns the id of the run.
func requestTraced(t *testing.T, n *process, traceparent string) string {
	t.Helper()
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost,
		n.endpoint+"/v1/apps/traced/jobs/job/run", http.NoBody))
	request.Header.Set("Authorization", "Bearer "+n.token)
	request.Header.Set("Traceparent", traceparent)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var run run.Run
	if err := json.NewDecoder(response.Body).Decode(&run); err != nil || run.ID == "" {
		t.Fatalf("run: status %d, %v", response.StatusCode, err)
	}
	return run.ID
}

// checkSpans checks the spans of attempts 1 and 3 of a run, and that of its follower.
func checkSpans(t *testing.T, n *process, spans []servers.CollectedSpan, r, requester string) {
	t.Helper()
	slices.SortStableFunc(spans, func(a, b servers.CollectedSpan) int { // the follower's span is attempt 1, too
		return strings.Compare(a.Attribute("carillon.job")+a.Attribute("carillon.attempt"),
			b.Attribute("carillon.job")+b.Attribute("carillon.attempt"))
	})
	follower, failed, succeeded := spans[0], spans[1], spans[2]
	id := func(s servers.CollectedSpan) string {
		return hex.EncodeToString(s.TraceId) + "-" + hex.EncodeToString(s.SpanId)
	}
	trace := hex.EncodeToString(failed.TraceId)
	if hex.EncodeToString(succeeded.TraceId) != trace || hex.EncodeToString(follower.TraceId) == trace {
		t.Errorf("the traces of the attempts are %x and %x, that of the follower %x; want the first two equal alone", failed.TraceId,
			succeeded.TraceId, follower.TraceId)
	}
	for _, tt := range []struct {
		span                 servers.CollectedSpan
		node, attempt, state string
	}{{failed, "first", "1", "failed"}, {succeeded, "second", "3", "succeeded"}, {follower, "second", "1", "succeeded"}} {
		if s := tt.span; s.Node != tt.node || s.Attribute("carillon.attempt") != tt.attempt || s.Attribute("carillon.state") != tt.state {
			t.Errorf("span of attempt %s at %s ended %s, want attempt %s at %s, %s", s.Attribute("carillon.attempt"), s.Node,
				s.Attribute("carillon.state"), tt.attempt, tt.node, tt.state)
		}
	}
	if got := failed.LinksBySpan()[requester]; got != "request" || failed.Attribute("carillon.run") != r {
		t.Errorf("the first attempt has links %v, want one to the request", failed.LinksBySpan())
	}
	lost := must[run.Run](t)(n.Run(t.Context(), r))
	before := 0
	for link, why := range succeeded.LinksBySpan() {
		if strings.HasPrefix(link, trace) && why == "retry" {
			before++
		}
	}
	if before != 1 || len(lost.Attempts) != 3 || lost.Attempts[1].State != run.Lost {
		t.Errorf("the last attempt has links %v after attempts %+v, want one to the second, which was lost",
			succeeded.LinksBySpan(), lost.Attempts)
	}
	if got := follower.LinksBySpan()[id(failed)]; got != "follow" {
		t.Errorf("the follower has links %v, want one to the run", follower.LinksBySpan())
	}
}
