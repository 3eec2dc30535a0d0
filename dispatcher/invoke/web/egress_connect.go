package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

// Connect makes the connection that a webhook to a URL would need, with TLS for https, and closes it. It sends no
// request. It returns the address that it reached.
func (e Egress) Connect(ctx context.Context, target string) (netip.AddrPort, error) {
	u, err := url.Parse(target)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" || u.Hostname() == "" {
		return netip.AddrPort{}, errors.New("it is not the URL of a webhook, https://HOST/PATH")
	}
	if u.Port() != "" {
		port = u.Port()
	}
	conn, err := newGuard(e, nil).dialer(Scope{})(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	reached, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err == nil && u.Scheme == "https" {
		encrypted := tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
		if err = encrypted.HandshakeContext(ctx); err != nil {
			err = fmt.Errorf("TLS with %s: %w", reached, err)
		}
	}
	return reached, err
}
