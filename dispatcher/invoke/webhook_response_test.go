package invoke_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// serve starts a server with a handler and returns its URL.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestSuccessCodesAndExpectBodyDecideTheOutcome(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
		w.WriteHeader(status)
		body := r.URL.Query().Get("body")
		if body == "long" {
			body = strings.Repeat("x", 70_000) + "done"
		}
		_, _ = w.Write([]byte(body))
	})
	i := newInvoker(t)
	for name, tt := range map[string]struct {
		query  string
		codes  []target.SuccessCode
		expect string
		class  run.Class
	}{
		"2xx by default": {query: "status=299"},
		"a listed code":  {query: "status=404", codes: []target.SuccessCode{"2xx", "404"}},
		"a code that is not listed": {
			query: "status=405", codes: []target.SuccessCode{"2xx", "404"}, class: run.ClassHTTP4xx,
		},
		"200 where 204 is wanted":      {query: "status=200", codes: []target.SuccessCode{"204"}, class: run.ClassHTTP2xx},
		"a redirect as success":        {query: "status=302", codes: []target.SuccessCode{"3xx"}},
		"as expected":                  {query: "status=200&body=all+done", expect: "done$"},
		"not as expected":              {query: "status=200&body=failed", expect: "^done$", class: run.ClassBody},
		"no body":                      {query: "status=200", expect: "done", class: run.ClassBody},
		"beyond the part that is read": {query: "status=200&body=long", expect: "done", class: run.ClassBodyTooLarge},
		"within the part that is read": {query: "status=200&body=long", expect: "^x+"},
		"a failure that matches":       {query: "status=500&body=done", expect: "done", class: run.ClassHTTP5xx},
	} {
		call := callTo(url+"/?"+tt.query, "POST", ample)
		call.Target.Webhook.SuccessCodes, call.Target.Webhook.ExpectBody = tt.codes, tt.expect
		if o := i.Invoke(t.Context(), call); o.Class != tt.class ||
			(o.State == run.Succeeded) != (tt.class == "") || o.HTTPStatus == 0 {
			t.Errorf("%s: outcome = %+v, want class %q", name, o, tt.class)
		}
	}
}

func TestResponsesAreKeptWithoutSecrets(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		switch r.URL.Path {
		case "/plain":
		case "/id":
			w.Header().Set("X-Request-Id", "req-1")
		case "/binary":
			_, _ = w.Write([]byte("a\x00b\xff壊"))
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat("é", 50_000)))
		case "/echo":
			w.Header().Set("Location", "/?key="+r.URL.Query().Get("key"))
			w.WriteHeader(http.StatusFound)
			_, _ = fmt.Fprintf(w, "%v %s", r.Header, r.URL)
		}
	})
	i := withSecrets(t, map[string]string{"password": "hunter2", "signing": symmetric('s', 24), "key": "hunter3 &"})
	invoke := func(path string, auth *target.Auth) *run.Response {
		call := signedBy(callTo(url+path, "POST", ample), "signing")
		call.Target.Webhook.Auth = auth
		return i.Invoke(t.Context(), call).Response
	}
	if got := invoke("/plain", nil); got != nil {
		t.Errorf("an empty success keeps %+v, want nothing", got)
	}
	if got := invoke("/id", nil); got == nil || got.RequestID != "req-1" || got.Phases.FirstByte <= 0 ||
		got.Phases.LastByte < got.Phases.FirstByte {
		t.Errorf("kept = %+v, want the request id and phases", got)
	}
	got := invoke("/binary", nil)
	if want := "a\uFFFDb\uFFFD壊"; got == nil || got.Body != want || got.BodyTruncated || got.Headers["content-type"] == "" {
		t.Errorf("kept = %+v, want body %q and its type", got, want)
	}
	if got := invoke("/long", nil); got == nil || got.Body != strings.Repeat("é", 32_768) || !got.BodyTruncated {
		t.Errorf("kept %d bytes, truncated %v, want 65536 and truncated", len(got.Body), got.BodyTruncated)
	}
	for _, auth := range []*target.Auth{
		{Basic: &target.BasicAuth{Username: "ann", Password: secretFile("password")}},
		{Bearer: &target.BearerAuth{Token: secretFile("password")}},
		{APIKey: &target.APIKeyAuth{Query: "key", Key: secretFile("key")}},
		{APIKey: &target.APIKeyAuth{Header: "X-Key", Key: secretFile("key")}},
	} {
		text := fmt.Sprintf("%+v", *invoke("/echo", auth))
		for _, secret := range []string{"hunter", "YW5uOmh1bnRlcjI", "whsec_"} {
			if strings.Contains(text, secret) {
				t.Errorf("the kept response repeats a secret: %s", text)
			}
		}
		if !strings.Contains(text, "[redacted]") || !strings.Contains(text, "Webhook-Id:[evt_1]") {
			t.Errorf("kept = %s, want the echo without the secrets", text)
		}
	}
}

func TestTLSOptionsApplyToConnections(t *testing.T) {
	t.Parallel()
	client := certificate(t, "127.0.0.2", time.Now().Add(time.Hour))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	known := x509.NewCertPool()
	known.AppendCertsFromPEM([]byte(pemOf(client)))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known, MaxVersion: tls.VersionTLS12}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	raw, err := x509.MarshalPKCS8PrivateKey(client.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(certificate(t, "127.0.0.3", time.Now().Add(time.Hour)).PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	asPEM := func(key []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	}
	i := withSecrets(t, map[string]string{"key": asPEM(raw), "other": asPEM(other)})
	key, wrong := secretFile("key"), secretFile("other")
	for name, tt := range map[string]struct {
		tls   *target.TLS
		class run.Class
	}{
		"none":                   {nil, run.ClassTLS},
		"an unknown authority":   {&target.TLS{ClientCertificate: pemOf(client), ClientKey: &key}, run.ClassTLS},
		"no certificate to show": {&target.TLS{CACertificates: ca}, run.ClassTLS},
		"the required certificate": {
			&target.TLS{CACertificates: ca, ClientCertificate: pemOf(client), ClientKey: &key}, "",
		},
		"another certificate's key": {
			&target.TLS{CACertificates: ca, ClientCertificate: pemOf(client), ClientKey: &wrong},
			run.ClassSecret,
		},
		"a version too new": {
			&target.TLS{CACertificates: ca, ClientCertificate: pemOf(client), ClientKey: &key, MinVersion: "1.3"},
			run.ClassTLS,
		},
	} {
		for range 2 { // the second call may use a kept connection
			call := callTo(server.URL, "POST", ample)
			call.Target.Webhook.TLS = tt.tls
			if o := i.Invoke(t.Context(), call); o.Class != tt.class {
				t.Errorf("%s: outcome = %+v, want class %q", name, o, tt.class)
			}
		}
	}
}

// Some headers allow net/http to repeat a request, and HTTP/2 repeats requests without them.
func TestOneAttemptIsOneRequestByHTTP2AndWithIdempotencyKeys(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "GET", "DELETE"} {
		var requests atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if requests.Add(1)%2 == 0 {
				panic(http.ErrAbortHandler)
			}
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		i := newInvoker(t)
		var outcomes []string
		for n := range 6 {
			call := callTo(server.URL, method, ample)
			call.Target.Webhook.Headers = map[string]string{"Idempotency-Key": "1", "X-Idempotency-Key": "1"}
			call.Target.Webhook.TLS = &target.TLS{CACertificates: string(authority)}
			o := i.Invoke(t.Context(), call)
			outcomes = append(outcomes, string(o.Class))
			if got := requests.Load(); got != int32(n+1) {
				t.Fatalf("%s: %d requests of %d attempts: %+v", method, got, n+1, o)
			}
		}
		if diff := cmp.Diff([]string{"", "reset", "", "reset", "", "reset"}, outcomes); diff != "" {
			t.Errorf("%s: classes (-want +got):\n%s", method, diff)
		}
	}
}
