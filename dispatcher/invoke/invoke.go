// Package invoke makes the attempts of runs: one attempt, at most one request, one outcome.
//
// Invoker.Invoke finds the caller of a target's kind: webhook.go calls webhooks, lambda.go invokes
// Lambda functions. Retries, limits and circuits are the engine's.
package invoke

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

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
	// LoadAWS returns the node's AWS configuration; default the SDK's: environment, files,
	// and the credentials of the machine.
	LoadAWS func(context.Context) (aws.Config, error)
}

// Bounds of an attempt.
const (
	mostHeader     = 64 << 10         // bytes of a response's header
	connectTimeout = 10 * time.Second // for one dial, within the attempt's own timeout
	idleTimeout    = 30 * time.Second // shorter than servers commonly keep connections
)

// Invoker makes attempts. It is safe for concurrent use.
type Invoker struct {
	callers map[dispatcher.TargetKind]caller
}

// caller makes the attempts of one kind of target.
type caller interface {
	// call makes one attempt, which started at started.
	call(ctx context.Context, call dispatcher.Call, started time.Time) dispatcher.Outcome
	// close closes idle connections.
	close()
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
	if o.LoadAWS == nil {
		o.LoadAWS = loadAWS
	}
	return &Invoker{callers: map[dispatcher.TargetKind]caller{
		dispatcher.TargetWebhook: newWebhooks(o),
		dispatcher.TargetLambda:  newFunctions(o.LoadAWS),
	}}
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
			outcome = dispatcher.Outcome{State: dispatcher.RunFailed, Class: dispatcher.ClassPanic, Error: fmt.Sprint("panic: ", r)}
		}
		outcome.StartedAt, outcome.EndedAt = started, time.Now()
	}()
	c, known := i.callers[call.Target.Kind()]
	if !known {
		return failed(dispatcher.ClassOther, "this version does not know the kind of the target")
	}
	return c.call(ctx, call, started)
}
