package invoke_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/http2"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

const (
	failed, timedOut, succeeded = run.Failed, run.TimedOut, run.Succeeded

	ok       = "HTTP/1.1 200 OK\r\n"
	closing  = "Connection: close\r\n"
	gigabyte = 1 << 30
)

// behavior serves one connection and returns when done is closed; then the connection is closed. Its
// caller has read the first request, unless the server is unread. It calls seen for each request
// that it reads itself.
type behavior func(c net.Conn, seen func(), done <-chan struct{})

// brokenServer is a target that misbehaves, and the expected outcome of its calls.
type brokenServer struct {
	host   string // one of brokenNames; empty means the address of the server
	serve  behavior
	unread bool        // the first request is not read
	tls    *tls.Config // nil for plain HTTP
	// state and class are the outcome of each call. If responses is not nil, it counts the requests
	// with a response, whose calls succeed instead.
	state     run.State
	class     run.Class
	responses *atomic.Int64
	// oneRequest is set if the server must see each call as one request. It never sees more.
	oneRequest bool
}

// brokenNames are the names of servers whose name resolution already fails or is slow.
var brokenNames = map[string]named{
	"empty.test":    {lists: [][]string{{}}},
	"servfail.test": {code: dnsmessage.RCodeServerFailure},
	"refused.test":  {code: dnsmessage.RCodeRefused},
	"silent.test":   {silent: true},
	"late.test":     {lists: [][]string{{"127.0.0.1"}}, after: 3 * brokenTimeout},
	"slow.test":     {lists: [][]string{{"127.0.0.1"}}, after: brokenTimeout / 4},
}

func says(text string) behavior {
	return func(c net.Conn, _ func(), _ <-chan struct{}) { _, _ = io.WriteString(c, text) }
}

func hang(_ net.Conn, _ func(), done <-chan struct{}) { <-done }

// drip writes a text byte by byte until the client closes the connection.
func drip(head, text string) behavior {
	return func(c net.Conn, _ func(), done <-chan struct{}) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		_, err := io.WriteString(c, head)
		for i := 0; err == nil; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
				_, err = c.Write([]byte{text[i%len(text)]})
			}
		}
	}
}

// pour writes a gigabyte after a head.
func pour(head string) behavior {
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	return func(c net.Conn, _ func(), _ <-chan struct{}) {
		_, err := io.WriteString(c, head)
		for n := 0; err == nil && n < gigabyte; n += len(chunk) {
			_, err = c.Write(chunk)
		}
	}
}

func abort(c net.Conn, _ func(), _ <-chan struct{}) {
	if inner, ok := c.(*net.TCPConn); ok {
		_ = inner.SetLinger(0)
	}
}

func flood(c net.Conn, _ func(), _ <-chan struct{}) {
	text := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1000)
	for err := error(nil); err == nil; {
		_, err = io.WriteString(c, text)
	}
}

func bomb(t *testing.T) string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 16 {
		if _, err := z.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(ok+closing+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.String())
}

// keptAlive responds to the first request of each connection, and with underRequest reads the second.
// Then it closes the connection without a response.
func keptAlive(underRequest bool) brokenServer {
	a := brokenServer{state: failed, class: run.ClassReset, responses: new(atomic.Int64), oneRequest: underRequest}
	a.serve = func(c net.Conn, seen func(), _ <-chan struct{}) {
		a.responses.Add(1)
		if _, err := io.WriteString(c, ok+"Content-Length: 0\r\n\r\n"); err != nil || !underRequest {
			return
		}
		if q, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, q.Body)
			seen()
		}
	}
	return a
}

// overHTTP2 serves each request of a connection by respond, once the whole request has arrived. It
// counts a request when its first frame arrives.
func overHTTP2(
	state run.State, class run.Class, respond func(f *http2.Framer, stream uint32) error,
) brokenServer {
	serve := func(c net.Conn, seen func(), _ <-chan struct{}) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil || string(preface) != http2.ClientPreface {
			return // a client that uses HTTP/1
		}
		f := http2.NewFramer(c, c)
		for err := f.WriteSettings(); err == nil; {
			var frame http2.Frame
			if frame, err = f.ReadFrame(); err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					err = f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				if seen(); frame.StreamEnded() {
					err = respond(f, frame.StreamID)
				}
			case *http2.DataFrame:
				if n := frame.Header().Length; n > 0 {
					err = f.WriteWindowUpdate(0, n)
				}
				if err == nil && frame.StreamEnded() {
					err = respond(f, frame.StreamID)
				}
			}
		}
	}
	return brokenServer{unread: true, tls: &tls.Config{NextProtos: []string{"h2"}}, state: state, class: class, serve: serve}
}

// pouring responds to each request of an HTTP/2 connection with a gigabyte.
func pouring(c net.Conn, seen func(), _ <-chan struct{}) {
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	//nolint:staticcheck // the server of net/http takes listeners, not connections
	(&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		seen()
		for n := 0; err == nil && n < gigabyte; n += len(chunk) {
			_, err = w.Write(chunk)
		}
	})})
}

// fails returns a server whose requests fail as a class.
func fails(class run.Class, serve behavior) brokenServer {
	return brokenServer{serve: serve, state: failed, class: class, oneRequest: true}
}

// timesOut returns a server whose requests time out.
func timesOut(serve behavior) brokenServer {
	return brokenServer{serve: serve, state: timedOut, class: run.ClassTimeout, oneRequest: true}
}

// succeeds returns a server whose requests succeed.
func succeeds(serve behavior) brokenServer {
	return brokenServer{serve: serve, state: succeeded, oneRequest: true}
}

// overTLS returns a server that speaks TLS. Its clients may fail before the first request.
func overTLS(config *tls.Config, s brokenServer) brokenServer {
	s.tls, s.oneRequest = config, false
	return s
}

// beforeRequest returns a server that acts without reading the first request.
func beforeRequest(s brokenServer) brokenServer {
	s.unread, s.oneRequest = true, false
	return s
}

// brokenServers returns all broken servers by name. Callers trust the certificates of those with TLS, unless the
// certificate is the broken part.
func brokenServers(t *testing.T, good tls.Certificate) map[string]brokenServer {
	t.Helper()
	const (
		reset     = run.ClassReset
		tooLarge  = run.ClassHeaderTooLarge
		protocol  = run.ClassProtocol
		serverErr = run.ClassHTTP5xx
	)
	all := map[string]brokenServer{
		"accepts and does not read": beforeRequest(timesOut(hang)),
		"never responds":            timesOut(hang),
		"a header byte by byte":     timesOut(drip(ok, "X-A: b\r\nX-B: ccccccccccccccccccccccccccccccc")),
		"a body byte by byte":       timesOut(drip(ok+"\r\n", "x")),
		"a gigabyte":                succeeds(pour(ok + "\r\n")),
		"a gigabyte that fails":     fails(serverErr, pour("HTTP/1.1 500 No\r\nContent-Length: 1073741824\r\n\r\n")),
		"a gigabyte in chunks":      succeeds(pour(ok + "Transfer-Encoding: chunked\r\n\r\n40000000\r\n")),
		"a gigabyte by HTTP/2": {
			serve: pouring, unread: true, tls: &tls.Config{NextProtos: []string{"h2"}}, state: succeeded, oneRequest: true,
		},
		"a bomb":                 succeeds(says(bomb(t))),
		"a header of a megabyte": fails(tooLarge, says(ok+"X-Long: "+strings.Repeat("x", 1<<20)+"\r\n\r\n")),
		"an endless header":      fails(tooLarge, pour(ok+"X-Long: ")),
		"a flood of 1xx":         fails(tooLarge, flood),
		"a loop of redirects": fails(run.ClassRedirect,
			says("HTTP/1.1 307 Again\r\n"+closing+"Location: /\r\nContent-Length: 0\r\n\r\n")),
		"a length too long":        fails(reset, says(ok+"Content-Length: 100\r\n\r\nshort")),
		"a length too short":       succeeds(says(ok + closing + "Content-Length: 2\r\n\r\nlonger")),
		"two lengths":              fails(protocol, says(ok+"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx")),
		"an invalid length":        fails(protocol, says(ok+"Content-Length: -1\r\n\r\n")),
		"invalid chunks":           fails(protocol, says(ok+"Transfer-Encoding: chunked\r\n\r\nzz\r\n")),
		"not HTTP":                 fails(protocol, says("SSH-2.0-OpenSSH_9.0\r\n\r\n")),
		"reset before the request": beforeRequest(fails(reset, abort)),
		"reset after the request":  fails(reset, abort),
		"reset within the body": fails(reset, func(c net.Conn, seen func(), done <-chan struct{}) {
			says(ok+"Content-Length: 9\r\n\r\nx")(c, seen, done)
			abort(c, seen, done)
		}),
		"closed after the request":          fails(reset, says("")),
		"kept alive, dies under a request":  keptAlive(true),
		"kept alive, dies between requests": keptAlive(false),
	}
	maps.Copy(all, brokenTLSServers(t, good))
	for _, host := range []string{"nosuch.test", "empty.test", "servfail.test", "refused.test"} {
		all["a name: "+host] = brokenServer{host: host, serve: hang, state: failed, class: run.ClassDNS}
	}
	for _, host := range []string{"silent.test", "late.test"} {
		all["a name: "+host] = brokenServer{host: host, serve: hang, state: timedOut, class: run.ClassTimeout}
	}
	slow := succeeds(says(ok + closing + "Content-Length: 0\r\n\r\n"))
	slow.host = "slow.test"
	all["a name: slow.test"] = slow
	return all
}

func brokenTLSServers(t *testing.T, good tls.Certificate) map[string]brokenServer {
	t.Helper()
	const name, reset = "127.0.0.1", run.ClassReset
	with := func(c tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: []string{"http/1.1"}}
	}
	old := with(good)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	hour := time.Now().Add(time.Hour)
	refused := fails(run.ClassTLS, hang)
	return map[string]brokenServer{
		"an expired certificate":     overTLS(with(certificate(t, name, time.Now().Add(-time.Hour))), refused),
		"an unknown certificate":     overTLS(with(certificate(t, name, hour)), refused),
		"another host's certificate": overTLS(with(certificate(t, "127.0.0.9", hour)), refused),
		"TLS 1.0":                    overTLS(old, refused),
		"a handshake that hangs":     overTLS(with(good), beforeRequest(timesOut(hang))),
		"an invalid handshake":       overTLS(with(good), beforeRequest(fails(run.ClassTLS, says(ok+"\r\n")))),
		"HTTP/2 that sends GOAWAY": overHTTP2(failed, reset, func(f *http2.Framer, _ uint32) error {
			return f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}),
		"HTTP/2 that sends GOAWAY and closes": overHTTP2(failed, reset, func(f *http2.Framer, id uint32) error {
			if err := f.WriteGoAway(id, http2.ErrCodeEnhanceYourCalm, nil); err != nil {
				return err
			}
			return io.EOF
		}),
		"HTTP/2 that refuses": overHTTP2(failed, reset, func(f *http2.Framer, id uint32) error {
			return f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}),
		"HTTP/2 that resets streams": overHTTP2(failed, reset, func(f *http2.Framer, id uint32) error {
			return f.WriteRSTStream(id, http2.ErrCodeInternal)
		}),
		"HTTP/2 that never responds": overHTTP2(timedOut, run.ClassTimeout, func(*http2.Framer, uint32) error {
			return nil
		}),
	}
}
