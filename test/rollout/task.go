package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/program"
)

// task is one process of the service. Only its service uses it.
type task struct {
	id         string
	version    version
	generation int
	listen     string
	command    *exec.Cmd
	log        *os.File
	exited     chan struct{} // closed when the process has ended

	begun, healthy, probed time.Time
	told                   time.Time // when it got SIGTERM
	killed                 bool      // it got SIGKILL, too
	ended                  time.Time // when the service saw that
}

// startTask starts a task with the environment of the ECS module.
func startTask(ctx context.Context, o options, w *world, spawn program.Spawner, t *task) error {
	var err error
	if t.listen, err = freeport.Address(ctx); err != nil {
		return err
	}
	if t.log, err = os.Create(filepath.Join(o.dir, t.id+".log")); err != nil {
		return err
	}
	t.command = exec.Command(t.version.program, "serve") //nolint:noctx,gosec // signals end it, and this program built it
	t.command.Env = append(os.Environ(),
		"CARILLON_DATABASE="+w.url, "CARILLON_LISTEN="+t.listen, "CARILLON_NODE_NAME="+t.id, "CARILLON_LOG_FORMAT=json",
		"CARILLON_STOP_TIMEOUT="+(o.stop+stopSlack).String(), "CARILLON_DRAIN_TIMEOUT="+o.drain.String(),
		"CARILLON_TASK_PROTECTION="+strconv.FormatBool(o.protect), "ECS_AGENT_URI="+w.agent.add(t.id), "CARILLON_EGRESS_LOOPBACK=true")
	t.command.Stdout, t.command.Stderr = t.log, t.log
	if err := spawn.Start(t.command); err != nil {
		return err
	}
	t.begun, t.exited = time.Now(), make(chan struct{})
	go func() {
		_ = t.command.Wait() // its state has the outcome
		close(t.exited)
	}()
	return nil
}

// stopSlack compensates for a scaled-down drain within five seconds of the stop timeout, which nodes refuse.
const stopSlack = 5 * time.Second

// alive reports whether the process runs.
func (t *task) alive() bool {
	select {
	case <-t.exited:
		return false
	default:
		return true
	}
}

// probe requests /livez, like the container's health check.
func (t *task) probe(ctx context.Context, now time.Time) {
	t.probed = now
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.listen+"/livez", nil)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	_ = response.Body.Close()
	if response.StatusCode == http.StatusOK {
		t.healthy = now
	}
}

// stop sends SIGTERM, and SIGKILL after the stop timeout.
func (t *task) stop(now time.Time, patience time.Duration) {
	switch {
	case t.told.IsZero():
		t.told = now
		_ = t.command.Process.Signal(syscall.SIGTERM) // it may have ended
	case now.Sub(t.told) >= patience && !t.killed:
		t.killed = true
		_ = t.command.Process.Kill()
	}
}
