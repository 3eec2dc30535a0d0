package node

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/test/servers"
)

func TestWatchdogIsNotifiedAtHalfOfItsTime(t *testing.T) {
	t.Parallel()
	m := servers.NewSystemd(t) // outside of the bubble, because it reads from a socket
	environment := map[string]string{}
	for _, variable := range m.Environment("2000000") {
		name, value, _ := strings.Cut(variable, "=")
		environment[name] = value
	}
	systemd, err := platform.SystemdFrom(func(name string) string { return environment[name] }, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		signals := startSignals(t.Context(), &Options{
			Log: slog.New(slog.DiscardHandler), signals: machineSignals{systemd: systemd},
		}, prometheus.NewRegistry())
		time.Sleep(10*time.Second + time.Millisecond)
		signals.end()
	})
	if got := m.SoFar("WATCHDOG=1"); got != 10 {
		t.Errorf("WATCHDOG=1 comes %d times in 10 s of a watchdog of 2 s, want 10", got)
	}
}
