package secretmanager

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const vaultName = "Vault"

// VaultOptions have the address of Vault, and the node's login.
type VaultOptions struct {
	Address   string // URL, such as https://vault:8200
	Namespace string // of Vault Enterprise; may be empty
	// Client makes the requests. It must not follow redirects, because a request carries a token.
	Client *http.Client
	// Login has one of the ways to log in: VaultToken, VaultKubernetes or VaultAWS.
	Login VaultLogin
}

// VaultLogin logs in to Vault.
type VaultLogin interface {
	// login returns the request for the login route of an auth method, or a token that needs no login.
	login(ctx context.Context, role string, now time.Time) (vaultLoginRequest, error)
}

// vaultLoginRequest is a request for a token, or the token itself.
type vaultLoginRequest struct {
	token string
	mount string // of the auth method, such as kubernetes
	body  any
}

// Vault reads secrets of the engine KV version 2. It keeps a token for each role, and logs in again before it
// expires.
type Vault struct {
	options VaultOptions
	mu      sync.Mutex
	tokens  map[string]vaultToken
}

// vaultToken is a token until it is replaced.
type vaultToken struct {
	text  string
	until time.Time // zero if it is read again each time
}

// NewVault returns a client of Vault. It makes no request.
func NewVault(o VaultOptions) *Vault {
	o.Address = strings.TrimRight(o.Address, "/")
	return &Vault{options: o, tokens: map[string]vaultToken{}}
}

// Secret returns the data of a secret as a JSON object. role is the role of the login; path is a path of the API,
// such as secret/data/billing; version is a number, and empty for the latest. The error is an Error.
func (v *Vault) Secret(ctx context.Context, role, path, version string, now time.Time) (string, error) {
	token, kept, err := v.token(ctx, role, now)
	if err != nil {
		return "", err
	}
	text, err := v.read(ctx, token, path, version)
	var refused *Error
	if kept && errors.As(err, &refused) && refused.Kind == Denied {
		// The token may have been revoked. A new one shows whether the secret is denied.
		v.forget(role, token)
		if token, _, err = v.token(ctx, role, now); err != nil {
			return "", err
		}
		text, err = v.read(ctx, token, path, version)
	}
	return text, err
}

func (v *Vault) read(ctx context.Context, token, path, version string) (string, error) {
	query := ""
	if version != "" {
		query = "?version=" + url.QueryEscape(version)
	}
	var out struct {
		Data struct {
			Data     json.RawMessage `json:"data"`
			Metadata struct {
				DeletionTime string `json:"deletion_time"`
				Destroyed    bool   `json:"destroyed"`
			} `json:"metadata"`
		} `json:"data"`
	}
	if err := v.do(ctx, vaultRequest{method: http.MethodGet, path: path + query, token: token}, &out); err != nil {
		return "", err
	}
	if data := out.Data.Data; len(data) == 0 || string(data) == "null" {
		code := "the path is not one of KV version 2"
		if out.Data.Metadata.DeletionTime != "" || out.Data.Metadata.Destroyed {
			code = "the version was deleted"
		}
		return "", &Error{Kind: Missing, Manager: vaultName, Code: code}
	}
	return string(out.Data.Data), nil
}

// token returns a token of a role. kept is true if it was not created for this call.
func (v *Vault) token(ctx context.Context, role string, now time.Time) (text string, kept bool, err error) {
	v.mu.Lock()
	known := v.tokens[role]
	v.mu.Unlock()
	if now.Before(known.until) {
		return known.text, true, nil
	}
	asked, err := v.options.Login.login(ctx, role, now)
	if err != nil || asked.token != "" {
		return asked.token, false, err
	}
	var out struct {
		Auth struct {
			ClientToken   string `json:"client_token"`
			LeaseDuration int64  `json:"lease_duration"` // seconds; 0 if it does not expire
		} `json:"auth"`
	}
	if err := v.do(ctx, vaultRequest{method: http.MethodPost, path: "auth/" + asked.mount + "/login", body: asked.body}, &out); err != nil {
		return "", false, loginError(err)
	}
	if out.Auth.ClientToken == "" {
		return "", false, &Error{Kind: Unusable, Manager: vaultName, Code: "login: the response has no token"}
	}
	lifetime := time.Duration(min(out.Auth.LeaseDuration, 24*60*60)) * time.Second
	if lifetime == 0 {
		lifetime = 24 * time.Hour
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens[role] = vaultToken{out.Auth.ClientToken, now.Add(lifetime * 2 / 3)}
	return out.Auth.ClientToken, false, nil
}

// forget drops a token of a role, unless it was replaced.
func (v *Vault) forget(role, token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tokens[role].text == token {
		delete(v.tokens, role)
	}
}

// loginError marks an error as one of a login. A missing role is denied, not missing, because the secret may exist.
func loginError(err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	kind := e.Kind
	if kind == Missing || kind == Unusable {
		kind = Denied
	}
	return &Error{Kind: kind, Manager: vaultName, Code: "login: " + e.Code}
}

// vaultRequest is one request. The path is below /v1/; token and body may be missing.
type vaultRequest struct {
	method, path, token string
	body                any
}

// do makes one request and decodes the response. The error is an Error.
func (v *Vault) do(ctx context.Context, r vaultRequest, out any) error {
	fail := func(kind Kind, code string) error { return &Error{Kind: kind, Manager: vaultName, Code: code} }
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, r.method, v.options.Address+"/v1/"+r.path, body)
	if err != nil {
		return fail(Unusable, "its address is not a URL")
	}
	request.Header.Set("X-Vault-Request", "true")
	if r.token != "" {
		request.Header.Set("X-Vault-Token", r.token)
	}
	if v.options.Namespace != "" {
		request.Header.Set("X-Vault-Namespace", v.options.Namespace)
	}
	response, err := v.options.Client.Do(request)
	if err != nil {
		return fail(Unreachable, "no response")
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostResponse+1))
	status := response.StatusCode
	switch {
	case err != nil:
		return fail(Unreachable, "the response broke off")
	case len(text) > mostResponse:
		return fail(Unusable, "the response is too large")
	case status == http.StatusNotFound && deletedVersion(text):
		return fail(Missing, "the version was deleted")
	case status != http.StatusOK:
		return fail(vaultErrorKind(status), "status "+strconv.Itoa(status))
	case json.Unmarshal(text, out) != nil:
		return fail(Unreachable, "the response is not JSON")
	}
	return nil
}

// deletedVersion reports whether a response of status 404 describes a deleted version.
func deletedVersion(body []byte) bool {
	var said struct{ Data struct{ Metadata *struct{} } }
	return json.Unmarshal(body, &said) == nil && said.Data.Metadata != nil
}

// vaultErrorKind returns the kind of an error by its status. Vault responds with 307 while a standby node does not reach the
// active one, with 412 while a replica is behind, with 472 and 473 in disaster recovery, and with 503 while it is sealed.
func vaultErrorKind(status int) Kind {
	switch {
	case status == http.StatusTooManyRequests:
		return Throttled
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return Denied
	case status == http.StatusNotFound:
		return Missing
	case status >= 500, status < 400, status == http.StatusPreconditionFailed, status == 472, status == 473:
		return Unreachable
	}
	return Unusable
}

// VaultToken logs in with a token that another program renews, such as Vault Agent.
type VaultToken struct {
	Token string
	// File contains the token instead. It is read for each request, so that a renewed token is used at once.
	File string
}

func (t VaultToken) login(context.Context, string, time.Time) (vaultLoginRequest, error) {
	if t.File == "" {
		return vaultLoginRequest{token: t.Token}, nil
	}
	text, err := readToken(t.File)
	return vaultLoginRequest{token: text}, err
}

// readToken reads a token from a file. The file may be in the course of a replacement, so an error may be temporary.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if token := strings.TrimSpace(string(text)); err == nil && token != "" {
		return token, nil
	}
	return "", &Error{Kind: Unreachable, Manager: vaultName, Code: "the file with the node's token for it cannot be read"}
}

// VaultKubernetes logs in with the token of a service account.
type VaultKubernetes struct {
	Mount string // of the auth method; usually kubernetes
	File  string // of the service account's token
}

func (k VaultKubernetes) login(_ context.Context, role string, _ time.Time) (vaultLoginRequest, error) {
	token, err := readToken(k.File)
	return vaultLoginRequest{mount: k.Mount, body: map[string]string{"role": role, "jwt": token}}, err
}

// VaultAWS logs in with AWS credentials (auth method aws, type iam): it signs a request to STS that Vault then sends.
type VaultAWS struct {
	Mount string // of the auth method; usually aws
	// ServerID is the value of X-Vault-AWS-IAM-Server-ID, which Vault may require; may be empty.
	ServerID string
	// Config returns credentials and the region.
	Config func(context.Context) (aws.Config, error)
}

func (a VaultAWS) login(ctx context.Context, role string, now time.Time) (vaultLoginRequest, error) {
	service := awsService{vaultName, "sts", "STS", ""}
	config, err := a.Config(ctx)
	if err != nil || config.Credentials == nil {
		return vaultLoginRequest{}, &Error{Kind: Unreachable, Manager: vaultName, Code: "login: the node has no AWS credentials"}
	}
	credentials, err := config.Credentials.Retrieve(ctx)
	if err != nil {
		return vaultLoginRequest{}, credentialsError(service, err)
	}
	// Without a region this is the global endpoint, with signatures for us-east-1.
	address, region := "https://sts.amazonaws.com/", "us-east-1"
	if config.Region != "" {
		address, region = NewAWS(config, "").regional(service), config.Region
	}
	const body = "Action=GetCallerIdentity&Version=2011-06-15"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return vaultLoginRequest{}, err // impossible: the URL is ours
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if a.ServerID != "" {
		request.Header.Set("X-Vault-AWS-IAM-Server-ID", a.ServerID)
	}
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(ctx, credentials, request, hex.EncodeToString(sum[:]), "sts", region, now); err != nil {
		return vaultLoginRequest{}, err
	}
	headers := request.Header.Clone()
	headers.Set("Host", request.URL.Host)
	text, err := json.Marshal(headers)
	if err != nil {
		return vaultLoginRequest{}, err
	}
	encode := base64.StdEncoding.EncodeToString
	return vaultLoginRequest{mount: a.Mount, body: map[string]string{
		"role": role, "iam_http_request_method": http.MethodPost,
		"iam_request_url": encode([]byte(address)), "iam_request_body": encode([]byte(body)), "iam_request_headers": encode(text),
	}}, nil
}
