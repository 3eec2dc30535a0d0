package invoke_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// received is a request as its receiver sees it.
type received struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// recorder starts a server that responds with 200 and keeps each request.
func recorder(t *testing.T) (address string, requests chan received) {
	t.Helper()
	requests = make(chan received, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- received{r.Method, r.URL, r.Header, body}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// withSecrets returns an Invoker with a secret directory of these files.
func withSecrets(t *testing.T, files map[string]string) *invoke.Invoker {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "demo"), 0o700); err != nil { // for the app of callTo
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, "demo", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	i := invoke.New(invoke.Options{SecretDir: dir, Egress: web.Egress{Loopback: true}})
	t.Cleanup(i.Close)
	return i
}

// signedBy returns the call with a signature for each of the named secret files.
func signedBy(call target.Call, names ...string) target.Call {
	call.Target.Webhook.Signing = &target.Signing{Secrets: map[string]target.Secret{}}
	for _, name := range names {
		call.Target.Webhook.Signing.Secrets[name] = target.Secret{Reference: "file:demo/" + name}
	}
	return call
}

func symmetric(fill byte, length int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), length)))
}

func TestStandardWebhooksVerifiesSignatures(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"a": symmetric('a', 24), "b": symmetric('b', 32) + "\n", "c": symmetric('c', 64),
		"seed": "whsk_" + base64.StdEncoding.EncodeToString(private.Seed()),
		"full": "whsk_" + base64.StdEncoding.EncodeToString(private),
	}
	i := withSecrets(t, files)
	url, requests := recorder(t)
	megabyte, _ := json.Marshal(strings.Repeat("🔔\x00\x7f", 1<<18))
	for name, tt := range map[string]struct {
		method  string
		payload []byte
		secrets []string
	}{
		"no body":              {method: "GET", secrets: []string{"a", "b"}},
		"a described fire":     {secrets: []string{"a"}},
		"two secrets":          {payload: []byte(`{"n": 1}`), secrets: []string{"a", "b"}},
		"three secrets":        {payload: []byte(`"ünïcödé ✓"`), secrets: []string{"a", "b", "c"}},
		"a megabyte":           {payload: megabyte, secrets: []string{"c", "a"}},
		"raw bytes":            {payload: []byte{0, 0xff, 0xfe, '\n', '"'}, secrets: []string{"b"}},
		"ed25519 in addition":  {payload: []byte(`{}`), secrets: []string{"a", "seed", "full"}},
		"ed25519 of no body":   {method: "GET", secrets: []string{"a", "full"}},
		"ed25519 of megabytes": {payload: megabyte, secrets: []string{"a", "seed"}},
	} {
		call := signedBy(callTo(url, "POST", ample), tt.secrets...)
		if tt.method != "" {
			call.Target.Webhook.Method = tt.method
		}
		call.Payload = tt.payload
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Fatalf("%s: outcome = %+v", name, o)
		}
		got := <-requests
		signatures := strings.Fields(got.header.Get("webhook-signature"))
		if len(signatures) != len(tt.secrets) {
			t.Errorf("%s: %d signatures for %d secrets", name, len(signatures), len(tt.secrets))
		}
		for _, secret := range tt.secrets {
			verify := func(body []byte, header http.Header) error { return verifyOne(files[secret], public, body, header) }
			if err := verify(got.body, got.header); err != nil {
				t.Errorf("%s: by %s: %v", name, secret, err)
			}
			for change, tampered := range tamper(got) {
				if verify(tampered.body, tampered.header) == nil {
					t.Errorf("%s: by %s: verified although %s", name, secret, change)
				}
			}
		}
	}
}

// verifyOne verifies a request as a receiver with one secret does.
func verifyOne(secret string, public ed25519.PublicKey, body []byte, header http.Header) error {
	if strings.HasPrefix(secret, "whsec_") {
		hook, err := standardwebhooks.NewWebhook(strings.TrimSpace(secret))
		if err != nil {
			return err
		}
		return hook.Verify(body, header)
	}
	// The library does not support v1a.
	message := fmt.Appendf(nil, "%s.%s.%s", header.Get("webhook-id"), header.Get("webhook-timestamp"), body)
	for signature := range strings.SplitSeq(header.Get("webhook-signature"), " ") {
		encoded, ok := strings.CutPrefix(signature, "v1a,")
		raw, err := base64.StdEncoding.DecodeString(encoded)
		if ok && err == nil && ed25519.Verify(public, message, raw) {
			return nil
		}
	}
	return fmt.Errorf("no signature matches")
}

// tamper returns variants of a request that must not be verified.
func tamper(r received) map[string]received {
	with := func(name, value string) received {
		header := r.header.Clone()
		header.Set(name, value)
		return received{header: header, body: r.body}
	}
	return map[string]received{
		"the body is longer":     {header: r.header, body: append(append([]byte{}, r.body...), 'x')},
		"the id differs":         with("webhook-id", "evt_2"),
		"the time is later":      with("webhook-timestamp", fmt.Sprint(time.Now().Unix()+2)),
		"the signature is cut":   with("webhook-signature", r.header.Get("webhook-signature")[:10]),
		"the signature is gone":  with("webhook-signature", ""),
		"it is signed by others": with("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32))),
	}
}

// A failed lookup is not cached, and every attempt is signed again.
func TestSecretsAreLookedUpAgainForEachAttempt(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"a": symmetric('a', 24)})
	url, requests := recorder(t)
	call := signedBy(callTo(url, "POST", ample), "a")
	call.Target.Webhook.Signing.Secrets["missing"] = target.Secret{Reference: "file:demo/missing"}
	if o := i.Invoke(t.Context(), call); o.Class != run.ClassSecret || len(requests) != 0 {
		t.Errorf("outcome = %+v after %d requests, want class secret before any", o, len(requests))
	}
	delete(call.Target.Webhook.Signing.Secrets, "missing")
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Errorf("outcome = %+v, want success", o)
	}
}

func TestUnusableSecretsAreNamedButNotShown(t *testing.T) {
	t.Setenv("SECRET_EMPTY", "")
	t.Setenv("SECRET_SHORT", "whsec_aHVudGVyMg==")
	t.Setenv("HUNTER", "hunter2")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "outside"), []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"plain": "hunter2", "short": "whsec_aHVudGVyMg==", "long": symmetric('x', 65), "base64": "whsec_hunter2!",
		"key":  "whsk_aHVudGVyMg==",
		"huge": strings.Repeat("hunter2", 10_000), "none": "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	i := invoke.New(invoke.Options{SecretDir: dir, Egress: web.Egress{Loopback: true}})
	t.Cleanup(i.Close)
	url, requests := recorder(t)
	for reference, says := range map[string]string{
		"env:SECRET_UNSET": "not set", "env:SECRET_EMPTY": "not set", "env:SECRET_SHORT": "24 to 64",
		"env:HUNTER": "does not know",
		"file:plain": "whsec_", "file:short": "24 to 64", "file:long": "65 bytes", "file:base64": "not base64",
		"file:key":  "ed25519",
		"file:huge": "64 KiB", "file:none": "empty", "file:link": "escapes", "file:../outside": "escapes",
		"file:.": "not a regular file", "file:nowhere": "no such file",
		"consul:x": "does not know",
	} {
		call := callTo(url, "POST", ample)
		call.Bounds = &target.Bounds{Secrets: []string{"*"}}
		call.Target.Webhook.Signing = &target.Signing{
			Secrets: map[string]target.Secret{"current": {Reference: reference}},
		}
		o := i.Invoke(t.Context(), call)
		if o.Class != run.ClassSecret || !strings.Contains(o.Error, says) ||
			!strings.Contains(o.Error, "signing current") || len(requests) != 0 {
			t.Errorf("%s: outcome = %+v after %d requests, want class secret that says %q", reference, o, len(requests), says)
		}
		if strings.Contains(o.Error, "hunter2") || strings.Contains(o.Error, "aHVudGVyMg") {
			t.Errorf("%s: error %q shows the secret", reference, o.Error)
		}
	}
}

func TestCloudEventsAreSentInBothModes(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"a": symmetric('a', 24)})
	url, requests := recorder(t)
	call := signedBy(callTo(url, "POST", ample), "a")
	call.Payload = []byte(`{"n":1}`)
	attributes := map[string]any{
		"specversion": "1.0", "id": "evt_1", "source": "/apps/demo/jobs/ping", "type": "dev.carillon.run",
		"time": "2026-05-01T10:00:00.000Z", "subject": "fast",
	}
	call.Target.Webhook.CloudEvents = target.CloudEventsBinary
	i.Invoke(t.Context(), call)
	got := <-requests
	for name, want := range attributes {
		if got.header.Get("ce-"+name) != want {
			t.Errorf("header ce-%s = %q, want %q", name, got.header.Get("ce-"+name), want)
		}
	}
	if string(got.body) != `{"n":1}` {
		t.Errorf("body = %s, want the payload", got.body)
	}

	call.Target.Webhook.CloudEvents = target.CloudEventsStructured
	i.Invoke(t.Context(), call)
	got = <-requests
	attributes["datacontenttype"], attributes["data"] = "application/json", map[string]any{"n": 1.0}
	var event map[string]any
	if err := json.Unmarshal(got.body, &event); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(attributes, event); diff != "" || got.header.Get("Content-Type") != "application/cloudevents+json" {
		t.Errorf("event of type %q (-want +got):\n%s", got.header.Get("Content-Type"), diff)
	}
	if err := verifyOne(symmetric('a', 24), nil, got.body, got.header); err != nil {
		t.Errorf("the signature does not cover the envelope: %v", err)
	}
}
