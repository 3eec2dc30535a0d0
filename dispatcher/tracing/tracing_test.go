package tracing_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/tracing"
	"github.com/carillon-dev/carillon/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func options(variables map[string]string) tracing.Options {
	return tracing.Options{
		Node: "node-1", Version: "1.2.3", Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		LookUp: func(name string) string { return variables[name] },
	}
}

// start returns a tracer that exports until the end of the test, and a function that ends it earlier.
func start(t *testing.T, o tracing.Options) (*tracing.Tracer, func()) {
	t.Helper()
	tracer, err := tracing.New(t.Context(), o)
	if err != nil || tracer == nil {
		t.Fatalf("New = %v, %v, want a tracer", tracer, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tracer.Run(ctx)
	}()
	end := func() {
		cancel()
		<-done
	}
	t.Cleanup(end)
	return tracer, end
}

// record records an attempt from at on.
func record(t *testing.T, tracer *tracing.Tracer, call target.Call, o run.Outcome) {
	t.Helper()
	sampling, end := tracer.Begin(t.Context(), call, at)
	if sampling != run.Sampled || end == nil {
		t.Fatalf("Begin = %v, want a span that is sampled", sampling)
	}
	end(o)
}

func callOf(to target.Target, attempt int) target.Call {
	return target.Call{
		Installation: "i", App: "app", Job: "job", Trigger: "hourly", Attempt: attempt, Target: to,
		Key: run.Key{TriggerID: 1, ScheduledAt: at, Kind: run.KindSchedule},
	}
}

var secretive = target.Target{Webhook: &target.Webhook{
	Method: "POST", URL: "https://pay.example.com:8443/canary-path?key=canary-query", Headers: map[string]string{"X-Key": "canary-header"},
}}

func TestSpansDescribeTheAttemptWithoutSecrets(t *testing.T) {
	t.Parallel()
	c := servers.NewCollector(t)
	tracer, end := start(t, options(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
		"OTEL_EXPORTER_OTLP_HEADERS": "api-key=of%20the%20collector"}))
	call := callOf(secretive, 3)
	call.Payload = []byte(`"canary-payload"`)
	record(t, tracer, call, run.Outcome{State: run.Failed, HTTPStatus: 503, Class: run.ClassHTTP5xx,
		Error: "canary-error", EndedAt: at.Add(time.Second), Response: &run.Response{Body: "canary-body"}})
	end()
	spans := c.Spans()
	if len(spans) != 1 {
		t.Fatalf("the collector got %d spans, want 1", len(spans))
	}
	span := spans[0]
	for key, want := range map[string]string{
		"carillon.app": "app", "carillon.job": "job", "carillon.trigger": "hourly", "carillon.run": call.Key.String(),
		"carillon.kind": "schedule", "carillon.attempt": "3", "carillon.state": "failed", "carillon.class": "http_5xx",
		"carillon.scheduled_at": "2026-05-01T10:00:00.000Z", "error.type": "http_5xx", "http.request.method": "POST",
		"http.response.status_code": "503", "http.request.resend_count": "2", "server.address": "pay.example.com", "server.port": "8443",
	} {
		if got := span.Attribute(key); got != want {
			t.Errorf("attribute %s = %q, want %q", key, got, want)
		}
	}
	if span.Name != "POST" || span.Kind != tracepb.Span_SPAN_KIND_CLIENT || span.Status.Code != tracepb.Status_STATUS_CODE_ERROR ||
		span.EndTimeUnixNano-span.StartTimeUnixNano != uint64(time.Second) || span.Node != "node-1" || len(span.ParentSpanId) != 0 {
		t.Errorf("span = %v of node %s, want a failed POST of 1 s by node-1, without a parent", span.Span, span.Node)
	}
	if got := hex.EncodeToString(span.TraceId); got != call.TraceID().String() {
		t.Errorf("trace = %s, want %s", got, call.TraceID())
	}
	if got := hex.EncodeToString(span.SpanId); got != call.SpanID().String() {
		t.Errorf("span = %s, want %s", got, call.SpanID())
	}
	if c.Holds("canary") {
		t.Error("a span holds a part of the URL, a header, the payload, the response or the text of an error")
	}
	if _, header := c.Requests(); header.Get("Api-Key") != "of the collector" {
		t.Errorf("header api-key = %q, want that of the environment, decoded", header.Get("Api-Key"))
	}
}

func TestSpansNameEachKindOfTarget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		target     target.Target
		span       string
		attributes map[string]string
	}{
		"webhook over http": {target.Target{Webhook: &target.Webhook{Method: "PUT", URL: "http://a.example.com/{{.Job}}"}}, "PUT",
			map[string]string{"server.address": "a.example.com", "server.port": "80"}},
		"webhook at an IPv6 address": {target.Target{Webhook: &target.Webhook{Method: "PUT", URL: "https://[2001:db8::1]/"}}, "PUT",
			map[string]string{"server.address": "2001:db8::1", "server.port": "443"}},
		"group": {target.Target{Group: &target.GroupTarget{Name: "workers", Method: "POST"}}, "POST",
			map[string]string{"carillon.group": "workers", "carillon.endpoint": "w1", "server.address": "10.0.0.1", "server.port": "9000"}},
		"lambda": {target.Target{Lambda: &target.Lambda{Function: "arn:aws:lambda:eu-central-1:123456789012:function:bill:live"}},
			"invoke bill", map[string]string{"faas.invoked_name": "bill", "faas.invoked_provider": "aws", "faas.invoked_region": "eu-central-1",
				"faas.trigger": "timer", "faas.time": "2026-05-01T10:00:00.000Z"}},
		"sqs": {target.Target{SQS: &target.SQS{QueueARN: "arn:aws:sqs:eu-central-1:123456789012:orders"}}, "send orders",
			map[string]string{"messaging.system": "aws_sqs", "messaging.destination.name": "orders"}},
		"sns": {target.Target{SNS: &target.SNS{TopicARN: "arn:aws:sns:eu-central-1:123456789012:news"}}, "send news",
			map[string]string{"messaging.system": "aws.sns", "messaging.destination.name": "news"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := servers.NewCollector(t)
			tracer, end := start(t, options(map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL + "/v1/traces"}))
			call := callOf(tt.target, 1)
			endpoint := target.Endpoint{ID: "w1"}
			endpoint.URL = "http://10.0.0.1:9000/run"
			call.Group = &target.GroupVersion{Live: []target.Endpoint{endpoint}}
			outcome := run.Outcome{State: run.Succeeded, EndedAt: at}
			if tt.target.Group != nil {
				outcome.Response = &run.Response{Endpoint: "w1"}
			}
			record(t, tracer, call, outcome)
			end()
			spans := c.Spans()
			if len(spans) != 1 || spans[0].Name != tt.span || spans[0].Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
				t.Fatalf("spans = %v, want one %q that did not fail", spans, tt.span)
			}
			for key, want := range tt.attributes {
				if got := spans[0].Attribute(key); got != want {
					t.Errorf("attribute %s = %q, want %q", key, got, want)
				}
			}
		})
	}
}

func TestSpansLinkToTheirCauses(t *testing.T) {
	t.Parallel()
	c := servers.NewCollector(t)
	tracer, end := start(t, options(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL}))
	parent := run.Key{TriggerID: 2, ScheduledAt: at, Kind: run.KindSchedule}.String()
	requester, _ := run.ParseTraceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	follower, alert := callOf(secretive, 2), callOf(secretive, 1)
	follower.Cause, follower.Requester = &run.Cause{Run: parent, On: "on_failure"}, &requester
	alert.Cause = &run.Cause{Run: parent, Alert: "pager"}
	done := run.Outcome{State: run.Succeeded, EndedAt: at}
	record(t, tracer, follower, done)
	record(t, tracer, alert, done)
	end()
	of := func(installation, r string, attempt int) string {
		return run.TraceOf(installation, r).String() + "-" + run.SpanOf(installation, r, attempt).String()
	}
	spans := c.Spans()
	if len(spans) != 2 {
		t.Fatalf("the collector got %d spans, want 2", len(spans))
	}
	for n, want := range []map[string]string{
		{of("i", follower.Key.String(), 1): "retry", of("i", parent, 1): "follow",
			"0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331": "request"},
		{of("i", parent, 1): "alert"},
	} {
		if got := spans[n].LinksBySpan(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("links of span %d = %v, want %v", n, got, want)
		}
	}
}

// A hanging collector does not delay an attempt: spans without room are dropped and counted, and the end does not wait
// for it. A wait for it would last more than a quarter of an hour, the timeout of its requests.
func TestHangingCollectorDelaysNothing(t *testing.T) {
	t.Parallel()
	c := servers.NewCollector(t)
	c.Hang(true)
	o := options(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "1",
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_EXPORTER_OTLP_TIMEOUT": "1000000"})
	tracer, end := start(t, o)
	const attempts = 5000
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range attempts {
		record(t, tracer, callOf(secretive, 1), run.Outcome{State: run.Succeeded, EndedAt: at})
	}
	ended := make(chan struct{})
	go func() { end(); close(ended) }()
	select {
	case <-ended:
	case <-late.Done():
		t.Error("the attempts or the end wait for the collector")
		<-ended
	}
	counted := count(t, o, "dropped") + count(t, o, "failed")
	if dropped := count(t, o, "dropped"); dropped < attempts-200 || counted != attempts {
		t.Errorf("%v spans were dropped and %v counted, want at least %d and %d", dropped, counted, attempts-200, attempts)
	}
}

func count(t *testing.T, o tracing.Options, result string) float64 {
	t.Helper()
	families, err := o.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.Metric {
			if metric.Label[0].GetValue() == result {
				return metric.Counter.GetValue()
			}
		}
	}
	t.Fatalf("there is no carillon_spans_total with result %s", result)
	return 0
}

func TestOverloadIsRetriedAndARefusalIsNot(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct{ exported, failed float64 }{
		http.StatusServiceUnavailable: {1, 0}, http.StatusForbidden: {0, 1},
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			c := servers.NewCollector(t)
			c.Respond(status)
			o := options(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_BSP_SCHEDULE_DELAY": "1"})
			tracer, _ := start(t, o)
			record(t, tracer, callOf(secretive, 1), run.Outcome{State: run.Succeeded, EndedAt: at})
			until(t, "a request", func() bool { n, _ := c.Requests(); return n > 0 })
			c.Respond(http.StatusOK)
			until(t, "the end of the export", func() bool {
				return count(t, o, "exported") == want.exported && count(t, o, "failed") == want.failed
			})
		})
	}
}

// patience is how long a test waits: longer than any machine takes.
const patience = 5 * time.Minute

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	late, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(5 * time.Millisecond); !condition(); <-tick.C {
		if late.Err() != nil {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestEnvironmentTurnsTracesOff(t *testing.T) {
	t.Parallel()
	const endpoint = "http://localhost:4318"
	for name, variables := range map[string]map[string]string{
		"no endpoint": {"OTEL_TRACES_SAMPLER": "always_on"},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SDK_DISABLED": "true"},
		"no exporter": {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(variables)
			if tracer, err := tracing.New(t.Context(), o); tracer != nil || err != nil {
				t.Errorf("New = %v, %v, want neither", tracer, err)
			}
			if n := testutil.CollectAndCount(o.Metrics.(*prometheus.Registry), "carillon_spans_total"); n != 3 {
				t.Errorf("carillon_spans_total has %d series, want 3", n)
			}
		})
	}
}

func TestAllWrongVariablesAreNamedWithoutTheirValues(t *testing.T) {
	t.Parallel()
	_, err := tracing.New(t.Context(), options(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "canary", "OTEL_TRACES_EXPORTER": "canary", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_EXPORTER_OTLP_TIMEOUT": "canary", "OTEL_BSP_SCHEDULE_DELAY": "0", "OTEL_BSP_MAX_QUEUE_SIZE": "canary",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "canary", "OTEL_EXPORTER_OTLP_HEADERS": "canary",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/nowhere",
	}))
	if err == nil {
		t.Fatal("New succeeded")
	}
	for _, name := range []string{"ENDPOINT", "OTEL_TRACES_EXPORTER", "PROTOCOL", "TIMEOUT", "OTEL_BSP_SCHEDULE_DELAY",
		"OTEL_BSP_MAX_QUEUE_SIZE", "COMPRESSION", "HEADERS", "OTLP_CERTIFICATE", "CLIENT_CERTIFICATE"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("the error repeats a value: %v", err)
	}
}

func TestSamplerComesFromTheEnvironment(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
	c := servers.NewCollector(t)
	tracer, end := start(t, options(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL}))
	const runs = 1000
	sampled := 0
	for n := range int64(runs) {
		call := callOf(secretive, 1)
		call.Key.TriggerID = n
		first, done := tracer.Begin(t.Context(), call, at)
		call.Attempt = 2
		if second, _ := tracer.Begin(t.Context(), call, at); second != first {
			t.Fatalf("of run %d, one attempt is sampled and another is not", n)
		}
		if first == run.Sampled {
			sampled++
			done(run.Outcome{State: run.Succeeded, EndedAt: at})
		}
	}
	end()
	if got := len(c.Spans()); got != sampled || sampled < 200 || sampled > 300 {
		t.Errorf("%d of %d runs were sampled and %d exported, want about a quarter, all exported", sampled, runs, got)
	}
}
