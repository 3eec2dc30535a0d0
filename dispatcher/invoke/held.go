package invoke

import (
	"context"
	"errors"
	"net"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// errNotHeld ends an attempt whose run is another node's by now, or may be. The lease was good when the attempt began, but what
// comes before the first byte may take long: a secret is read, a token is fetched, an endpoint does not respond, or the packets
// of a connection are lost.
var errNotHeld = errors.New("the node does not hold the run any longer")

// heldKey is the key of Call.Held in the context of an attempt. The transport hands it to the dialer, which sees nothing else of
// the attempt.
type heldKey struct{}

func withHeld(ctx context.Context, held func() bool) context.Context {
	if held == nil {
		return ctx
	}
	return context.WithValue(ctx, heldKey{}, held)
}

// checkHeld returns errNotHeld if the attempt of ctx may send nothing any longer.
func checkHeld(ctx context.Context) error {
	if held, ok := ctx.Value(heldKey{}).(func() bool); ok && !held() {
		return errNotHeld
	}
	return nil
}

// whileHeld returns conn, or closes it if the attempt of ctx may send nothing any longer.
func whileHeld(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if err := checkHeld(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// notHeld is the outcome of an attempt that ended with errNotHeld. Nobody records it.
func notHeld() run.Outcome {
	outcome := ended(run.Cancelled, run.ClassCancelled, errNotHeld.Error())
	outcome.NotSent = true
	return outcome
}
