// Package invoke makes the attempts of runs. An attempt sends at most one request and has one
// outcome.
//
// Invoker.Invoke chooses the package for the kind of the target: web calls webhooks, group an endpoint of a group, aws
// invokes Lambda functions and sends messages. A target may accept an attempt and finish it later. The
// engine handles retries, rate limits and circuit breakers.
package invoke

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/aws"
	"github.com/carillon-dev/carillon/dispatcher/invoke/group"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Options tunes an Invoker. The zero value works.
type Options struct {
	// Version is sent in User-Agent; default "dev".
	Version string
	// SecretDir is the directory of the secret files that jobs may refer to; default /etc/carillon/secrets.
	SecretDir string
	// Managers is how secrets are read from their managers.
	Managers secret.Managers
	// Metrics gets the counter of reads of secrets; may be nil.
	Metrics prometheus.Registerer
	// Logger gets messages that concern no single attempt; default slog.Default().
	Logger *slog.Logger
	// Egress limits the addresses that webhooks may call.
	Egress web.Egress
	// Resolver resolves host names; default net.DefaultResolver.
	Resolver *net.Resolver
	// NameServers resolve the members of groups from DNS; empty: those of /etc/resolv.conf.
	NameServers []netip.AddrPort
	// ConnsPerHost is the most idle connections to one host; default 64.
	ConnsPerHost int
	// Connections is how many connections webhooks have at once, as long as no more attempts are in flight: idle ones
	// are closed for new ones. 0: any number.
	Connections int
	// LoadAWS returns the AWS configuration of the node. By default the SDK loads it from the
	// environment, from files and from the instance role.
	LoadAWS identity.Loader
	// Console is the URL below which nodes serve the console, for links in notifications; nil: they have none.
	Console *url.URL
	// CallbackURL is the URL of the API of this installation as targets reach it, without a slash at its end; empty: jobs
	// with callbacks fail. CallbackKey returns the key of their tokens.
	CallbackURL string
	CallbackKey func(context.Context) ([]byte, error)
}

// Invoker makes attempts. It is safe for concurrent use.
type Invoker struct {
	*group.Groups // the node's view of endpoint groups
	hooks         *web.Webhooks
	secrets       *secret.Reader
	node          *identity.Node
	callbacks     *callbacks
	console       *url.URL
	kinds         map[target.Kind]attempt.Func
}

// New returns an Invoker. Close it to release its connections.
func New(o Options) *Invoker {
	o.Version = cmp.Or(o.Version, "dev")
	o.ConnsPerHost = cmp.Or(o.ConnsPerHost, 64)
	if o.LoadAWS == nil {
		o.LoadAWS = identity.Load
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	node := &identity.Node{Load: o.LoadAWS}
	secrets := secret.New(o.SecretDir, o.Managers, node, o.Metrics, o.Logger)
	hooks := web.New(web.Options{
		Version: o.Version, Egress: o.Egress, Resolver: o.Resolver, ConnsPerHost: o.ConnsPerHost, Connections: o.Connections,
	}, secrets, node)
	fleets := group.New(hooks, secrets, o.Resolver, o.NameServers)
	offers := &callbacks{url: o.CallbackURL, read: o.CallbackKey, reading: make(chan struct{}, 1)}
	i := &Invoker{Groups: fleets, hooks: hooks, secrets: secrets, node: node, callbacks: offers, console: o.Console}
	i.kinds = map[target.Kind]attempt.Func{
		target.KindWebhook: hooks.Invoke,
		target.KindLambda:  aws.Functions(node),
		target.KindGroup:   fleets.Invoke,
		target.KindSQS:     aws.Queues(node),
		target.KindSNS:     aws.Topics(node),
		target.KindAlert:   i.notify,
	}
	return i
}

// DenyAPIs sets the addresses, HOST:PORT, on which the nodes of the fleet serve their APIs. No webhook calls them.
// Connections that are open already stay open.
func (i *Invoker) DenyAPIs(addresses []string) { i.hooks.DenyAPIs(addresses) }

// Close ends the work that is not part of an attempt, and closes idle connections.
func (i *Invoker) Close() {
	i.Groups.Close()
	i.hooks.Close()
	i.secrets.Close()
	i.node.Close()
}

// Invoke makes one attempt and returns its outcome. It never panics, and it returns within the
// target's timeout or at the end of ctx, plus the time to close a connection, or to ask an executor of
// XXL-JOB to stop a run that was cancelled while it was accepted.
func (i *Invoker) Invoke(ctx context.Context, call target.Call) (outcome run.Outcome) {
	started := time.Now()
	defer func() {
		if r := recover(); r != nil {
			outcome = run.Outcome{
				State: run.Failed, Class: run.ClassPanic, Error: fmt.Sprint("panic: ", r),
			}
		}
		outcome.StartedAt, outcome.EndedAt = started, time.Now()
	}()
	try, known := i.kinds[call.Target.Kind()]
	if !known {
		return attempt.Failed(run.ClassOther, "this version of Carillon does not know this kind of target")
	}
	if call.Bounds == nil {
		bounds := target.Bounds{}.WithDefaults(call.App)
		call.Bounds = &bounds
	}
	if call.Bounds.Suspended {
		return attempt.NotAttempted(attempt.OutOfBounds(fmt.Errorf("app %s is suspended", call.App)))
	}
	if err := i.callbacks.offer(ctx, &call); err != nil {
		return attempt.NotAttempted(err)
	}
	outcome = try(ctx, call, started)
	policy := call.Target.Callback()
	// If its target may accept an attempt and does, the run waits. Lambda responds 202 to an event that it has queued.
	if policy == nil || outcome.State != run.Succeeded || outcome.HTTPStatus != http.StatusAccepted {
		return outcome
	}
	outcome.State, outcome.Callback = run.WaitingCallback, &run.Callback{Within: policy.Timeout.Std()}
	if call.Carried != nil {
		outcome.Callback.StateRevision = &call.Carried.Revision
	}
	if outcome.Returned != nil {
		outcome.Returned, outcome.Response.State = nil, nil
		outcome.Response.StateProblem = "the target accepted the attempt, so its state is expected with complete, not with status 202"
	}
	return outcome
}

// withNotification returns a call with the notification in its payload as this node sends it.
func (i *Invoker) withNotification(call target.Call) (target.Call, error) {
	notification, err := target.ParseAlertNotification(call.Payload)
	if err == nil {
		notification = notification.From(call.Installation, i.console)
		call.Notification = &notification
		call.Payload, err = json.Marshal(notification)
	}
	return call, err
}

// notify delivers the notification of an alert.
func (i *Invoker) notify(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	call, err := i.withNotification(call)
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	switch to := call.Target.Alert; {
	case to.SNS != nil:
		call.Target = target.Target{SNS: to.SNS.SNS()}
		return i.kinds[target.KindSNS](ctx, call, started)
	case to.Webhook != nil:
		return i.hooks.Notify(ctx, call, started)
	}
	return attempt.Failed(run.ClassOther, "this version of Carillon does not know this kind of destination of alerts")
}

// keyPatience bounds the wait for the key of callbacks. The timeout of an attempt begins only after it.
const keyPatience = 5 * time.Second

// callbacks tell targets how to end accepted attempts.
type callbacks struct {
	url  string
	read func(context.Context) ([]byte, error)

	// reading holds an element while one attempt reads the key; the others wait for it within their own time.
	reading chan struct{}
	key     atomic.Pointer[[]byte] // nil: not read yet
}

// offer adds to the call of a job with callbacks the data that its target needs for one.
func (c *callbacks) offer(ctx context.Context, call *target.Call) error {
	if call.Target.Callback() == nil {
		return nil
	}
	if c.url == "" || c.read == nil {
		return &attempt.Failure{Class: run.ClassConfig, Err: errors.New("the job has callback, and the node does not know where targets reach " +
			"the API; start it with --callback-url (CARILLON_CALLBACK_URL)")}
	}
	key, err := c.theKey(ctx)
	if err != nil {
		return &attempt.Failure{Class: run.ClassSecret, Err: fmt.Errorf("token of the callback: %w", err)}
	}
	call.Callback = &run.CallToken{
		URL: c.url + "/v1/runs/" + call.Key.String(), Token: run.CallbackToken(key, call.EventID, call.Attempt),
		Timeout: cmp.Or(call.Target.Callback().Timeout, run.DefaultCallbackTimeout),
	}
	return nil
}

// theKey returns the key, which never changes.
func (c *callbacks) theKey(ctx context.Context) ([]byte, error) {
	if key := c.key.Load(); key != nil {
		return *key, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("another attempt waits for the database: %w", ctx.Err())
	case c.reading <- struct{}{}:
	}
	defer func() { <-c.reading }()
	if key := c.key.Load(); key != nil {
		return *key, nil
	}
	key, err := c.read(ctx)
	if err == nil {
		c.key.Store(&key)
	}
	return key, err
}

// ReadCallbackKey reads the key of callbacks, for at most 5 s, so that attempts need no database for it. If the node
// has no URL for callbacks, it reads nothing. After an error, the first attempt that needs the key reads it.
func (i *Invoker) ReadCallbackKey(ctx context.Context) error {
	if i.callbacks.url == "" || i.callbacks.read == nil {
		return nil
	}
	_, err := i.callbacks.theKey(ctx)
	return err
}
