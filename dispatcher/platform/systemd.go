package platform

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Systemd is the service manager of a unit with Type=notify. The zero value stands for no service
// manager and sends nothing.
type Systemd struct {
	socket   string
	watchdog time.Duration // time without WATCHDOG=1 until systemd ends the process; 0 without a watchdog
}

// The messages of sd_notify that a node sends.
const (
	SystemdReady    = "READY=1"
	SystemdStopping = "STOPPING=1"
	SystemdWatchdog = "WATCHDOG=1"
)

// SystemdStatus describes the state of the service, for systemctl status. A message is one line.
func SystemdStatus(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }

// SystemdExtend asks for more time to start. Send it again before that time is over.
func SystemdExtend(by time.Duration) string {
	return "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(by.Microseconds(), 10)
}

// SystemdFrom reads the variables that systemd sets for a unit. It ignores a watchdog for another
// process than pid.
func SystemdFrom(getenv func(string) string, pid int) (Systemd, error) {
	s := Systemd{socket: getenv("NOTIFY_SOCKET")}
	if s.socket == "" {
		return Systemd{}, nil
	}
	if s.socket[0] != '/' && s.socket[0] != '@' {
		return Systemd{}, fmt.Errorf("NOTIFY_SOCKET %q: it must be an absolute path, or an abstract address, which begins with @", s.socket)
	}
	if of := getenv("WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return s, nil
	}
	if usec := getenv("WATCHDOG_USEC"); usec != "" {
		n, err := strconv.ParseInt(usec, 10, 64)
		if err != nil || n <= 0 || n > int64(24*time.Hour/time.Microsecond) {
			return s, fmt.Errorf("WATCHDOG_USEC %q: it must be a number of microseconds above 0, one day at most", usec)
		}
		s.watchdog = time.Duration(n) * time.Microsecond
	}
	return s, nil
}

// Present reports whether there is a service manager to notify.
func (s Systemd) Present() bool { return s.socket != "" }

// Watchdog returns the interval for SystemdWatchdog: half of the time after which systemd ends the
// process, or 0 without a watchdog.
func (s Systemd) Watchdog() time.Duration { return s.watchdog / 2 }

// notifyTimeout bounds the wait for a service manager that does not read its socket.
const notifyTimeout = time.Second

// Notify sends messages in one datagram, which systemd handles together.
func (s Systemd) Notify(messages ...string) error {
	if !s.Present() {
		return nil
	}
	// Package net turns a leading @ into the null byte of an abstract address.
	connection, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: s.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer connection.Close()
	if err := connection.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	if _, err := connection.Write([]byte(strings.Join(messages, "\n"))); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
