package web

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Bounds of connections.
const (
	mostHeader  = 64 << 10         // bytes of a response's header
	idleTimeout = 30 * time.Second // shorter than the idle timeout of most servers
)

// mostClients bounds the kept clients, by different TLS options and bounds of egress.
const mostClients = 512

// clients are the two HTTP clients of the same TLS options and bounds of egress.
type clients struct {
	kept  *resty.Client // keeps connections open, many to each host
	fresh *resty.Client // dials for each request and uses HTTP/1
	used  time.Time     // the last use
}

func (c *clients) close() {
	c.kept.GetClient().CloseIdleConnections()
	c.fresh.GetClient().CloseIdleConnections()
}

// clientPool holds the clients of each set of TLS options and bounds of egress: a connection of one app may be one that
// another must not use.
type clientPool struct {
	guard        *guard
	connsPerHost int
	most         int64 // connections at which idle ones are closed; 0: no limit
	open         atomic.Int64
	plain        *clients // for webhooks without TLS options, of apps with the default bounds

	mu sync.Mutex
	of map[[sha256.Size]byte]*clients
}

func newClientPool(guard *guard, connsPerHost, most int) *clientPool {
	p := &clientPool{guard: guard, connsPerHost: connsPerHost, most: int64(most), of: map[[sha256.Size]byte]*clients{}}
	p.plain = p.newClients(nil, Scope{})
	return p
}

func (p *clientPool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plain.close()
	for _, c := range p.of {
		c.close()
	}
}

// dialFunc makes a connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// counted returns a dial that closes idle connections when there are many: they need files, and a process may open only
// a limited number.
func (p *clientPool) counted(dial dialFunc) dialFunc {
	if p.most == 0 {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if p.open.Load() >= p.most {
			p.closeIdle()
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		p.open.Add(1)
		return &countedConn{Conn: conn, open: &p.open}, nil
	}
}

// countedConn is a connection that counts as open until it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

// Close closes the connection.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// with returns the clients for TLS options and a scope; key is the revealed client key.
func (p *clientPool) with(t *target.TLS, key string, of Scope, now time.Time) (*clients, error) {
	if t == nil && of.app == "" && of.Registered == nil && of.ServerName == "" && of.Name == "" {
		return p.plain, nil // the connections of all apps with the default bounds
	}
	id := of.hash(t, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.of[id]; c != nil {
		c.used = now
		return c, nil
	}
	var config *tls.Config
	if t != nil {
		var err error
		if config, err = tlsConfig(t, key); err != nil {
			return nil, err
		}
	}
	if of.ServerName != "" {
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		config.ServerName = of.ServerName
	}
	if len(p.of) >= mostClients {
		p.evict()
	}
	c := p.newClients(config, of)
	c.used = now
	p.of[id] = c
	return c, nil
}

// Hashed returns a scope that is only used with some TLS options, and remembers its hash. It remembers none if they
// have a client key, which may change at any time.
func (s Scope) Hashed(t *target.TLS) Scope {
	if t == nil || t.ClientKey == nil {
		sum := s.hash(t, "")
		s.sum = &sum
	}
	return s
}

// hash returns the key of a scope's connections.
func (s Scope) hash(t *target.TLS, key string) [sha256.Size]byte {
	if s.sum != nil {
		return *s.sum
	}
	sums := make([]byte, 0, 16*(sha256.Size+1))
	add := func(parts ...string) {
		for _, part := range parts {
			sum := sha256.Sum256([]byte(part))
			sums = append(sums, sum[:]...)
		}
		sums = append(sums, 0) // ends a list
	}
	if t != nil {
		add(t.MinVersion, t.CACertificates, t.ClientCertificate, key)
	}
	add(s.app, s.ServerName, s.Name)
	// A missing list allows everything, an empty one allows nothing.
	add(strconv.FormatBool(s.Hosts == nil), strconv.FormatBool(s.Ports == nil), strconv.FormatBool(s.Networks == nil))
	add(list(s.Ports))
	add(s.Hosts...)
	add(s.Networks...)
	if r := s.Registered; r != nil {
		add(list(r.Ports))
		add(r.Networks...)
	}
	return sha256.Sum256(sums)
}

// list returns ports as a text.
func list(ports []int) string {
	text := make([]byte, 0, 128)
	for _, port := range ports {
		text = append(strconv.AppendInt(text, int64(port), 10), ' ')
	}
	return string(text)
}

// evict drops the clients that have been unused for longest. Their requests in flight continue.
func (p *clientPool) evict() {
	var oldest [sha256.Size]byte
	for id, c := range p.of {
		if o := p.of[oldest]; o == nil || c.used.Before(o.used) {
			oldest = id
		}
	}
	p.of[oldest].close()
	delete(p.of, oldest)
}

func tlsConfig(t *target.TLS, key string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.MinVersion == "1.3" {
		config.MinVersion = tls.VersionTLS13
	}
	if t.CACertificates != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(t.CACertificates))
	}
	if t.ClientCertificate != "" {
		pair, err := tls.X509KeyPair([]byte(t.ClientCertificate), []byte(key))
		if err != nil {
			return nil, attempt.BadSecret("tls client_key",
				errors.New("the value is not the PEM private key of the client certificate"))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (p *clientPool) newClients(config *tls.Config, of Scope) *clients {
	dial := p.counted(p.guard.dialer(of))
	kept, fresh := p.newTransport(config, dial), p.newTransport(config, dial)
	kept.ForceAttemptHTTP2 = true
	fresh.DisableKeepAlives = true
	// With HTTP/2, net/http repeats a request without a body when the server refuses the stream or
	// sends GOAWAY. The fresh client must send each request once.
	fresh.Protocols = new(http.Protocols)
	fresh.Protocols.SetHTTP1(true)
	return &clients{kept: restyOver(kept), fresh: restyOver(fresh)}
}

// newTransport returns a transport with a copy of config, because a transport changes its config.
func (p *clientPool) newTransport(config *tls.Config, dial dialFunc) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the environment must not redirect requests
		DialContext:            dial,
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    attempt.ConnectTimeout,
		MaxIdleConns:           16 * p.connsPerHost,
		MaxIdleConnsPerHost:    p.connsPerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: mostHeader,
		DisableCompression:     true, // keep responses as the server sent them
		// Without this, net/http buffers up to 4 MiB of each response.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 2 * attempt.MostBody},
	}
}

// restyOver returns a client that follows no redirects, keeps no cookies and sends a request
// once: without GetBody, net/http cannot send a body a second time.
func restyOver(transport http.RoundTripper) *resty.Client {
	c := resty.NewWithClient(&http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	c.SetLogger(silent{})
	c.SetPreRequestHook(func(_ *resty.Client, r *http.Request) error {
		r.GetBody = nil
		return nil
	})
	return c
}

// silent discards the log of resty, which goes to standard error. Outcomes contain the errors.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}
