package invoke

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// BenchmarkWebhook measures a node's cost of a signed request and its response.
func BenchmarkWebhook(b *testing.B) {
	invoker := New(Options{Egress: web.Egress{Loopback: true}})
	defer invoker.Close()
	call := signedCall("http://" + benchServer(b) + "/hook")
	b.ReportAllocs()
	for b.Loop() {
		if outcome := invoker.Invoke(b.Context(), call); outcome.State != run.Succeeded {
			b.Fatal(outcome)
		}
	}
}

// signedCall returns a call of a webhook that is signed.
func signedCall(url string) target.Call {
	to := target.Target{Webhook: &target.Webhook{}}
	to.Webhook.SetDefaults()
	to.Webhook.URL = url
	to.Webhook.Signing = &target.Signing{Secrets: map[string]target.Secret{
		"main": {Value: input.NewSensitive("whsec_bm90IGEgc2VjcmV0OiBpdCBzaWducyBmb3Igbm9ib2R5")},
	}}
	return target.Call{
		App: "shop", Job: "report", Trigger: "daily", EventID: "evt_1", Attempt: 1, Target: to, Payload: []byte(`{"text":"x"}`),
		Key: run.Key{TriggerID: 5, ScheduledAt: time.Unix(1_800_000_000, 0).UTC(), Kind: run.KindSchedule},
	}
}

// benchServer starts a server that allocates nothing for a request, and returns its address.
func benchServer(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go respond(connection)
		}
	}()
	return listener.Addr().String()
}

// respond responds to each request of a connection. The bodies end like the benchmark's.
func respond(connection net.Conn) {
	defer connection.Close()
	in := bufio.NewReader(connection)
	response, end := []byte("HTTP/1.1 204 No Content\r\n\r\n"), []byte("\r\n")
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if !bytes.Equal(line, end) {
			continue
		}
		if _, err := io.CopyN(io.Discard, in, int64(len(`{"text":"x"}`))); err != nil {
			return
		}
		if _, err := connection.Write(response); err != nil {
			return
		}
	}
}
