package servers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// ServerID must be in the signature of an AWS login.
const ServerID = "vault.test"

// ServiceAccount is the token of the service account for the login with Kubernetes.
const ServiceAccount = "service-account-token"

// Vault is a HashiCorp Vault server with the auth methods kubernetes and aws, and with KV version 2 engines.
type Vault struct {
	*httptest.Server

	mu      sync.Mutex
	secrets map[string][]*version // by path of the API
	tokens  map[string]string     // roles by valid token; a token without login has the role "root"
	logins  map[string]int        // by role
	reads   int
	lease   time.Duration
	fault   Fault
	allow   func(role, path string) bool
}

type version struct {
	data    map[string]any
	deleted bool
}

// NewVault starts a server that ends with the test. token is its initial token.
func NewVault(tb testing.TB, token string) *Vault {
	tb.Helper()
	v := &Vault{
		secrets: map[string][]*version{}, tokens: map[string]string{token: "root"}, logins: map[string]int{}, lease: time.Hour,
		allow: func(string, string) bool { return true },
	}
	v.Server = httptest.NewServer(http.HandlerFunc(v.serve))
	tb.Cleanup(v.Close)
	return v
}

// Put adds a version of a secret, with a path of the API such as secret/data/billing.
func (v *Vault) Put(path string, data map[string]any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.secrets[path] = append(v.secrets[path], &version{data: data})
}

// Delete deletes the latest version of a secret.
func (v *Vault) Delete(path string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.secrets[path]
	all[len(all)-1].deleted = true
}

// Fail makes all requests fail from now on. The zero Fault ends that.
func (v *Vault) Fail(f Fault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fault = f
}

// Allow sets a policy.
func (v *Vault) Allow(policy func(role, path string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.allow = policy
}

// Revoke invalidates all tokens.
func (v *Vault) Revoke() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.tokens)
}

// Accept makes a token valid.
func (v *Vault) Accept(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens[token] = "root"
}

// Reads returns the number of successful reads.
func (v *Vault) Reads() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.reads
}

// Logins returns how often a role logged in.
func (v *Vault) Logins(role string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.logins[role]
}

func (v *Vault) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	v.mu.Lock()
	fault := v.fault
	v.mu.Unlock()
	switch {
	case fault.Slow:
		<-r.Context().Done()
		return
	case fault.Status == http.StatusTemporaryRedirect:
		http.Redirect(w, r, v.URL+"/moved", fault.Status)
		return
	case fault.Body != "":
		w.WriteHeader(max(fault.Status, 200))
		_, _ = io.WriteString(w, fault.Body)
		return
	case fault.Status != 0:
		respond(w, fault.Status, map[string]any{"errors": []string{fault.Code}})
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	if method, ok := strings.CutPrefix(path, "auth/"); ok && r.Method == http.MethodPost {
		v.login(w, method, body)
		return
	}
	role, known := v.tokens[r.Header.Get("X-Vault-Token")]
	if !known || !v.allow(role, path) {
		respond(w, http.StatusForbidden, map[string]any{"errors": []string{"1 error occurred:\n\t* permission denied\n\n"}})
		return
	}
	v.read(w, path, r.URL.Query().Get("version"))
}

func (v *Vault) read(w http.ResponseWriter, path, number string) {
	all := v.secrets[path]
	n := len(all)
	if number != "" {
		n, _ = strconv.Atoi(number)
	}
	if n < 1 || n > len(all) {
		respond(w, http.StatusNotFound, map[string]any{"errors": []string{}})
		return
	}
	found := all[n-1]
	metadata := map[string]any{"version": n, "deletion_time": "", "destroyed": false}
	if found.deleted {
		metadata["deletion_time"] = "2026-11-23T12:00:00Z"
		respond(w, http.StatusNotFound, map[string]any{"data": map[string]any{"data": nil, "metadata": metadata}})
		return
	}
	v.reads++
	respond(w, http.StatusOK, map[string]any{"data": map[string]any{"data": found.data, "metadata": metadata}})
}

func (v *Vault) login(w http.ResponseWriter, method string, body []byte) {
	var in struct {
		Role, JWT string
		Method    string `json:"iam_http_request_method"`
		URL       []byte `json:"iam_request_url"`
		Body      []byte `json:"iam_request_body"`
		Headers   []byte `json:"iam_request_headers"`
	}
	err := json.Unmarshal(body, &in)
	refused := ""
	switch {
	case err != nil:
		refused = "error parsing JSON"
	case in.Role == "" || strings.HasPrefix(in.Role, "unknown"):
		refused = fmt.Sprintf("invalid role name %q", in.Role)
	case method == "kubernetes/login" && in.JWT != ServiceAccount:
		refused = "permission denied"
	case method == "aws/login":
		refused = verifyAWSLogin(in.Method, string(in.URL), in.Body, in.Headers)
	case method != "kubernetes/login":
		refused = "no handler for route"
	}
	if refused != "" {
		respond(w, http.StatusBadRequest, map[string]any{"errors": []string{refused}})
		return
	}
	v.logins[in.Role]++
	token := fmt.Sprintf("hvs.%s-%d", in.Role, v.logins[in.Role])
	v.tokens[token] = in.Role
	respond(w, http.StatusOK, map[string]any{"auth": map[string]any{
		"client_token": token, "lease_duration": int(v.lease / time.Second), "renewable": true,
	}})
}

// verifyAWSLogin checks the signed STS request of a login like STS; it returns "" if it is genuine.
func verifyAWSLogin(method, address string, body, headers []byte) string {
	given := http.Header{}
	if err := json.Unmarshal(headers, &given); err != nil {
		return "error making upstream request: headers"
	}
	if given.Get("X-Vault-Aws-Iam-Server-Id") != ServerID || !strings.Contains(given.Get("Authorization"), "x-vault-aws-iam-server-id") {
		return "error validating X-Vault-AWS-IAM-Server-ID header: missing header"
	}
	r, err := http.NewRequest(method, address, bytes.NewReader(body)) //nolint:noctx // never sent, only compared
	if err != nil || r.URL.Scheme != "https" || !strings.HasPrefix(r.URL.Host, "sts.") || !strings.HasSuffix(r.URL.Host, ".amazonaws.com") {
		return "error making upstream request: host"
	}
	r.Header = given
	region := "us-east-1"
	if parts := strings.Split(r.URL.Host, "."); len(parts) == 4 {
		region = parts[1]
	}
	credentials := aws.Credentials{AccessKeyID: AccessKeyID, SecretAccessKey: SecretAccessKey}
	if code := verify(r, address, body, credentials, "sts", region); code != "" {
		return "error making upstream request: received error code 403 from STS: " + code
	}
	return ""
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
