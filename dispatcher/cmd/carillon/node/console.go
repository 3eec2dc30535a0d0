package node

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	webconsole "github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
)

// consoleFlags are those of the web console.
type consoleFlags struct {
	Console    bool   `env:"CARILLON_CONSOLE" default:"true" negatable:"" help:"Serve the web console at /console/ of the HTTP API."`
	ConsoleURL string `env:"CARILLON_CONSOLE_URL" placeholder:"URL" help:"URL at which people reach this node, with the path of a proxy, such as https://ops.example.com/carillon: the console is at /console/ below it. --oidc-client-id needs it."`
}

// check refuses what is not the URL of a node.
func (f consoleFlags) check() error {
	_, err := f.consoleURL()
	return err
}

// consoleURL returns the URL; nil: it is not given.
func (f consoleFlags) consoleURL() (*url.URL, error) {
	if f.ConsoleURL == "" {
		return nil, nil
	}
	u, err := url.Parse(strings.TrimRight(f.ConsoleURL, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--console-url (CARILLON_CONSOLE_URL): %q is not a URL such as https://carillon.example.com, without user, "+
			"query and fragment", f.ConsoleURL)
	}
	return u, nil
}

// consoleNode is what the console shows of a node: its API, once it has a database, or since when it waits for one.
type consoleNode struct {
	api      webconsole.API
	sessions access.Sessions
	reached  func() (at time.Time, well bool)
	started  time.Time
}

// withConsole returns a handler that serves the console, and all other paths as served does. Without an API the console says that
// the node starts.
func (o *Options) withConsole(served http.Handler, node consoleNode) (http.Handler, error) {
	if !o.Console {
		return served, nil
	}
	options := webconsole.Options{
		API: node.api, Sessions: node.sessions, Reached: node.reached, Started: node.started,
		URL: o.consoleURL, Definition: definition, ClientCertificates: o.clientCertificates,
		Version: o.Engine.Version, Logger: o.Log,
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

// definition returns a job as Terraform declares it.
func definition(job dispatcher.Job) (string, error) {
	var b strings.Builder
	err := tfconfig.WriteJob(&b, job)
	return b.String(), err
}
