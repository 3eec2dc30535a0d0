package invoke_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const accessToken = "default_token_of_executors"

// executors are a fleet that responds like executors of XXL-JOB.
type executors struct {
	*fleet
	mu       sync.Mutex
	requests []executorRequest
	// replies are the responses by path; other paths respond with success.
	replies map[string]string
}

// executorRequest is a request that an executor got.
type executorRequest struct {
	Endpoint int
	Path     string
	Body     map[string]any
}

func newExecutors(t *testing.T, size int) *executors {
	t.Helper()
	e := &executors{fleet: newFleet(t, size), replies: map[string]string{}}
	e.group.Kind = target.GroupXXLJob
	e.group.AccessToken = &target.Secret{Value: input.NewSensitive(accessToken)}
	e.respond = func(int, http.ResponseWriter, *http.Request) {}
	for n, server := range e.servers {
		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, e.reply(t, n, r))
		})
	}
	return e
}

func (e *executors) reply(t *testing.T, n int, r *http.Request) string {
	text, _ := io.ReadAll(r.Body)
	got := executorRequest{Endpoint: n, Path: r.URL.Path}
	if len(text) > 0 && json.Unmarshal(text, &got.Body) != nil {
		t.Errorf("body of %s is %q", r.URL.Path, text)
	}
	if r.Method != http.MethodPost || r.Header.Get("XXL-JOB-ACCESS-TOKEN") != accessToken {
		t.Errorf("%s %s came with token %q", r.Method, r.URL.Path, r.Header.Get("XXL-JOB-ACCESS-TOKEN"))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests = append(e.requests, got)
	for _, path := range []string{fmt.Sprint(n, got.Path), got.Path} {
		if reply, given := e.replies[path]; given {
			return reply
		}
	}
	return `{"code":200,"msg":null}`
}

// paths returns the paths of the requests with their executors, and clears them.
func (e *executors) paths() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.requests {
		all = append(all, fmt.Sprint(r.Endpoint, r.Path))
	}
	e.requests = nil
	return all
}

func (e *executors) call(job string, strategy target.Strategy) target.Call {
	call := e.fleet.call(job, strategy)
	call.Target.Group.Path = ""
	call.Target.Group.XXLJob = &target.XXLJobRun{Handler: "demoJobHandler"}
	return call
}

func TestExecutorGetsTheRunOfItsProtocol(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 1), newInvoker(t)
	call := e.call("sync", routing.RoundRobin)
	call.Target.Group.XXLJob = &target.XXLJobRun{
		Handler: "demoJobHandler", Param: "day {{.Attempt}} \"x\"", Blocking: target.BlockingForbid,
		ExecutorTimeout: input.Duration(90 * time.Second),
	}
	var err error
	if call.Templates, err = call.Target.Templates(); err != nil {
		t.Fatal(err)
	}
	o := i.Invoke(t.Context(), call)
	if o.State != run.WaitingCallback || o.HTTPStatus != 200 || o.Response == nil || o.Response.Endpoint != "e0" {
		t.Fatalf("outcome = %+v, want it accepted by e0", o)
	}
	if o.Callback == nil || o.Callback.ID != run.ExecutorLogID("evt_1", 2) || o.Callback.Group != call.Target.Group.Name {
		t.Errorf("callback = %+v, want that of the log and of group %s", o.Callback, call.Target.Group.Name)
	}
	want := []executorRequest{{Path: "/run", Body: map[string]any{
		"jobId": float64(run.ExecutorJobID("demo", "sync")), "executorHandler": "demoJobHandler", "executorParams": `day 2 "x"`,
		"executorBlockStrategy": "DISCARD_LATER", "executorTimeout": 90.0, "logId": float64(run.ExecutorLogID("evt_1", 2)),
		"logDateTime": float64(call.Key.ScheduledAt.UnixMilli()), "glueType": "BEAN", "glueSource": "", "glueUpdatetime": 0.0,
		"broadcastIndex": 0.0, "broadcastTotal": 1.0,
	}}}
	if diff := cmp.Diff(want, e.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestParamOfARunIsThePayloadUnlessItIsGiven(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 1), newInvoker(t)
	for payload, want := range map[string]string{``: "", `"2026-05-01"`: "2026-05-01", `{"n": 1}`: `{"n": 1}`} {
		call := e.call("sync", routing.RoundRobin)
		call.Payload = json.RawMessage(payload)
		i.Invoke(t.Context(), call)
		if got := e.requests[0].Body["executorParams"]; got != want {
			t.Errorf("payload %s: param = %q, want %q", payload, got, want)
		}
		e.paths()
	}
}

func TestRunThatAnExecutorRefusesFails(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 2), newInvoker(t)
	for reply, want := range map[string]struct {
		class run.Class
		says  string
	}{
		`{"code":500,"msg":"block strategy effect"}`:      {run.ClassExecutorRefused, "code 500: block strategy effect"},
		`{"code":500,"msg":"wrong: ` + accessToken + `"}`: {run.ClassExecutorRefused, "wrong: "},
		`{"code":500}`: {run.ClassExecutorRefused, "no reason given"},
		`[{"logId":7,"executeResult":{"code":500,"msg":"Task not registered"},"handleCode":500,"handleMsg":"Task not registered"}]`: {
			run.ClassExecutorRefused, "code 500: Task not registered"},
		` [{"code":500,"msg":"busy"}]`:                                  {run.ClassExecutorRefused, "code 500: busy"},
		`{"logId":7,"handleCode":500,"handleMsg":"no handler"}`:         {run.ClassExecutorRefused, "code 500: no handler"},
		`[{"logId":7,"executeResult":{"code":500,"msg":"until 2.2"}}]`:  {run.ClassExecutorRefused, "code 500: until 2.2"},
		`[{"handleCode":500,"executeResult":{"code":500,"msg":"one"}}]`: {run.ClassExecutorRefused, "code 500: one"},
		`[{"handleCode":500,"handleMsg":"wrong: ` + accessToken + `"}]`: {run.ClassExecutorRefused, "wrong: "},
		`[]`:                          {run.ClassProtocol, "it has no code"},
		`[{"code":200},{"code":500}]`: {run.ClassProtocol, "it has no code"},
		`[{"logId":7}]`:               {run.ClassProtocol, "it has no code"},
		`["500"]`:                     {run.ClassProtocol, "it has no code"},
		`<html>`:                      {run.ClassProtocol, "not the JSON of XXL-JOB"},
		`{"msg":"who are you"}`:       {run.ClassProtocol, "it has no code"},
		`{"code":200,"msg":"` + strings.Repeat("x", 70<<10) + `"}`: {run.ClassProtocol, "more than is read"},
	} {
		e.replies["/run"] = reply
		o := i.Invoke(t.Context(), e.call("sync", routing.First))
		if o.State != run.Failed || o.Class != want.class || !strings.Contains(o.Error, want.says) ||
			strings.Contains(o.Error, accessToken) {
			t.Errorf("%.40s: outcome = %+v, want %s saying %q", reply, o, want.class, want.says)
		}
		if got := e.paths(); len(got) != 1 {
			t.Errorf("%.40s: requests = %v, want one: the executor may have the run", reply, got)
		}
	}
}

// An executor also accepts a run in either shape, and is idle or not.
func TestExecutorsReplyInEitherShape(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 2), newInvoker(t)
	e.replies["/run"] = `[{"code":200,"msg":null}]`
	e.replies["0/idleBeat"] = `[{"logId":0,"handleCode":500,"handleMsg":"busy"}]`
	o := i.Invoke(t.Context(), e.call("sync", routing.BusyOver))
	if o.State != run.WaitingCallback || o.Response == nil || o.Response.Endpoint != "e1" {
		t.Errorf("outcome = %+v, want it accepted by the idle executor", o)
	}
}

func TestStrategiesAskExecutorsInTheirProtocol(t *testing.T) {
	t.Parallel()
	for strategy, path := range map[target.Strategy]string{
		routing.Failover: "/beat", routing.BusyOver: "/idleBeat", routing.GlobalBusyOver: "/globalIdleBeat",
	} {
		e, i := newExecutors(t, 3), newInvoker(t)
		e.replies["0"+path] = `{"code":500,"msg":"job thread is running or has trigger queue."}`
		o := i.Invoke(t.Context(), e.call("sync", strategy))
		if o.State != run.WaitingCallback || o.Response.Endpoint != "e1" {
			t.Errorf("%s: outcome = %+v, want it accepted by e1", strategy, o)
		}
		if strategy == routing.BusyOver && e.requests[0].Body["jobId"] != float64(run.ExecutorJobID("demo", "sync")) {
			t.Errorf("%s asks %v", strategy, e.requests[0].Body)
		}
		if diff := cmp.Diff([]string{"0" + path, "1" + path, "1/run"}, e.paths()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", strategy, diff)
		}
		e.replies[path] = e.replies["0"+path]
		class := map[bool]run.Class{true: run.ClassNoEndpoint, false: run.ClassEndpointsBusy}[strategy == routing.Failover]
		o = newInvoker(t).Invoke(t.Context(), e.call("sync", strategy))
		if o.Class != class || !o.NotSent || !strings.Contains(o.Error, "job thread is running") {
			t.Errorf("%s: outcome = %+v, want %s", strategy, o, class)
		}
	}
}

func TestExecutorStopsARunThatIsCancelledWhileItAccepts(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 1), newInvoker(t)
	ctx, cancel := context.WithCancel(t.Context())
	accept := e.servers[0].Config.Handler
	e.servers[0].Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept.ServeHTTP(w, r)
		if r.URL.Path == "/run" {
			cancel()
			<-r.Context().Done()
		}
	})
	o := i.Invoke(ctx, e.call("sync", routing.First))
	if o.State != run.Cancelled {
		t.Errorf("outcome = %+v, want it cancelled", o)
	}
	if diff := cmp.Diff([]string{"0/run", "0/kill"}, e.paths()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// of returns a call about an attempt, for the first executor.
func (e *executors) of() target.ExecutorCall {
	bounds := target.Bounds{}.WithDefaults("demo")
	call := e.call("sync", routing.First)
	return target.ExecutorCall{App: "demo", Bounds: &bounds, Group: e.group, Endpoint: e.group.Live[0], Run: call.ExecutorRun()}
}

func TestLogIsReadFromTheExecutor(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 1), newInvoker(t)
	want := target.ExecutorLog{Endpoint: "e0", FromLine: 3, ToLine: 4, Content: "three\nfour\n", End: true}
	const log = `{"fromLineNum":3,"toLineNum":4,"logContent":"three\nfour\n","isEnd":true}`
	for _, reply := range []string{`{"code":200,"msg":null,"content":` + log + `}`, `{"code":200,"data":` + log + `}`} {
		e.replies["/log"] = reply
		got, err := i.ExecutorLog(t.Context(), e.of(), 3)
		if err != nil || got != want {
			t.Errorf("log = %+v, %v, want %+v", got, err, want)
		}
	}
	e.replies["/log"] = `{"code":200,"content":{"logContent":"sent ` + accessToken + `\n"}}`
	if got, err := i.ExecutorLog(t.Context(), e.of(), 1); err != nil || strings.Contains(got.Content, accessToken) {
		t.Errorf("log with the token = %+v, %v", got, err)
	}
	at := float64(e.of().Run.LoggedAt.UnixMilli())
	asked := map[string]any{"logId": float64(e.of().Run.LogID), "logDateTim": at, "logDateTime": at, "fromLineNum": 3.0,
		"jobId": float64(e.of().Run.JobID)}
	if diff := cmp.Diff(asked, e.requests[0].Body); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	for reply, says := range map[string]string{
		`{"code":500,"msg":"no such log, ` + accessToken + `"}`: "code 500: no such log", `{"code":200}`: "holds no log", `nothing`: "no code",
	} {
		e.replies["/log"] = reply
		if _, err := i.ExecutorLog(t.Context(), e.of(), 1); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), accessToken) {
			t.Errorf("%s: err = %v, want it to say %q", reply, err, says)
		}
	}
}

func TestRequestsToExecutorsObeyTheEgressRules(t *testing.T) {
	t.Parallel()
	e, i := newExecutors(t, 1), newInvoker(t)
	call := e.of()
	call.Endpoint.Source = target.EndpointRegistered
	e.group.Registration = &target.Registration{Networks: []string{"10.0.0.0/8"}, Ports: []int{9999}}
	if _, err := i.ExecutorLog(t.Context(), call, 1); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("log from outside of the networks: err = %v", err)
	}
	if err := i.StopExecutor(t.Context(), call); err == nil || !strings.Contains(err.Error(), "denied") {
		t.Errorf("stop outside of the networks: err = %v", err)
	}
	call.Bounds.Suspended = true
	if err := i.StopExecutor(t.Context(), call); err == nil || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("stop of a suspended app: err = %v", err)
	}
	if got := e.paths(); len(got) > 0 {
		t.Errorf("requests = %v, want none", got)
	}
}

func TestAccessTokenOfAGroupIsCompared(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"token": accessToken})
	bounds := target.Bounds{}.WithDefaults("demo")
	of := target.ExecutorCall{App: "demo", Bounds: &bounds}
	reference := secretFile("token")
	missing := secretFile("missing")
	for _, secret := range []*target.Secret{{Value: input.NewSensitive(accessToken)}, &reference} {
		of.Group = &target.GroupVersion{}
		of.Group.AccessToken = secret
		for text, want := range map[string]bool{accessToken: true, accessToken + "x": false, "": false} {
			if is, err := i.IsAccessToken(t.Context(), of, text); is != want || err != nil {
				t.Errorf("%q is the token: %v, %v, want %v", text, is, err, want)
			}
		}
	}
	of.Group = &target.GroupVersion{}
	if is, err := i.IsAccessToken(t.Context(), of, ""); is || err != nil {
		t.Errorf("a group without a token has one: %v, %v", is, err)
	}
	of.Group.AccessToken = &missing
	if is, err := i.IsAccessToken(t.Context(), of, ""); is || err == nil {
		t.Errorf("a token that is not there is one: %v, %v", is, err)
	}
}
