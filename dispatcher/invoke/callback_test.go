package invoke_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const callbackURL = "https://carillon.example.com"

func callbackKey(context.Context) ([]byte, error) { return []byte("a key of the installation"), nil }

// longCall is a call of a job with callbacks.
func longCall(url string) (call target.Call, token string) {
	call = callTo(url, "POST", ample)
	call.Target.Webhook.Callback = &target.CallbackPolicy{Timeout: input.Duration(2 * time.Hour)}
	return call, run.CallbackToken([]byte("a key of the installation"), call.EventID, call.Attempt)
}

func TestTargetOfALongJobGetsItsCallbackURL(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "I got "+r.Header.Get("Carillon-Callback-Token"))
	}))
	defer server.Close()
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}, CallbackURL: callbackURL, CallbackKey: callbackKey})
	t.Cleanup(i.Close)
	call, token := longCall(server.URL)
	o := i.Invoke(t.Context(), call)
	if o.State != run.WaitingCallback || o.Callback == nil || o.Callback.Within != 2*time.Hour || o.HTTPStatus != 202 {
		t.Fatalf("outcome: got %+v with %+v, want it to wait for two hours", o, o.Callback)
	}
	url := callbackURL + "/v1/runs/" + call.Key.String()
	if u, k := got.Header.Get("Carillon-Callback-URL"), got.Header.Get("Carillon-Callback-Token"); u != url || k != token {
		t.Errorf("headers: got %q and %q, want %q and %q", u, k, url, token)
	}
	var said struct{ Callback run.CallToken }
	if err := json.Unmarshal(body, &said); err != nil || said.Callback.URL != url || said.Callback.Token != token {
		t.Errorf("body: got %s, want the same in it", body)
	}
	if o.Response == nil || strings.Contains(o.Response.Body, token) || !strings.Contains(o.Response.Body, "I got") {
		t.Errorf("response: got %+v, want it without the token", o.Response)
	}
}

// A target with an existing API gets the callback in its own fields.
func TestTemplatesPlaceTheCallback(t *testing.T) {
	t.Parallel()
	var header http.Header
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}, CallbackURL: callbackURL, CallbackKey: callbackKey})
	t.Cleanup(i.Close)
	call, token := longCall(server.URL)
	w := call.Target.Webhook
	w.Body = `{"done": {{json .CallbackURL}}, "token": {{json .CallbackToken}}, "within": "{{.CallbackTimeout}}"}`
	w.Headers = map[string]string{"X-Answer-With": "Bearer {{.CallbackToken}}"}
	var err error
	if call.Templates, err = call.Target.Templates(); err != nil {
		t.Fatal(err)
	}
	o := i.Invoke(t.Context(), call)
	want := `{"done": "` + callbackURL + "/v1/runs/" + call.Key.String() + `", "token": "` + token + `", "within": "2h0m0s"}`
	if string(body) != want || header.Get("X-Answer-With") != "Bearer "+token || header.Get("Carillon-Callback-Timeout") != "2h0m0s" {
		t.Errorf("got %s with %v, want %s and the token in X-Answer-With", body, header, want)
	}
	if o.Response == nil || !strings.Contains(o.Response.Body, `"within": "2h0m0s"`) || strings.Contains(o.Response.Body, token) {
		t.Errorf("response: got %+v, want what the target echoed without the token", o.Response)
	}

	shown := i.Show(call, nil, time.Unix(0, 0))
	if want := strings.ReplaceAll(want, token, target.Mask); shown.Body != want || shown.Problem != "" {
		t.Errorf("shown: got %q (%s), want %q", shown.Body, shown.Problem, want)
	}
	for _, h := range shown.Headers {
		if strings.Contains(h.Value, token) || h.Name == "X-Answer-With" && (!h.Masked || h.Value != "Bearer "+target.Mask) {
			t.Errorf("shown: header %+v, want the token masked", h)
		}
	}
}

func TestKeyOfCallbacksIsReadOnceWithinABoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stalled, reads := true, 0
		i := invoke.New(invoke.Options{CallbackURL: callbackURL, CallbackKey: func(ctx context.Context) ([]byte, error) {
			if reads++; stalled {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return callbackKey(ctx)
		}})
		defer i.Close()
		call, _ := longCall("http://127.0.0.1:1") // denied, once the key is read
		start := time.Now()
		var attempts sync.WaitGroup
		for range 3 {
			attempts.Go(func() {
				if o := i.Invoke(t.Context(), call); o.Class != run.ClassSecret || !o.NotSent {
					t.Errorf("without the key: got %+v, want nothing sent", o)
				}
			})
		}
		attempts.Wait()
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("three attempts wait %s for the key, want 5 s", took)
		}
		stalled, reads = false, 0
		if err := i.ReadCallbackKey(t.Context()); err != nil {
			t.Errorf("read the key: %v", err)
		}
		stalled = true
		if o := i.Invoke(t.Context(), call); o.Class == run.ClassSecret || reads != 1 {
			t.Errorf("with the key: got %+v after %d reads, want the key of one read", o, reads)
		}
	})
}

func TestOnlyStatus202OfALongJobWaits(t *testing.T) {
	t.Parallel()
	status := 200
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}, CallbackURL: callbackURL, CallbackKey: callbackKey})
	t.Cleanup(i.Close)
	call, _ := longCall(server.URL)
	for _, status = range []int{200, 204} {
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded || o.Callback != nil {
			t.Errorf("status %d: got %+v, want success at once", status, o)
		}
	}
	status = 202
	call.Target.Webhook.Callback = nil
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded || o.Callback != nil {
		t.Errorf("status 202 without callback: got %+v, want success at once", o)
	}
}

func TestLongJobFailsWithoutACallbackURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the target was called") }))
	defer server.Close()
	call, _ := longCall(server.URL)
	o := newInvoker(t).Invoke(t.Context(), call)
	if o.Class != run.ClassConfig || !strings.Contains(o.Error, "--callback-url") || !o.NotSent {
		t.Errorf("outcome: got %+v, want one that names the flag", o)
	}
}

func TestEventOfALongFunctionHasItsCallback(t *testing.T) {
	t.Parallel()
	s := newAWS(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	i := invoke.New(invoke.Options{CallbackURL: callbackURL, CallbackKey: callbackKey,
		LoadAWS: func(context.Context) (aws.Config, error) {
			return aws.Config{Region: "eu-central-1", BaseEndpoint: aws.String(s.URL),
				Credentials: credentials.StaticCredentialsProvider{Value: nodeKey}}, nil
		}})
	t.Cleanup(i.Close)
	call := invocation(func(l *target.Lambda) {
		l.Invocation, l.Callback = target.InvokeEvent, &target.CallbackPolicy{Timeout: run.DefaultCallbackTimeout}
	})
	o := i.Invoke(t.Context(), call)
	var event struct {
		Carillon struct{ Callback run.CallToken }
	}
	if err := json.Unmarshal([]byte(s.bodies[0]), &event); err != nil {
		t.Fatal(err)
	}
	if o.State != run.WaitingCallback || event.Carillon.Callback.URL != callbackURL+"/v1/runs/"+call.Key.String() ||
		run.CallbackAttempt(event.Carillon.Callback.Token) != call.Attempt ||
		event.Carillon.Callback.Timeout != run.DefaultCallbackTimeout {
		t.Errorf("got %+v for the event %s, want it to wait for a callback", o, s.bodies[0])
	}
}
