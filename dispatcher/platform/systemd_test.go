package platform_test

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/platform"
)

// environment returns a getenv of these variables alone.
func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestSystemdGetsMessagesInOneDatagram(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{
		"a path":              filepath.Join(t.TempDir(), "notify"),
		"an abstract address": "@carillon-test-" + strconv.FormatInt(time.Now().UnixNano(), 36),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			systemd, err := platform.SystemdFrom(environment(map[string]string{"NOTIFY_SOCKET": address}), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := systemd.Notify(platform.SystemdReady, platform.SystemdStatus("two\nlines")); err != nil {
				t.Fatal(err)
			}
			datagram := make([]byte, 4096)
			n, err := manager.Read(datagram)
			if got, want := string(datagram[:n]), "READY=1\nSTATUS=two lines"; err != nil || got != want {
				t.Errorf("systemd read %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestSystemdWatchdogIsRenewedAtHalfOfItsTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		variables map[string]string
		want      time.Duration
		says      string
	}{
		"30 s":             {map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000"}, 15 * time.Second, ""},
		"of this process":  {map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "77"}, 15 * time.Second, ""},
		"of another":       {map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "78"}, 0, ""},
		"none":             {map[string]string{"NOTIFY_SOCKET": "/s"}, 0, ""},
		"without a socket": {map[string]string{"WATCHDOG_USEC": "30000000"}, 0, ""},
		"not a number":     {map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "30s"}, 0, `WATCHDOG_USEC "30s"`},
		"negative":         {map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "-1"}, 0, `WATCHDOG_USEC "-1"`},
		"beyond int64":     {map[string]string{"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "9223372036854775807"}, 0, "one day"},
		"of another kind":  {map[string]string{"NOTIFY_SOCKET": "vsock:2:1"}, 0, `NOTIFY_SOCKET "vsock:2:1"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			systemd, err := platform.SystemdFrom(environment(tt.variables), 77)
			if got := systemd.Watchdog(); got != tt.want {
				t.Errorf("WATCHDOG=1 is sent every %s, want %s", got, tt.want)
			}
			if got := errorText(err); (got == "") != (tt.says == "") || !strings.Contains(got, tt.says) {
				t.Errorf("error %q, want one with %q", got, tt.says)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWithoutSystemdNothingIsSent(t *testing.T) {
	t.Parallel()
	systemd, err := platform.SystemdFrom(environment(nil), 1)
	if diff := cmp.Diff([]any{false, nil, nil}, []any{systemd.Present(), err, systemd.Notify(platform.SystemdReady)}); diff != "" {
		t.Error("present, its error, error of a message (-want +got):\n" + diff)
	}
}

func TestMissingSystemdSocketIsAnError(t *testing.T) {
	t.Parallel()
	systemd, err := platform.SystemdFrom(environment(map[string]string{"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "gone")}), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := systemd.Notify(platform.SystemdReady); err == nil || !strings.Contains(err.Error(), "notify systemd") {
		t.Errorf("error %v, want one that says what was tried", err)
	}
}
