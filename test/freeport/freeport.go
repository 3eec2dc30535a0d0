// Package freeport finds addresses for processes that tests start.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Address returns an unused address of this machine. The system itself never assigns its port, so
// no other program gets it before its use, or while its process is dead.
func Address(ctx context.Context) (string, error) {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.N(20_000)) //nolint:gosec // not a secret
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
		case err != nil:
			return "", err
		default:
			return address, listener.Close()
		}
	}
}
