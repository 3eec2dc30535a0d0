package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/oidc"
	webconsole "github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// consoleFlags are those of the web console.
type consoleFlags struct {
	Console    bool   `env:"CARILLON_CONSOLE" default:"true" negatable:"" help:"Serve the web console at /console/ of the HTTP API."`
	ConsoleURL string `env:"CARILLON_CONSOLE_URL" placeholder:"URL" help:"URL at which people reach this node, with the path of a proxy, such as https://ops.example.com/carillon: the console is at /console/ below it. --oidc-client-id needs it."`
	TraceURL   string `env:"CARILLON_TRACE_URL" placeholder:"URL" help:"URL of a trace in your tracing system, with {trace_id} in place of its id, such as https://grafana.example.com/trace/{trace_id}. The console links each run to its trace."`
}

// checkTraceURL validates the URL of traces, which may be missing.
func (f consoleFlags) checkTraceURL() error {
	u, err := url.Parse(strings.ReplaceAll(f.TraceURL, traceIDPlace, "0"))
	if f.TraceURL == "" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		strings.Contains(f.TraceURL, traceIDPlace) {
		return nil
	}
	return fmt.Errorf("--trace-url (CARILLON_TRACE_URL): %q is not a URL with %s in it, such as https://grafana.example.com/trace/%[2]s",
		f.TraceURL, traceIDPlace)
}

// traceIDPlace stands for the id of a trace in the URL.
const traceIDPlace = "{trace_id}"

// consoleURL returns the URL; nil if it is not given.
func (f consoleFlags) consoleURL() (*url.URL, error) {
	if f.ConsoleURL == "" {
		return nil, nil
	}
	u := serverURL(strings.TrimRight(f.ConsoleURL, "/"))
	if u == nil {
		return nil, fmt.Errorf("--console-url (CARILLON_CONSOLE_URL): %q is not a URL such as https://carillon.example.com, without user, "+
			"query and fragment", f.ConsoleURL)
	}
	return u, nil
}

// consoleNode is the node that the console shows: its API, or the time since when it waits for a database.
type consoleNode struct {
	api      webconsole.API
	sessions access.Sessions
	reached  func() (at time.Time, well bool)
	started  time.Time
	stopping <-chan struct{}
}

// withConsole returns a handler that serves the console, and every other path like served. Without
// an API the console shows that the node starts.
func (o *Options) withConsole(served http.Handler, node consoleNode) (http.Handler, error) {
	if !o.Console {
		return served, nil
	}
	options := webconsole.Options{
		API: node.api, Sessions: node.sessions, Reached: node.reached, Started: node.started,
		Stopping: node.stopping, URL: o.consoleURL, Definition: func(job dispatcher.Job) (string, error) {
			var b strings.Builder
			err := tfconfig.WriteJob(&b, job)
			return b.String(), err
		}, ClientCertificates: o.clientCertificates,
		Version: o.Engine.Version, Logger: o.Log,
	}
	if o.traceURL != "" {
		options.TraceURL = func(id string) string { return strings.ReplaceAll(o.traceURL, traceIDPlace, id) }
	}
	if o.login != nil {
		options.Login = o.login
	}
	pages, err := webconsole.New(options)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pages.Path(r) {
			pages.ServeHTTP(w, r)
			return
		}
		served.ServeHTTP(w, r)
	}), nil
}

// oidcFlags accept tokens of an OpenID Connect issuer in place of stored ones, and let people sign in there.
type oidcFlags struct {
	OIDCIssuer           string   `name:"oidc-issuer" env:"CARILLON_OIDC_ISSUER" placeholder:"URL" help:"OpenID Connect issuer whose JSON Web Tokens the API accepts, such as https://token.actions.githubusercontent.com, or where people sign in to the console. Needs --oidc-claims, and --oidc-audience or --oidc-client-id."`
	OIDCAudience         string   `name:"oidc-audience" env:"CARILLON_OIDC_AUDIENCE" placeholder:"TEXT" help:"Audience that the tokens for the API must be for. Choose one of your own, such as the URL of the API. Without it, the API accepts none."`
	OIDCClaims           string   `name:"oidc-claims" env:"CARILLON_OIDC_CLAIMS" placeholder:"FILE" help:"JSON file with the rules that map claims to scopes and apps."`
	OIDCClientID         string   `name:"oidc-client-id" env:"CARILLON_OIDC_CLIENT_ID" placeholder:"TEXT" help:"Client id of the console at the issuer. People can then sign in there. Needs --console-url."`
	OIDCClientSecret     string   `name:"oidc-client-secret" env:"CARILLON_OIDC_CLIENT_SECRET" placeholder:"TEXT" help:"Secret of that client. Use the variable or the file: other users of the machine can see flags."`
	OIDCClientSecretFile string   `name:"oidc-client-secret-file" env:"CARILLON_OIDC_CLIENT_SECRET_FILE" placeholder:"FILE" help:"File with that secret."`
	OIDCScopes           []string `name:"oidc-scopes" env:"CARILLON_OIDC_SCOPES" placeholder:"SCOPE,..." help:"Scopes that a login asks for besides openid, for the claims that --oidc-claims names, such as groups."`
}

func (f oidcFlags) given() bool {
	return f.OIDCIssuer+f.OIDCAudience+f.OIDCClaims+f.OIDCClientID+f.OIDCClientSecret+f.OIDCClientSecretFile != "" || len(f.OIDCScopes) > 0
}

// check refuses invalid combinations of flags.
func (f oidcFlags) check(console consoleFlags) error {
	_, issuer := f.issuer(nil)
	_, login := f.consoleLogin(nil)
	if login == nil && f.OIDCClientID != "" && console.ConsoleURL == "" {
		login = errors.New("--oidc-client-id (CARILLON_OIDC_CLIENT_ID) needs --console-url, to which the issuer sends people back")
	}
	if issuer != nil && login != nil && issuer.Error() == login.Error() {
		return issuer
	}
	return errors.Join(issuer, login)
}

// issuerOptions returns the common options of issuer and login. Its errors name the flags.
func (f oidcFlags) issuerOptions(log *slog.Logger) (oidc.Options, error) {
	if f.OIDCIssuer == "" || f.OIDCClaims == "" || f.OIDCAudience == "" && f.OIDCClientID == "" {
		return oidc.Options{}, errors.New("--oidc-issuer and --oidc-claims go together, with --oidc-audience for the API, " +
			"--oidc-client-id for the console, or both; one of them is missing")
	}
	text, err := os.ReadFile(f.OIDCClaims)
	if err != nil {
		return oidc.Options{}, fmt.Errorf("--oidc-claims (CARILLON_OIDC_CLAIMS): %w", err)
	}
	rules, err := oidc.ParseRules(text)
	if err != nil {
		return oidc.Options{}, fmt.Errorf("--oidc-claims (CARILLON_OIDC_CLAIMS): %s: %w", f.OIDCClaims, err)
	}
	return oidc.Options{Issuer: f.OIDCIssuer, Audience: f.OIDCAudience, Rules: rules, Logger: log}, nil
}

// issuer returns the issuer of tokens for the API, or nil. Its errors name the flags.
func (f oidcFlags) issuer(log *slog.Logger) (*oidc.Issuer, error) {
	if !f.given() {
		return nil, nil
	}
	options, err := f.issuerOptions(log)
	if err != nil || f.OIDCAudience == "" {
		return nil, err
	}
	issuer, err := oidc.New(options)
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer (CARILLON_OIDC_ISSUER): %w", err)
	}
	return issuer, nil
}

// consoleLogin returns the login for people, or nil. Its errors name the flags and contain no secret.
func (f oidcFlags) consoleLogin(log *slog.Logger) (*oidc.Login, error) {
	if f.OIDCClientID == "" {
		if f.OIDCClientSecret != "" || f.OIDCClientSecretFile != "" || len(f.OIDCScopes) > 0 {
			return nil, errors.New("--oidc-client-secret, --oidc-client-secret-file and --oidc-scopes need --oidc-client-id")
		}
		return nil, nil
	}
	options, err := f.issuerOptions(log)
	if err != nil {
		return nil, err
	}
	if err := oidc.CheckScopes(f.OIDCScopes); err != nil {
		return nil, fmt.Errorf("--oidc-scopes (CARILLON_OIDC_SCOPES): %w", err)
	}
	secret, err := f.clientSecret()
	if err != nil {
		return nil, err
	}
	login, err := oidc.NewLogin(options, oidc.LoginOptions{Client: f.OIDCClientID, Secret: secret, Scopes: f.OIDCScopes})
	if err != nil {
		return nil, fmt.Errorf("--oidc-issuer (CARILLON_OIDC_ISSUER): %w", err)
	}
	return login, nil
}

// clientSecret returns the secret of the client; empty for a public client.
func (f oidcFlags) clientSecret() (string, error) {
	if f.OIDCClientSecretFile == "" {
		return f.OIDCClientSecret, nil
	}
	if f.OIDCClientSecret != "" {
		return "", errors.New("--oidc-client-secret (CARILLON_OIDC_CLIENT_SECRET) and --oidc-client-secret-file " +
			"(CARILLON_OIDC_CLIENT_SECRET_FILE) exclude each other; set one")
	}
	text, err := os.ReadFile(f.OIDCClientSecretFile)
	if err != nil {
		return "", fmt.Errorf("--oidc-client-secret-file (CARILLON_OIDC_CLIENT_SECRET_FILE): %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("--oidc-client-secret-file (CARILLON_OIDC_CLIENT_SECRET_FILE): %s is empty",
			input.Echo(f.OIDCClientSecretFile))
	}
	return secret, nil
}

// callbackFlag is the URL for the callbacks of targets that finish their work later.
type callbackFlag struct {
	CallbackURL string `env:"CARILLON_CALLBACK_URL" placeholder:"URL" help:"URL of the HTTP API as targets reach it, such as https://carillon.example.com. Jobs with callback need it."`
}

// check refuses an invalid URL of an API.
func (f callbackFlag) check() error {
	if f.CallbackURL != "" && serverURL(f.CallbackURL) == nil {
		return fmt.Errorf("--callback-url: %q is not a URL such as https://carillon.example.com, without user, query and fragment",
			f.CallbackURL)
	}
	return nil
}
