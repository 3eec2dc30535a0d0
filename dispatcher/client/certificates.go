package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// Certificates are what a client trusts and shows. Each is a file in PEM form, or the text of one. All may be empty.
type Certificates struct {
	CACert     string // authorities that the API's certificate may come from; empty: those of this machine
	ClientCert string // shown to nodes with --client-ca; needs ClientKey
	ClientKey  string
}

// Transport returns what makes the requests of a client with these certificates; nil, which is the default of Options, without any.
// called holds what the caller's users call them: errors begin with that.
func (c Certificates) Transport(called Certificates) (http.RoundTripper, error) {
	if c == (Certificates{}) {
		return nil, nil
	}
	if (c.ClientCert == "") != (c.ClientKey == "") {
		return nil, fmt.Errorf("%s and %s go together; one of them is missing", called.ClientCert, called.ClientKey)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CACert != "" {
		text, name, err := read(c.CACert)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", called.CACert, err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s holds no certificate in PEM form", called.CACert, name)
		}
	}
	if c.ClientCert != "" {
		certificate, name, err := read(c.ClientCert)
		key, keyName, errKey := read(c.ClientKey)
		var pair tls.Certificate
		if err = errors.Join(err, errKey); err == nil {
			pair, err = tls.X509KeyPair(certificate, key)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s, %s %s: %w", called.ClientCert, name, called.ClientKey, keyName, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	transport.TLSClientConfig = config
	return transport, nil
}

// read returns a text, or the contents of the file that from names. Messages show name, and never a text, which may be a key.
func read(from string) (text []byte, name string, err error) {
	if strings.Contains(from, "-----BEGIN ") {
		return []byte(from), "the text", nil
	}
	text, err = os.ReadFile(from)
	return text, from, err
}
