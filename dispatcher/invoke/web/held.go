package web

import (
	"context"
	"net"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
)

// heldKey is the key of Call.Held in the context of an attempt. The transport hands it to the dialer, which sees nothing else of
// the attempt.
type heldKey struct{}

func withHeld(ctx context.Context, held func() bool) context.Context {
	if held == nil {
		return ctx
	}
	return context.WithValue(ctx, heldKey{}, held)
}

// checkHeld returns attempt.ErrNotHeld if the attempt of ctx may send nothing any longer.
func checkHeld(ctx context.Context) error {
	if held, ok := ctx.Value(heldKey{}).(func() bool); ok && !held() {
		return attempt.ErrNotHeld
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
