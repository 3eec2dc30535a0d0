package worker_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/lambda"
	"github.com/carillon-dev/carillon/worker"
)

// callbacks is an API that accepts callbacks and responds to each with status.
type callbacks struct {
	*httptest.Server
	came chan string // such as "complete 42"
}

func newCallbacks(t *testing.T, status func(what string) int) *callbacks {
	t.Helper()
	c := &callbacks{came: make(chan string, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		what := strings.TrimPrefix(r.URL.Path, "/v1/runs/run1/")
		if r.Header.Get("Authorization") != "Bearer t" {
			what = "without a token: " + what
		}
		w.WriteHeader(status(what))
		c.came <- what + " " + string(body)
	}))
	t.Cleanup(c.Close)
	return c
}

func ok(string) int { return http.StatusOK }

// long is a request of a job with a callback.
func (c *callbacks) long(t *testing.T) *http.Request {
	t.Helper()
	return fire(t, "sum", `[1,2]`, secret, "Carillon-Callback-URL", c.URL+"/v1/runs/run1", "Carillon-Callback-Token", "t")
}

// next returns the next callback that is not a heartbeat.
func (c *callbacks) next(t *testing.T) string {
	t.Helper()
	for {
		select {
		case what := <-c.came:
			if !strings.HasPrefix(what, "heartbeat") {
				return what
			}
		case <-t.Context().Done():
			t.Fatal("no callback came")
		}
	}
}

func TestLongWorkIsAcceptedAndFinishedLater(t *testing.T) {
	t.Parallel()
	for what, row := range map[string]struct {
		result any
		err    error
		want   string
	}{
		"a text":   {"42 rows", nil, `complete {"message":"42 rows"}`},
		"a number": {42, nil, `complete {"message":"42"}`},
		"nothing":  {nil, nil, `complete {"message":""}`},
		"an error": {nil, errors.New("disk full"), `fail {"message":"disk full"}`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			api, w, finish := newCallbacks(t, ok), newWorker(t, nil), make(chan struct{})
			w.Handle("sum", func(context.Context, lambda.Event) (any, error) {
				return worker.Long(0, func(context.Context, func(lambda.Progress)) (any, error) {
					<-finish
					return row.result, row.err
				}), nil
			})
			if status, body := serve(w, api.long(t)); status != http.StatusAccepted || body != "" {
				t.Fatalf("response: got %d %s, want 202", status, body)
			}
			if status, _ := serve(w, httptest.NewRequest(http.MethodGet, "/idle", nil)); status != http.StatusServiceUnavailable {
				t.Errorf("idle: got %d, want 503 while the work goes on", status)
			}
			close(finish)
			if got := api.next(t); got != row.want {
				t.Errorf("callback: got %s, want %s", got, row.want)
			}
		})
	}
}

func TestLongWorkSendsHeartbeats(t *testing.T) {
	t.Parallel()
	api, w, seen := newCallbacks(t, ok), newWorker(t, nil), make(chan struct{})
	half := 50
	w.Handle("sum", func(context.Context, lambda.Event) (any, error) {
		return worker.Long(time.Millisecond, func(_ context.Context, progress func(lambda.Progress)) (any, error) {
			for range 2 {
				if got := <-api.came; got != "heartbeat {}" {
					t.Errorf("callback: got %s, want a heartbeat by itself", got)
				}
			}
			progress(lambda.Progress{Text: "half", Percent: &half})
			for !strings.Contains(<-api.came, `{"progress":"half","percent":50}`) {
				continue
			}
			close(seen)
			return nil, nil
		}), nil
	})
	serve(w, api.long(t))
	<-seen
	if got := api.next(t); !strings.HasPrefix(got, "complete") {
		t.Errorf("callback: got %s, want the end", got)
	}
}

func TestLongWorkStopsWhenItsAttemptIsOver(t *testing.T) {
	t.Parallel()
	api := newCallbacks(t, func(string) int { return http.StatusConflict })
	w := newWorker(t, nil)
	w.Handle("sum", func(context.Context, lambda.Event) (any, error) {
		return worker.Long(time.Millisecond, func(ctx context.Context, _ func(lambda.Progress)) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}), nil
	})
	serve(w, api.long(t))
	if got := api.next(t); got != `fail {"message":"context canceled"}` {
		t.Errorf("callback: got %s, want that the work was stopped", got)
	}
}

func TestLongWorkWithoutACallbackFails(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nil)
	w.Handle("sum", func(context.Context, lambda.Event) (any, error) {
		return worker.Long(0, func(context.Context, func(lambda.Progress)) (any, error) {
			t.Error("the work was done")
			return nil, nil
		}), nil
	})
	status, body := serve(w, fire(t, "sum", `[1,2]`, secret))
	if status != http.StatusInternalServerError || !strings.Contains(body, "has no callback") {
		t.Errorf("response: got %d %s, want 500 that says why", status, body)
	}
}

func TestLongWorkThatPanicsFails(t *testing.T) {
	t.Parallel()
	api, w := newCallbacks(t, ok), newWorker(t, nil)
	w.Handle("sum", func(context.Context, lambda.Event) (any, error) {
		return worker.Long(0, func(context.Context, func(lambda.Progress)) (any, error) { panic("no") }), nil
	})
	serve(w, api.long(t))
	if got := api.next(t); !strings.HasPrefix(got, "fail") || !strings.Contains(got, "panicked") {
		t.Errorf("callback: got %s, want a failure", got)
	}
}
