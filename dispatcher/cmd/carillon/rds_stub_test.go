package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	stubKey    = "AKIDEXAMPLE"
	stubSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" //nolint:gosec // the example of Amazon's documentation
	stubRegion = "eu-west-1"
)

// stubEnv returns the environment of a node with credentials.
func stubEnv() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + stubKey, "AWS_SECRET_ACCESS_KEY=" + stubSecret, "AWS_REGION=" + stubRegion,
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true"}
}

// certificateFor makes a self-signed server certificate for hosts, and writes it to a file.
func certificateFor(t *testing.T, hosts ...string) (certificate tls.Certificate, file string) {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw := must[[]byte](t)(x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key))
	file = filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, file
}

// rdsStub is a front for a real PostgreSQL that behaves like RDS: it speaks TLS only, requires a
// valid token as password, and then connects the client to the server.
type rdsStub struct {
	t           *testing.T
	host, user  string // that tokens must name
	certificate tls.Certificate
	socket      string // of the server
	listener    net.Listener

	mu     sync.Mutex
	since  time.Time // older tokens are refused
	logins int
	open   map[net.Conn]bool
	seen   []string // signatures of tokens and other secrets, which must not be logged
	refuse bool
}

// newRDSStub returns a stub on a free port, for tokens with this host.
func newRDSStub(t *testing.T, host, socket string, certificate tls.Certificate) *rdsStub {
	t.Helper()
	s := &rdsStub{t: t, host: host, user: "fleet", certificate: certificate, socket: socket}
	s.open, s.seen = map[net.Conn]bool{}, []string{stubSecret}
	s.listener = must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	go func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	t.Cleanup(s.stop)
	return s
}

func (s *rdsStub) address() string {
	return net.JoinHostPort(s.host, strconv.Itoa(s.listener.Addr().(*net.TCPAddr).Port))
}

// stop ends the stub and its connections.
func (s *rdsStub) stop() {
	_ = s.listener.Close()
	s.cut()
}

// errCut is the refusal of a token from before the last cut. A login under way may still send one, and retries.
var errCut = errors.New("the token is from before the cut")

// cut ends all connections and refuses earlier tokens from now on.
func (s *rdsStub) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Now().Add(-time.Second).Truncate(time.Second)
	for conn := range s.open {
		_ = conn.Close()
	}
}

func (s *rdsStub) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// track records a connection until it ends.
func (s *rdsStub) track(conn net.Conn) (untrack func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[conn] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, conn)
		_ = conn.Close()
	}
}

// serve logs a client in and connects it to the server.
func (s *rdsStub) serve(raw net.Conn) {
	defer s.track(raw)()
	if first, err := pgproto3.NewBackend(raw, raw).ReceiveStartupMessage(); err != nil {
		return
	} else if _, wantsTLS := first.(*pgproto3.SSLRequest); !wantsTLS {
		s.t.Errorf("a connection without TLS: %T", first)
		return
	}
	if _, err := raw.Write([]byte("S")); err != nil {
		return
	}
	conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{s.certificate}, MinVersion: tls.VersionTLS12})
	client := pgproto3.NewBackend(conn, conn)
	first, err := client.ReceiveStartupMessage()
	if err != nil {
		return // a client that does not trust the certificate
	}
	startup, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return // a cancel request, which ends with its connection
	}
	client.Send(&pgproto3.AuthenticationCleartextPassword{})
	if client.Flush() != nil || client.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	message, err := client.Receive()
	if err != nil {
		return
	}
	password, ok := message.(*pgproto3.PasswordMessage)
	if !ok || startup.Parameters["user"] != s.user {
		s.t.Errorf("%s sent %T, want the password of %s", startup.Parameters["user"], message, s.user)
		return
	}
	err = s.checkToken(password.Password, time.Now())
	if err != nil && !errors.Is(err, errCut) {
		s.t.Errorf("token for %s: %v", s.address(), err)
		return
	}
	if s.refuse || err != nil {
		client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28000", Message: `PAM authentication failed for user "fleet"`})
		_ = client.Flush()
		return
	}
	s.lend(conn, startup)
}

// lend connects a client to the server and forwards the server's greeting.
func (s *rdsStub) lend(client net.Conn, startup *pgproto3.StartupMessage) {
	server, err := net.Dial("unix", filepath.Join(s.socket, ".s.PGSQL.5432"))
	if err != nil {
		return
	}
	defer s.track(server)()
	startup.Parameters["user"] = "postgres"
	greeting, err := startup.Encode(nil)
	if err != nil {
		s.t.Error(err)
		return
	}
	if _, err := server.Write(greeting); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// checkToken requires a valid token for this host and user, signed with the key after the last cut.
func (s *rdsStub) checkToken(token string, now time.Time) error {
	u, err := url.Parse("https://" + token)
	if err != nil {
		return err
	}
	query := u.Query()
	signature := query.Get("X-Amz-Signature")
	s.mu.Lock()
	since := s.since
	s.seen = append(s.seen, signature)
	s.logins++
	s.mu.Unlock()
	signed, err := time.Parse("20060102T150405Z", query.Get("X-Amz-Date"))
	scope := strings.Join([]string{signed.Format("20060102"), stubRegion, "rds-db", "aws4_request"}, "/")
	switch {
	case err != nil:
		return err
	case u.Host != s.address() || query.Get("DBUser") != s.user || query.Get("Action") != "connect" || query.Get("X-Amz-Expires") != "900":
		return fmt.Errorf("it is for %s at %s: %s", query.Get("DBUser"), u.Host, query.Get("Action"))
	case query.Get("X-Amz-Credential") != stubKey+"/"+scope:
		return fmt.Errorf("credential %s", query.Get("X-Amz-Credential"))
	case now.Sub(signed) > 15*time.Minute:
		return fmt.Errorf("signed at %s, now %s", signed, now)
	case signed.Before(since):
		return errCut
	}
	query.Del("X-Amz-Signature")
	if want := sign(u.Host, query, scope); want != signature {
		return errors.New("the signature is wrong")
	}
	return nil
}

// sign computes the signature of a presigned URL, as Amazon documents version 4.
func sign(host string, query url.Values, scope string) string {
	empty := sha256.Sum256(nil)
	request := strings.Join([]string{"GET", "/", strings.ReplaceAll(query.Encode(), "+", "%20"), "host:" + host, "", "host",
		hex.EncodeToString(empty[:])}, "\n")
	hashed := sha256.Sum256([]byte(request))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", query.Get("X-Amz-Date"), scope, hex.EncodeToString(hashed[:])}, "\n")
	key := []byte("AWS4" + stubSecret)
	for _, part := range append(strings.Split(scope, "/"), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return hex.EncodeToString(key)
}

// checkSecret requires that a text contains no part of a token that was seen.
func (s *rdsStub) checkSecret(what, text string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range append(s.seen, "X-Amz-Signature", "X-Amz-Credential") {
		if secret != "" && strings.Contains(text, secret) {
			s.t.Errorf("%s shows %q", what, secret)
		}
	}
}
