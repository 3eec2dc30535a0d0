// Package invoke makes the attempts of runs. An attempt sends at most one request and has one
// outcome.
//
// Invoker.Invoke chooses the caller for the kind of the target: webhook.go calls webhooks,
// lambda.go invokes Lambda functions, sqs.go and sns.go send messages. The engine handles retries, rate limits and circuit breakers.
//
// A webhook is called in these steps, each in a file of its own:
//
//	webhook_request.go      fills in URL, headers and body
//	webhook_cloudevents.go  adds the attributes of a CloudEvent
//	clients.go              chooses a connection by the TLS options
//	webhook_sign.go         signs the request
//	auth.go                 adds credentials
//	oauth2.go               gets a token, or takes one from oauth2_cache.go
//	egress.go               checks the address before it is dialled
//	webhook_response.go     reads the response and turns it into an outcome
//	classify.go             turns an error into an outcome
//	callback.go             lets a target accept an attempt and finish it later
//
// What AWS serves is called with a client of aws_client.go, in the steps of aws_attempt.go.
//
// alert.go makes the messages of alerts, which are then sent as webhooks are.
package invoke

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Options tunes an Invoker. The zero value works.
type Options struct {
	// Version is sent in User-Agent; default "dev".
	Version string
	// SecretDir is the directory of the secret files that jobs may refer to; default /etc/carillon/secrets.
	SecretDir string
	// Managers says how secrets are read that are kept elsewhere.
	Managers SecretManagers
	// Metrics gets the counter of reads of secrets; nil: none.
	Metrics prometheus.Registerer
	// Logger gets what concerns no single attempt; default slog.Default().
	Logger *slog.Logger
	// Egress limits the addresses that webhooks may call.
	Egress Egress
	// Resolver resolves host names; default net.DefaultResolver.
	Resolver *net.Resolver
	// NameServers are asked for the members of groups from DNS; none: those of /etc/resolv.conf.
	NameServers []netip.AddrPort
	// ConnsPerHost is the most idle connections to one host; default 64.
	ConnsPerHost int
	// Connections is how many connections webhooks have at once, as long as no more attempts are in flight: idle ones make room for
	// others. 0: any number.
	Connections int
	// LoadAWS returns the AWS configuration of the node. By default the SDK loads it from the
	// environment, from files and from the instance role.
	LoadAWS func(context.Context) (aws.Config, error)
	// CallbackURL is the URL of the API of this installation as targets reach it, without a slash at its end; empty: jobs
	// with callbacks fail. CallbackKey returns the key of their tokens.
	CallbackURL string
	CallbackKey func(context.Context) ([]byte, error)
}

// Invoker makes attempts. It is safe for concurrent use.
type Invoker struct {
	*groups
	hooks     *webhooks
	secrets   *secrets
	node      *nodeConfig
	callbacks *callbacks
	kinds     map[target.Kind]attemptFunc
}

// New returns an Invoker. Close it to release its connections.
func New(o Options) *Invoker {
	o.Version = cmp.Or(o.Version, "dev")
	o.ConnsPerHost = cmp.Or(o.ConnsPerHost, 64)
	if o.LoadAWS == nil {
		o.LoadAWS = LoadAWS
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	node := &nodeConfig{load: o.LoadAWS}
	secrets := newSecrets(o.SecretDir, o.Managers, node, o.Metrics, o.Logger)
	hooks := newWebhooks(webOptions{
		Version: o.Version, Egress: o.Egress, Resolver: o.Resolver, ConnsPerHost: o.ConnsPerHost, Connections: o.Connections,
	}, secrets, node)
	fleets := newGroups(hooks, secrets, o.Resolver, o.NameServers)
	offers := newCallbacks(o.CallbackURL, o.CallbackKey)
	i := &Invoker{groups: fleets, hooks: hooks, secrets: secrets, node: node, callbacks: offers, kinds: map[target.Kind]attemptFunc{
		target.KindWebhook: hooks.Invoke,
		target.KindLambda:  functionCaller(node),
		target.KindGroup:   fleets.Invoke,
		target.KindSQS:     queueCaller(node),
		target.KindSNS:     topicCaller(node),
	}}
	i.kinds[target.KindAlert] = i.notify
	return i
}

// DenyAPIs sets the addresses, HOST:PORT, on which the nodes of the fleet serve their APIs. No webhook calls them.
// Connections that are open already stay.
func (i *Invoker) DenyAPIs(addresses []string) { i.hooks.DenyAPIs(addresses) }

// Close ends what goes on without an attempt, and closes idle connections.
func (i *Invoker) Close() {
	i.groups.Close()
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
		return failed(run.ClassOther, "this version of Carillon does not know this kind of target")
	}
	if call.Bounds == nil {
		bounds := target.Bounds{}.WithDefaults(call.App)
		call.Bounds = &bounds
	}
	if call.Bounds.Suspended {
		return outsideBounds(fmt.Errorf("app %s is suspended", call.App))
	}
	if err := i.callbacks.offer(ctx, &call); err != nil {
		outcome := notAttempted(err)
		outcome.NotSent = true
		return outcome
	}
	return accepted(call, try(ctx, call, started))
}

// notify delivers the notification of an alert.
func (i *Invoker) notify(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	switch to := call.Target.Alert; {
	case to.SNS != nil:
		notification, err := target.ParseAlertNotification(call.Payload)
		if err != nil {
			return notSent(ctx, err)
		}
		call.Notification, call.Target = &notification, target.Target{SNS: to.SNS.SNS()}
		return i.kinds[target.KindSNS](ctx, call, started)
	case to.Webhook != nil:
		return i.hooks.Notify(ctx, call, started)
	}
	return failed(run.ClassOther, "this version of Carillon does not know this kind of destination of alerts")
}
