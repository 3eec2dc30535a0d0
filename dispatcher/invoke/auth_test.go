package invoke_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func secretFile(name string) target.Secret {
	return target.Secret{Reference: "file:demo/" + name}
}

func TestRequestsCarryTheCredentials(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"password": "pä:ss w0rd", "token": "a.b-c\n", "key": "k&y=1 %"})
	stored := target.Secret{Stored: true, Value: input.NewSensitive("v")}
	url, requests := recorder(t)
	for name, tt := range map[string]struct {
		auth   target.Auth
		header string
		want   string
	}{
		"basic": {
			target.Auth{Basic: &target.BasicAuth{Username: "ann", Password: secretFile("password")}},
			"Authorization", "Basic YW5uOnDDpDpzcyB3MHJk",
		},
		"bearer": {
			target.Auth{Bearer: &target.BearerAuth{Token: secretFile("token")}},
			"Authorization", "Bearer a.b-c",
		},
		"a stored token": {
			target.Auth{Bearer: &target.BearerAuth{Token: stored}}, "Authorization", "Bearer v",
		},
		"key in header": {
			target.Auth{APIKey: &target.APIKeyAuth{Header: "x-api-key", Key: secretFile("key")}},
			"X-Api-Key", "k&y=1 %",
		},
	} {
		call := callTo(url, "POST", ample)
		call.Target.Webhook.Auth = &tt.auth
		if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Fatalf("%s: outcome = %+v", name, o)
		}
		if got := (<-requests).header.Get(tt.header); got != tt.want {
			t.Errorf("%s: %s = %q, want %q", name, tt.header, got, tt.want)
		}
	}
	for _, query := range []string{"", "?a=1"} {
		call := callTo(url+"/"+query, "GET", ample)
		call.Target.Webhook.Auth = &target.Auth{APIKey: &target.APIKeyAuth{Query: "api_key", Key: secretFile("key")}}
		i.Invoke(t.Context(), call)
		got := (<-requests).url.Query()
		if got.Get("api_key") != "k&y=1 %" || (query != "") != (got.Get("a") == "1") {
			t.Errorf("query = %v, want the key, and %q as it was", got, query)
		}
	}
}

func TestSecretsInvalidInHeadersAreNotSent(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"token": "hunter2\nX-Admin: yes"})
	url, requests := recorder(t)
	call := callTo(url, "POST", ample)
	for name, secret := range map[string]target.Secret{"two lines": secretFile("token"), "no key for it": {Stored: true}} {
		call.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: secret}}
		o := i.Invoke(t.Context(), call)
		if o.Class != run.ClassSecret || !o.NotSent || len(requests) != 0 || strings.Contains(o.Error, "hunter2") ||
			!strings.Contains(o.Error, "bearer token") {
			t.Errorf("%s: outcome = %+v after %d requests, want class secret before any", name, o, len(requests))
		}
	}
}

// AWS signs a received request again and compares the signatures, and so does this test.
func TestSigV4SignatureMatchesTheReceivedRequest(t *testing.T) {
	t.Parallel()
	i := withSecrets(t, map[string]string{"key": "wJalrXUtnFEMI", "token": "session"})
	url, requests := recorder(t)
	token, began := secretFile("token"), time.Now().UTC()
	for _, path := range []string{"/", "/a%20b/c%2Fd?z=1&a=%20&a=b"} {
		for _, method := range []string{"POST", "GET"} {
			call := signedBy(callTo(url+path, method, ample))
			call.Payload = []byte(`{"n":1}`)
			call.Target.Webhook.Auth = &target.Auth{SigV4: &target.SigV4Auth{
				Service: "lambda", Region: "eu-central-1", Credentials: &target.AWSCredentials{
					AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: secretFile("key"), SessionToken: &token,
				},
			}}
			if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
				t.Fatalf("outcome = %+v", o)
			}
			got := <-requests
			if want := resigned(t, got, url); got.header.Get("Authorization") != want {
				t.Errorf("%s %s: Authorization = %s\nwant %s", method, path, got.header.Get("Authorization"), want)
			}
			const form = "20060102T150405Z" // it sorts by time
			if at, ended := got.header.Get("X-Amz-Date"), time.Now().UTC(); at < began.Format(form) || at > ended.Format(form) {
				t.Errorf("X-Amz-Date = %s, want the time of the request", at)
			}
		}
	}
}

// resigned returns the signature of a received request over its signed headers.
func resigned(t *testing.T, got received, base string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), got.method, base+got.url.RequestURI(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(got.header.Get("Authorization"), "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	for name := range strings.SplitSeq(list, ";") {
		if name != "host" && name != "content-length" {
			r.Header[http.CanonicalHeaderKey(name)] = got.header.Values(name)
		}
	}
	if len(strings.Split(list, ";")) < 15 {
		t.Errorf("only %s are signed", list)
	}
	r.ContentLength = int64(len(got.body))
	at, err := time.Parse("20060102T150405Z", got.header.Get("X-Amz-Date"))
	if err != nil {
		t.Errorf("X-Amz-Date = %q, %v", got.header.Get("X-Amz-Date"), err)
	}
	sum := sha256.Sum256(got.body)
	key := aws.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI", SessionToken: "session"}
	if err := v4.NewSigner().SignHTTP(t.Context(), key, r, hex.EncodeToString(sum[:]), "lambda", "eu-central-1", at); err != nil {
		t.Fatal(err)
	}
	return r.Header.Get("Authorization")
}

func TestSigV4UsesTheCredentialsOfTheNode(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	i := invoke.New(invoke.Options{Egress: web.Egress{Loopback: true}})
	t.Cleanup(i.Close)
	url, requests := recorder(t)
	call := callTo(url, "POST", ample)
	call.Bounds = &target.Bounds{SignAsNode: []target.SignatureBound{{Service: "lambda", Hosts: []string{"127.0.0.1"}}}}
	call.Target.Webhook.Auth = &target.Auth{SigV4: &target.SigV4Auth{Service: "lambda", Region: "eu-central-1"}}
	if o := i.Invoke(t.Context(), call); o.State != run.Succeeded {
		t.Fatalf("outcome = %+v", o)
	}
	got := <-requests
	if want := resigned(t, got, url); got.header.Get("Authorization") != want {
		t.Errorf("Authorization = %s\nwant %s", got.header.Get("Authorization"), want)
	}
}
