package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/servers"
)

func TestSystemdIsNotifiedOfReadinessAfterRegistration(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database) // this migrates
	g, through := newGate(t, database)
	m := servers.NewSystemd(t)
	n := launchNode(t, through, token, m.Environment(""))
	m.Await("STATUS=waiting for the database", 1)
	m.Await("EXTEND_TIMEOUT_USEC=60000000", 1)
	until(t, "the node to wait", func() bool { return strings.Contains(n.logs.String(), "waiting for the database") })
	if got := m.Times("READY=1"); len(got) != 0 {
		t.Error("the node says that it is ready while it has no database")
	}
	g.open()
	m.Await("READY=1", 1)
	var registered []string // the log line may arrive later
	until(t, "the node to log its registration", func() bool {
		registered = regexp.MustCompile(`"time":"([^"]+)".*"node registered"`).FindStringSubmatch(n.logs.String())
		return registered != nil
	})
	if at := must[time.Time](t)(time.Parse(time.RFC3339Nano, registered[1])); m.Times("READY=1")[0].Before(at) {
		t.Errorf("READY=1 comes before the registration at %s", at)
	}
	m.Await("STATUS=dispatching as node ", 1)
	n.terminate()
	if ready, stopping := m.Times("READY=1"), m.Times("STOPPING=1"); len(ready) != 1 || len(stopping) != 1 || stopping[0].Before(ready[0]) {
		t.Errorf("READY=1 came %d times and STOPPING=1 %d times, want each once and in this order", len(ready), len(stopping))
	}
}

func TestSystemdIsNotifiedOfTheStopBeforeTheDrainEnds(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	sent, release := make(chan arrival, 1), make(chan struct{})
	r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
		sent <- a
		<-release
	})
	m := servers.NewSystemd(t)
	n := startNodeWith(t, database, newToken(t, database), m.Environment("600000"), "--drain-timeout="+patience.String())
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "stop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("stop", "long", r.URL, nil), client.Condition{}))
	must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
	receive(t, sent)
	n.signal(syscall.SIGTERM)
	m.Await("STOPPING=1", 1)
	// The node sends heartbeats as long as its attempt in flight takes.
	m.Await("WATCHDOG=1", len(m.Times("WATCHDOG=1"))+2)
	close(release)
	n.awaitEnd()
	stopping := m.Times("STOPPING=1")
	if len(stopping) != 1 || len(m.Times("READY=1")) != 1 {
		t.Errorf("STOPPING=1 came %d times and READY=1 %d times, want each once", len(stopping), len(m.Times("READY=1")))
	}
}

func TestWatchdogIsNotifiedWhileTheDatabaseIsUnreachable(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := pgtest.New(t)
	token := newToken(t, database)
	g, through := newGate(t, database)
	g.open()
	m := servers.NewSystemd(t)
	// A loop that is stuck for 33 s counts as stalled.
	n := startNodeWith(t, through, token, m.Environment("1000000"), append(quick(), "--poll-window=500ms")...)
	g.close()
	until(t, "the lease to run out", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
	m.Await("WATCHDOG=1", m.SoFar("WATCHDOG=1")+80) // 40 s by the node's count
	if log := n.logs.String(); strings.Contains(log, "the node is stuck") {
		t.Error("the node takes a database that is unreachable for a loop that is stuck")
	}
}

// One loop hangs, while the rest of the process works: the API responds, and only the watchdog notices.
func TestWatchdogIsNotNotifiedByANodeThatIsStuck(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	program := must[string](t)(mortal())
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	m := servers.NewSystemd(t)
	n := launchNodeIn(t, surroundings{program: program}, database, newToken(t, database),
		append(m.Environment("1000000"), "CHAOS=K12:hang,nth=10"), quick()...)
	n.awaitReady()
	m.Await("WATCHDOG=1", 2)
	until(t, "the node to notice that it is stuck", func() bool {
		return strings.Contains(n.logs.String(), "the heartbeat loop has not turned")
	})
	before := m.SoFar("WATCHDOG=1")
	const refusal = "the watchdog of systemd is not notified"
	refused := strings.Count(n.logs.String(), refusal)
	until(t, "the node to leave out six notifications", func() bool { return strings.Count(n.logs.String(), refusal) >= refused+6 })
	if after := m.SoFar("WATCHDOG=1"); after != before {
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
	m := servers.NewSystemd(t)
	n := startNodeWith(t, database, newToken(t, database), m.Environment("400000"))
	m.Await("WATCHDOG=1", 2)
	n.signal(syscall.SIGSTOP)
	until(t, "all threads of the process to stand still", n.stopped)
	before := m.SoFar("WATCHDOG=1")
	elapse(time.Second)
	if after := m.SoFar("WATCHDOG=1"); after != before {
		t.Errorf("the watchdog is notified %d times by a stopped process, want none", after-before)
	}
	n.signal(syscall.SIGCONT)
	m.Await("WATCHDOG=1", before+2)
}

// stopped reports whether SIGSTOP has reached all threads of the process.
func (n *process) stopped() bool {
	n.t.Helper()
	files := must[[]string](n.t)(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.command.Process.Pid)))
	return len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && !strings.Contains(string(text), ") T ") // a thread may have ended
	})
}
