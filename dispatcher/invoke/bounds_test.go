package invoke_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// within returns the call with bounds of its app.
func within(call target.Call, bounds target.Bounds) target.Call {
	bounds = bounds.WithDefaults(call.App)
	call.Bounds = &bounds
	return call
}

// T3: an app can use only its own references, and no error shows which others exist.
func TestReferencesOfOtherAppsAreRefusedWhetherTheyExistOrNot(t *testing.T) {
	t.Setenv("SECRET_OTHER_KEY", "hunter2-of-other")
	t.Setenv("SECRET_DEMO_KEY", "hunter2-of-demo")
	dir := t.TempDir()
	for _, name := range []string{"demo/key", "other/key", "key"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("hunter2"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"demo/out": "../other/key", "demo/up": "../key", "demo/in": "key"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	i := invoke.New(invoke.Options{SecretDir: dir, Egress: web.Egress{Loopback: true}})
	t.Cleanup(i.Close)
	address, requests := recorder(t)
	use := func(app, reference string) run.Outcome {
		call := callTo(address, "POST", ample)
		call.App = app
		call.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: reference}}}
		return i.Invoke(t.Context(), call)
	}
	for _, own := range []string{"env:SECRET_DEMO_KEY", "file:demo/key", "file:demo/in"} {
		if o := use("demo", own); o.State != run.Succeeded || !strings.Contains((<-requests).header.Get("Authorization"), "hunter2") {
			t.Errorf("%s: outcome = %+v, want the app's own secret to be sent", own, o)
		}
	}
	texts := map[string]string{}
	for there, missing := range map[string]string{
		"env:SECRET_OTHER_KEY": "env:SECRET_OTHER_NONE", "file:other/key": "file:other/none", "file:key": "file:none",
	} {
		if o := use("other", there); strings.HasPrefix(there, "file:other") && o.State != run.Succeeded {
			t.Errorf("%s: outcome = %+v, want its app to have it", there, o) // and the node to remember it
		}
		for _, reference := range []string{there, missing} {
			o := use("demo", reference)
			if o.Class != run.ClassBounds || !o.NotSent {
				t.Errorf("%s: outcome = %+v, want class bounds", reference, o)
			}
			texts[strings.ReplaceAll(o.Error, reference, "REFERENCE")] = reference
		}
	}
	if len(texts) != 1 {
		t.Errorf("errors tell references apart: %v", texts)
	}
	for missing, says := range map[string]string{"env:SECRET_DEMO_NONE": "not set", "file:demo/none": "no such file",
		"file:demo/out": "escapes", "file:demo/up": "escapes"} {
		o := use("demo", missing)
		if o.Class != run.ClassSecret || !strings.Contains(o.Error, missing) || !strings.Contains(o.Error, says) {
			t.Errorf("%s: outcome = %+v, want the app's own secret to be named, and %q", missing, o, says)
		}
	}
}

// T2: the node signs only requests that an operator allows, for the service and the host of the request as it is sent.
func TestRequestsAreSignedAsTheNodeOnlyWithinBounds(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2-secret-key")
	t.Setenv("AWS_SESSION_TOKEN", "hunter2-session-token")
	i := newInvoker(t)
	address, requests := recorder(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	allowed := target.Bounds{SignAsNode: []target.SignatureBound{{Service: "execute-api", Hosts: []string{"127.0.0.1"}}}}
	for name, tt := range map[string]struct {
		bounds        target.Bounds
		service, host string
		signed        bool
	}{
		"an allowed service and host": {allowed, "execute-api", "127.0.0.1", true},
		"by default":                  {target.Bounds{}, "execute-api", "127.0.0.1", false},
		"another service":             {allowed, "sts", "127.0.0.1", false},
		"another host":                {allowed, "execute-api", "127.0.0.2", false},
	} {
		call := within(callTo("http://"+tt.host+":"+port, "POST", ample), tt.bounds)
		call.Target.Webhook.Auth = &target.Auth{SigV4: &target.SigV4Auth{Service: tt.service, Region: "eu-central-1"}}
		o := i.Invoke(t.Context(), call)
		switch {
		case tt.signed && (o.State != run.Succeeded || (<-requests).header.Get("X-Amz-Security-Token") == ""):
			t.Errorf("%s: outcome = %+v, want it signed", name, o)
		case !tt.signed && (o.Class != run.ClassBounds || !o.NotSent || len(requests) != 0):
			t.Errorf("%s: outcome = %+v after %d requests, want class bounds before any", name, o, len(requests))
		}
	}
}

// T2, T18: no part of a credential is stored, whatever form a receiver returns it in.
func TestResponsesNeverHoldCredentialsInAnyForm(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2-secret-key")
	t.Setenv("AWS_SESSION_TOKEN", "hunter2-session-token")
	const secret = `hunter2/"<&'>é 壊=x`
	i := withSecrets(t, map[string]string{"key": secret})
	inJSON, _ := json.Marshal(secret)
	php := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#039;")
	for name, write := range map[string]func(text string) string{
		"as it is":               func(text string) string { return text },
		"in JSON":                func(string) string { return string(inJSON) },
		"in JSON with \\/":       func(string) string { return strings.ReplaceAll(string(inJSON), "/", `\/`) },
		"in JSON of ASCII":       func(string) string { return `"hunter2/\"<&'>\u00e9 \u58ca=x"` },
		"in a query":             url.QueryEscape,
		"in a path":              url.PathEscape,
		"in a query, lower case": func(text string) string { return strings.ToLower(url.QueryEscape(text)) },
		"in HTML":                html.EscapeString,
		"in HTML of PHP":         php.Replace,
		"in base64":              func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
		"in base64, within":      func(text string) string { return base64.StdEncoding.EncodeToString([]byte("ab" + text + "cde")) },
		"in base64 of URLs":      func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte("a" + text)) },
		"in hex":                 func(text string) string { return hex.EncodeToString([]byte(text)) },
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "before %s after", write(r.Header.Get("X-Key")))
		}))
		call := callTo(server.URL, "POST", ample)
		call.Target.Webhook.Auth = &target.Auth{APIKey: &target.APIKeyAuth{Header: "X-Key", Key: secretFile("key")}}
		o := i.Invoke(t.Context(), call)
		server.Close()
		if o.Response == nil || !strings.Contains(o.Response.Body, "[redacted]") || !strings.HasPrefix(o.Response.Body, "before ") ||
			!strings.HasSuffix(o.Response.Body, " after") {
			t.Errorf("%s: the response is kept as %+v, want no secret in it", name, o.Response)
		}
	}
	const kept = 64 << 10
	for cut := 5; cut < len(secret); cut++ {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, strings.Repeat("x", kept-cut), r.Header.Get("X-Key"), "more")
		}))
		call := callTo(server.URL, "POST", ample)
		call.Target.Webhook.Auth = &target.Auth{APIKey: &target.APIKeyAuth{Header: "X-Key", Key: secretFile("key")}}
		o := i.Invoke(t.Context(), call)
		server.Close()
		if o.Response == nil || strings.Contains(o.Response.Body, "hunt") {
			t.Errorf("the end of a response cut after %d bytes of a secret is %q", cut, o.Response.Body[len(o.Response.Body)-30:])
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", r.Header.Get("X-Amz-Security-Token"))
		_ = json.NewEncoder(w).Encode(map[string]any{
			"headers": r.Header, "SecretAccessKey": `hunter2\"issued`, "key": "hunter2-secret-key", "id": "ASIAIOSFODNN7EXAMPLE",
		})
		fmt.Fprint(w, "<SessionToken>hunter2-issued</SessionToken><SecretAccessKey>hunter2")
	}))
	t.Cleanup(server.Close)
	call := within(callTo(server.URL, "POST", ample), target.Bounds{
		SignAsNode: []target.SignatureBound{{Service: "execute-api", Hosts: []string{"127.0.0.1"}}},
	})
	call.Target.Webhook.Auth = &target.Auth{SigV4: &target.SigV4Auth{Service: "execute-api", Region: "eu-central-1"}}
	o := i.Invoke(t.Context(), call)
	text := fmt.Sprintf("%+v", o.Response)
	_, signature, _ := strings.Cut(text, "Signature=")
	if o.State != run.Succeeded || strings.Contains(text, "hunter2") || strings.Contains(text, "EXAMPLE") ||
		!strings.HasPrefix(signature, "[redacted]") {
		t.Errorf("the response is kept as %s, want it without credentials and signature", text)
	}
}

// T8: private networks are open only to apps whose bounds list them, or as the node allows; no app uses the connections
// of another.
func TestAppsCallTheNetworksOfTheirBounds(t *testing.T) {
	t.Parallel()
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.255.255.0/30")} // no host is there, so allowed calls time out
	const inside, denied, bounds = "http://10.255.255.1:9/", run.ClassEgressDenied, run.ClassBounds
	networks := func(all ...string) target.EgressBounds { return target.EgressBounds{Networks: all} }
	for name, tt := range map[string]struct {
		private []netip.Prefix
		bounds  target.EgressBounds
		url     string
		class   run.Class // empty: not denied
	}{
		"neither opens it":          {nil, networks(), inside, denied},
		"the node opens it":         {prefixes, networks(), inside, ""},
		"the bounds open it":        {nil, networks("10.255.255.0/30"), inside, ""},
		"the bounds close it":       {prefixes, networks("public"), inside, denied},
		"the bounds open another":   {nil, networks("10.1.0.0/16"), inside, denied},
		"the bounds close the rest": {nil, networks("10.1.0.0/16"), "http://93.184.215.14/", denied},
		"metadata stay closed":      {nil, networks("169.254.0.0/16"), "http://169.254.169.254/", denied},
		"the node stays closed":     {nil, networks("127.0.0.0/8"), "http://127.0.0.1:9/", denied},
		"another host":              {prefixes, target.EgressBounds{Hosts: []string{"*.example.com"}}, inside, bounds},
		"no network is allowed":     {prefixes, target.EgressBounds{Networks: []string{}}, inside, denied},
		"no public one either":      {nil, target.EgressBounds{Networks: []string{}}, "http://93.184.215.14/", denied},
		"no host is allowed":        {prefixes, target.EgressBounds{Hosts: []string{}}, inside, bounds},
		"no port is allowed":        {prefixes, target.EgressBounds{Ports: []int{}}, inside, bounds},
		"another port":              {prefixes, target.EgressBounds{Ports: []int{443}}, inside, bounds},
	} {
		i := invoke.New(invoke.Options{Egress: web.Egress{Private: tt.private}})
		timeout := ample // a denied call fails at once
		if tt.class == "" {
			timeout = short
		}
		o := i.Invoke(t.Context(), within(callTo(tt.url, "POST", timeout), target.Bounds{Egress: tt.bounds}))
		i.Close()
		if refused := o.Class == denied || o.Class == bounds; refused != (tt.class != "") || refused && o.Class != tt.class {
			t.Errorf("%s: outcome = %+v, want class %q", name, o, tt.class)
		}
		says := strings.Contains(o.Error, "--egress-private") && strings.Contains(o.Error, "egress.networks")
		if strings.Contains(o.Error, "private network") && !says {
			t.Errorf("%s: error %q does not say how to open the network", name, o.Error)
		}
	}
}

// A connection of one app is not handed to another that may not make it.
func TestConnectionsOfAppsWithOtherBoundsAreNotShared(t *testing.T) {
	t.Parallel()
	var conns atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	i := newInvoker(t)
	call := func(app string, egress target.EgressBounds) run.Outcome {
		c := callTo(server.URL, "POST", ample)
		c.App = app
		return i.Invoke(t.Context(), within(c, target.Bounds{Egress: egress}))
	}
	for _, tt := range []struct {
		app    string
		egress target.EgressBounds
		class  run.Class
		conns  int32
	}{
		{"a", target.EgressBounds{}, "", 1},
		{"b", target.EgressBounds{}, "", 1},
		{"c", target.EgressBounds{Hosts: []string{"example.com"}}, run.ClassBounds, 1},
		{"d", target.EgressBounds{Networks: []string{"10.0.0.0/8"}}, run.ClassEgressDenied, 1},
		{"e", target.EgressBounds{Hosts: []string{"127.0.0.1"}}, "", 2},
		{"e", target.EgressBounds{Hosts: []string{"127.0.0.1"}}, "", 2},
		{"e", target.EgressBounds{Hosts: []string{"example.com"}}, run.ClassBounds, 2}, // tightened
		{"e", target.EgressBounds{Hosts: []string{"127.0.0.1"}, Networks: []string{}}, run.ClassEgressDenied, 2},
		{"e", target.EgressBounds{Hosts: []string{"127.0.0.1"}, Networks: []string{"public"}}, "", 3},
	} {
		if o := call(tt.app, tt.egress); o.Class != tt.class || conns.Load() != tt.conns {
			t.Errorf("app %s with %+v: class %q after %d connections, want %q after %d (%s)",
				tt.app, tt.egress, o.Class, conns.Load(), tt.class, tt.conns, o.Error)
		}
	}
}

// T8: no webhook calls the API of another node, once it is known.
func TestAPIsOfOtherNodesAreNotCalled(t *testing.T) {
	t.Parallel()
	peer := newCanary(t)
	i := newInvoker(t)
	target := "http://127.0.0.1:" + peer.port + "/v1/apps"
	i.Invoke(t.Context(), callTo(target, "GET", ample))
	before := peer.hits.Load()
	i.DenyAPIs([]string{"10.0.0.7:8080", "127.0.0.1:" + peer.port, "[::1]:" + peer.port, "nonsense"})
	for _, host := range []string{"127.0.0.1", "[::ffff:127.0.0.1]", "[::1]"} {
		o := i.Invoke(t.Context(), callTo("http://"+host+":"+peer.port+"/", "GET", ample))
		if o.Class != run.ClassEgressDenied || !strings.Contains(o.Error, "API of a node") {
			t.Errorf("%s: outcome = %+v, want egress_denied", host, o)
		}
	}
	if hits := peer.hits.Load(); before == 0 || hits != before {
		t.Errorf("%d connections before and %d after the address is known, want some and no more", before, hits)
	}
}

// A suspended app gets no request of an attempt that has not begun.
func TestNoRequestIsSentForASuspendedApp(t *testing.T) {
	t.Parallel()
	address, requests := recorder(t)
	o := newInvoker(t).Invoke(t.Context(), within(callTo(address, "POST", ample), target.Bounds{Suspended: true}))
	if o.Class != run.ClassBounds || !o.NotSent || len(requests) != 0 || !strings.Contains(o.Error, "suspended") {
		t.Errorf("outcome = %+v after %d requests, want class bounds before any", o, len(requests))
	}
}
