package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/platform"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// manager is the socket of a service manager.
type manager struct {
	t    *testing.T
	path string
	mu   sync.Mutex
	came []message
}

// message is a datagram, and when it came.
type message struct {
	at    time.Time
	lines []string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	// The path of a socket has at most 107 bytes, which the name of the test would use up.
	dir := must[string](t)(os.MkdirTemp("", "notify"))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &manager{t: t, path: filepath.Join(dir, "socket")}
	socket := must[*net.UnixConn](t)(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}))
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		datagram := make([]byte, 4096)
		for {
			n, err := socket.Read(datagram)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.came = append(m.came, message{time.Now(), strings.Split(string(datagram[:n]), "\n")})
			m.mu.Unlock()
		}
	}()
	return m
}

// environment is what systemd sets for a unit with a watchdog of that many microseconds; empty: without.
func (m *manager) environment(watchdog string) []string {
	env := []string{"NOTIFY_SOCKET=" + m.path}
	if watchdog != "" {
		env = append(env, "WATCHDOG_USEC="+watchdog)
	}
	return env
}

// times returns when messages with a line of that prefix came.
func (m *manager) times(prefix string) (times []time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range m.came {
		if slices.ContainsFunc(message.lines, func(line string) bool { return strings.HasPrefix(line, prefix) }) {
			times = append(times, message.at)
		}
	}
	return times
}

// await waits for n messages with a line of that prefix.
func (m *manager) await(prefix string, n int) {
	m.t.Helper()
	until(m.t, prefix, func() bool { return len(m.times(prefix)) >= n })
}

// soFar returns how many messages with a line of that prefix have been sent. It sends one of its own and waits for it, so that none
// is on its way.
func (m *manager) soFar(prefix string) int {
	m.t.Helper()
	before := len(m.times("BARRIER=1"))
	if err := must[platform.Systemd](m.t)(m.systemd("")).Notify("BARRIER=1"); err != nil {
		m.t.Fatal(err)
	}
	m.await("BARRIER=1", before+1)
	return len(m.times(prefix))
}

// systemd is what a node makes of the environment.
func (m *manager) systemd(watchdog string) (platform.Systemd, error) {
	env := map[string]string{}
	for _, variable := range m.environment(watchdog) {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	return platform.SystemdFrom(func(name string) string { return env[name] }, os.Getpid())
}

func TestSystemdLearnsThatTheNodeIsReadyWhenItHasRegistered(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database) // which migrates
	g, through := newGate(t, database)
	m := newManager(t)
	n := launchNode(t, through, token, m.environment(""))
	m.await("STATUS=waiting for the database", 1)
	m.await("EXTEND_TIMEOUT_USEC=60000000", 1)
	until(t, "the node to wait", func() bool { return strings.Contains(n.logs.String(), "waiting for the database") })
	if got := m.times("READY=1"); len(got) != 0 {
		t.Error("the node says that it is ready while it has no database")
	}
	g.open()
	m.await("READY=1", 1)
	if log := n.logs.String(); !strings.Contains(log, "node registered") {
		t.Errorf("READY=1 comes before the registration:\n%s", log)
	}
	m.await("STATUS=dispatching as node ", 1)
	n.terminate()
	if ready, stopping := m.times("READY=1"), m.times("STOPPING=1"); len(ready) != 1 || len(stopping) != 1 || stopping[0].Before(ready[0]) {
		t.Errorf("READY=1 came %d times and STOPPING=1 %d times, want each once and in this order", len(ready), len(stopping))
	}
}

func TestSystemdLearnsThatTheNodeStopsBeforeItHasDrained(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	sent, release := make(chan arrival, 1), make(chan struct{})
	r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
		sent <- a
		<-release
	})
	m := newManager(t)
	n := startNodeWith(t, database, newToken(t, database), m.environment("600000"), "--drain-timeout="+patience.String())
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "stop", Enabled: true}, client.Condition{}))
	job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("stop", "long", r.URL, nil), client.Condition{}))
	must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
	receive(t, sent)
	n.signal(syscall.SIGTERM)
	m.await("STOPPING=1", 1)
	// The node is alive as long as its attempt in flight takes.
	m.await("WATCHDOG=1", len(m.times("WATCHDOG=1"))+2)
	close(release)
	n.awaitEnd()
	stopping := m.times("STOPPING=1")
	if len(stopping) != 1 || len(m.times("READY=1")) != 1 {
		t.Errorf("STOPPING=1 came %d times and READY=1 %d times, want each once", len(stopping), len(m.times("READY=1")))
	}
}

func TestWatchdogIsNotifiedAtHalfOfItsTime(t *testing.T) {
	t.Parallel()
	m := newManager(t) // outside of the bubble, because it reads from a socket
	systemd := must[platform.Systemd](t)(m.systemd("2000000"))
	synctest.Test(t, func(t *testing.T) {
		signals := startSignals(t.Context(), &nodeOptions{
			log: slog.New(slog.DiscardHandler), signals: nodeSignals{systemd: systemd},
		}, prometheus.NewRegistry())
		elapse(10*time.Second + time.Millisecond) // of the bubble
		signals.end()
	})
	if got := m.soFar("WATCHDOG=1"); got != 10 {
		t.Errorf("WATCHDOG=1 comes %d times in 10 s of a watchdog of 2 s, want 10", got)
	}
}

func TestWatchdogIsNotifiedWhileTheDatabaseIsUnreachable(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database)
	g, through := newGate(t, database)
	g.open()
	m := newManager(t)
	// A loop that is stuck for 33 s counts as stalled.
	n := startNodeWith(t, through, token, m.environment("1000000"), append(quick(), "--poll-window=500ms")...)
	g.close()
	until(t, "the lease to run out", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
	m.await("WATCHDOG=1", m.soFar("WATCHDOG=1")+80) // 40 s, as the node counts them
	if log := n.logs.String(); strings.Contains(log, "the node is stuck") {
		t.Error("the node takes a database that is unreachable for a loop that is stuck")
	}
}

// One loop hangs, and the rest of the process works: the API responds, and the watchdog is what notices.
func TestWatchdogIsNotNotifiedByANodeThatIsStuck(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program := must[string](t)(mortal())
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	m := newManager(t)
	n := launchNodeIn(t, surroundings{program: program}, database, newToken(t, database),
		append(m.environment("1000000"), "CHAOS=K12:hang,nth=10"), quick()...)
	n.awaitReady()
	m.await("WATCHDOG=1", 2)
	until(t, "the node to notice that it is stuck", func() bool {
		return strings.Contains(n.logs.String(), "the heartbeat loop has not turned")
	})
	before := m.soFar("WATCHDOG=1")
	const refusal = "the watchdog of systemd is not notified"
	refused := strings.Count(n.logs.String(), refusal)
	until(t, "the node to leave out six notifications", func() bool { return strings.Count(n.logs.String(), refusal) >= refused+6 })
	if after := m.soFar("WATCHDOG=1"); after != before {
		t.Errorf("the watchdog is notified %d times by a node that is stuck, want none", after-before)
	}
	if got := n.status("/livez"); got != http.StatusOK {
		t.Errorf("/livez is %d, want 200: the process itself lives", got)
	}
}

func TestWatchdogIsNotNotifiedByAStoppedProcess(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	m := newManager(t)
	n := startNodeWith(t, database, newToken(t, database), m.environment("400000"))
	m.await("WATCHDOG=1", 2)
	n.signal(syscall.SIGSTOP)
	until(t, "all threads of the process to stand still", n.stopped)
	before := m.soFar("WATCHDOG=1")
	elapse(time.Second)
	if after := m.soFar("WATCHDOG=1"); after != before {
		t.Errorf("the watchdog is notified %d times by a stopped process, want none", after-before)
	}
	n.signal(syscall.SIGCONT)
	m.await("WATCHDOG=1", before+2)
}

// stopped reports whether SIGSTOP has reached all threads of the process.
func (n *node) stopped() bool {
	n.t.Helper()
	files := must[[]string](n.t)(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.command.Process.Pid)))
	return len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && !strings.Contains(string(text), ") T ") // a thread may have ended
	})
}
