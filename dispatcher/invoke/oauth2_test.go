package invoke_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// tokenServer is an authorization server that issues token-1, token-2 and so on.
type tokenServer struct {
	*httptest.Server
	asked atomic.Int32
	mu    sync.Mutex
	forms []url.Values
	// respond replaces the response to request n, which counts from 1; nil: a token that lives for an hour.
	respond func(n int32, w http.ResponseWriter, r *http.Request)
}

func newTokenServer(t *testing.T, respond func(n int32, w http.ResponseWriter, r *http.Request)) *tokenServer {
	t.Helper()
	s := &tokenServer{respond: respond}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *tokenServer) serve(w http.ResponseWriter, r *http.Request) {
	n := s.asked.Add(1)
	if err := r.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.forms = append(s.forms, r.PostForm)
	s.mu.Unlock()
	if s.respond != nil {
		s.respond(n, w, r)
		return
	}
	issue(w, n)
}

// form is the form of the latest request for a token.
func (s *tokenServer) form() url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forms[len(s.forms)-1]
}

func issue(w http.ResponseWriter, n int32) { say(w, http.StatusOK, tokenBody(n)) }

func tokenBody(n int32) string {
	return fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, n)
}

// say responds with a status and a body.
func say(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// clientOf returns a client of a token endpoint with the file "secret" as its secret.
func clientOf(tokenURL string) *target.OAuth2Auth {
	secret := secretFile("secret")
	return &target.OAuth2Auth{TokenURL: tokenURL, ClientID: "billing", ClientSecret: &secret}
}

// withToken returns a call whose request carries a token of a client.
func withToken(to string, client *target.OAuth2Auth) target.Call {
	call := callTo(to, "POST", ample)
	call.Target.Webhook.Auth = &target.Auth{OAuth2: client}
	return call
}

func TestTokenIsSentAndUsedAgain(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2"})
	target, requests := recorder(t)
	server := newTokenServer(t, nil)
	client := clientOf(server.URL + "/token?tenant=a")
	client.Scopes, client.Audience = []string{"invoices:read", "invoices:write"}, "https://api.example.com"
	for range 3 {
		if o := i.Invoke(t.Context(), withToken(target, client)); o.State != run.Succeeded {
			t.Fatalf("outcome = %+v", o)
		}
		if got := (<-requests).header.Get("Authorization"); got != "Bearer token-1" {
			t.Errorf("Authorization = %q, want the first token", got)
		}
	}
	want := url.Values{"grant_type": {"client_credentials"}, "scope": {"invoices:read invoices:write"},
		"audience": {"https://api.example.com"}}
	if got := server.form().Encode(); got != want.Encode() || server.asked.Load() != 1 {
		t.Errorf("form = %s after %d requests, want %s after 1", got, server.asked.Load(), want.Encode())
	}
}

func TestTokensBelongToOneAppAndOneClient(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2", "other": "hunter3"})
	to, _ := recorder(t)
	server := newTokenServer(t, nil)
	other := secretFile("other")
	for name, change := range map[string]func(*target.Call, *target.OAuth2Auth){
		"the first":      func(*target.Call, *target.OAuth2Auth) {},
		"another scope":  func(_ *target.Call, c *target.OAuth2Auth) { c.Scopes = []string{"a"} },
		"two scopes":     func(_ *target.Call, c *target.OAuth2Auth) { c.Scopes = []string{"a", "b"} },
		"an audience":    func(_ *target.Call, c *target.OAuth2Auth) { c.Audience = "a" },
		"another client": func(_ *target.Call, c *target.OAuth2Auth) { c.ClientID = "shipping" },
		"another secret": func(_ *target.Call, c *target.OAuth2Auth) { c.ClientSecret = &other },
		"another URL":    func(_ *target.Call, c *target.OAuth2Auth) { c.TokenURL += "/2" },
		"in the body":    func(_ *target.Call, c *target.OAuth2Auth) { c.ClientAuth = target.ClientAuthPost },
		"another app": func(call *target.Call, _ *target.OAuth2Auth) {
			*call = within(*call, target.Bounds{})
			call.App = "two"
		},
		"another job":     func(call *target.Call, _ *target.OAuth2Auth) { call.Job = "pong" },
		"another attempt": func(call *target.Call, _ *target.OAuth2Auth) { call.Attempt = 7 },
	} {
		client := clientOf(server.URL)
		call := withToken(to, client)
		change(&call, client)
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Fatalf("%s: outcome = %+v", name, o)
		}
	}
	if n := server.asked.Load(); n != 9 {
		t.Errorf("%d requests for tokens, want 9: another job and another attempt of an app share that of the first", n)
	}
}

// Each failure has the class oauth2, sends nothing to the target, and shows the endpoint's message.
func TestFailuresOfTokenEndpoints(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-of-billing"
	seconds := func(n int) *time.Duration { wait := time.Duration(n) * time.Second; return &wait }
	for name, tt := range map[string]struct {
		respond http.HandlerFunc
		says    string
		wait    *time.Duration
	}{
		"an invalid client": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 400, `{"error":"invalid_client","error_description":"unknown client billing"}`)
		}, "/token responded with status 400: invalid_client (unknown client billing)", nil},
		"denied": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Basic")
			say(w, 401, `{"error":"invalid_client"}`)
		}, "responded with status 401: invalid_client", nil},
		"an error that repeats the request": {func(w http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			description := "no " + password + " " + r.Header.Get("Authorization")
			text, _ := json.Marshal(map[string]string{"error": "invalid_client", "error_description": description})
			say(w, 401, string(text))
		}, "invalid_client (no [redacted]", nil},
		"throttled": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			say(w, 429, `slow down`)
		}, "responded with status 429: no OAuth error code", seconds(7)},
		"down": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "2")
			say(w, 503, `{"error":"temporarily_unavailable"}`)
		}, "responded with status 503: temporarily_unavailable", seconds(2)},
		"gone": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 410, `<html>`)
		}, "responded with status 410: no OAuth", nil},
		"an error with 200": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"error":"bad"}`)
		}, "responded with status 200: bad", nil},
		"not JSON": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `<html>`)
		}, "not JSON with a token", nil},
		"nothing": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, ``)
		}, "not JSON with a token", nil},
		"no token": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{}`)
		}, "no access_token", nil},
		"a token of two lines": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"access_token":"a\nX: b"}`)
		}, "cannot be sent", nil},
		"a long token": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"access_token":"`+strings.Repeat("a", 17<<10)+`"}`)
		}, "longer than 16 KiB", nil},
		"another kind of token": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"access_token":"a","token_type":"mac"}`)
		}, "of the type mac", nil},
		"an invalid life": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"access_token":"a","expires_in":"soon"}`)
		}, "not JSON with a token", nil},
		"a huge body": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 200, `{"access_token":"a",`+strings.Repeat(" ", 70<<10)+`"token_type":"Bearer"}`)
		}, "more than 64 KiB", nil},
		"an endless body": {func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(w, strings.Repeat(" ", 1<<10))
			}
		}, "more than 64 KiB", nil},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "responded with status 307: a redirect, which is not followed", nil},
		"a closed connection": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "/token: EOF", nil},
		"control characters": {func(w http.ResponseWriter, _ *http.Request) {
			say(w, 400, `{"error":"a\u0000b\nc","error_description":"`+strings.Repeat("x", 2000)+`"}`)
		}, "status 400: a?b?c (" + strings.Repeat("x", 256) + ")", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := withSecrets(t, map[string]string{"secret": secret})
			target, requests := recorder(t)
			server := newTokenServer(t, func(_ int32, w http.ResponseWriter, r *http.Request) { tt.respond(w, r) })
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
			o := i.Invoke(t.Context(), withToken(target, clientOf(server.URL+"/token?key=in-the-query")))
			if o.State != run.Failed || o.Class != run.ClassOAuth2 || !o.NotSent || len(requests) != 0 {
				t.Errorf("outcome = %+v after %d requests to the target, want class oauth2 before any", o, len(requests))
			}
			if !strings.HasPrefix(o.Error, "token endpoint "+server.URL+"/token") || !strings.Contains(o.Error, tt.says) {
				t.Errorf("error = %s, want the endpoint and %s", o.Error, tt.says)
			}
			if strings.Contains(o.Error, secret) || strings.Contains(o.Error, "in-the-query") || strings.Contains(o.Error, "YmlsbGluZz") {
				t.Errorf("error = %s, want no secret in it", o.Error)
			}
			if (o.RetryAfter == nil) != (tt.wait == nil) || tt.wait != nil && *o.RetryAfter != *tt.wait {
				t.Errorf("retry after %v, want %v", o.RetryAfter, tt.wait)
			}
			if !o.Class.Repeatable(o.HTTPStatus) || !o.Class.NeverSent() {
				t.Error("the attempt is not made again")
			}
			if n := server.asked.Load(); n != 1 {
				t.Errorf("%d requests for a token, want 1", n)
			}
		})
	}
}

func TestSlowTokenEndpointEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2"})
	target, requests := recorder(t)
	arrived, stop := make(chan struct{}, 20), make(chan struct{})
	server := newTokenServer(t, func(_ int32, _ http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-stop
	})
	defer close(stop)
	call := withToken(target, clientOf(server.URL))
	for timeout := short; len(arrived) == 0 && timeout < ample; timeout *= 2 { // a slow machine may not even connect in time
		call.Target.Webhook.Timeout = input.Duration(timeout)
		if o := i.Invoke(t.Context(), call); o.Class != run.ClassOAuth2 || !o.NotSent ||
			!strings.Contains(o.Error, "no response within the timeout of the attempt") {
			t.Errorf("outcome = %+v, want the timeout of the attempt", o)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := i.Invoke(ctx, withToken(target, clientOf(server.URL))); o.State != run.Cancelled || !o.NotSent || len(requests) != 0 {
		t.Errorf("outcome = %+v after %d requests to the target, want it cancelled before any", o, len(requests))
	}
}

func TestTokensWithoutAUsualLife(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want int32 // requests for tokens of three attempts
	}{
		"no expires_in":        {`{"access_token":"a","token_type":"bearer"}`, 1},
		"expires_in of null":   {`{"access_token":"a","expires_in":null}`, 1},
		"expires_in as a text": {`{"access_token":"a","expires_in":"3600"}`, 1},
		"expires_in of years":  {`{"access_token":"a","expires_in":1e18}`, 1},
		"expired at once":      {`{"access_token":"a","expires_in":0}`, 3},
	} {
		i := withSecrets(t, map[string]string{"secret": "hunter2"})
		target, _ := recorder(t)
		server := newTokenServer(t, func(_ int32, w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, tt.body) })
		for range 3 {
			if o := i.Invoke(t.Context(), withToken(target, clientOf(server.URL))); o.State != run.Succeeded {
				t.Errorf("%s: outcome = %+v", name, o)
			}
		}
		if n := server.asked.Load(); n != tt.want {
			t.Errorf("%s: %d requests for a token, want %d", name, n, tt.want)
		}
	}
}

func TestManyAttemptsAskForOneToken(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2"})
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-1" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer target.Close()
	server := newTokenServer(t, nil)
	var attempts errgroup.Group
	for range 1000 {
		attempts.Go(func() error {
			if o := i.Invoke(t.Context(), withToken(target.URL, clientOf(server.URL))); o.State != run.Succeeded {
				return fmt.Errorf("outcome = %+v", o)
			}
			return nil
		})
	}
	if err := attempts.Wait(); err != nil || server.asked.Load() != 1 {
		t.Errorf("%d requests for a token, %v; want 1", server.asked.Load(), err)
	}
}

// The authorization server rotates its keys, so the target refuses a token that it accepted before.
func TestTokenThatIsRefusedIsReplacedForTheNextAttempt(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2"})
	var took atomic.Value
	took.Store("token-1")
	var hits atomic.Int32
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		if got := r.Header.Get("Authorization"); got != "Bearer "+took.Load().(string) {
			say(w, http.StatusUnauthorized, "not "+got)
		}
	}))
	defer target.Close()
	server := newTokenServer(t, nil)
	var seen []string
	attempt := func() run.Outcome {
		before := hits.Load()
		o := i.Invoke(t.Context(), withToken(target.URL, clientOf(server.URL)))
		if n := hits.Load() - before; n != 1 {
			t.Errorf("an attempt made %d requests to the target, want 1", n)
		}
		seen = append(seen, fmt.Sprint(o.State, " ", o.Class, " ", o.HTTPStatus, " ", server.asked.Load()))
		return o
	}
	attempt()
	took.Store("token-2")
	o := attempt()
	if o.NotSent || !o.Class.Repeatable(o.HTTPStatus) || !strings.Contains(o.Error, server.URL) ||
		o.Response == nil || o.Response.Body != "not Bearer [redacted]" {
		t.Errorf("outcome = %+v, want a response without the token, and another attempt", o)
	}
	attempt()
	took.Store("none")
	attempt()
	attempt()
	want := []string{"succeeded  200 1", "failed oauth2 401 1", "succeeded  200 2", "failed http_4xx 401 2", "failed http_4xx 401 2"}
	if !slices.Equal(seen, want) {
		t.Errorf("attempts = %q, want %q", seen, want)
	}
}

func TestTokenEndpointObeysTheEgressRules(t *testing.T) {
	t.Parallel()
	to, requests := recorder(t)
	server := newTokenServer(t, nil)
	open := target.Bounds{}
	hosts := target.Bounds{Egress: target.EgressBounds{Hosts: []string{"127.0.0.1"}}}
	for name, tt := range map[string]struct {
		tokenURL string
		bounds   target.Bounds
		loopback bool
		class    run.Class
	}{
		"allowed":              {server.URL, hosts, true, ""},
		"the node itself":      {server.URL, open, false, run.ClassEgressDenied},
		"metadata":             {"http://169.254.169.254/token", open, true, run.ClassEgressDenied},
		"metadata by its name": {"http://metadata.google.internal/token", open, true, run.ClassEgressDenied},
		"a private network":    {"http://10.1.2.3/token", open, true, run.ClassEgressDenied},
		"a host out of bounds": {strings.Replace(server.URL, "127.0.0.1", "localhost", 1), hosts, true, run.ClassBounds},
	} {
		client := clientOf(tt.tokenURL)
		client.ClientSecret = &target.Secret{Stored: true, Value: input.NewSensitive("hunter2")}
		i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: tt.loopback}})
		t.Cleanup(i.Close)
		o := i.Invoke(t.Context(), within(withToken(to, client), tt.bounds))
		if o.Class != tt.class {
			t.Errorf("%s: outcome = %+v, want class %q", name, o, tt.class)
		}
		if tt.class != "" && (!o.NotSent || !strings.HasPrefix(o.Error, "token endpoint "+tt.tokenURL)) {
			t.Errorf("%s: outcome = %+v, want the token endpoint to be named, and nothing sent", name, o)
		}
	}
	if n, asked := len(requests), server.asked.Load(); n != 1 || asked != 1 {
		t.Errorf("%d requests to the target and %d to the token endpoint, want 1 of each", n, asked)
	}
}

func TestTokenEndpointIsTrustedByItsOwnAuthorities(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2"})
	target, _ := recorder(t)
	server := &tokenServer{}
	server.Server = httptest.NewUnstartedServer(http.HandlerFunc(server.serve))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	t.Cleanup(server.Close)
	client := clientOf(server.URL)
	if o := i.Invoke(t.Context(), withToken(target, client)); o.Class != run.ClassOAuth2 || !strings.Contains(o.Error, "certificate") {
		t.Errorf("outcome = %+v, want an unknown authority", o)
	}
	client.CACertificates = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if o := i.Invoke(t.Context(), withToken(target, client)); o.State != run.Succeeded {
		t.Errorf("outcome = %+v", o)
	}
}

// If a target repeats a token or the secret of its client, that is not stored.
func TestResponsesKeepNoTokenAndNoClientSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2 & söns"
	i := withSecrets(t, map[string]string{"secret": secret})
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", r.Header.Get("Authorization"))
		w.Header().Set("Location", "/?"+url.QueryEscape(secret))
		say(w, http.StatusInternalServerError, r.Header.Get("Authorization")+" "+secret)
	}))
	defer to.Close()
	server := newTokenServer(t, func(_ int32, w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusOK, `{"access_token":"eyJ.secret-token","token_type":"Bearer"}`)
	})
	for _, how := range []target.OAuth2ClientAuth{"", target.ClientAuthPost} {
		client := clientOf(server.URL)
		client.ClientAuth = how
		o := i.Invoke(t.Context(), withToken(to.URL, client))
		if text := fmt.Sprintf("%+v %+v", o, *o.Response); strings.Contains(text, "eyJ.secret-token") || strings.Contains(text, "hunter2") ||
			o.Response.Body != "Bearer [redacted] [redacted]" {
			t.Errorf("outcome = %s, want neither token nor secret", text)
		}
	}
}

func TestGroupGetsItsTokenBeforeItChoosesAnEndpoint(t *testing.T) {
	t.Parallel()
	for _, strategy := range []target.Strategy{target.RoundRobin, "failover", "busyover"} {
		i := withSecrets(t, map[string]string{"secret": "hunter2"})
		var broken atomic.Bool
		broken.Store(true)
		server := newTokenServer(t, func(n int32, w http.ResponseWriter, _ *http.Request) {
			if broken.Load() {
				say(w, http.StatusServiceUnavailable, "")
				return
			}
			issue(w, n)
		})
		f := newFleet(t, 2)
		f.respond = func(_ int, w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer token-") {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}
		f.group.Auth = &target.Auth{OAuth2: clientOf(server.URL)}
		if o := i.Invoke(t.Context(), f.call("a", strategy)); o.Class != run.ClassOAuth2 || !o.NotSent || server.asked.Load() != 1 {
			t.Errorf("%s: outcome = %+v after %d requests for a token, want class oauth2 after 1", strategy, o, server.asked.Load())
		}
		if n := f.probes[0].Load() + f.probes[1].Load() + f.hits[0].Load() + f.hits[1].Load(); n != 0 {
			t.Errorf("%s: endpoints got %d requests without a token, want none", strategy, n)
		}
		broken.Store(false)
		f.group.Auth.OAuth2.Scopes = []string{"new"} // without the pause after the failure
		mustSucceed(t, i, f.call("a", strategy))
	}
}

// A probe carries the token too. A refused token must not keep all endpoints from being chosen until it expires.
func TestProbeThatIsRefusedReplacesTheToken(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"secret": "hunter2"})
	server := newTokenServer(t, nil)
	f := newFleet(t, 1)
	f.respond = func(_ int, w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-2" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}
	f.group.Auth = &target.Auth{OAuth2: clientOf(server.URL)}
	if o := i.Invoke(t.Context(), f.call("a", "busyover")); o.Class != run.ClassEndpointsBusy {
		t.Fatalf("outcome = %+v, want the probe to be refused", o)
	}
	mustSucceed(t, i, f.call("b", "busyover")) // another job asks again
}
