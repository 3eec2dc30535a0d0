// Package invoke makes the calls of runs: one attempt, one request on the wire, one outcome.
package invoke

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http/httptrace"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher"
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
	// LoadAWS returns the node's configuration of AWS; default that of the SDK: environment, files,
	// and the credentials of the machine.
	LoadAWS func(context.Context) (aws.Config, error)
}

// Bounds of a call.
const (
	mostHeader     = 64 << 10         // bytes of a response's header
	connectTimeout = 10 * time.Second // for one dial, within the attempt's own timeout
	idleTimeout    = 30 * time.Second // shorter than servers commonly keep connections
)

// Invoker calls webhooks and Lambda functions. It is safe for concurrent use.
type Invoker struct {
	pool    *pool
	agent   string
	secrets *secrets
	node    awsNode

	mu           sync.Mutex
	expectations map[string]*regexp.Regexp
	functions    *functions
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
	return &Invoker{
		pool: newPool(guard.dial, o.ConnsPerHost), agent: "carillon/" + o.Version, secrets: newSecrets(o.SecretDir),
		expectations: map[string]*regexp.Regexp{}, functions: newFunctions(o.LoadAWS),
	}
}

// Close closes idle connections.
func (i *Invoker) Close() {
	i.pool.close()
	i.functions.close()
}

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
	if l := call.Target.Lambda; l != nil {
		return i.functions.invoke(ctx, l, call, started)
	}
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
	return i.attempt(ctx, bounded, webhook, r, started)
}

// attempt sends a request and judges what comes. ctx is the attempt's without its timeout,
// bounded the one with it.
func (i *Invoker) attempt(ctx, bounded context.Context, w *dispatcher.Webhook, r request, started time.Time) dispatcher.Outcome {
	client := r.clients.kept
	if len(r.body) == 0 {
		client = r.clients.fresh // net/http repeats by itself what has no body when a kept connection dies
	}
	watch := &stopwatch{start: started}
	got, err := send(bounded, client, r, watch)
	if err != nil && !watch.sent() && bounded.Err() == nil && client == r.clients.kept {
		// The kept connection had been closed by the server and not one byte went out, so
		// this is still the first request on the wire.
		got, err = send(bounded, r.clients.fresh, r, watch)
	}
	var outcome dispatcher.Outcome
	if err != nil {
		outcome = classify(ctx, bounded, err, w.Timeout)
		if outcome.Class == dispatcher.ClassTimeout && watch.unconnected() {
			// The attempt's time was over before that of a dial. Nothing was sent.
			outcome = failed(dispatcher.ClassConnectTimeout, fmt.Sprintf("no connection within %s", w.Timeout))
		}
		outcome.HTTPStatus = got.status
	} else {
		outcome = i.judge(w, got)
		if outcome.State != dispatcher.RunSucceeded {
			outcome.RetryAfter = retryAfter(got.header, time.Now())
		}
	}
	outcome.Error = hide(outcome.Error, r.revealed)
	outcome.Response = keep(outcome, got, watch.seen(err == nil), r.revealed)
	return outcome
}

// send makes one request and reads its response, as much of it as is kept. With an error, the
// answer is what came of it.
func send(ctx context.Context, client *resty.Client, r request, watch *stopwatch) (response, error) {
	request := client.R().SetContext(httptrace.WithClientTrace(ctx, watch.trace())).SetDoNotParseResponse(true)
	request.Header = r.header
	if r.body != nil {
		request.SetBody(bytes.NewReader(r.body))
		request.Header.Set("Content-Length", strconv.Itoa(len(r.body)))
	}
	sent, err := request.Execute(r.method, r.url)
	if err != nil {
		return response{}, err
	}
	defer sent.RawBody().Close()
	return readResponse(sent.RawResponse)
}
