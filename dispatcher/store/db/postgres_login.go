package db

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Login sets how connections to PostgreSQL log in where their URL does not. The zero value leaves it all to the URL.
type Login struct {
	// Password returns the password for a server. It is called for each connection and each server in the URL, so a
	// changed password, or a token that lasts minutes, is used from the next connection on. nil: the URL has the
	// password. Nodes wait and try again while it returns an error.
	Password func(context.Context, Server) (string, error)
	// Roots, unless nil, are the root certificates for the certificate of a server, unless the URL names others
	// (sslrootcert). Connections then need TLS and the right host name.
	Roots *x509.CertPool
}

// Server is a server that a connection logs in to.
type Server struct {
	Host string
	Port uint16
	User string
}

// loginError means that the password is not available at the moment.
type loginError struct{ error }

func (e *loginError) Unwrap() error { return e.error }

// withTLS makes the URL ask for TLS if the login needs it. A URL that asks for less is refused when the connection is
// configured, see trust.
func (l Login) withTLS(database string) string {
	if l.Roots == nil || parameter(database, "sslmode") != "" {
		return database
	}
	separator := "?"
	if strings.Contains(database, "?") {
		separator = "&"
	}
	return database + separator + "sslmode=verify-full"
}

// parameter returns a parameter of a URL, which may name several hosts; net/url refuses some URLs with several hosts.
func parameter(database, name string) string {
	_, query, _ := strings.Cut(database, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return values.Get(name)
}

// trust sets the root certificates. It refuses a server without TLS or without a check of its name: an impostor could
// get the password.
func (l Login) trust(a Address, config *pgx.ConnConfig) error {
	if l.Roots == nil {
		return nil
	}
	named := parameter(a.url, "sslrootcert") != ""
	for _, s := range servers(config) {
		if s.TLSConfig == nil || s.TLSConfig.InsecureSkipVerify {
			return fmt.Errorf("the login needs sslmode=verify-full, and %s would be reached without", s.Host)
		}
		if !named {
			s.TLSConfig.RootCAs = l.Roots
		}
	}
	return nil
}

// enter sets the passwords of the connection, one for each possible server.
func (l Login) enter(ctx context.Context, config *pgx.ConnConfig) error {
	if l.Password == nil {
		return nil
	}
	all := servers(config)
	passwords, differ := make([]string, len(all)), false
	for i, s := range all {
		password, err := l.Password(ctx, Server{Host: s.Host, Port: s.Port, User: config.User})
		if err != nil {
			at := net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port)))
			return &loginError{fmt.Errorf("password of %s at %s: %w", config.User, at, err)}
		}
		passwords[i] = password
		differ = differ || password != passwords[0]
	}
	config.Password = passwords[0]
	if differ {
		return passwordByServer(config, all, passwords)
	}
	return nil
}

// passwordByServer makes the connection log in to each server with its own password. The driver has one password for
// all servers; but the TLS handshake identifies the server, and the password is sent after it.
func passwordByServer(config *pgx.ConnConfig, all []*pgconn.FallbackConfig, passwords []string) error {
	var reached string // the handshake and what follows are steps of one goroutine
	for i, s := range all {
		if s.TLSConfig == nil {
			return &loginError{errors.New("servers with different passwords need TLS")}
		}
		s.TLSConfig = s.TLSConfig.Clone() // servers may share it
		s.TLSConfig.VerifyConnection = func(tls.ConnectionState) error {
			reached = passwords[i]
			return nil
		}
	}
	config.TLSConfig, config.Fallbacks = all[0].TLSConfig, all[1:]
	config.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		// The driver would delay the handshake until its first message.
		if encrypted, ok := conn.(*tls.Conn); ok {
			if err := encrypted.HandshakeContext(ctx); err != nil {
				return conn, err
			}
		}
		config.Password = reached
		return conn, nil
	}
	return nil
}

// servers lists the servers of a configuration in the order of attempts.
func servers(config *pgx.ConnConfig) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, config.Fallbacks...)
}

// Address is the location of a database. Printing it never shows a password.
type Address struct {
	url   string // PostgreSQL
	Path  string // SQLite
	Login Login
}

// ParseAddress reads postgres://…, postgresql://… or sqlite:PATH.
func ParseAddress(database string) (Address, error) {
	scheme, rest, _ := strings.Cut(database, ":")
	switch scheme {
	case "postgres", "postgresql":
		if !strings.HasPrefix(rest, "//") {
			return Address{}, fmt.Errorf("database %q is not a URL; write it as postgres://user:password@host:5432/name", mask(database))
		}
		return Address{url: database}, nil
	case "sqlite":
		if path := strings.TrimPrefix(rest, "//"); path != "" && path != ":memory:" {
			return Address{Path: path}, nil
		}
		return Address{}, fmt.Errorf("database %q names no file; write it as sqlite:carillon.db", database)
	}
	return Address{}, fmt.Errorf("database %q is neither postgres://… nor sqlite:PATH", mask(database))
}

// String returns the address with the password masked.
func (a Address) String() string {
	if a.Path != "" {
		return "sqlite:" + a.Path
	}
	return mask(a.url)
}

// mask hides the text between "//user:" and the last "@", even if this is not a URL, and the value of a password
// parameter.
func mask(database string) string {
	head, query, _ := strings.Cut(database, "?")
	if at := strings.LastIndexByte(head, '@'); at >= 0 {
		start := strings.Index(head, "//") + 2
		if start < 2 || start > at {
			start = 0
		}
		if user, _, ok := strings.Cut(head[start:at], ":"); ok {
			head = head[:start] + user + ":xxxxx" + head[at:]
		}
	}
	if query == "" {
		return head
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		if name, _, _ := strings.Cut(part, "="); strings.Contains(name, "password") {
			parts[i] = name + "=xxxxx"
		}
	}
	return head + "?" + strings.Join(parts, "&")
}
