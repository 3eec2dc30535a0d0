package main

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// starve gives a node a tenth of the time until stop is called: a few milliseconds at once, or more
// if this process was stopped at the same time.
func (n *process) starve() (stop func()) {
	enough, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			stopped := time.Now()
			_ = n.command.Process.Signal(syscall.SIGSTOP)
			elapse(54 * time.Millisecond)
			_ = n.command.Process.Signal(syscall.SIGCONT)
			continued := time.Now()
			select {
			case <-enough:
				return
			default:
				elapse(continued.Sub(stopped) / 9)
			}
		}
	}()
	return func() { close(enough); <-over }
}

// A node with hardly any processor time is slow, but alive: its heartbeats do not wait for its
// work, so no other node takes its runs, and nothing is sent twice.
func TestStarvedNodeIsNotMarkedDead(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	database := pgtest.New(t)
	token, r := newToken(t, database), newReceiver(t, nil)
	args := []string{"--handler-interval=500ms", "--heartbeat=500ms", "--dead-after=30s"}
	starved := startNode(t, database, token, args...)
	starved.busy(r.URL)
	r.further(t, 2, "of the only node")
	id := starved.only()
	healthy := startNode(t, database, token, args...)
	stop := starved.starve()
	r.further(t, 40, "while one node is starved") // longer than --dead-after
	stop()
	of := map[run.NodeID]int{}
	for _, one := range healthy.allRuns("busy") {
		if one.Node != nil && one.State == run.Succeeded {
			of[*one.Node]++
		}
		if one.Attempt > 1 {
			t.Errorf("run %s of %s is at attempt %d, want one: nobody died", one.ID, one.Job, one.Attempt)
		}
	}
	nodes := must[client.List[dispatcher.Node]](t)(healthy.Nodes(t.Context())).Items
	at := slices.IndexFunc(nodes, func(n dispatcher.Node) bool { return n.ID == id })
	if len(nodes) != 2 || at < 0 || nodes[at].State != dispatcher.NodeActive {
		t.Errorf("nodes are %+v, want two, of which %s is active", nodes, id)
	}
	if len(of) != 2 {
		t.Errorf("runs are of nodes %v, want both to have some", of)
	}
	healthy.checkVerify("busy")
	starved.terminate()
	healthy.terminate()
	r.checkEachOnce(t)
}
