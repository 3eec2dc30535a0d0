package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
)

// clientTLSFlags are the certificates of a command that calls the API.
type clientTLSFlags struct {
	CACert     string `group:"api" env:"CARILLON_CA_CERT" placeholder:"FILE" help:"Certificates of the authorities that the API's certificate may come from. Default: those of this machine."`
	ClientCert string `group:"api" env:"CARILLON_CLIENT_CERT" placeholder:"FILE" help:"Client certificate, for nodes with --client-ca. Needs --client-key."`
	ClientKey  string `group:"api" env:"CARILLON_CLIENT_KEY" placeholder:"FILE" help:"Private key of the client certificate."`
}

// newClient returns a client of the API. Its errors name the flags.
func (f clientTLSFlags) newClient(endpoint, token string) (*client.Client, error) {
	transport, err := f.transport()
	if err != nil {
		return nil, &usageError{err}
	}
	c, err := client.New(endpoint, token, client.Options{UserAgent: "carillon/" + version, Transport: transport})
	if err != nil {
		return nil, &usageError{fmt.Errorf("--endpoint: %w", err)}
	}
	return c, nil
}

// transport makes the requests of a client; nil, which is the default one, without flags.
func (f clientTLSFlags) transport() (http.RoundTripper, error) {
	if f == (clientTLSFlags{}) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CACert != "" {
		pool, _, err := authorities("--ca-cert (CARILLON_CA_CERT)", f.CACert)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if (f.ClientCert == "") != (f.ClientKey == "") {
		return nil, errors.New("--client-cert and --client-key go together; one of them is missing")
	}
	if f.ClientCert != "" {
		pair, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("--client-cert %s, --client-key %s: %w", f.ClientCert, f.ClientKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	transport.TLSClientConfig = config
	return transport, nil
}

// authorities reads the certificates of a file. The error names the flag and the file.
func authorities(flag, file string) (*x509.CertPool, []*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	certificates, err := node.ParseCertificates(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %s: %w", flag, file, err)
	}
	pool := x509.NewCertPool()
	for _, certificate := range certificates {
		pool.AddCert(certificate)
	}
	return pool, certificates, nil
}
