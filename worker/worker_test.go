package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/carillon-dev/carillon/lambda"
	"github.com/carillon-dev/carillon/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	other  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func options() worker.Options {
	return worker.Options{
		API: "http://127.0.0.1:1", Token: "token", App: "reports", Group: "workers", ID: "w1", URL: "http://127.0.0.1:8081",
		SigningSecrets: []string{other, secret}, Log: slog.New(slog.DiscardHandler),
	}
}

func newWorker(t *testing.T, change func(*worker.Options)) *worker.Worker {
	t.Helper()
	o := options()
	if change != nil {
		change(&o)
	}
	w, err := worker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestOptionsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	_, err := worker.New(worker.Options{API: "carillon", URL: "http://user:hunter2@host", App: "A", ID: "w.1", Weight: 101, Concurrency: -1,
		SigningSecrets: []string{"whsec_%"}, Unsigned: true})
	if err == nil {
		t.Fatal("wrong options are accepted")
	}
	for _, want := range []string{"API is not", "URL is not", `App "A"`, `Group ""`, `ID "w.1"`, "Token is missing", "either SigningSecrets",
		"Weight 101", "Concurrency and a", "SigningSecrets[0]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "whsec_%") {
		t.Errorf("error holds a secret: %v", err)
	}
}

// fire is a request as nodes make it.
func fire(t *testing.T, job, body, secret string, header ...string) *http.Request {
	t.Helper()
	now := time.Now()
	r := httptest.NewRequest(http.MethodPost, "/run", strings.NewReader(body))
	for name, value := range map[string]string{
		"Webhook-Id": "evt_1", "Webhook-Timestamp": fmt.Sprint(now.Unix()), "Carillon-App": "reports", "Carillon-Job": job,
		"Carillon-Trigger": "nightly", "Carillon-Run": "run1", "Carillon-Kind": "schedule", "Traceparent": "00-1-2-01",
		"Carillon-Scheduled-At": "2026-11-23T08:00:00Z", "Carillon-Attempt": "2", "Carillon-Fence": "1795420800002",
	} {
		r.Header.Set(name, value)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if secret != "" {
		signer, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := signer.Sign("evt_1", now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Webhook-Signature", signature)
	}
	return r
}

func serve(w *worker.Worker, r *http.Request) (int, string) {
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, r)
	return recorder.Code, recorder.Body.String()
}

func TestHandlerGetsTheEvent(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	var got lambda.Event
	w.Handle("sum", func(_ context.Context, event lambda.Event) (any, error) {
		got = event
		return "done", nil
	})
	request := fire(t, "sum", `[1,2]`, secret, "Carillon-Missed-From", "2026-11-22T08:00:00Z",
		"Carillon-Missed-To", "2026-11-23T08:00:00Z", "Carillon-Missed-Count", "2",
		"Carillon-Shard-Index", "3", "Carillon-Shard-Total", "5",
		"Carillon-Parent-Run", "run0", "Carillon-Parent-Event", "on_failure", "Carillon-Parent-State", "failed",
		"Carillon-Parent-Class", "http_5xx", "Carillon-Parent-Error", "HTTP 503")
	if status, body := serve(w, request); status != 200 || body != `"done"` {
		t.Fatalf("response %d %s", status, body)
	}
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	want := lambda.Event{Payload: json.RawMessage(`[1,2]`), Carillon: lambda.Fire{
		EventID: "evt_1", App: "reports", Job: "sum", Trigger: "nightly", Run: "run1", Kind: "schedule", ScheduledAt: at, Attempt: 2,
		Fence: 1795420800002, Traceparent: "00-1-2-01", Missed: &lambda.Missed{From: at.AddDate(0, 0, -1), To: at, Count: 2},
		ShardIndex: 3, ShardTotal: 5,
		Cause: &lambda.Cause{Run: "run0", On: "on_failure", State: "failed", Class: "http_5xx", Error: "HTTP 503"},
	}}
	if text, wanted := asJSON(got), asJSON(want); text != wanted {
		t.Errorf("event\n%s\nwant\n%s", text, wanted)
	}
	// Without a payload, the body describes the fire.
	if serve(w, fire(t, "sum", `{"app":"reports","job":"sum","run":"run1","kind":"schedule"}`, secret)); got.Payload != nil {
		t.Errorf("payload %s of a job that has none", got.Payload)
	}
}

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestStatusReportsTheOutcomeOfARequest(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	result := func(value any, err error) lambda.Handler {
		return func(context.Context, lambda.Event) (any, error) { return value, err }
	}
	w.Handle("good", result(map[string]int{"n": 1}, nil))
	w.Handle("bad", result(nil, errors.New("no disk")))
	w.Handle("stale", result(nil, fmt.Errorf("run: %w", lambda.ErrStale)))
	w.Handle("panic", func(context.Context, lambda.Event) (any, error) { panic("hunter2") })
	w.Handle("odd", result(make(chan int), nil))
	for _, tt := range []struct {
		name    string
		request *http.Request
		status  int
		body    string
	}{
		{"a result", fire(t, "good", "", secret), 200, `{"n":1}`},
		{"the older secret", fire(t, "good", "", other), 200, `{"n":1}`},
		{"no signature", fire(t, "good", "", ""), 401, "not signed"},
		{"another secret", fire(t, "good", "", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), 401, "not signed"},
		{"an error", fire(t, "bad", "", secret), 500, "no disk"},
		{"a stale attempt", fire(t, "stale", "", secret), 409, "newer attempt"},
		{"a panic", fire(t, "panic", "", secret), 500, "panicked"},
		{"a result that is no JSON", fire(t, "odd", "", secret), 500, "unsupported type"},
		{"an unknown job", fire(t, "none", "", secret), 404, "no handler for job reports/none"},
		{"another app", fire(t, "good", "", secret, "Carillon-App", "elsewhere"), 404, "elsewhere/good"},
		{"no run", fire(t, "good", "", secret, "Carillon-Run", ""), 400, "not a request"},
		{"no time", fire(t, "good", "", secret, "Carillon-Scheduled-At", "now"), 400, "not a request"},
		{"no fence", fire(t, "good", "", secret, "Carillon-Fence", ""), 400, "not a request"},
		{"no attempt", fire(t, "good", "", secret, "Carillon-Attempt", "x"), 400, "not a request"},
		{"a shard beyond the last", fire(t, "good", "", secret, "Carillon-Shard-Index", "3", "Carillon-Shard-Total", "3"), 400, "not a request"},
		{"half a missed range", fire(t, "good", "", secret, "Carillon-Missed-Count", "3"), 400, "not a request"},
		{"a long body", fire(t, "good", strings.Repeat("x", 2<<20), secret), 400, "longer than 1 MiB"},
	} {
		if status, body := serve(w, tt.request); status != tt.status || !strings.Contains(body, tt.body) || strings.Contains(body, "hunter2") {
			t.Errorf("%s: response %d %s, want %d with %q", tt.name, status, body, tt.status, tt.body)
		}
	}
}

// The marker tells Carillon that a 409 refuses a stale request and is no other conflict.
func TestStaleRequestIsRefusedAsSuperseded(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	w.Handle("sum", lambda.Fenced(&lambda.Memory{}, func(context.Context, lambda.Event) (any, error) { return 1, nil }))
	w.Handle("own", func(context.Context, lambda.Event) (any, error) { return nil, fmt.Errorf("table: %w", lambda.ErrStale) })
	w.Handle("bad", func(context.Context, lambda.Event) (any, error) { return nil, errors.New("no disk") })
	for _, tt := range []struct {
		job, fence, outcome string
		status              int
	}{{"sum", "8", "", 200}, {"sum", "7", "superseded", 409}, {"sum", "8", "", 200}, {"own", "1", "superseded", 409}, {"bad", "1", "", 500}} {
		recorder := httptest.NewRecorder()
		w.ServeHTTP(recorder, fire(t, tt.job, "", secret, "Carillon-Fence", tt.fence))
		if got := recorder.Header().Get("Carillon-Outcome"); recorder.Code != tt.status || got != tt.outcome {
			t.Errorf("%s with fence %s: response %d, outcome %q, want %d, %q", tt.job, tt.fence, recorder.Code, got, tt.status, tt.outcome)
		}
	}
}

func TestUnsignedRequestsAreAcceptedOnlyIfConfigured(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(o *worker.Options) { o.SigningSecrets, o.Unsigned = nil, true })
	w.Handle("good", func(context.Context, lambda.Event) (any, error) { return 1, nil })
	if status, body := serve(w, fire(t, "good", "", "")); status != 200 {
		t.Errorf("response %d %s", status, body)
	}
}

func TestBusyWorkersReportIt(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(o *worker.Options) { o.Concurrency = 2 })
	began, finish := make(chan struct{}), make(chan struct{})
	slow := func(context.Context, lambda.Event) (any, error) {
		began <- struct{}{}
		<-finish
		return nil, nil
	}
	w.Handle("slow", slow)
	w.Handle("other", slow)
	idle := func(query string) int {
		status, _ := serve(w, httptest.NewRequest(http.MethodGet, "/base/idle"+query, nil))
		return status
	}
	if idle("") != 200 || idle("?job=reports/slow") != 200 {
		t.Error("a worker that does nothing is busy")
	}
	var wait sync.WaitGroup
	for _, job := range []string{"slow", "other"} {
		wait.Go(func() { serve(w, fire(t, job, "", secret)) })
		<-began
		if job == "other" {
			continue
		}
		for query, want := range map[string]int{"": 503, "?job=reports/slow": 503, "?job=slow": 503, "?job=reports/other": 200} {
			if got := idle(query); got != want {
				t.Errorf("while slow runs, /idle%s responds with %d, want %d", query, got, want)
			}
		}
	}
	if status, body := serve(w, fire(t, "slow", "", secret)); status != 503 || !strings.Contains(body, "2 requests at once") {
		t.Errorf("a third request of 2 gets %d %s", status, body)
	}
	close(finish)
	wait.Wait()
	if idle("") != 200 {
		t.Error("the worker is busy after its work")
	}
}

func TestHandlerEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	w.Handle("slow", func(ctx context.Context, _ lambda.Event) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as when a node cancels a run
	if status, _ := serve(w, fire(t, "slow", "", secret).WithContext(ctx)); status != 500 {
		t.Errorf("status %d of a cancelled request", status)
	}
}

// registry is the part of Carillon's API that workers use. It fails on demand, which the real one does not.
type registry struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	respond  func(n int, method string) (status int, body string)
}

func newRegistry(t *testing.T, respond func(n int, method string) (int, string)) *registry {
	t.Helper()
	r := &registry{respond: respond}
	r.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		r.mu.Lock()
		r.requests = append(r.requests,
			fmt.Sprintf("%s %s %s %s", request.Method, request.URL.Path, request.Header.Get("Authorization"), body))
		n := len(r.requests)
		r.mu.Unlock()
		status, text := r.respond(n, request.Method)
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, text)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

func expiring(in time.Duration) string {
	return fmt.Sprintf(`{"id":"w1","expires_at":%q}`, time.Now().Add(in).UTC().Format(time.RFC3339Nano))
}

func TestWorkerStaysRegisteredUntilItStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	finish, began := make(chan struct{}), make(chan struct{})
	r := newRegistry(t, func(n int, method string) (int, string) {
		switch {
		case method == http.MethodDelete:
			close(finish) // the work ends only now: Run waits for it
			return 204, ""
		case n == 1:
			return 503, "starting"
		case n >= 4:
			stop()
		}
		return 200, expiring(time.Second) // makes heartbeats come at the shortest pause
	})
	w := newWorker(t, func(o *worker.Options) { o.API, o.Weight, o.Labels = r.URL+"/", 3, map[string]string{"zone": "a"} })
	w.Handle("slow", func(context.Context, lambda.Event) (any, error) {
		close(began)
		<-finish
		return nil, nil
	})
	var wait sync.WaitGroup
	wait.Go(func() {
		if status, body := serve(w, fire(t, "slow", "", secret)); status != 200 {
			t.Errorf("work that was begun before the stop gets %d %s", status, body)
		}
	})
	<-began
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	seen := r.seen()
	put := `PUT /v1/apps/reports/groups/workers/endpoints/w1 Bearer token {"url":"http://127.0.0.1:8081","weight":3,"labels":{"zone":"a"}}`
	left := "DELETE /v1/apps/reports/groups/workers/endpoints/w1 Bearer token "
	if len(seen) < 5 || seen[0] != put || seen[3] != put || seen[len(seen)-1] != left {
		t.Errorf("requests:\n%s", strings.Join(seen, "\n"))
	}
	if status, _ := serve(w, httptest.NewRequest(http.MethodGet, "/healthz", nil)); status != 503 {
		t.Errorf("a stopped worker is alive: %d", status)
	}
}

func TestStopEndsHandlersAfterItsTimeout(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, func(int, string) (int, string) { return 200, expiring(time.Minute) })
	w := newWorker(t, func(o *worker.Options) { o.API, o.StopTimeout = r.URL, 50*time.Millisecond })
	began := make(chan struct{})
	w.Handle("endless", func(ctx context.Context, _ lambda.Event) (any, error) {
		close(began)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { serve(w, fire(t, "endless", "", secret)) })
	<-began
	stop()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
	wait.Wait()
}

func TestRefusedRegistrationIsAnError(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, func(int, string) (int, string) { return 403, `{"title":"the token has no scope register"}` })
	err := newWorker(t, func(o *worker.Options) { o.API = r.URL }).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "403") || !strings.Contains(err.Error(), "no scope register") {
		t.Errorf("error %v", err)
	}
	if seen := r.seen(); len(seen) != 1 {
		t.Errorf("requests after a refusal: %v", seen[1:])
	}
}

func TestTwoHandlersOfAJobPanic(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	handler := func(context.Context, lambda.Event) (any, error) { return nil, nil }
	w.Handle("a", handler)
	defer func() {
		if recover() == nil {
			t.Error("a second handler of a job replaces the first")
		}
	}()
	w.Handle("a", handler)
}
