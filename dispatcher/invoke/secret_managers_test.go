package invoke_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/secretmanager"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/servers"
)

// strict is a target that accepts one bearer token, and counts requests.
type strict struct {
	*httptest.Server
	accepts  atomic.Pointer[string]
	requests atomic.Int32
}

func newStrict(t *testing.T, token string) *strict {
	t.Helper()
	s := &strict{}
	s.accepts.Store(&token)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if got := r.Header.Get("Authorization"); got != "Bearer "+*s.accepts.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, "%s is wrong", got)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// kept is the managers of secrets, and an invoker with a node that may use them.
type kept struct {
	*invoke.Invoker
	aws   *servers.AWS
	vault *servers.Vault
}

func keepSecrets(t *testing.T, m secret.Managers) *kept {
	t.Helper()
	k := &kept{aws: servers.NewAWS(t), vault: servers.NewVault(t, "node-token")}
	m.Vault = secretmanager.NewVault(secretmanager.VaultOptions{
		Address: k.vault.URL, Client: k.vault.Client(), Login: secretmanager.VaultToken{Token: "node-token"},
	})
	k.Invoker = invoke.New(invoke.Options{
		Egress: web.Egress{Loopback: true}, Managers: m, Logger: slog.New(slog.DiscardHandler),
		LoadAWS: func(context.Context) (aws.Config, error) {
			return aws.Config{
				Region: "eu-central-1", BaseEndpoint: aws.String(k.aws.URL), HTTPClient: k.aws.Client(),
				Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
				Credentials: credentials.NewStaticCredentialsProvider(servers.AccessKeyID, servers.SecretAccessKey, ""),
			}, nil
		},
	})
	t.Cleanup(k.Close)
	k.put("token-one")
	return k
}

// put stores a token in all managers.
func (k *kept) put(token string) {
	k.aws.PutSecret("demo/api", fmt.Sprintf(`{"user":"ann","token":%q}`, token))
	k.aws.PutParameter("/demo/token", token)
	k.vault.Put("secret/data/demo", map[string]any{"token": token})
}

// fail makes all managers fail.
func (k *kept) fail(f servers.Fault) {
	k.aws.Fail("GetSecretValue", f)
	k.aws.Fail("GetParameter", f)
	k.vault.Fail(f)
}

// references are one for each manager.
var references = []string{"awssm:demo/api#token", "ssm:/demo/token", "vault:secret/data/demo#token"}

// withManaged is a call with a bearer token, in an app whose bounds list the secrets.
func withManaged(url, reference string) target.Call {
	call := callTo(url, "POST", ample)
	call.AWSExternalID = "ext-demo"
	call.Bounds = &target.Bounds{Secrets: []string{"awssm:demo/*", "ssm:/demo/*", "vault:secret/data/demo"}}
	call.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: reference}}}
	return call
}

func TestSecretsOfManagersAreSentAndReadOnce(t *testing.T) {
	t.Parallel()
	k, target := keepSecrets(t, secret.Managers{}), newStrict(t, "token-one")
	for _, reference := range references {
		for range 3 {
			if o := k.Invoke(t.Context(), withManaged(target.URL, reference)); o.State != run.Succeeded {
				t.Errorf("%s: outcome = %+v", reference, o)
			}
		}
	}
	if n := k.aws.Calls("GetSecretValue") + k.aws.Calls("GetParameter") + k.vault.Reads(); n != 3 {
		t.Errorf("%d reads for three secrets in nine attempts, want 3", n)
	}
}

// T1: a secret outside the bounds is not even queried.
func TestSecretsOfManagersOutsideTheBoundsAreNotRead(t *testing.T) {
	t.Parallel()
	k, to := keepSecrets(t, secret.Managers{}), newStrict(t, "token-one")
	for _, reference := range references {
		for _, bounds := range []*target.Bounds{nil, {Secrets: []string{"awssm:other/*", "vault:secret/data/demo/*"}}} {
			call := withManaged(to.URL, reference)
			call.Bounds = bounds
			if o := k.Invoke(t.Context(), call); o.Class != run.ClassBounds || !o.NotSent {
				t.Errorf("%s: outcome = %+v, want class bounds", reference, o)
			}
		}
	}
	if n := k.aws.Calls("GetSecretValue") + k.aws.Calls("GetParameter") + k.vault.Reads() + int(to.requests.Load()); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

// A secret is rotated while it is cached: the refused attempt makes one request, and the next sends the new value. If
// the secret is the same, the refusal is the target's own.
func TestRotatedSecretsAreSentAfterOneRefusal(t *testing.T) {
	t.Parallel()
	for _, reference := range references {
		k, target := keepSecrets(t, secret.Managers{}), newStrict(t, "token-one")
		call := withManaged(target.URL, reference)
		k.Invoke(t.Context(), call)
		rotated := "token-two"
		target.accepts.Store(&rotated)
		k.put(rotated)
		o := k.Invoke(t.Context(), call)
		if o.Class != run.ClassSecretReplaced || !o.Class.Repeatable(o.HTTPStatus) || o.HTTPStatus != http.StatusUnauthorized ||
			o.NotSent || target.requests.Load() != 2 || strings.Contains(o.Response.Body, "token-one") {
			t.Errorf("%s: outcome = %+v, %+v after %d requests, want that it be attempted again", reference, o, o.Response, target.requests.Load())
		}
		if o := k.Invoke(t.Context(), call); o.State != run.Succeeded || target.requests.Load() != 3 {
			t.Errorf("%s: outcome = %+v after %d requests, want success with the new value", reference, o, target.requests.Load())
		}
		unknown := "token-three"
		target.accepts.Store(&unknown)
		for range 3 {
			if o := k.Invoke(t.Context(), call); o.Class != run.ClassHTTP4xx || o.Class.Repeatable(o.HTTPStatus) {
				t.Errorf("%s: outcome = %+v, want the refusal of the target", reference, o)
			}
		}
		if n := k.aws.Calls("GetSecretValue") + k.aws.Calls("GetParameter") + k.vault.Reads(); n > 3 {
			t.Errorf("%s: %d reads, want no more of a target that goes on to refuse", reference, n)
		}
	}
}

// withManagedClient is a call with a token of an OAuth 2 client, whose secret is in a manager.
func withManagedClient(url, tokenURL, reference string) target.Call {
	call := withManaged(url, reference)
	call.Target.Webhook.Auth = &target.Auth{OAuth2: &target.OAuth2Auth{
		TokenURL: tokenURL, ClientID: "billing", ClientSecret: &target.Secret{Reference: reference},
	}}
	return call
}

// A client secret is rotated while it is cached: the token endpoint refuses the old one, and the same attempt asks with
// the new one.
func TestRotatedClientSecretIsReadAgainWithinTheAttempt(t *testing.T) {
	t.Parallel()
	for _, reference := range references {
		k, target := keepSecrets(t, secret.Managers{}), newStrict(t, "token-3")
		server := newTokenServer(t, func(n int32, w http.ResponseWriter, r *http.Request) {
			if _, given, _ := r.BasicAuth(); n > 1 && given != "token-two" {
				say(w, http.StatusBadRequest, `{"error":"invalid_client"}`)
				return
			}
			issue(w, n)
		})
		call := withManagedClient(target.URL, server.URL, reference)
		k.Invoke(t.Context(), call) // the target refuses token-1, so that the next attempt needs another
		k.put("token-two")
		if o := k.Invoke(t.Context(), call); o.State != run.Succeeded || server.asked.Load() != 3 {
			t.Errorf("%s: %+v after %d requests for tokens, want a success after 3", reference, o, server.asked.Load())
		}
	}
}

// If a refused client secret is still the same, its manager is queried once more, and the token endpoint is not.
func TestClientSecretThatIsWrongIsReadAgainOnce(t *testing.T) {
	t.Parallel()
	for _, reference := range references {
		k, target := keepSecrets(t, secret.Managers{}), newStrict(t, "token-1")
		server := newTokenServer(t, func(_ int32, w http.ResponseWriter, _ *http.Request) {
			say(w, http.StatusUnauthorized, `{"error":"invalid_client"}`)
		})
		o := k.Invoke(t.Context(), withManagedClient(target.URL, server.URL, reference))
		reads := k.aws.Calls("GetSecretValue") + k.aws.Calls("GetParameter") + k.vault.Reads()
		if o.Class != run.ClassOAuth2 || !o.NotSent || reads != 2 || server.asked.Load() != 1 {
			t.Errorf("%s: %+v after %d reads and %d requests for tokens, want class oauth2 and nothing sent after 2 and 1",
				reference, o, reads, server.asked.Load())
		}
	}
}

// If many attempts are refused at once, the secret is read again once, and all of them get the new value.
func TestRefusalsAtOnceReadTheSecretOnce(t *testing.T) {
	t.Parallel()
	k, target := keepSecrets(t, secret.Managers{}), newStrict(t, "token-one")
	call := withManaged(target.URL, "ssm:/demo/token")
	k.Invoke(t.Context(), call)
	rotated := "token-two"
	target.accepts.Store(&rotated)
	k.put(rotated)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if o := k.Invoke(t.Context(), call); o.State != run.Succeeded && o.Class != run.ClassSecretReplaced {
				t.Errorf("outcome = %+v, want success or that it be attempted again", o)
			}
		})
	}
	wg.Wait()
	if n := k.aws.Calls("GetParameter"); n != 2 {
		t.Errorf("%d reads, want 2", n)
	}
}

// While a manager is in trouble, attempts send the last value; after a denial or a deletion, they send nothing.
func TestTroubleOfManagersDiffersFromDenials(t *testing.T) {
	t.Parallel()
	for _, reference := range references {
		k := keepSecrets(t, secret.Managers{Lifetime: time.Nanosecond, Keep: time.Hour})
		target := newStrict(t, "token-one")
		attempt := func() run.Outcome {
			return k.Invoke(t.Context(), withManaged(target.URL, reference))
		}
		attempt()
		for _, f := range []servers.Fault{{Status: 503, Code: "ServiceUnavailable"}, {Status: 429, Code: "ThrottlingException"}} {
			k.fail(f)
			if o := attempt(); o.State != run.Succeeded {
				t.Errorf("%s: outcome while it responds %d = %+v, want success with the last value", reference, f.Status, o)
			}
		}
		k.fail(servers.Fault{Status: 403, Code: "AccessDeniedException"})
		o := attempt()
		for o.State == run.Succeeded && t.Context().Err() == nil { // until the background read has ended
			o = attempt()
		}
		sent := target.requests.Load()
		if o.Class != run.ClassSecret || !o.NotSent || !strings.Contains(o.Error, "does not let this node read it") ||
			strings.Contains(o.Error, "123456789012") {
			t.Errorf("%s: outcome = %+v, want class secret without a text of the manager", reference, o)
		}
		k.fail(servers.Fault{Status: 503})
		if o = attempt(); o.Class != run.ClassSecret || target.requests.Load() != sent {
			t.Errorf("%s: outcome after a denial = %+v, want nothing sent although the manager is unreachable", reference, o)
		}
	}
}

// T4: the role that reads the secrets of an app carries its identity, so policies can distinguish apps.
func TestSecretsAreReadWithTheIdentityOfTheApp(t *testing.T) {
	t.Parallel()
	k := keepSecrets(t, secret.Managers{AWSRole: "arn:aws:iam::123456789012:role/secrets-{app}"})
	k.aws.Allow(func(s servers.Session, _, _ string) bool {
		return s.Role == "arn:aws:iam::123456789012:role/secrets-demo" && s.ExternalID == "ext-demo" && s.Name == "carillon-demo" &&
			len(s.Tags) == 1 && s.Tags[target.SessionTagApp] == "demo"
	})
	target := newStrict(t, "token-one")
	for _, reference := range references[:2] {
		if o := k.Invoke(t.Context(), withManaged(target.URL, reference)); o.State != run.Succeeded {
			t.Errorf("%s: outcome = %+v", reference, o)
		}
		other := withManaged(target.URL, reference)
		other.App, other.AWSExternalID = "other", "ext-other"
		if o := k.Invoke(t.Context(), other); o.Class != run.ClassSecret {
			t.Errorf("%s: outcome of another app = %+v, want it denied, and not the value that is cached", reference, o)
		}
		other.App, other.AWSExternalID = "third", ""
		if o := k.Invoke(t.Context(), other); o.Class != run.ClassSecret || !strings.Contains(o.Error, "external id") {
			t.Errorf("%s: outcome without an external id = %+v, want no role to be assumed", reference, o)
		}
	}
	if n := k.aws.Calls("AssumeRole"); n != 2 {
		t.Errorf("roles were assumed %d times, want once for each app", n)
	}
}

// A node without the setting for a manager does not say what the manager answered.
func TestNodeSaysThatItAskedNoManager(t *testing.T) {
	t.Parallel()
	i := invoke.New(invoke.Options{Logger: slog.New(slog.DiscardHandler),
		LoadAWS: func(context.Context) (aws.Config, error) { return aws.Config{}, nil }})
	t.Cleanup(i.Close)
	for reference, want := range map[string]string{
		"awssm:demo/api#token": `auth bearer token: "awssm:demo/api#token": AWS Secrets Manager was not asked: neither the reference nor the ` +
			"node names a region; set AWS_REGION on the node, or use an ARN",
		"vault:secret/data/demo#token": `auth bearer token: "vault:secret/data/demo#token": Vault was not asked: this node has no address of ` +
			"Vault; start it with --vault-address",
	} {
		if o := i.Invoke(t.Context(), withManaged("https://example.com/", reference)); o.Class != run.ClassSecret || o.Error != want {
			t.Errorf("%s: class %s, error %q; want class secret and %q", reference, o.Class, o.Error, want)
		}
	}
}

// Trouble of STS does not drop a secret; a role that may not be assumed does.
func TestTroubleOfRolesDiffersFromDenials(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault servers.Fault
		says  string
	}{
		"in trouble": {servers.Fault{Status: 503, Code: "ServiceUnavailable"}, "does not respond as it should (role: ServiceUnavailable)"},
		"throttled":  {servers.Fault{Status: 400, Code: "Throttling"}, "gets too many requests (role: Throttling)"},
		"denied":     {servers.Fault{Status: 403, Code: "AccessDenied"}, "does not let this node read it (role: AccessDenied)"},
	} {
		k := keepSecrets(t, secret.Managers{AWSRole: "arn:aws:iam::123456789012:role/secrets"})
		k.aws.Fail("AssumeRole", tt.fault)
		o := k.Invoke(t.Context(), withManaged("http://127.0.0.1:1", "awssm:demo/api#token"))
		if o.Class != run.ClassSecret || !strings.Contains(o.Error, tt.says) || strings.Contains(o.Error, "private") {
			t.Errorf("%s: outcome = %+v, want class secret that says %s", name, o, tt.says)
		}
	}
}
