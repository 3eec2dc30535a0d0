package group

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/routing"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The protocol of XXL-JOB's executors: each request is a POST of JSON, and each response has status 200. Its body
// contains the executor's result code.
const (
	// AccessTokenHeader is written as in XXL-JOB, for executors that compare it byte by byte.
	AccessTokenHeader = "XXL-JOB-ACCESS-TOKEN"
	executorAgrees    = 200
	// executorTimeout bounds a request to an executor that is not an attempt.
	executorTimeout = 3 * time.Second
	// mostLog bounds the response with a log, in bytes.
	mostLog = 4 << 20
)

// executorReply is the response of an executor. Some respond with the result of a callback, alone or in an array.
type executorReply struct {
	Code    int             `json:"code"`
	Msg     string          `json:"msg"`
	Content json.RawMessage `json:"content"` // of a log
	Data    json.RawMessage `json:"data"`    // instead of content, since version 3.3

	HandleCode int            `json:"handleCode"` // of a callback
	HandleMsg  string         `json:"handleMsg"`
	Result     *executorReply `json:"executeResult"` // of a callback until version 2.2
}

// UnmarshalJSON reads a reply in any of its shapes. From an array it takes the only element.
func (r *executorReply) UnmarshalJSON(text []byte) error {
	type object executorReply
	var one object
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		var all []object
		if err := json.Unmarshal(text, &all); err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("it has %d results instead of one", len(all))
		}
		one = all[0]
	} else if err := json.Unmarshal(text, &one); err != nil {
		return err
	}
	*r = executorReply(one)
	if r.Code == 0 {
		r.Code, r.Msg = r.HandleCode, r.HandleMsg
	}
	if r.Code == 0 && r.Result != nil {
		r.Code = r.Result.Code
	}
	if r.Msg == "" && r.Result != nil {
		r.Msg = r.Result.Msg
	}
	return nil
}

func replyOf(got web.Response) (executorReply, error) {
	var reply executorReply
	switch err := json.Unmarshal(got.Body, &reply); {
	case got.Status != http.StatusOK:
		return reply, fmt.Errorf("responded with status %d, and not as an executor of XXL-JOB does", got.Status)
	case got.More:
		return reply, errors.New("responded with more than is read")
	case err != nil || reply.Code == 0:
		return reply, errors.New("responded with a body that is not the JSON of XXL-JOB's protocol: it has no code")
	}
	return reply, nil
}

func (a *groupAttempt) asExecutor(ctx context.Context, r *web.Request) error {
	token := a.call.Group.AccessToken
	if token == nil {
		return &attempt.Failure{Class: run.ClassOther, Err: fmt.Errorf("group %s is not of kind xxl_job", a.call.Group.Name)}
	}
	text, err := a.hooks.Reveal(ctx, r, "access_token", *token, a.started)
	if err == nil {
		r.Header[AccessTokenHeader] = []string{text}
		r.Judge = a.judgeRun
	}
	return err
}

// judgeRun returns the outcome of a response to /run that has status 200.
func (a *groupAttempt) judgeRun(got web.Response) run.Outcome {
	reply, err := replyOf(got)
	switch {
	case err != nil:
		return attempt.Failed(run.ClassProtocol, "the executor "+err.Error())
	case reply.Code != executorAgrees:
		return attempt.Failed(run.ClassExecutorRefused,
			fmt.Sprintf("the executor refused the run with code %d: %s", reply.Code, cmp.Or(reply.Msg, "no reason given")))
	}
	return run.Outcome{State: run.WaitingCallback, Callback: a.call.ExecutorCallback()}
}

// probeExecutor asks an executor whether it is alive, or idle; see probe. XXL-JOB's own executors do not know
// /globalIdleBeat, which some have as an extension.
func (a *groupAttempt) probeExecutor(ctx context.Context, q question, endpoint *target.Endpoint) (refused *refusal, responded bool) {
	bounded, cancel := context.WithTimeout(ctx, cmp.Or(a.call.Group.Probe.Timeout, target.DefaultProbeTimeout).Std())
	defer cancel()
	path, body := "/beat", any(nil)
	idle := a.strategy.Asks() != routing.AskAlive
	switch {
	case idle && q.job != "":
		path, body = "/idleBeat", map[string]int32{"jobId": run.ExecutorJobID(a.call.App, q.job)}
	case idle:
		path = "/globalIdleBeat"
	}
	got, reply, err := a.post(bounded, endpoint, path, body, attempt.MostBody)
	switch {
	case err != nil:
		return &refusal{endpoint: endpoint.ID, why: err.Error()}, got.Status != 0
	case reply.Code != executorAgrees:
		return &refusal{
			endpoint: endpoint.ID, why: fmt.Sprintf("responded to %s with code %d: %s", path, reply.Code, reply.Msg), busy: idle,
		}, true
	}
	return nil, true
}

// post sends a request that is not an attempt, and returns its response and its reply. The error holds no secret.
func (a *groupAttempt) post(
	ctx context.Context, endpoint *target.Endpoint, path string, body any, most int,
) (got web.Response, reply executorReply, err error) {
	to := a.destination(endpoint, path)
	r := a.hooks.Request(a.call, http.MethodPost, to)
	r.Most, r.Header["Content-Type"] = most, []string{"application/json"}
	if body != nil {
		if r.Body, err = json.Marshal(body); err != nil {
			return got, reply, err
		}
	}
	if err = a.hooks.Connect(ctx, &r, a.call.Group.TLS, to.Scope, a.started); err == nil {
		err = a.asExecutor(ctx, &r)
	}
	if err != nil {
		return got, reply, err
	}
	clean := r.Redaction()
	if got, err = r.Send(ctx, &attempt.Stopwatch{Start: a.started}); err != nil {
		timeout := input.Duration(executorTimeout)
		return got, reply, errors.New(clean.Clean(attempt.Classify(ctx, ctx, err, timeout).Error))
	}
	got.Body = []byte(clean.Clean(string(got.Body))) // an executor may log its request
	reply, err = replyOf(got)
	return got, reply, err
}

// executor returns the attempt for requests to the executor of a call.
func (g *Groups) executor(call target.ExecutorCall) (*groupAttempt, error) {
	if call.Bounds.Suspended {
		return nil, fmt.Errorf("app %s is suspended", call.App)
	}
	return &groupAttempt{
		hooks: g.hooks, scopes: newScopes(call.Group, call.Bounds.Egress), started: time.Now(),
		call: target.Call{App: call.App, AWSExternalID: call.AWSExternalID, Bounds: call.Bounds, Group: call.Group},
	}, nil
}

// StopExecutor asks an executor to stop all queued or running runs of a job: the protocol stops jobs and not runs.
func (g *Groups) StopExecutor(ctx context.Context, call target.ExecutorCall) error {
	ctx, cancel := context.WithTimeout(ctx, executorTimeout)
	defer cancel()
	a, err := g.executor(call)
	if err != nil {
		return err
	}
	return a.stop(ctx, &call.Endpoint, call.Run.JobID)
}

// stopCancelled asks an executor to stop a run that was cancelled while the executor accepted it. Its reply is ignored.
func (a *groupAttempt) stopCancelled(ctx context.Context, endpoint *target.Endpoint) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), executorTimeout)
	defer cancel()
	_ = a.stop(ctx, endpoint, a.call.ExecutorRun().JobID)
}

func (a *groupAttempt) stop(ctx context.Context, endpoint *target.Endpoint, job int32) error {
	_, reply, err := a.post(ctx, endpoint, "/kill", map[string]int32{"jobId": job}, attempt.MostBody)
	if err == nil && reply.Code != executorAgrees {
		err = fmt.Errorf("responded to /kill with code %d: %s", reply.Code, reply.Msg)
	}
	return err
}

// ExecutorLog reads the log of an attempt from a line on, counted from 1. It sets neither Run nor Attempt.
func (g *Groups) ExecutorLog(ctx context.Context, call target.ExecutorCall, from int) (log target.ExecutorLog, err error) {
	ctx, cancel := context.WithTimeout(ctx, executorTimeout)
	defer cancel()
	a, err := g.executor(call)
	if err != nil {
		return log, err
	}
	at := call.Run.LoggedAt.UnixMilli()
	_, reply, err := a.post(ctx, &call.Endpoint, "/log", map[string]int64{
		"logId": call.Run.LogID, "logDateTim": at, "logDateTime": at, // the one is the name until version 3.0
		"jobId": int64(call.Run.JobID), "fromLineNum": int64(from),
	}, mostLog)
	if err == nil && reply.Code != executorAgrees {
		err = fmt.Errorf("responded to /log with code %d: %s", reply.Code, reply.Msg)
	}
	if err != nil {
		return log, err
	}
	part := struct {
		FromLine int    `json:"fromLineNum"`
		ToLine   int    `json:"toLineNum"`
		Content  string `json:"logContent"`
		End      bool   `json:"isEnd"`
	}{}
	text := reply.Content
	if len(text) == 0 || string(text) == "null" {
		text = reply.Data
	}
	if err := json.Unmarshal(text, &part); err != nil {
		return log, errors.New("responded to /log with a body that holds no log")
	}
	return target.ExecutorLog{
		Endpoint: call.Endpoint.ID, FromLine: part.FromLine, ToLine: part.ToLine, Content: part.Content, End: part.End,
	}, nil
}

// IsAccessToken reports whether a text is the access token of a group, or an error if the token cannot be read.
func (g *Groups) IsAccessToken(ctx context.Context, of target.ExecutorCall, text string) (bool, error) {
	if of.Group.AccessToken == nil {
		return false, nil
	}
	owner := secret.Owner{App: of.App, AWSExternalID: of.AWSExternalID, Bounds: of.Bounds}
	want, err := g.secrets.Reveal(ctx, owner, *of.Group.AccessToken, time.Now())
	if err != nil {
		return false, attempt.BadSecret("access_token", err)
	}
	given, token := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(given[:], token[:]) == 1, nil
}
