package provider_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// login is the authorization server of the page, and a receiver that accepts its tokens.
type login struct {
	server, receiver *httptest.Server
	public           any
	expired          atomic.Bool // of the secret
	calls            atomic.Int32
}

func newLogin(t *testing.T, public any) *login {
	t.Helper()
	l := &login{public: public}
	l.server = httptest.NewServer(http.HandlerFunc(l.token))
	t.Cleanup(l.server.Close)
	l.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.calls.Add(1); r.Header.Get("Authorization") != "Bearer of-billing" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(l.receiver.Close)
	return l
}

func (l *login) token(w http.ResponseWriter, r *http.Request) {
	id, encoded, _ := r.BasicAuth()
	secret, _ := neturl.QueryUnescape(encoded)
	known := id == "carillon-billing" && secret == "of the page" || l.signed(r.PostFormValue("client_assertion"))
	switch {
	case l.expired.Load():
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"invalid_client","error_description":"the secret has expired"}`)
	case !known || r.URL.Path != "/oauth2/token":
		w.WriteHeader(http.StatusUnauthorized)
	default:
		_, _ = io.WriteString(w, `{"access_token":"of-billing","token_type":"Bearer","expires_in":0}`)
	}
}

func (l *login) signed(assertion string) bool {
	signed, err := jose.ParseSignedCompact(assertion, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil || signed.Signatures[0].Protected.KeyID != "2026-11" {
		return false
	}
	_, err = signed.Verify(l.public)
	return err == nil
}

// in replaces the page's addresses in a text by those of the servers, and out does the reverse in an error.
func (l *login) in(text string) string {
	return strings.NewReplacer("https://login.example.com", l.server.URL, "https://api.example.com", l.receiver.URL).Replace(text)
}

func (l *login) out(text string) string {
	return strings.ReplaceAll(text, l.server.URL, "https://login.example.com")
}

func TestOAuth2PageWorksWordByWord(t *testing.T) {
	need.Step(t, "provider")
	t.Setenv("SECRET_BILLING_CLIENT", "of the page")
	page := contents(t, filepath.Join("..", "docs", "how-to", "use-oauth2.md"))
	pieces := fenced.FindAllStringSubmatch(page, -1)
	if len(pieces) != 2 {
		t.Fatalf("the page has %d pieces of configuration, want the job and the block with a key", len(pieces))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "billing"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "billing", "client.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
	l := newLogin(t, key.Public())
	f := newFixture(t)
	withSecret := l.in(pieces[0][2])
	d := f.directory(t, f.config(withSecret))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "2 added")
	attempt := func() run.Outcome {
		i := invoke.New(invoke.Options{SecretDir: dir, Egress: web.Egress{Loopback: true}})
		defer i.Close()
		jobs, err := f.store.JobsByID(t.Context(), []int64{run.JobID("billing", "invoices")})
		if err != nil || len(jobs) != 1 {
			t.Fatalf("jobs = %v, %v", jobs, err)
		}
		return i.Invoke(t.Context(), target.Call{App: "billing", Job: "invoices", EventID: "evt_1", Attempt: 1, Target: jobs[0].Target,
			Key: run.Key{ScheduledAt: time.Date(2026, 11, 1, 1, 0, 0, 0, time.UTC), Kind: run.KindManual}})
	}
	if o := attempt(); o.State != run.Succeeded || l.calls.Load() != 1 {
		t.Errorf("with a secret: outcome = %+v after %d calls", o, l.calls.Load())
	}
	l.expired.Store(true)
	if o := attempt(); o.Class != run.ClassOAuth2 || !strings.Contains(page, l.out(o.Error)) || l.calls.Load() != 1 {
		t.Errorf("with an expired secret: outcome = %+v after %d calls, want what the page shows", o, l.calls.Load())
	}
	l.expired.Store(false)
	before, rest, _ := strings.Cut(withSecret, "oauth2 {")
	_, after, _ := strings.Cut(rest, "scopes = [\"invoices:write\"]\n")
	write(t, filepath.Join(d.path, "file0.tf"), f.config(before+strings.TrimSuffix(l.in(pieces[1][2]), "}\n")+after))
	mustSay(t, d.must(t, "apply", "-auto-approve"), "1 changed")
	if o := attempt(); o.State != run.Succeeded || l.calls.Load() != 2 {
		t.Errorf("with a key: outcome = %+v after %d calls", o, l.calls.Load())
	}
}
