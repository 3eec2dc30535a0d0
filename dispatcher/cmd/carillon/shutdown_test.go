package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A node that is told to stop claims no more runs, releases those it has not begun without a trace,
// finishes those it has begun, and leaves the fleet.
func TestDrainReleasesRunsNotYetBegun(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		const jobs = 30
		sent, release := make(chan arrival, jobs), make(chan struct{})
		r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			sent <- a
			<-release
			w.WriteHeader(http.StatusNoContent)
		})
		token := newToken(t, database)
		n := startNode(t, database, token, "--workers=1", "--min-workers=1", "--drain-timeout="+patience.String())
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "stop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		for i := range jobs {
			job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("stop", fmt.Sprintf("job-%d", i), r.URL, nil), client.Condition{}))
			must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
		}
		receive(t, sent)
		until(t, "the node to hold the others", func() bool {
			claimed := 0
			for _, one := range n.allRuns("stop") {
				if one.State == run.Claimed {
					claimed++
				}
			}
			return claimed == jobs
		})
		n.beginDrain()
		inFlight := 0
		until(t, "all others to be handed back", func() bool {
			queued := 0
			for _, one := range n.allRuns("stop") {
				if one.State == run.Queued && one.Attempt == 0 && one.Node == nil {
					queued++
				}
			}
			inFlight = len(r.all())
			return queued > 0 && queued+inFlight == jobs
		})
		close(release)
		n.awaitEnd()
		if got := len(r.all()); got != inFlight {
			t.Errorf("%d requests were sent, want the %d that were in flight and no more after the signal", got, inFlight)
		}

		n = startNode(t, database, token)
		nodes := must[client.List[dispatcher.Node]](t)(n.Nodes(t.Context()))
		if len(nodes.Items) != 2 {
			t.Errorf("nodes = %+v, want both", nodes.Items)
		}
		for _, node := range nodes.Items {
			if gone := node.StartedAt.Before(nodes.Items[1].StartedAt); gone && node.State != dispatcher.NodeDead {
				t.Errorf("the node that left is %s", node.State)
			}
		}
		until(t, "all runs to end", func() bool {
			for _, one := range n.allRuns("stop") {
				if one.State != run.Succeeded {
					return false
				}
			}
			return true
		})
		for _, run := range n.allRuns("stop") {
			if run.Attempt != 1 {
				t.Errorf("run of %s has attempt %d, want none consumed by the shutdown", run.Job, run.Attempt)
			}
		}
		if got := len(r.all()); got != jobs {
			t.Errorf("%d requests arrived, want one for each of %d runs", got, jobs)
		}
	})
}

func TestDrainEndsAfterItsTimeout(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		sent, hang := make(chan arrival, 4), make(chan struct{})
		r := newReceiver(t, func(_ http.ResponseWriter, a arrival) {
			sent <- a
			if a.attempt == 1 {
				<-hang
			}
		})
		defer close(hang)
		token := newToken(t, database)
		n := startNode(t, database, token, "--drain-timeout=1s")
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "cut", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("cut", "hangs", r.URL, nil), client.Condition{}))
		one := must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
		receive(t, sent)
		n.terminate()
		n = startNode(t, database, token, quick()...)
		if again := receive(t, sent); again.attempt != 2 || again.event != one.EventID {
			t.Errorf("after the cut: %+v, want the second attempt under the same event id", again)
		}
		until(t, "the run to end", func() bool { return must[run.Run](t)(n.Run(t.Context(), one.ID)).EndedAt != nil })
		if one = must[run.Run](t)(n.Run(t.Context(), one.ID)); len(one.Attempts) != 2 || one.Attempts[0].State != run.Lost {
			t.Errorf("attempts = %+v, want the first lost: nobody knows how it ended", one.Attempts)
		}
	})
}

// Platforms kill a process that exceeds its stop timeout. At its end a node makes several requests
// to the database, and must not wait forever for a missing response.
func TestShutdownEndsWhileDatabaseHangs(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	direct := pgtest.New(t)
	token := newToken(t, direct)
	g, database := newGate(t, direct)
	g.open()
	sent, hang := make(chan arrival, 100), make(chan struct{})
	defer close(hang)
	r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
		if a.trigger != "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		sent <- a
		<-hang
	})
	n := startNode(t, database, token, append(quick(), "--drain-timeout=2s")...)
	n.tick("hangs", r.URL)
	job := webhookJob("hangs", "slow", r.URL, nil)
	job.ConcurrencyPolicy = run.ConcurrencyForbid // so that it has a slot to release
	job = must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
	receive(t, sent)
	r.await(t, "fires", func(all []arrival) bool { return len(all) >= 3 })
	g.hang()
	reading := make(chan error, 1)
	go func() {
		_, err := n.Runs(t.Context(), dispatcher.RunQuery{App: "hangs", Page: input.Page{Limit: 10}})
		reading <- err
	}()
	until(t, "a claim, a heartbeat and a request to wait for the database", func() bool { return g.waiting() >= 3 })
	n.signal(syscall.SIGTERM)
	n.awaitEnd() // the database and the request of the slow job hang until the test ends
	if err := <-reading; err == nil {
		t.Error("a request that waited for the database succeeded")
	}
}

// The request hangs until the node has ended, or has sent many heartbeats after SIGTERM, which would prove a wait.
func TestDrainWithoutTimeoutCutsOffAtOnce(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	sent, hang := make(chan arrival, 1), make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, a arrival) {
		sent <- a
		<-hang
	})
	release := sync.OnceFunc(func() { close(hang) })
	defer release()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), append(quick(), "--drain-timeout=0s")...)
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "none", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("none", "hangs", r.URL, nil), client.Condition{}))
	must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
	receive(t, sent)
	n.signal(syscall.SIGTERM)
	heartbeats := map[time.Time]bool{}
	until(t, "the node to end or to live on", func() bool {
		select {
		case err := <-n.exited:
			n.exited <- err
			return true
		default:
		}
		if nodes, err := n.Nodes(t.Context()); err == nil && len(nodes.Items) == 1 {
			heartbeats[nodes.Items[0].HeartbeatAt] = true
		}
		return len(heartbeats) > 50
	})
	release()
	n.awaitEnd()
	var drained struct {
		CutOff int `json:"cut_off"`
	}
	for line := range strings.Lines(n.logs.String()) {
		if strings.Contains(line, `"msg":"drained"`) {
			if err := json.Unmarshal([]byte(line), &drained); err != nil {
				t.Fatal(err)
			}
		}
	}
	if drained.CutOff != 1 {
		t.Errorf("%d attempts were cut off, want the one that was held", drained.CutOff)
	}
}

func TestSecondSignalEndsTheProcessAtOnce(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		sent, hang := make(chan arrival, 1), make(chan struct{})
		r := newReceiver(t, func(_ http.ResponseWriter, a arrival) {
			sent <- a
			<-hang
		})
		defer close(hang)
		n := startNode(t, database, newToken(t, database), "--drain-timeout=1h")
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "now", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := must[dispatcher.Job](t)(n.PutJob(t.Context(), webhookJob("now", "hangs", r.URL, nil), client.Condition{}))
		must[run.Run](t)(n.RunJob(t.Context(), job.App, job.Name))
		receive(t, sent)
		n.beginDrain()
		n.signal(syscall.SIGTERM)
		select {
		case err := <-n.exited:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("node ended with %v, want it ended by the signal", err)
			}
		case <-time.After(patience):
			t.Fatal("the second signal did not end the process, which had an hour to drain")
		}
	})
}
