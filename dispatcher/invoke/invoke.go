// Package invoke makes the attempts of runs. An attempt sends at most one request and has one
// outcome.
//
// Invoker.Invoke chooses the caller for the kind of the target: webhook.go calls webhooks,
// lambda.go invokes Lambda functions. The engine handles retries, rate limits and circuit breakers.
//
// A webhook is called in these steps, each in a file of its own:
//
//	webhook_request.go      fills in URL, headers and body
//	webhook_cloudevents.go  adds the attributes of a CloudEvent
//	clients.go              chooses a connection by the TLS options
//	webhook_sign.go         signs the request
//	auth.go                 adds credentials
//	egress.go               checks the address before it is dialled
//	webhook_response.go     reads the response and turns it into an outcome
//	classify.go             turns an error into an outcome
package invoke

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Options tunes an Invoker. The zero value works.
type Options struct {
	// Version is sent in User-Agent; default "dev".
	Version string
	// SecretDir is the directory of the secret files that jobs may refer to; default DefaultSecretDir.
	SecretDir string
	// Egress limits the addresses that webhooks may call.
	Egress Egress
	// Resolver resolves host names; default net.DefaultResolver.
	Resolver *net.Resolver
	// ConnsPerHost is the most idle connections to one host; default 64.
	ConnsPerHost int
	// LoadAWS returns the AWS configuration of the node. By default the SDK loads it from the
	// environment, from files and from the instance role.
	LoadAWS func(context.Context) (aws.Config, error)
}

// DefaultSecretDir is the directory of secret files unless Options name another. No platform puts secrets of the
// node itself there.
const DefaultSecretDir = "/etc/carillon/secrets"

// Bounds of an attempt.
const (
	mostHeader     = 64 << 10         // bytes of a response's header
	connectTimeout = 10 * time.Second // for one dial, within the attempt's own timeout
	idleTimeout    = 30 * time.Second // shorter than the idle timeout of most servers
)

// Invoker makes attempts. It is safe for concurrent use.
type Invoker struct {
	guard   *guard
	callers map[dispatcher.TargetKind]caller
}

// caller makes the attempts of one kind of target.
type caller interface {
	// call makes one attempt, which began at started.
	call(ctx context.Context, call dispatcher.Call, started time.Time) dispatcher.Outcome
	// close closes idle connections.
	close()
}

// New returns an Invoker. Close it to release its connections.
func New(o Options) *Invoker {
	o.Version = cmp.Or(o.Version, "dev")
	o.SecretDir = cmp.Or(o.SecretDir, DefaultSecretDir)
	o.ConnsPerHost = cmp.Or(o.ConnsPerHost, 64)
	if o.LoadAWS == nil {
		o.LoadAWS = loadAWS
	}
	hooks := newWebhooks(o)
	return &Invoker{guard: hooks.guard, callers: map[dispatcher.TargetKind]caller{
		dispatcher.TargetWebhook: hooks,
		dispatcher.TargetLambda:  newFunctions(o.LoadAWS),
		dispatcher.TargetGroup:   newGroups(hooks),
	}}
}

// DenyAPIs sets the addresses, HOST:PORT, on which the nodes of the fleet serve their APIs. No webhook calls them.
// Connections that are open already stay.
func (i *Invoker) DenyAPIs(addresses []string) {
	peers := make([]netip.AddrPort, 0, len(addresses))
	for _, text := range addresses {
		if address, err := netip.ParseAddrPort(text); err == nil {
			peers = append(peers, address)
		}
	}
	i.guard.peers.Store(&peers)
}

// Close closes idle connections.
func (i *Invoker) Close() {
	for _, c := range i.callers {
		c.close()
	}
}

// Invoke makes one attempt and returns its outcome. It never panics, and it returns within the
// target's timeout or at the end of ctx, plus the time to close a connection.
func (i *Invoker) Invoke(ctx context.Context, call dispatcher.Call) (outcome dispatcher.Outcome) {
	started := time.Now()
	defer func() {
		if r := recover(); r != nil {
			outcome = dispatcher.Outcome{
				State: dispatcher.RunFailed, Class: dispatcher.ClassPanic, Error: fmt.Sprint("panic: ", r),
			}
		}
		outcome.StartedAt, outcome.EndedAt = started, time.Now()
	}()
	c, known := i.callers[call.Target.Kind()]
	if !known {
		return failed(dispatcher.ClassOther, "this version of Carillon does not know this kind of target")
	}
	if call.Bounds == nil {
		bounds := dispatcher.Bounds{}.WithDefaults(call.App)
		call.Bounds = &bounds
	}
	if call.Bounds.Suspended {
		return outsideBounds(fmt.Errorf("app %s is suspended", call.App))
	}
	return c.call(ctx, call, started)
}

// outsideBounds returns the outcome of an attempt that the bounds of its app do not allow.
func outsideBounds(err error) dispatcher.Outcome {
	outcome := notAttempted(outOfBounds(err))
	outcome.NotSent = true
	return outcome
}
