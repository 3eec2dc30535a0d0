package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// apiFlags select the API that a command calls: of a context, or of flags and variables.
type apiFlags struct {
	Endpoint string `group:"api" env:"CARILLON_ENDPOINT" placeholder:"URL" help:"Address of the API of any node. Default: that of the context, else http://127.0.0.1:8080."`
	Token    string `group:"api" env:"CARILLON_TOKEN" help:"API token. Prefer the variable or a context: other users of the machine can see flags."`
	Context  string `group:"api" env:"CARILLON_CONTEXT" placeholder:"NAME" help:"Use this context, not the current one. See carillon context."`
	clientTLSFlags
	onCommandLine map[string]bool // names of the flags that were not set by variables
}

// defaultEndpoint is the endpoint of a node on this machine.
const defaultEndpoint = "http://127.0.0.1:8080"

// AfterApply records which flags are on the command line.
func (a *apiFlags) AfterApply(parsed *kong.Context) error {
	a.onCommandLine = map[string]bool{}
	for _, step := range parsed.Path {
		if step.Flag != nil {
			a.onCommandLine[step.Flag.Name] = true
		}
	}
	return nil
}

func (a *apiFlags) client(ctx context.Context) (*client.Client, error) {
	to, err := a.connection(ctx)
	if err != nil {
		return nil, &usageError{err}
	}
	return to.newClient()
}

// connection is an endpoint with its token and certificates.
type connection struct {
	endpoint, token string
	clientTLSFlags
}

// newClient returns a client of the API. Its errors name the flags.
func (c connection) newClient() (*client.Client, error) {
	called := client.Certificates{CACert: "--ca-cert (CARILLON_CA_CERT)", ClientCert: "--client-cert", ClientKey: "--client-key"}
	transport, err := client.Certificates(c.clientTLSFlags).Transport(called)
	if err != nil {
		return nil, &usageError{err}
	}
	made, err := client.New(c.endpoint, c.token, client.Options{UserAgent: "carillon/" + version, Transport: transport})
	if err != nil {
		return nil, &usageError{fmt.Errorf("--endpoint: %w", err)}
	}
	return made, nil
}

// connection chooses the endpoint and the token. A token is sent only to its own endpoint: either all settings come
// from a context, which flags may change, or all from flags and variables. A named context precedes variables.
func (a *apiFlags) connection(ctx context.Context) (connection, error) {
	given := connection{cmp.Or(a.Endpoint, defaultEndpoint), a.Token, a.clientTLSFlags}
	if a.Context == "" && (a.Endpoint != "" || a.Token != "") {
		if a.Token == "" {
			return given, errors.New("--token (CARILLON_TOKEN): is required with --endpoint (CARILLON_ENDPOINT); " +
				"the token of a context goes only to the endpoint of that context")
		}
		return given, nil
	}
	contexts, err := readContexts()
	if err != nil {
		return given, err
	}
	name := cmp.Or(a.Context, contexts.Current)
	if name == "" {
		return given, errors.New("no token: set --token (CARILLON_TOKEN), or make a context with: " +
			"carillon context set NAME --endpoint URL --token-from FILE")
	}
	found, err := contexts.get(name)
	if err != nil {
		return given, err
	}
	if a.onCommandLine["endpoint"] && !a.onCommandLine["token"] {
		return given, fmt.Errorf("--endpoint: the token of context %s goes only to its own endpoint; "+
			"give --token, too, or leave out --endpoint", input.Echo(name))
	}
	return a.over(ctx, found)
}

// over returns the connection of a context, changed by the command line.
func (a *apiFlags) over(ctx context.Context, found apiContext) (connection, error) {
	to := connection{found.Endpoint, "", clientTLSFlags{found.CACert, found.ClientCert, found.ClientKey}}
	for name, change := range map[string]struct {
		from string
		to   *string
	}{
		"endpoint": {a.Endpoint, &to.endpoint}, "token": {a.Token, &to.token}, "ca-cert": {a.CACert, &to.CACert},
		"client-cert": {a.ClientCert, &to.ClientCert}, "client-key": {a.ClientKey, &to.ClientKey},
	} {
		if a.onCommandLine[name] {
			*change.to = change.from
		}
	}
	var err error
	if to.token == "" {
		to.token, err = found.secret(ctx)
	}
	return to, err
}

// clientTLSFlags are the certificates of a command that calls the API.
type clientTLSFlags struct {
	CACert     string `group:"api" env:"CARILLON_CA_CERT" placeholder:"FILE" help:"Certificates of the authorities that the API's certificate may come from. Default: those of this machine."`
	ClientCert string `group:"api" env:"CARILLON_CLIENT_CERT" placeholder:"FILE" help:"Client certificate, for nodes with --client-ca. Needs --client-key."`
	ClientKey  string `group:"api" env:"CARILLON_CLIENT_KEY" placeholder:"FILE" help:"Private key of the client certificate."`
}
