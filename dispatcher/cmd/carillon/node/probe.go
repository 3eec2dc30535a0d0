package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Probe checks the node on this machine. It is the health check of a container, which has no shell.
type Probe struct {
	Path    string         `arg:"" optional:"" default:"livez" enum:"livez,readyz" help:"livez: does the process respond? readyz: can the node work?"`
	Listen  string         `env:"CARILLON_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Address of the HTTP API, as the node has it."`
	TLSCert string         `env:"CARILLON_TLS_CERT" placeholder:"FILE" help:"Certificate of the HTTP API, as the node has it. Only a server with this certificate passes."`
	Timeout input.Duration `default:"2s" help:"How long the node may take to respond, up to 1m."`
}

// Check checks address and time.
func (p *Probe) Check() error {
	var problems []error
	if _, port, err := net.SplitHostPort(p.Listen); err != nil || port == "0" || port == "" {
		problems = append(problems, fmt.Errorf("--listen (CARILLON_LISTEN): %s is not the address of a node; write HOST:PORT",
			input.Echo(p.Listen)))
	}
	if p.Timeout.Std() <= 0 || p.Timeout.Std() > time.Minute {
		problems = append(problems, fmt.Errorf("--timeout: %s is not between 1ms and 1m", p.Timeout))
	}
	return errors.Join(problems...)
}

// Ask sends one request. Any response but 200 is a failure.
func (p *Probe) Ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout.Std())
	defer cancel()
	// A node and its own machine need no proxy of the environment.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: dialFirst(localAddresses(p.Listen))}
	target := url.URL{Scheme: "http", Host: p.Listen, Path: "/" + p.Path}
	if p.TLSCert != "" {
		only, err := trustOnly(p.TLSCert)
		if err != nil {
			return &InvalidError{fmt.Errorf("--tls-cert (CARILLON_TLS_CERT): %w", err)}
		}
		target.Scheme, transport.TLSClientConfig = "https", only
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return &InvalidError{fmt.Errorf("--listen (CARILLON_LISTEN): %w", err)}
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", p.Path, p.Listen, errors.Unwrap(err)) // without the method and URL, which repeat it
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 512))
	if err != nil {
		return fmt.Errorf("%s at %s: %w", p.Path, p.Listen, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s at %s: %s: %s", p.Path, p.Listen, response.Status, input.ShownText(strings.TrimSpace(string(body)), ""))
	}
	return nil
}

// localAddresses returns the addresses at which a node is reachable from its own machine. A node
// that listens on all addresses is reached by loopback.
func localAddresses(listen string) []string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return []string{listen} // refused by Check
	}
	ip := net.ParseIP(host)
	switch {
	case host != "" && (ip == nil || !ip.IsUnspecified()):
		return []string{listen}
	case ip.To4() != nil: // listens on all addresses of IPv4 only
		return []string{net.JoinHostPort("127.0.0.1", port)}
	}
	return []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)}
}

// dialFirst connects to the first address that accepts.
func dialFirst(addresses []string) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var problems []error
		for _, address := range addresses {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err == nil {
				return conn, nil
			}
			problems = append(problems, err)
		}
		return nil, errors.Join(problems...)
	}
}

// trustOnly trusts exactly the certificate in a file, whatever its names and its issuer: a node's
// certificate seldom contains the loopback address.
func trustOnly(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	chain, err := parseCertificates(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", input.Echo(file), err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			if !state.PeerCertificates[0].Equal(chain[0]) { // the server's own certificate
				return fmt.Errorf("the server has another certificate than %s; a node reads a new file within %s", input.Echo(file), tlsPoll)
			}
			return nil
		},
	}, nil
}
