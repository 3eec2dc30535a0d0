package target_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// zooCalls is how often each target of the zoo is called: CARILLON_ZOO of the environment, or few.
func zooCalls(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("CARILLON_ZOO")); err == nil {
		return n
	}
	return 20
}

const zooTimeout = 400 * time.Millisecond

// animal is a target that misbehaves, and what must be said of it.
type animal struct {
	// behave serves one connection whose request has been read, unless deaf; it is closed afterwards.
	behave func(c net.Conn)
	deaf   bool
	tls    *tls.Config
	state  dispatcher.RunState
	class  dispatcher.Class
	// requests tells that each call must be seen as one request by the target.
	requests bool
}

func (a animal) run(t *testing.T, done <-chan struct{}) (host string, requests *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				if a.tls != nil {
					c = tls.Server(c, a.tls)
				}
				if !a.deaf {
					q, err := http.ReadRequest(bufio.NewReader(c))
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, q.Body)
					requests.Add(1)
				}
				a.behave(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String(), requests
}

// drip writes a text a byte at a time, for as long as anybody listens.
func drip(c net.Conn, text string, done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-tick.C:
			if _, err := c.Write([]byte{text[i%len(text)]}); err != nil {
				return
			}
		}
	}
}

func endless(c net.Conn, head string) {
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	_, err := io.WriteString(c, head)
	for n := 0; err == nil && n < 1<<14; n++ { // a gigabyte
		_, err = c.Write(chunk)
	}
}

func abort(c net.Conn) {
	if inner, ok := c.(*net.TCPConn); ok {
		_ = inner.SetLinger(0)
	}
}

// certificate makes one for a name, valid until an instant.
func certificate(t *testing.T, name string, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.ParseIP(name)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func pemOf(c tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}

// zoo are the animals. Those with TLS are trusted by their own certificate, unless that is what
// is wrong with them.
func zoo(t *testing.T, good tls.Certificate, done <-chan struct{}) map[string]animal {
	t.Helper()
	answer := func(text string) func(net.Conn) {
		return func(c net.Conn) { _, _ = io.WriteString(c, text) }
	}
	hang := func(net.Conn) { <-done }
	secure := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	old := secure(good)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 8<<20))
	_ = z.Close()
	const failed, timedOut, succeeded = dispatcher.RunFailed, dispatcher.RunTimedOut, dispatcher.RunSucceeded
	return map[string]animal{
		"accepts and does not read": {behave: hang, deaf: true, state: timedOut, class: dispatcher.ClassTimeout},
		"never answers":             {behave: hang, state: timedOut, class: dispatcher.ClassTimeout, requests: true},
		"a header byte by byte":     {behave: func(c net.Conn) { drip(c, "HTTP/1.1 200 OK\r\nX-A: b\r\nX-B: ccccccccccccccccccccccccccccccc", done) }, state: timedOut, class: dispatcher.ClassTimeout, requests: true},
		"a body byte by byte":       {behave: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); drip(c, "x", done) }, state: timedOut, class: dispatcher.ClassTimeout, requests: true},
		"a gigabyte":                {behave: func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\n\r\n") }, state: succeeded, requests: true},
		"a gigabyte that fails":     {behave: func(c net.Conn) { endless(c, "HTTP/1.1 500 No\r\nContent-Length: 1073741824\r\n\r\n") }, state: failed, class: dispatcher.ClassHTTP5xx, requests: true},
		"a bomb":                    {behave: answer(fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", bomb.Len(), bomb.String())), state: succeeded, requests: true},
		"a header of a megabyte":    {behave: answer("HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), state: failed, class: dispatcher.ClassHeaderTooLarge, requests: true},
		"an endless header":         {behave: func(c net.Conn) { endless(c, "HTTP/1.1 200 OK\r\nX-Long: ") }, state: failed, class: dispatcher.ClassHeaderTooLarge, requests: true},
		"a flood of 1xx": {behave: func(c net.Conn) {
			for _, err := io.WriteString(c, ""); err == nil; _, err = io.WriteString(c, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1000)) {
			}
		}, state: failed, class: dispatcher.ClassHeaderTooLarge, requests: true},
		"a loop of redirects":      {behave: answer("HTTP/1.1 307 Again\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), state: failed, class: dispatcher.ClassRedirect, requests: true},
		"a length too long":        {behave: answer("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), state: failed, class: dispatcher.ClassReset, requests: true},
		"two lengths":              {behave: answer("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"a length that is none":    {behave: answer("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"chunks that are none":     {behave: answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"not HTTP":                 {behave: answer("SSH-2.0-OpenSSH_9.0\r\n\r\n"), state: failed, class: dispatcher.ClassProtocol, requests: true},
		"reset before the request": {behave: abort, deaf: true, state: failed, class: dispatcher.ClassReset},
		"reset after the request":  {behave: abort, state: failed, class: dispatcher.ClassReset, requests: true},
		"reset within the body":    {behave: func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"); abort(c) }, state: failed, class: dispatcher.ClassReset, requests: true},
		"closed after the request": {behave: func(net.Conn) {}, state: failed, class: dispatcher.ClassReset, requests: true},
		"an expired certificate":   {behave: hang, deaf: false, tls: secure(certificate(t, "127.0.0.1", time.Now().Add(-time.Hour))), state: failed, class: dispatcher.ClassTLS},
		"an unknown certificate":   {behave: hang, tls: secure(certificate(t, "127.0.0.1", time.Now().Add(time.Hour))), state: failed, class: dispatcher.ClassTLS},
		"a certificate of another": {behave: hang, tls: secure(certificate(t, "127.0.0.9", time.Now().Add(time.Hour))), state: failed, class: dispatcher.ClassTLS},
		"TLS 1.0":                  {behave: hang, tls: old, state: failed, class: dispatcher.ClassTLS},
		"a handshake that hangs":   {behave: hang, deaf: true, tls: secure(good), state: timedOut, class: dispatcher.ClassTimeout},
		"HTTP/2 that goes away": {behave: func(c net.Conn) {
			speakHTTP2(c, func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) })
		}, deaf: true, tls: secure(good), state: failed, class: dispatcher.ClassReset},
		"HTTP/2 that refuses": {behave: func(c net.Conn) {
			speakHTTP2(c, func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeRefusedStream) })
		}, deaf: true, tls: secure(good), state: failed, class: dispatcher.ClassReset},
		"HTTP/2 that resets streams": {behave: func(c net.Conn) {
			speakHTTP2(c, func(f *http2.Framer, id uint32) { _ = f.WriteRSTStream(id, http2.ErrCodeInternal) })
		}, deaf: true, tls: secure(good), state: failed, class: dispatcher.ClassReset},
	}
}

// speakHTTP2 does as told with each request of a connection, once it has come in full.
func speakHTTP2(c net.Conn, with func(f *http2.Framer, stream uint32)) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if frame.StreamEnded() {
				with(f, frame.StreamID)
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				with(f, frame.StreamID)
			}
		}
	}
}

// Every target that misbehaves has its class, none holds a call for longer than its timeout, and
// afterwards nothing is left of any.
func TestZoo(t *testing.T) {
	calls := zooCalls(t)
	done := make(chan struct{})
	good := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	i := newInvoker(t)
	goroutines, files := runtime.NumGoroutine(), openFiles()
	for name, a := range zoo(t, good, done) {
		if a.tls != nil && len(a.tls.Certificates) > 0 && a.tls.MaxVersion == 0 {
			a.tls.NextProtos = []string{"http/1.1"}
			if strings.Contains(name, "HTTP/2") {
				a.tls.NextProtos = []string{"h2"}
			}
		}
		host, requests := a.run(t, done)
		url := "http://" + host
		if a.tls != nil {
			url = "https://" + host
		}
		var group errgroup.Group
		group.SetLimit(50)
		for range calls {
			group.Go(func() error {
				timeout := 30 * time.Second
				if a.state == dispatcher.RunTimedOut {
					timeout = zooTimeout
				}
				call := callTo(url+"/?key=hunter2", "POST", timeout)
				call.Target.Webhook.TLS = &dispatcher.TLS{CACertificates: pemOf(good)}
				if a.tls == nil {
					call.Target.Webhook.TLS = nil
				}
				o := i.Invoke(t.Context(), call)
				if took := o.EndedAt.Sub(o.StartedAt); o.State != a.state || o.Class != a.class || took > timeout+5*time.Second || strings.Contains(o.Error, "hunter2") {
					return fmt.Errorf("%s: outcome after %s = %+v, want %s %s", name, took, o, a.state, a.class)
				}
				if o.Answer != nil && len(o.Answer.Body) > 64<<10 {
					return fmt.Errorf("%s: %d bytes are kept", name, len(o.Answer.Body))
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		if a.requests && requests.Load() != int64(calls) {
			t.Errorf("%s: %d requests came of %d calls", name, requests.Load(), calls)
		}
	}
	close(done)
	i.Close()
	settled := func() bool { return runtime.NumGoroutine() <= goroutines+5+2*28 && openFiles() <= files+5+28 } // each animal listens
	for n := 0; n < 500 && !settled(); n++ {
		<-time.After(20 * time.Millisecond) // sockets close when the kernel says so
	}
	if !settled() {
		t.Errorf("%d goroutines and %d files are left, at first there were %d and %d", runtime.NumGoroutine(), openFiles(), goroutines, files)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if most := uint64(512 << 20); m.HeapSys > most {
		t.Errorf("the heap has grown to %d MiB", m.HeapSys>>20)
	}
}

// openFiles counts the files that this process has open, where that can be told.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func TestNamesThatLeadNowhere(t *testing.T) {
	t.Parallel()
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	dns := nameServer(t, map[string][][]string{"empty.test": {{}}})
	for name, tt := range map[string]struct {
		dial  func(context.Context, string, string) (net.Conn, error)
		class dispatcher.Class
	}{
		"no such name": {dns, dispatcher.ClassDNS},
		"no address":   {dns, dispatcher.ClassDNS},
		"no answer": {func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "udp", silent.LocalAddr().String())
			if err == nil {
				t.Cleanup(func() { _ = c.Close() }) // or the resolver waits for it for some seconds more
			}
			return c, err
		}, dispatcher.ClassTimeout},
		"no name server": {func(context.Context, string, string) (net.Conn, error) { return nil, io.ErrClosedPipe }, dispatcher.ClassDNS},
	} {
		i := target.New(target.Options{Resolver: &net.Resolver{PreferGo: true, Dial: tt.dial}})
		host := map[bool]string{true: "empty.test", false: "nosuch.test"}[name == "no address"]
		o := i.Invoke(t.Context(), callTo("http://"+host+"/", "POST", 300*time.Millisecond))
		i.Close()
		if o.Class != tt.class {
			t.Errorf("%s: outcome = %+v, want class %s", name, o, tt.class)
		}
	}
}
