package invoke_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// fullListener returns the address of a listener that takes no more connections and refuses none,
// as a host does that cannot be reached.
func fullListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 10 {
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("a listener without a backlog takes ten connections")
	return ""
}

func TestAttemptThatNeverConnectsSaysSoBelowTheTimeoutOfADial(t *testing.T) {
	t.Parallel()
	invoker, address := newInvoker(t), fullListener(t)
	for method, why := range map[string]string{"POST": "with a kept connection", "GET": "with a new connection"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			outcome := invoker.Invoke(context.Background(), callTo("http://"+address, method, 300*time.Millisecond))
			if outcome.State != dispatcher.RunFailed || outcome.Class != dispatcher.ClassConnectTimeout {
				t.Errorf("the attempt is %s (%s: %s), want failed (connect_timeout): nothing was sent", outcome.State, outcome.Class, outcome.Error)
			}
			if took := outcome.EndedAt.Sub(outcome.StartedAt); took > 5*time.Second {
				t.Errorf("it took %s, want about its timeout of 300 ms", took)
			}
		})
	}
}
