package invoke_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/http2"

	"github.com/carillon-dev/carillon/dispatcher"
)

const (
	failed, timedOut, succeeded = dispatcher.RunFailed, dispatcher.RunTimedOut, dispatcher.RunSucceeded

	ok       = "HTTP/1.1 200 OK\r\n"
	gigabyte = 1 << 30
)

// brokenServer is a target that misbehaves, and what must be said of it.
type brokenServer struct {
	// host is a name that is called, of brokenNames; "": the address of the brokenServer itself.
	host string
	// behave serves one connection whose first request has been read, unless deaf; it is closed
	// afterwards. It calls seen for each request that it reads, and returns when done is closed.
	behave func(c net.Conn, seen func(), done <-chan struct{})
	deaf   bool
	tls    *tls.Config
	// state and class are how each call ends, but for those that answered counts: they succeed.
	state    dispatcher.RunState
	class    dispatcher.Class
	answered *atomic.Int64
	// requests tells that each call must be seen as one request. It is never seen as more.
	requests bool
}

// brokenNames are the names of servers that begin to misbehave before they are found.
var brokenNames = map[string]named{
	"empty.test":    {lists: [][]string{{}}},
	"servfail.test": {code: dnsmessage.RCodeServerFailure},
	"refused.test":  {code: dnsmessage.RCodeRefused},
	"silent.test":   {silent: true},
	"late.test":     {lists: [][]string{{"127.0.0.1"}}, after: 3 * brokenTimeout},
	"slow.test":     {lists: [][]string{{"127.0.0.1"}}, after: brokenTimeout / 4},
}

func says(text string) func(net.Conn, func(), <-chan struct{}) {
	return func(c net.Conn, _ func(), _ <-chan struct{}) { _, _ = io.WriteString(c, text) }
}

func hang(_ net.Conn, _ func(), done <-chan struct{}) { <-done }

// drip writes a text a byte at a time, for as long as anybody listens.
func drip(head, text string) func(net.Conn, func(), <-chan struct{}) {
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
func pour(head string) func(net.Conn, func(), <-chan struct{}) {
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
	notifications := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1000)
	for err := error(nil); err == nil; {
		_, err = io.WriteString(c, notifications)
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
	return fmt.Sprintf(ok+"Connection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", packed.Len(), packed.String())
}

// keptAlive answers the first request of each connection, and reads the second one if it is to
// die under it. Then it ends the connection without a word.
func keptAlive(underRequest bool) brokenServer {
	a := brokenServer{state: failed, class: dispatcher.ClassReset, answered: new(atomic.Int64), requests: underRequest}
	a.behave = func(c net.Conn, seen func(), _ <-chan struct{}) {
		a.answered.Add(1)
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

// overHTTP2 does as told with each request of a connection, once it has come in full. A request is
// seen from its first frame on.
func overHTTP2(state dispatcher.RunState, class dispatcher.Class, with func(f *http2.Framer, stream uint32) error) brokenServer {
	return brokenServer{deaf: true, tls: &tls.Config{NextProtos: []string{"h2"}}, state: state, class: class, behave: func(c net.Conn, seen func(), _ <-chan struct{}) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil || string(preface) != http2.ClientPreface {
			return // as who repeats by HTTP/1 what it could not send
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
					err = with(f, frame.StreamID)
				}
			case *http2.DataFrame:
				if n := frame.Header().Length; n > 0 {
					err = f.WriteWindowUpdate(0, n)
				}
				if err == nil && frame.StreamEnded() {
					err = with(f, frame.StreamID)
				}
			}
		}
	}}
}

// pouring serves a gigabyte to each request of a connection by HTTP/2.
func pouring(c net.Conn, seen func(), _ <-chan struct{}) {
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	//nolint:staticcheck // net/http's server takes listeners, and no connections
	(&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		seen()
		for n := 0; err == nil && n < gigabyte; n += len(chunk) {
			_, err = w.Write(chunk)
		}
	})})
}

// zoo are the servers. Those with TLS are trusted by their own certificate, unless that is what
// is wrong with them.
func brokenServers(t *testing.T, good tls.Certificate) map[string]brokenServer {
	t.Helper()
	all := map[string]brokenServer{
		"accepts and does not read": {behave: hang, deaf: true, state: timedOut, class: dispatcher.ClassTimeout},
		"never answers":             {behave: hang, state: timedOut, class: dispatcher.ClassTimeout, requests: true},
		"a header byte by byte":     {behave: drip(ok, "X-A: b\r\nX-B: ccccccccccccccccccccccccccccccc"), state: timedOut, class: dispatcher.ClassTimeout, requests: true},
		"a body byte by byte":       {behave: drip(ok+"\r\n", "x"), state: timedOut, class: dispatcher.ClassTimeout, requests: true},
		"a gigabyte":                {behave: pour(ok + "\r\n"), state: succeeded, requests: true},
		"a gigabyte that fails":     {behave: pour("HTTP/1.1 500 No\r\nContent-Length: 1073741824\r\n\r\n"), state: failed, class: dispatcher.ClassHTTP5xx, requests: true},
		"a gigabyte in chunks":      {behave: pour(ok + "Transfer-Encoding: chunked\r\n\r\n40000000\r\n"), state: succeeded, requests: true},
		"a gigabyte by HTTP/2":      {behave: pouring, deaf: true, tls: &tls.Config{NextProtos: []string{"h2"}}, state: succeeded, requests: true},
		"a bomb":                    {behave: says(bomb(t)), state: succeeded, requests: true},
		"a header of a megabyte":    {behave: says(ok + "X-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), state: failed, class: dispatcher.ClassHeaderTooLarge, requests: true},
		"an endless header":         {behave: pour(ok + "X-Long: "), state: failed, class: dispatcher.ClassHeaderTooLarge, requests: true},
		"a flood of 1xx":            {behave: flood, state: failed, class: dispatcher.ClassHeaderTooLarge, requests: true},
		"a loop of redirects":       {behave: says("HTTP/1.1 307 Again\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), state: failed, class: dispatcher.ClassRedirect, requests: true},
		"a length too long":         {behave: says(ok + "Content-Length: 100\r\n\r\nshort"), state: failed, class: dispatcher.ClassReset, requests: true},
		"a length too short":        {behave: says(ok + "Connection: close\r\nContent-Length: 2\r\n\r\nlonger"), state: succeeded, requests: true},
		"two lengths":               {behave: says(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"a length that is none":     {behave: says(ok + "Content-Length: -1\r\n\r\n"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"chunks that are none":      {behave: says(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"not HTTP":                  {behave: says("SSH-2.0-OpenSSH_9.0\r\n\r\n"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"reset before the request":  {behave: abort, deaf: true, state: failed, class: dispatcher.ClassReset},
		"reset after the request":   {behave: abort, state: failed, class: dispatcher.ClassReset, requests: true},
		"reset within the body": {behave: func(c net.Conn, seen func(), done <-chan struct{}) {
			says(ok+"Content-Length: 9\r\n\r\nx")(c, seen, done)
			abort(c, seen, done)
		}, state: failed, class: dispatcher.ClassReset, requests: true},
		"closed after the request":          {behave: says(""), state: failed, class: dispatcher.ClassReset, requests: true},
		"kept alive, dies under a request":  keptAlive(true),
		"kept alive, dies between requests": keptAlive(false),
	}
	for name, a := range brokenTLSServers(t, good) {
		all[name] = a
	}
	for host, class := range map[string]dispatcher.Class{
		"nosuch.test": dispatcher.ClassDNS, "empty.test": dispatcher.ClassDNS, "servfail.test": dispatcher.ClassDNS, "refused.test": dispatcher.ClassDNS,
	} {
		all["a name: "+host] = brokenServer{host: host, behave: hang, state: failed, class: class}
	}
	for _, host := range []string{"silent.test", "late.test"} {
		all["a name: "+host] = brokenServer{host: host, behave: hang, state: timedOut, class: dispatcher.ClassTimeout}
	}
	all["a name: slow.test"] = brokenServer{host: "slow.test", behave: says(ok + "Connection: close\r\nContent-Length: 0\r\n\r\n"), state: succeeded, requests: true}
	return all
}

func brokenTLSServers(t *testing.T, good tls.Certificate) map[string]brokenServer {
	t.Helper()
	const name = "127.0.0.1"
	with := func(c tls.Certificate) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{c}, NextProtos: []string{"http/1.1"}}
	}
	old := with(good)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	hour := time.Now().Add(time.Hour)
	return map[string]brokenServer{
		"an expired certificate":   {behave: hang, tls: with(certificate(t, name, time.Now().Add(-time.Hour))), state: failed, class: dispatcher.ClassTLS},
		"an unknown certificate":   {behave: hang, tls: with(certificate(t, name, hour)), state: failed, class: dispatcher.ClassTLS},
		"a certificate of another": {behave: hang, tls: with(certificate(t, "127.0.0.9", hour)), state: failed, class: dispatcher.ClassTLS},
		"TLS 1.0":                  {behave: hang, tls: old, state: failed, class: dispatcher.ClassTLS},
		"a handshake that hangs":   {behave: hang, deaf: true, tls: with(good), state: timedOut, class: dispatcher.ClassTimeout},
		"a handshake that is none": {behave: says(ok + "\r\n"), deaf: true, tls: with(good), state: failed, class: dispatcher.ClassTLS},
		"HTTP/2 that goes away": overHTTP2(failed, dispatcher.ClassReset, func(f *http2.Framer, _ uint32) error {
			return f.WriteGoAway(0, http2.ErrCodeNo, nil)
		}),
		"HTTP/2 that goes away, enhance your calm": overHTTP2(failed, dispatcher.ClassReset, func(f *http2.Framer, id uint32) error {
			if err := f.WriteGoAway(id, http2.ErrCodeEnhanceYourCalm, nil); err != nil {
				return err
			}
			return io.EOF
		}),
		"HTTP/2 that refuses": overHTTP2(failed, dispatcher.ClassReset, func(f *http2.Framer, id uint32) error {
			return f.WriteRSTStream(id, http2.ErrCodeRefusedStream)
		}),
		"HTTP/2 that resets streams": overHTTP2(failed, dispatcher.ClassReset, func(f *http2.Framer, id uint32) error {
			return f.WriteRSTStream(id, http2.ErrCodeInternal)
		}),
		"HTTP/2 that never answers": overHTTP2(timedOut, dispatcher.ClassTimeout, func(*http2.Framer, uint32) error { return nil }),
	}
}
