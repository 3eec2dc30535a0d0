package target

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// TLS tunes the connections to an https target.
type TLS struct {
	// CACertificates are the PEM certificates of the authorities to trust for the target, instead
	// of those of the node's system.
	CACertificates string `json:"ca_certificates,omitempty"`
	// ClientCertificate is the PEM chain that the node presents, ClientKey its PEM private key.
	ClientCertificate string  `json:"client_certificate,omitempty"`
	ClientKey         *Secret `json:"client_key,omitempty"`
	// MinVersion is "1.2" or "1.3"; empty means 1.2.
	MinVersion string `json:"min_version,omitempty"`
}

// TLSVersions are the values of MinVersion.
var TLSVersions = []string{"1.2", "1.3"}

func (t *TLS) check(problems *input.Problems, path string) {
	if t == nil {
		return
	}
	for _, one := range []struct{ name, text string }{{"ca_certificates", t.CACertificates}, {"client_certificate", t.ClientCertificate}} {
		switch at := path + "/" + one.name; {
		case one.text == "":
		case len(one.text) > MaxSecret:
			problems.Add(at, input.CodeTextTooLong, "certificates have %d bytes; the maximum is 64 KiB", len(one.text))
		case !certificates(one.text):
			problems.Add(at, input.CodeTLSCertificate, "text is not only PEM certificates (BEGIN CERTIFICATE)")
		}
	}
	if (t.ClientCertificate == "") != (t.ClientKey == nil) {
		problems.Add(path, input.CodeTLSCertificate, "client_certificate and client_key go together; one of them is missing")
	}
	if t.ClientKey != nil {
		t.ClientKey.check(problems, path+"/client_key", func(value string) error {
			if _, err := tls.X509KeyPair([]byte(t.ClientCertificate), []byte(value)); err != nil {
				return &input.Problem{Code: input.CodeTLSCertificate, Message: "client key is not the PEM private key of the client certificate"}
			}
			return nil
		})
	}
	if t.MinVersion != "" {
		input.CheckEnum(problems, path+"/min_version", "version", t.MinVersion, TLSVersions)
	}
}

// certificates reports whether a text is PEM certificates and nothing else.
func certificates(text string) bool {
	all, err := parseCertificates(text)
	return err == nil && len(all) > 0
}

// parseCertificates reads PEM certificates.
func parseCertificates(text string) (all []*x509.Certificate, err error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all, nil
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err == nil && block.Type != "CERTIFICATE" {
			err = fmt.Errorf("%s is no certificate", block.Type)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// CertificateEnd returns when the first certificate of the chain ends that t presents to a target; nil: it presents none.
func (t *TLS) CertificateEnd() *time.Time {
	if t == nil {
		return nil
	}
	chain, err := parseCertificates(t.ClientCertificate)
	if err != nil || len(chain) == 0 {
		return nil
	}
	first := chain[0].NotAfter.UTC()
	for _, one := range chain[1:] {
		if one.NotAfter.Before(first) {
			first = one.NotAfter.UTC()
		}
	}
	return &first
}

// CertificateEnd returns when the client certificate of t ends; nil: it has none.
func (t Target) CertificateEnd() *time.Time {
	if t.Webhook == nil {
		return nil
	}
	return t.Webhook.TLS.CertificateEnd()
}
