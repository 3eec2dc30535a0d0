// Package target makes the calls of runs: one attempt, one request on the wire, one outcome.
package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
)

// Options tunes an Invoker. The zero value works.
type Options struct {
	// Version is sent in User-Agent; default "dev".
	Version string
	// SecretDir is the directory below which jobs may refer to files; default /run/secrets.
	SecretDir string
	// Egress says which addresses may be called.
	Egress Egress
	// Resolver resolves the names of hosts; default net.DefaultResolver.
	Resolver *net.Resolver
	// ConnsPerHost is how many idle connections are kept to one host; default 64.
	ConnsPerHost int
}

// Bounds of a call.
const (
	mostAnswer     = 64 << 10         // bytes read of an answer; more closes the connection
	mostHeader     = 64 << 10         // bytes of an answer's header
	connectTimeout = 10 * time.Second // for one dial, within the attempt's own timeout
	idleTimeout    = 30 * time.Second // shorter than servers commonly keep connections
)

// Invoker calls webhooks. It is safe for concurrent use.
type Invoker struct {
	kept    *resty.Client // keeps connections
	fresh   *resty.Client // dials for each request
	agent   string
	secrets *secrets
	node    awsNode
}

// New returns an Invoker. Close it to release its connections.
func New(o Options) *Invoker {
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.SecretDir == "" {
		o.SecretDir = "/run/secrets"
	}
	if o.ConnsPerHost == 0 {
		o.ConnsPerHost = 64
	}
	guard := newGuard(o.Egress, &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second, Resolver: o.Resolver})
	kept := &http.Transport{
		Proxy:                  nil, // the environment must not reroute what jobs say
		DialContext:            guard.dial,
		TLSHandshakeTimeout:    connectTimeout,
		MaxIdleConns:           16 * o.ConnsPerHost,
		MaxIdleConnsPerHost:    o.ConnsPerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: mostHeader,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
	}
	fresh := kept.Clone()
	fresh.DisableKeepAlives = true
	return &Invoker{kept: restyOver(kept), fresh: restyOver(fresh), agent: "carillon/" + o.Version, secrets: newSecrets(o.SecretDir)}
}

// Close closes idle connections.
func (i *Invoker) Close() {
	i.kept.GetClient().CloseIdleConnections()
	i.fresh.GetClient().CloseIdleConnections()
}

// restyOver returns a client that follows no redirect, keeps no cookie and sends a request
// once: with GetBody absent, net/http cannot send a body a second time.
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

// silent keeps resty's warnings from standard error; errors are in the outcome.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

// Invoke makes one attempt and says how it ended. It never panics and never returns later
// than the target's timeout, or the end of ctx, plus the time to close a connection.
func (i *Invoker) Invoke(ctx context.Context, call dispatcher.Call) (outcome dispatcher.Outcome) {
	started := time.Now()
	defer func() {
		if r := recover(); r != nil {
			outcome = dispatcher.Outcome{State: dispatcher.RunFailed, Class: dispatcher.ClassPanic, Error: fmt.Sprint("panic: ", r)}
		}
		outcome.StartedAt, outcome.EndedAt = started, time.Now()
	}()
	webhook := call.Target.Webhook
	if webhook == nil {
		return failed(dispatcher.ClassOther, "the target is of a kind that this version does not know")
	}
	bounded, cancel := context.WithTimeout(ctx, webhook.Timeout.Std())
	defer cancel()
	r, err := i.build(bounded, webhook, call, started)
	if err != nil {
		return unsent(err)
	}

	client := i.kept
	if resendable(webhook.Method) {
		client = i.fresh
	}
	got, written, err := i.send(bounded, client, r)
	if err != nil && !written && bounded.Err() == nil && client == i.kept {
		// The kept connection had been closed by the server and not one byte went out, so
		// this is still the first request on the wire.
		got, _, err = i.send(bounded, i.fresh, r)
	}
	if err != nil {
		return classify(ctx, bounded, err, webhook.Timeout)
	}
	outcome = judge(got.status)
	if outcome.State != dispatcher.RunSucceeded {
		outcome.RetryAfter = got.retryAfter
	}
	return outcome
}

// answer is what is kept of one.
type answer struct {
	status     int
	retryAfter *time.Duration
}

// resendable tells the methods that net/http repeats by itself when a kept connection dies.
func resendable(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// send makes one request and reads its answer to the end. written tells whether any byte of
// it may have left, or whether the connection was new, so that failing to write means more
// than a stale connection.
func (i *Invoker) send(ctx context.Context, client *resty.Client, r request) (got answer, written bool, err error) {
	// The transport writes in a goroutine of its own, which may outlive a failed request.
	var out atomic.Bool
	trace := &httptrace.ClientTrace{
		GotConn:          func(info httptrace.GotConnInfo) { out.Store(!info.Reused) },
		WroteHeaderField: func(string, []string) { out.Store(true) },
	}
	if failpoint.Enabled {
		trace.WroteRequest = func(httptrace.WroteRequestInfo) { failpoint.Hit(failpoint.AfterSend) }
	}
	request := client.R().SetContext(httptrace.WithClientTrace(ctx, trace)).SetDoNotParseResponse(true)
	request.Header = r.header
	if r.body != nil {
		request.SetBody(bytes.NewReader(r.body))
		request.Header.Set("Content-Length", strconv.Itoa(len(r.body)))
	}
	response, err := request.Execute(r.method, r.url)
	if err != nil {
		return answer{}, out.Load(), err
	}
	defer response.RawBody().Close()
	_, err = io.CopyN(io.Discard, response.RawBody(), mostAnswer)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return answer{response.StatusCode(), retryAfter(response.Header(), time.Now())}, true, err
}
