package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/target"
)

// payload is the body of webhooks: 256 bytes.
var payload = []byte(`{"text":"` + strings.Repeat("x", 245) + `"}`)

// receiver responds to webhooks on this machine and records their arrivals.
type receiver struct {
	url    string
	server *http.Server

	mu    sync.Mutex
	notes []note
}

// note is one request.
type note struct {
	app, trigger string
	due, arrived time.Time
}

// listen starts a receiver; with a nil response it records each request and returns an empty response.
func listen(respond http.HandlerFunc) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is bound at once or never
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + listener.Addr().String()}
	if respond == nil {
		respond = r.note
	}
	r.server = &http.Server{Handler: respond, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(listener) }() // ends with close
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

// note records the arrival of a request with a scheduled time.
func (r *receiver) note(w http.ResponseWriter, q *http.Request) {
	arrived := time.Now()
	_, _ = io.Copy(io.Discard, q.Body) // the client reports errors
	due, err := time.Parse(time.RFC3339Nano, q.Header.Get("carillon-scheduled-at"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, note{q.Header.Get("carillon-app"), q.Header.Get("carillon-trigger"), due, arrived})
}

// swallow reads a request and returns an empty response.
func swallow(_ http.ResponseWriter, q *http.Request) {
	_, _ = io.Copy(io.Discard, q.Body)
}

// await waits until that many requests have come, at most for the given time.
func (r *receiver) await(ctx context.Context, requests int, most time.Duration) error {
	for end := time.Now().Add(most); time.Now().Before(end); {
		r.mu.Lock()
		count := len(r.notes)
		r.mu.Unlock()
		if count >= requests {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// notedBefore returns the requests that were due before an instant, in the order of their arrival.
func (r *receiver) notedBefore(end time.Time) []note {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.notes), func(n note) bool { return !n.due.Before(end) })
}

// notedBetween returns the requests that were due in [from, until), in the order of their arrival.
func (r *receiver) notedBetween(from, until time.Time) []note {
	return slices.DeleteFunc(r.notedBefore(until), func(n note) bool { return n.due.Before(from) })
}

// latenciesOf returns how late requests were.
func latenciesOf(notes []note) latencies {
	l := make(latencies, len(notes))
	for i, n := range notes {
		l[i] = n.arrived.Sub(n.due)
	}
	slices.Sort(l)
	return l
}

// newHTTPClient keeps that many connections open.
func newHTTPClient(connections int) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConns: connections, MaxIdleConnsPerHost: connections}}
}

func errResponse(status int) error { return fmt.Errorf("the receiver answered %d", status) }

// webhookTo is a target with signed requests.
func webhookTo(url string) target.Target {
	t := target.Target{Webhook: &target.Webhook{}}
	t.Webhook.SetDefaults()
	t.Webhook.URL = url
	t.Webhook.Signing = &target.Signing{Secrets: map[string]target.Secret{"bench": {Reference: "file:" + secretFile}}}
	return t
}

// secretFile is the file with the secret of all signatures.
const secretFile = "bench"

// writeSecret writes the secret of all signatures into a directory.
func writeSecret(dir string) error {
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("not a secret: it signs for nobody"))
	return os.WriteFile(filepath.Join(dir, secretFile), []byte(secret), 0o600)
}
