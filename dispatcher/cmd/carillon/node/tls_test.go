package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/test/clientcert"
)

// tlsServer is a listener with TLS files, and its log.
type tlsServer struct {
	*servedTLS
	t       *testing.T
	dir     string
	address string
	logs    *bytes.Buffer
}

func (s *tlsServer) write(name string, text []byte) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// serveFiles serves a certificate, which may require client certificates of an authority.
func serveFiles(t *testing.T, cert, key []byte, clients *clientcert.Authority) *tlsServer {
	t.Helper()
	s := &tlsServer{t: t, dir: t.TempDir(), logs: &bytes.Buffer{}}
	files := tlsFiles{cert: s.write("cert.pem", cert), key: s.write("key.pem", key)}
	if clients != nil {
		files.clientCA = s.write("ca.pem", clients.PEM())
	}
	plain := must[net.Listener](t)((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	s.servedTLS = must[*servedTLS](t)(serveTLS(files, plain.Addr(), slog.New(slog.NewTextHandler(s.logs, nil))))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) > 0 {
			w.WriteHeader(http.StatusNoContent)
		}
	})
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: handler}
	go func() { _ = server.Serve(s.listener(plain)) }()
	t.Cleanup(func() { _ = server.Close() })
	s.address = plain.Addr().String()
	return s
}

// get returns the serial number of the server's certificate, and whether the server verified the client's.
func (s *tlsServer) get(config *tls.Config) (serial int64, verified bool, err error) {
	s.t.Helper()
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	request := must[*http.Request](s.t)(http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.address, nil))
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	return response.TLS.PeerCertificates[0].SerialNumber.Int64(), response.StatusCode == http.StatusNoContent, nil
}

// A connection carries one request at a time, so that bounds of connections also bound requests.
func TestTLSOffersNoHTTP2(t *testing.T) {
	t.Parallel()
	ca := clientcert.NewAuthority(t)
	cert, key := ca.Issue(1, time.Now().AddDate(0, 6, 0))
	s := serveFiles(t, cert, key, nil)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12}}
	conn := must[net.Conn](t)(dialer.DialContext(t.Context(), "tcp", s.address))
	defer conn.Close()
	secure, ok := conn.(*tls.Conn)
	if !ok || secure.ConnectionState().NegotiatedProtocol == "h2" {
		t.Errorf("the node speaks HTTP/2 with %T", conn)
	}
}

func TestChangedCertificateIsServedWithoutARestart(t *testing.T) {
	t.Parallel()
	ca := clientcert.NewAuthority(t)
	later := time.Now().AddDate(0, 6, 0)
	cert, key := ca.Issue(1, later)
	s := serveFiles(t, cert, key, nil)
	trust := &tls.Config{RootCAs: ca.Pool(), ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	serves := func(when string, want int64) {
		t.Helper()
		for range 2 { // the second might resume a session
			if got, _, err := s.get(trust); err != nil || got != want {
				t.Errorf("%s, certificate %d is served, %v, want %d", when, got, err, want)
			}
		}
	}
	serves("at first", 1)
	s.reload(t.Context())
	serves("with unchanged files", 1)

	cert2, key2 := ca.Issue(2, later)
	s.write("cert.pem", cert2)
	s.reload(t.Context())
	serves("before the new key is there", 1)
	if s.logs.Len() > 0 || len(s.warnings(time.Now())) > 0 {
		t.Errorf("half of a change is warned of at once: %s", s.logs)
	}
	s.reload(t.Context())
	s.reload(t.Context())
	warnings := strings.Join(s.warnings(time.Now()), "")
	if got := strings.Count(s.logs.String(), "cannot be used"); got != 1 || !strings.Contains(warnings, "cannot be used") {
		t.Errorf("a lasting half of a change is logged %d times, and the warnings are %q", got, warnings)
	}
	s.write("key.pem", key2)
	s.reload(t.Context())
	serves("with both new files", 2)
	if got := s.warnings(time.Now()); len(got) > 0 {
		t.Errorf("with both new files, the warnings are %q", got)
	}
	for what, change := range map[string]func(){
		"garbage":   func() { s.write("cert.pem", []byte("garbage")) },
		"no file":   func() { _ = os.Remove(filepath.Join(s.dir, "cert.pem")) },
		"empty":     func() { s.write("cert.pem", nil) },
		"other key": func() { s.write("cert.pem", cert) },
	} {
		change()
		s.reload(t.Context())
		s.reload(t.Context())
		serves("with "+what+" in place of the certificate", 2)
		s.write("cert.pem", cert2)
		s.reload(t.Context())
		if got := s.warnings(time.Now()); len(got) > 0 {
			t.Errorf("after %s, the warnings are %q", what, got)
		}
	}
}

func TestClientCertificatesAreVerifiedAndTheirAuthoritiesReloaded(t *testing.T) {
	t.Parallel()
	ca, clients, others := clientcert.NewAuthority(t), clientcert.NewAuthority(t), clientcert.NewAuthority(t)
	later := time.Now().AddDate(0, 6, 0)
	cert, key := ca.Issue(1, later)
	s := serveFiles(t, cert, key, clients)
	with := func(a *clientcert.Authority, until time.Time) *tls.Config {
		config := &tls.Config{RootCAs: ca.Pool()}
		if a != nil {
			cert, key := a.Issue(7, until)
			pair := must[tls.Certificate](t)(tls.X509KeyPair(cert, key))
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		return config
	}
	if _, verified, err := s.get(with(clients, later)); err != nil || !verified {
		t.Errorf("a certificate of the authority: verified %v, %v", verified, err)
	}
	if _, verified, err := s.get(with(nil, later)); err != nil || verified {
		t.Errorf("no certificate: verified %v, %v, want that the API decides", verified, err)
	}
	for what, config := range map[string]*tls.Config{
		"of another authority": with(others, later), "that has expired": with(clients, time.Now().Add(-time.Minute)),
	} {
		if _, _, err := s.get(config); err == nil {
			t.Errorf("a certificate %s is let in", what)
		}
	}
	s.write("ca.pem", others.PEM())
	s.reload(t.Context())
	if _, verified, err := s.get(with(others, later)); err != nil || !verified {
		t.Errorf("a certificate of the new authority: verified %v, %v", verified, err)
	}
	if _, _, err := s.get(with(clients, later)); err == nil {
		t.Error("a certificate of the old authority is let in")
	}
}

// BAD_INPUTS: a certificate that has expired or expires within 14 days, and plain HTTP off loopback.
func TestOperatorsAreWarnedOfCertificatesAndPlainHTTP(t *testing.T) {
	t.Parallel()
	ca := clientcert.NewAuthority(t)
	now := time.Now()
	for words, until := range map[string]time.Time{
		"": now.Add(15 * 24 * time.Hour), "expires at": now.Add(13 * 24 * time.Hour), "expired at": now.Add(-time.Hour),
	} {
		cert, key := ca.Issue(1, until)
		s := serveFiles(t, cert, key, nil)
		got := strings.Join(s.warnings(now), "\n")
		if words == "" && got != "" || !strings.Contains(got, words) {
			t.Errorf("a certificate until %s gives %q, want %q", until, got, words)
		}
		registry := prometheus.NewRegistry()
		s.register(registry)
		if value := gauge(t, registry, "carillon_tls_certificate_expiry_timestamp_seconds"); int64(value) != until.Unix() {
			t.Errorf("the metric is %v, want %d", value, until.Unix())
		}
	}
	for address, warned := range map[string]bool{"127.0.0.1": false, "::1": false, "0.0.0.0": true, "::": true, "10.1.2.3": true} {
		s := must[*servedTLS](t)(serveTLS(tlsFiles{}, &net.TCPAddr{IP: net.ParseIP(address), Port: 8080}, slog.New(slog.DiscardHandler)))
		registry := prometheus.NewRegistry()
		s.register(registry)
		if got := strings.Contains(strings.Join(s.warnings(now), ""), "plain HTTP"); got != warned {
			t.Errorf("plain HTTP at %s: warned %v, want %v", address, got, warned)
		}
		if value := gauge(t, registry, "carillon_api_plaintext"); (value == 1) != warned {
			t.Errorf("plain HTTP at %s: metric %v, want warned %v", address, value, warned)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		s := must[*servedTLS](t)(serveTLS(tlsFiles{}, &net.TCPAddr{IP: net.IPv4zero}, slog.New(slog.NewTextHandler(&logs, nil))))
		ctx, cancel := context.WithTimeout(t.Context(), warningRepeat-tlsPoll)
		defer cancel()
		s.run(ctx)
		if got := strings.Count(logs.String(), "plain HTTP"); got != 1 {
			t.Errorf("plain HTTP is logged %d times, want once: %s", got, logs.String())
		}
	})
}

func gauge(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// must returns the value of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
