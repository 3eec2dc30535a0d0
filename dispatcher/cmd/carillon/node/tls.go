package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// tlsFiles are the API's TLS files; the zero value means plain HTTP.
type tlsFiles struct {
	cert, key string
	clientCA  string // authorities of client certificates; empty to request none
}

// loadedTLS is the result of reading tlsFiles.
type loadedTLS struct {
	config *tls.Config
	// expires is the earliest end of a certificate in the served chain, and authorities the latest
	// end of an authority of client certificates; zero without any.
	expires, authorities time.Time
}

func (f tlsFiles) read() (contents [3][]byte, err error) {
	for i, file := range [...]struct{ flag, path string }{{"--tls-cert", f.cert}, {"--tls-key", f.key}, {"--client-ca", f.clientCA}} {
		if file.path == "" {
			continue
		}
		if contents[i], err = os.ReadFile(file.path); err != nil {
			return contents, fmt.Errorf("%s: %w", file.flag, err)
		}
	}
	return contents, nil
}

// parse makes a server configuration from the contents of the files. Its errors name flags and files.
func (f tlsFiles) parse(contents [3][]byte) (*loadedTLS, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.cert, f.key, err)
	}
	chain, err := parseCertificates(contents[0])
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s: %w", f.cert, err)
	}
	// A resumed session would keep the previous certificates, even that of a client with a removed authority.
	loaded := &loadedTLS{config: &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
	}}
	loaded.expires = slices.MinFunc(chain, byEnd).NotAfter
	if f.clientCA == "" {
		return loaded, nil
	}
	authorities, err := parseCertificates(contents[2])
	if err != nil {
		return nil, fmt.Errorf("--client-ca %s: %w", f.clientCA, err)
	}
	loaded.authorities = slices.MaxFunc(authorities, byEnd).NotAfter
	// Load balancers and orchestrators probe without a certificate. The API requires one elsewhere.
	loaded.config.ClientAuth, loaded.config.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	for _, authority := range authorities {
		loaded.config.ClientCAs.AddCert(authority)
	}
	return loaded, nil
}

func byEnd(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

func (f tlsFiles) load() (*loadedTLS, [3][]byte, error) {
	contents, err := f.read()
	if err != nil {
		return nil, contents, err
	}
	loaded, err := f.parse(contents)
	return loaded, contents, err
}

// parseCertificates reads the certificates of a PEM file, of which there must be one.
func parseCertificates(text []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, errors.New("the file holds no certificate in PEM form")
	}
	return all, nil
}

const (
	// tlsPoll is how often the files are checked.
	tlsPoll = 10 * time.Second
	// warningRepeat is how often persistent warnings are logged again.
	warningRepeat = 24 * time.Hour
)

// servedTLS is the current TLS configuration of the API. It reloads changed files, and warns operators of problems.
type servedTLS struct {
	files   tlsFiles
	address net.Addr
	log     *slog.Logger
	current atomic.Pointer[loadedTLS] // nil for plain HTTP
	broken  atomic.Bool               // the files have changed and cannot be used
	// served is the hash of the contents in use, and seen that of the latest poll; both belong to the loop.
	served, seen [sha256.Size]byte
}

func serveTLS(files tlsFiles, address net.Addr, log *slog.Logger) (*servedTLS, error) {
	s := &servedTLS{files: files, address: address, log: log}
	if files == (tlsFiles{}) {
		return s, nil
	}
	loaded, contents, err := files.load()
	if err != nil {
		return nil, err
	}
	s.current.Store(loaded)
	s.served = digest(contents)
	s.seen = s.served
	return s, nil
}

func digest(contents [3][]byte) [sha256.Size]byte {
	return sha256.Sum256(bytes.Join(contents[:], []byte{0}))
}

// listener returns a listener that speaks TLS, if there are files. A connection uses the certificate that is
// current when it begins. HTTP/2 is not offered, so that bounds of connections also bound requests.
func (s *servedTLS) listener(plain net.Listener) net.Listener {
	if s.current.Load() == nil {
		return plain
	}
	return tls.NewListener(plain, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load().config, nil },
	})
}

// run reloads changed files and logs warnings, until ctx ends.
func (s *servedTLS) run(ctx context.Context) {
	ticker := time.NewTicker(tlsPoll)
	defer ticker.Stop()
	var logged []string
	var at time.Time
	for ctx.Err() == nil {
		now := time.Now()
		if warnings := s.warnings(now); !slices.Equal(warnings, logged) || now.Sub(at) >= warningRepeat {
			for _, warning := range warnings {
				s.log.WarnContext(ctx, "the API needs attention", "warning", warning)
			}
			logged, at = warnings, now
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
			s.reload(ctx)
		}
	}
}

// reload uses files that have changed. If they are invalid, the previous ones stay in use, and an error is
// logged once two polls have found the same: certificate and key are seldom written at once.
func (s *servedTLS) reload(ctx context.Context) {
	if s.current.Load() == nil {
		return
	}
	contents, err := s.files.read()
	now := digest(contents)
	settled := now == s.seen
	s.seen = now
	if err == nil && now == s.served {
		s.broken.Store(false)
		return
	}
	var loaded *loadedTLS
	if err == nil {
		loaded, err = s.files.parse(contents)
	}
	if err != nil {
		if settled && !s.broken.Swap(true) {
			s.log.WarnContext(ctx, "changed TLS files cannot be used; the API goes on with the old ones", "err", err)
		}
		return
	}
	s.current.Store(loaded)
	s.served = now
	s.broken.Store(false)
	s.log.InfoContext(ctx, "changed TLS files are in use", "expires_at", loaded.expires)
}

// expires returns when the first certificate of the served chain expires, or zero.
func (s *servedTLS) expires() time.Time {
	if loaded := s.current.Load(); loaded != nil {
		return loaded.expires.UTC()
	}
	return time.Time{}
}

// plaintext reports whether tokens cross a network unencrypted.
func (s *servedTLS) plaintext() bool {
	at, is := s.address.(*net.TCPAddr)
	return s.current.Load() == nil && is && !at.IP.IsLoopback()
}

// warnings returns the warnings for operators. They are public, at /readyz.
func (s *servedTLS) warnings(now time.Time) (all []string) {
	if s.plaintext() {
		all = append(all, fmt.Sprintf("the API is served as plain HTTP at %s, which is not a loopback address: tokens can be read on "+
			"their way; set --tls-cert and --tls-key, or end TLS on a proxy in front of it", s.address))
	}
	loaded := s.current.Load()
	if loaded == nil {
		return all
	}
	if s.broken.Load() {
		all = append(all, "the TLS files have changed and cannot be used; the log says why")
	}
	for _, of := range []struct {
		what string
		end  time.Time
	}{{"certificate of the API", loaded.expires}, {"last authority in --client-ca", loaded.authorities}} {
		switch left := of.end.Sub(now); {
		case of.end.IsZero() || left > dispatcher.CertificateWarning:
		case left <= 0:
			all = append(all, fmt.Sprintf("the %s expired at %s; replace the file, which needs no restart",
				of.what, input.FormatInstant(of.end)))
		default:
			all = append(all, fmt.Sprintf("the %s expires at %s, within 14 days; replace the file, which needs no restart",
				of.what, input.FormatInstant(of.end)))
		}
	}
	return all
}

func (s *servedTLS) register(metrics prometheus.Registerer) {
	metrics.MustRegister(oneIf(s.plaintext, "carillon_api_plaintext",
		"Whether the API is served as plain HTTP at an address that is not a loopback address: 1 or 0."))
	if s.current.Load() == nil {
		return
	}
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "carillon_tls_certificate_expiry_timestamp_seconds",
		Help: "When the first certificate of the API's chain expires, in Unix seconds.",
	}, func() float64 { return float64(s.current.Load().expires.Unix()) }), oneIf(s.broken.Load, "carillon_tls_files_broken",
		"Whether the TLS files have changed and cannot be used: 1 or 0. The API goes on with the old ones."))
}
