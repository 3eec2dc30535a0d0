package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-dev/carillon/lambda"
)

const (
	// The paths that the strategies failover, busyover and global_busyover probe, unless the group sets others.
	alivePath = "/healthz"
	idlePath  = "/idle"

	// mostBody bounds the body of a request: a payload has at most 256 KiB, and an envelope more.
	mostBody = 1 << 20
)

// ServeHTTP serves nodes: GET /healthz returns 200 while the worker runs, GET /idle?job=JOB returns 200 if the job is
// idle, and GET /idle returns 200 if all jobs are. Every other request is the attempt of a job, which its headers name.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch path := r.URL.Path; {
	case r.Method == http.MethodGet && strings.HasSuffix(path, alivePath):
		w.respondIf(rw, w.alive(), "the worker stops")
	case r.Method == http.MethodGet && strings.HasSuffix(path, idlePath):
		w.respondIf(rw, w.alive() && w.isIdle(r.URL.Query().Get("job")), "the worker is busy, or stops")
	default:
		w.serveJob(rw, r)
	}
}

func (w *Worker) alive() bool {
	select {
	case <-w.stopping:
		return false
	default:
		return true
	}
}

// isIdle reports whether no request of a job is in flight, or none of any job if job is empty. Nodes write APP/JOB.
func (w *Worker) isIdle(job string) bool {
	job = strings.TrimPrefix(job, w.o.App+"/")
	w.mu.Lock()
	defer w.mu.Unlock()
	if job == "" {
		return w.count == 0
	}
	return w.running[job] == 0
}

func (w *Worker) respondIf(rw http.ResponseWriter, ok bool, why string) {
	if !ok {
		refuse(rw, http.StatusServiceUnavailable, why)
		return
	}
	rw.WriteHeader(http.StatusOK)
}

// serveJob does the work of a request. Its status is the outcome: 200 with the result, 202 if the work goes on in the
// background, 400 for a request that is not Carillon's, 401 without a valid signature, 404 for a job without a handler,
// 409 marked as superseded for a stale attempt, 500 for an error or a panic, and 503 while the worker is at its limit.
func (w *Worker) serveJob(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, mostBody))
	if err != nil {
		refuse(rw, http.StatusBadRequest, "the body cannot be read, or is longer than 1 MiB")
		return
	}
	signedBy := func(secret *standardwebhooks.Webhook) bool { return secret.Verify(body, r.Header) == nil }
	if !w.o.Unsigned && !slices.ContainsFunc(w.signatures, signedBy) {
		refuse(rw, http.StatusUnauthorized, "the request is not signed with a secret that the worker knows")
		return
	}
	event, err := eventOf(r.Header, body)
	if err != nil || event.Check() != nil {
		refuse(rw, http.StatusBadRequest, "this is not a request of Carillon")
		return
	}
	handler, status, why := w.begin(event.Carillon)
	if handler == nil {
		refuse(rw, status, why)
		return
	}
	if long := w.respond(rw, r, handler, event); long != nil {
		go w.finish(context.WithoutCancel(r.Context()), *long, event) // Run waits for it as for each request
		return
	}
	w.end(event.Carillon.Job)
}

// begin counts a request of a job, unless the worker cannot handle it.
func (w *Worker) begin(fire lambda.Fire) (handler lambda.Handler, status int, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch handler = w.handlers[fire.Job]; {
	case fire.App != w.o.App || handler == nil:
		return nil, http.StatusNotFound, fmt.Sprintf("this worker has no handler for job %s/%s", fire.App, fire.Job)
	case w.o.Concurrency > 0 && w.count >= w.o.Concurrency:
		return nil, http.StatusServiceUnavailable, fmt.Sprintf("the worker handles %d requests at once, its limit", w.count)
	}
	w.running[fire.Job]++
	w.count++
	return handler, 0, ""
}

func (w *Worker) end(job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[job]--; w.running[job] == 0 {
		delete(w.running, job)
	}
	if w.count--; w.count == 0 && w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// respond runs a handler. Its context ends when the node ends the request, as for a cancelled run, or when a
// stopping worker has waited for StopTimeout. respond returns work for the background, if any.
func (w *Worker) respond(rw http.ResponseWriter, r *http.Request, handler lambda.Handler, event lambda.Event) *Accepted {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-w.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	result, err := w.run(ctx, handler, event)
	long, isLong := result.(Accepted)
	if isLong && err == nil && event.Carillon.Callback.URL == "" {
		err = errNotLong
	}
	if isLong && err == nil {
		rw.WriteHeader(http.StatusAccepted)
		return &long
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(result)
	}
	switch {
	case errors.Is(err, lambda.ErrStale):
		rw.Header().Set(lambda.HeaderOutcome, lambda.OutcomeSuperseded)
		refuse(rw, http.StatusConflict, err.Error())
	case err != nil:
		refuse(rw, http.StatusInternalServerError, err.Error())
	default:
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(text) // the node may have closed the connection
	}
	return nil
}

// run turns a panic of a handler into an error, so that only its own request fails.
func (w *Worker) run(ctx context.Context, handler lambda.Handler, event lambda.Event) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			w.o.Log.ErrorContext(ctx, "handler panicked", "job", event.Carillon.Job, "run", event.Carillon.Run, "panic", p,
				"stack", string(debug.Stack()))
			err = errors.New("the handler panicked; the log of the worker has the stack")
		}
	}()
	return handler(ctx, event)
}

func refuse(rw http.ResponseWriter, status int, why string) {
	text, _ := json.Marshal(map[string]string{"error": why}) // a map of strings always marshals
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(text) // the node may have closed the connection
}
