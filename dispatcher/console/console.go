package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// Options are the dependencies and settings of a console.
type Options struct {
	// API serves the requests of the console; nil: the node has no database yet, and the console shows that.
	API API
	// Sessions are the sessions in the store.
	Sessions access.Sessions
	// URL is the node's URL for people, with the path of a proxy before /console/; nil: unknown.
	URL *url.URL
	// Reached returns the time of the last heartbeat that reached the node's database; zero: none has yet. well is
	// false if the latest one did not. nil: unknown.
	Reached func() (at time.Time, well bool)
	// Started is when the node began to wait for its database; only without an API.
	Started time.Time
	// Login is the issuer with which people can sign in; nil: they need an API token.
	Login Login
	// TraceURL returns the URL of a trace in the tracing system; nil: it is unknown.
	TraceURL func(trace string) string
	// Definition returns a job in the form in which people declare it.
	Definition func(dispatcher.Job) (string, error)
	// Stopping is closed when the node stops, which ends the streams of changes; nil: it never stops.
	Stopping <-chan struct{}
	// ClientCertificates requires a client certificate that the server has verified.
	ClientCertificates bool
	Version            string
	Logger             *slog.Logger // default slog.Default()
}

// API is the API of this process.
type API interface {
	// As returns a transport that serves requests under a token, on behalf of the request from.
	As(from *http.Request, token access.APIToken) http.RoundTripper
	// Bearer is As for requests that have their own token.
	Bearer(from *http.Request) http.RoundTripper
	// Admit counts a request for its address, and returns how long the caller has to wait.
	Admit(r *http.Request, now time.Time) time.Duration
	// AdmitUnknown is Admit for a request with a cookie of no session.
	AdmitUnknown(r *http.Request, now time.Time) time.Duration
	// AdmitBody waits for a place for the body of a request. It returns a function to call when the body is read, or
	// how long the caller has to wait. The token is that of the session; its zero value: there is none.
	AdmitBody(r *http.Request, token access.APIToken) (leave func(), wait time.Duration)
	// DatabaseFailure asks the database, and returns why it does not respond within a moment; nil if it does.
	DatabaseFailure(ctx context.Context) error
	// Refused returns how an error says that the database refuses writes, and what to do; nil for other errors.
	Refused(err error) error
}

// Login signs people in with an issuer of identities, by OpenID Connect.
type Login interface {
	// Begin returns the URL to which the browser goes.
	Begin(ctx context.Context, request access.LoginRequest, now time.Time) (string, error)
	// Finish returns the identity for the parameters in the callback URL. An error with a method BadToken means that
	// the person is not permitted in; any other, that the issuer could not be asked. No error holds a secret.
	Finish(ctx context.Context, request access.LoginRequest, callback url.Values, now time.Time) (access.APIToken, error)
	// Rules returns a text that identifies the current rules, so that a session ends when they have changed.
	Rules() string
}

// Console serves the pages. It is an http.Handler for all paths for which Path is true.
type Console struct {
	opts      Options
	log       *slog.Logger
	mux       *http.ServeMux
	screens   []screen
	languages kit.Languages
	pages     map[string]*page
	assets    *assets
	protect   *http.CrossOriginProtection
	followers chan struct{} // one for each stream of changes
	// prefix is the path that a proxy leaves before the path of the console.
	prefix string
}

// English returns the words of the console in English, which the command shares.
func English() (*kit.Texts, error) {
	all, err := kit.LoadTexts(textFiles)
	return all[kit.FirstLanguage], err
}

// base is the path of the console.
const base = "/console/"

// New returns a console.
func New(o Options) (*Console, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Console{opts: o, log: o.Logger, screens: screens(), protect: http.NewCrossOriginProtection(),
		followers: make(chan struct{}, mostFollowers)}
	if o.URL != nil {
		c.prefix = strings.TrimSuffix(o.URL.Path, "/")
		if err := c.protect.AddTrustedOrigin(o.URL.Scheme + "://" + o.URL.Host); err != nil {
			return nil, err
		}
	}
	var err error
	if c.assets, err = loadAssets(); err != nil {
		return nil, err
	}
	if c.languages, err = kit.LoadTexts(textFiles); err != nil {
		return nil, err
	}
	if c.pages, err = loadPages(c.screens); err != nil {
		return nil, err
	}
	c.mux = c.newMux()
	return c, nil
}

// Path reports whether a request is for the console.
func (c *Console) Path(r *http.Request) bool {
	at := c.local(r.URL.Path)
	return at == "/" || at == strings.TrimSuffix(base, "/") || strings.HasPrefix(at, base)
}

// local removes the prefix of a proxy from a path.
func (c *Console) local(path string) string {
	if rest, has := strings.CutPrefix(path, c.prefix); has && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// ServeHTTP serves one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if local := c.local(r.URL.Path); local != r.URL.Path {
		copied := *r
		copied.URL = &url.URL{Path: local, RawPath: c.local(r.URL.RawPath), RawQuery: r.URL.RawQuery}
		r = &copied
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	// With no-referrer, browsers send "Origin: null" with forms, which the protection refuses without Sec-Fetch-Site.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	v := c.visit(w, r)
	if v.secure() || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		// A browser reads it only in responses over https, so a forged header of a request changes nothing for others.
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	switch at := r.URL.Path; {
	case at == "/":
		h.Set("Location", strings.TrimPrefix(base, "/"))
		w.WriteHeader(http.StatusSeeOther)
	case at == strings.TrimSuffix(base, "/"):
		h.Set("Location", strings.TrimPrefix(base, "/"))
		w.WriteHeader(http.StatusPermanentRedirect)
	case strings.TrimSuffix(path.Clean(r.URL.EscapedPath()), "/") != strings.TrimSuffix(r.URL.EscapedPath(), "/"):
		v.fail(notFound("page", r.URL.Path)) // ServeMux would redirect, and not know of a prefix
	case c.opts.API == nil && !strings.HasPrefix(at, base+"assets/"):
		h.Set("Retry-After", "2")
		v.render("starting", content{Data: outagePage{Since: c.opts.Started}, Status: http.StatusServiceUnavailable})
	default:
		c.admit(v, func() { c.mux.ServeHTTP(w, v.Request) })
	}
}
