package servers

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Systemd is the socket of a service manager.
type Systemd struct {
	t    *testing.T
	path string
	more *sync.Cond
	came []notification
}

// notification is a datagram with its time of arrival.
type notification struct {
	at    time.Time
	lines []string
}

// NewSystemd listens on a socket.
func NewSystemd(t *testing.T) *Systemd {
	t.Helper()
	// The path of a socket has at most 107 bytes, too few for the name of the test.
	dir, err := os.MkdirTemp("", "notify")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Systemd{t: t, path: filepath.Join(dir, "socket"), more: sync.NewCond(&sync.Mutex{})}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		datagram := make([]byte, 4096)
		for {
			n, err := socket.Read(datagram)
			if err != nil {
				return
			}
			s.more.L.Lock()
			s.came = append(s.came, notification{time.Now(), strings.Split(string(datagram[:n]), "\n")})
			s.more.L.Unlock()
			s.more.Broadcast()
		}
	}()
	return s
}

// Environment returns systemd's variables for a unit with a watchdog of that many microseconds; empty for none.
func (s *Systemd) Environment(watchdog string) []string {
	env := []string{"NOTIFY_SOCKET=" + s.path}
	if watchdog != "" {
		env = append(env, "WATCHDOG_USEC="+watchdog)
	}
	return env
}

// Times returns the arrival times of messages with a line of that prefix.
func (s *Systemd) Times(prefix string) []time.Time {
	s.more.L.Lock()
	defer s.more.L.Unlock()
	return s.times(prefix)
}

func (s *Systemd) times(prefix string) (times []time.Time) {
	for _, message := range s.came {
		if slices.ContainsFunc(message.lines, func(line string) bool { return strings.HasPrefix(line, prefix) }) {
			times = append(times, message.at)
		}
	}
	return times
}

// Await waits for n messages with a line of that prefix, for at most five minutes.
func (s *Systemd) Await(prefix string, n int) {
	s.t.Helper()
	late := false
	timer := time.AfterFunc(5*time.Minute, func() {
		s.more.L.Lock()
		late = true
		s.more.L.Unlock()
		s.more.Broadcast()
	})
	defer timer.Stop()
	s.more.L.Lock()
	defer s.more.L.Unlock()
	for len(s.times(prefix)) < n && !late {
		s.more.Wait()
	}
	if late {
		s.t.Fatalf("waited in vain for %s to come %d times", prefix, n)
	}
}

// SoFar returns the number of sent messages with a line of that prefix. It sends a message and
// waits for it, so that no earlier one is still under way.
func (s *Systemd) SoFar(prefix string) int {
	s.t.Helper()
	before := len(s.Times("BARRIER=1"))
	socket, err := (&net.Dialer{}).DialContext(s.t.Context(), "unixgram", s.path)
	if err == nil {
		_, err = socket.Write([]byte("BARRIER=1"))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	_ = socket.Close() // the message is under way
	s.Await("BARRIER=1", before+1)
	return len(s.Times(prefix))
}
