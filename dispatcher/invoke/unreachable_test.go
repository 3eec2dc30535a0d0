package invoke_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// fullListener returns the address of a listener that neither accepts nor refuses connections,
// because its queue is full. It acts as an unreachable host.
func fullListener(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: other systems accept connections that a program does not") // also with CI=true
	}
	p := refuse(t, "127.0.0.1:0")
	if err := syscall.Listen(p.fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		fd := newSocket(t)
		// The kernel itself checks the connection after this time, however late the test learns of it.
		if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &syscall.Timeval{Usec: 500_000}); err != nil {
			t.Fatal(err)
		}
		switch err := syscall.Connect(fd, p.name); {
		case errors.Is(err, syscall.EINPROGRESS), errors.Is(err, syscall.EAGAIN):
			return p.address // this socket keeps trying, and takes the place if there is one after all
		case err != nil && !errors.Is(err, syscall.EINTR):
			t.Fatal(err)
		}
	}
	t.Fatal("a listener without a backlog takes 20 connections")
	return ""
}

// newSocket returns a socket that lives as long as the test.
func newSocket(t *testing.T) (fd int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	return fd
}

// refusedPort is a port that is taken and refuses connections, so that no other program listens there meanwhile.
type refusedPort struct {
	fd      int
	name    syscall.Sockaddr
	address string
}

// refuse takes a free port of 127.0.0.1; with port 0, any.
func refuse(t *testing.T, address string) refusedPort {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	fd := newSocket(t)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: to.Port}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return refusedPort{fd, name, fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)}
}

// listen lets the port take connections from now on.
func (p refusedPort) listen(t *testing.T) net.Listener {
	t.Helper()
	if err := syscall.Listen(p.fd, syscall.SOMAXCONN); err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(p.fd)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(copied), p.address)
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func TestUnreachableHostGivesConnectTimeoutWithinTheTimeout(t *testing.T) {
	t.Parallel()
	address, i := fullListener(t), newInvoker(t)
	var group errgroup.Group
	for _, method := range target.Methods { // with and without a body: on kept and on new connections
		for _, scheme := range []string{"http", "https"} {
			group.Go(func() error {
				o := i.Invoke(t.Context(), callTo(scheme+"://"+address, method, brokenTimeout))
				if o.State != failed || o.Class != run.ClassConnectTimeout {
					return fmt.Errorf("%s by %s: outcome = %+v, want failed as connect_timeout", method, scheme, o)
				}
				if want := "no connection within " + brokenTimeout.String(); !strings.Contains(o.Error, want) {
					return fmt.Errorf("%s by %s: error %q, want the timeout of the attempt to end it: %s", method, scheme, o.Error, want)
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}
