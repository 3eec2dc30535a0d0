package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/program"
)

const fleetSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// fleetWorker is a running worker/sample.
type fleetWorker struct {
	id      string
	command *exec.Cmd
	exited  chan error
}

// startWorker starts a worker that registers itself at a node.
func startWorker(t *testing.T, binary, id, address string, n *process, token string) *fleetWorker {
	t.Helper()
	w := &fleetWorker{id: id, command: exec.Command(binary), exited: make(chan error, 1)}
	log := &lockedBuffer{}
	w.command.Stderr = log
	w.command.Env = append(os.Environ(), "CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+token, "APP=fleet", "GROUP=workers", "ID="+id,
		"LISTEN="+address, "URL=http://"+address, "SIGNING_SECRET="+fleetSecret)
	if err := w.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.exited <- w.command.Wait() }()
	t.Cleanup(func() {
		_ = w.command.Process.Kill()
		if t.Failed() {
			t.Logf("log of worker %s:\n%s", id, log)
		}
	})
	return w
}

// declareFleet declares the app and the group.
func declareFleet(t *testing.T, n *process, ports []int) {
	t.Helper()
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "fleet", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	group := target.EndpointGroup{App: "fleet", Name: "workers"}
	group.SetDefaults()
	group.Signing = &target.Signing{Secrets: map[string]target.Secret{"main": {Reference: "env:SECRET_FLEET_SIGNING"}}}
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}, Ports: ports,
		Heartbeat: input.Duration(time.Second), ExpireAfter: input.Duration(10 * time.Second)}
	must[target.EndpointGroup](t)(n.PutGroup(t.Context(), group, client.Condition{}))
}

// declareSum declares a job with triggers that fire every second.
func declareSum(t *testing.T, n *process, triggers int) {
	t.Helper()
	fires := map[string]string{}
	for i := range triggers {
		fires[fmt.Sprint("t", i)] = "rate(1s)"
	}
	job := webhookJob("fleet", "sum", "", fires)
	job.Target = target.Target{Group: &target.GroupTarget{Name: "workers"}}
	job.Target.Group.SetDefaults()
	job.Payload = json.RawMessage(`[1,2,3]`)
	job.Retry.SetDefaults()
	job.Retry.MaxAttempts = run.MostAttempts
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
}

// Workers start, stop and die, and a node dies. One of them does the work of every fire, or a newer
// fire supersedes it and is done. No fire fails, and no request goes to a worker that has left.
func TestFleetOfWorkersLosesNoFire(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	const workers, triggers = 4, 5
	database := pgtest.New(t)
	admin := newToken(t, database)
	env := []string{"SECRET_FLEET_SIGNING=" + fleetSecret}
	nodes := make([]*process, 3)
	for i := range nodes {
		nodes[i] = startNodeWith(t, database, admin, env, quick()...)
	}
	out, errs, code := carillon(t, nil, "token", "create", "--database", database, "--name", "workers", "--scope", "register",
		"--apps", "fleet")
	if code != 0 {
		t.Fatalf("token create: exit %d: %s", code, errs)
	}
	token := strings.TrimSpace(out)

	binary := filepath.Join(t.TempDir(), "worker")
	if err := program.Build(t.Context(), filepath.Join("..", "..", ".."), binary, "./worker/sample"); err != nil {
		t.Fatal(err)
	}
	var addresses []string
	var ports []int
	for range workers {
		address := freeAddress(t)
		_, port, _ := strings.Cut(address, ":")
		addresses, ports = append(addresses, address), append(ports, must[int](t)(strconv.Atoi(port)))
	}
	declareFleet(t, nodes[0], ports)
	declareSum(t, nodes[0], triggers)
	var fleet []*fleetWorker
	for i := range workers {
		fleet = append(fleet, startWorker(t, binary, fmt.Sprint("w", i), addresses[i], nodes[0], token))
	}
	members := func() (ids []string) {
		page := must[client.List[target.Endpoint]](t)(nodes[0].Endpoints(t.Context(), "fleet", "workers", input.Page{}))
		for _, endpoint := range page.Items {
			ids = append(ids, endpoint.ID)
		}
		return ids
	}
	until(t, "all workers to register", func() bool { return len(members()) == workers })
	ran := func() map[string]int { return nodes[0].runsByEndpoint("fleet") }
	until(t, "every worker to work", func() bool { return len(ran()) == workers })

	if err := fleet[0].command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	nodes[2].kill()
	if err := fleet[1].command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-fleet[1].exited; err != nil {
		t.Errorf("a worker that is told to stop ends with %v", err)
	}
	until(t, "the workers that are gone to leave the group", func() bool { return fmt.Sprint(members()) == "[w2 w3]" })
	for _, n := range nodes[:2] {
		until(t, "a node to know that they have left", func() bool { return !n.knows("w0") && !n.knows("w1") })
	}
	left, before := time.Now(), ran()
	until(t, "the others to work on", func() bool { now := ran(); return now["w2"] > before["w2"]+5 && now["w3"] > before["w3"]+5 })

	nodes[0].fireNoMore("fleet", "sum") // so that the ledger no longer changes
	runs := nodes[0].settled(t, "fleet", time.Now())
	checkFleet(t, nodes[0], runs, left)
	nodes[0].checkVerify("fleet")
}

// knows reports whether a node sees an endpoint of the group.
func (n *process) knows(id string) bool {
	n.t.Helper()
	status := must[target.GroupStatus](n.t)(n.GroupStatus(n.t.Context(), "fleet", "workers"))
	return slices.ContainsFunc(status.Endpoints, func(e target.EndpointStatus) bool { return e.ID == id })
}

// checkFleet checks that every run succeeded or was superseded, and that later attempts avoided the departed workers.
func checkFleet(t *testing.T, n *process, runs []run.Run, left time.Time) {
	t.Helper()
	for i := range runs {
		runs[i] = must[run.Run](t)(n.Run(t.Context(), runs[i].ID))
	}
	for _, one := range runs {
		if one.State != run.Succeeded && !refusedAsStale(one, runs) {
			t.Errorf("run %s of %s ended as %s after %d attempts: %s", one.ID, one.Job, one.State, one.Attempt, one.Error)
		}
		for _, attempt := range one.Attempts {
			if r := attempt.Response; r != nil && (r.Endpoint == "w0" || r.Endpoint == "w1") && attempt.StartedAt.After(left) {
				t.Errorf("attempt %d of run %s began at %s and went to %s, which had left by %s", attempt.Attempt, one.ID,
					attempt.StartedAt, r.Endpoint, left)
			}
		}
	}
}

// refusedAsStale reports whether a run was superseded after a newer fire of its trigger: the
// workers fence their handler, and the run of a dead node is adopted late.
func refusedAsStale(r run.Run, runs []run.Run) bool {
	last := len(r.Attempts) - 1
	return r.State == run.Superseded && last >= 0 && r.Attempts[last].HTTPStatus == http.StatusConflict &&
		slices.ContainsFunc(runs, func(other run.Run) bool {
			return other.Trigger == r.Trigger && other.ScheduledAt.After(r.ScheduledAt) && other.State == run.Succeeded
		})
}

// runsByEndpoint counts the ended runs of an app by the endpoint of their last attempt.
func (n *process) runsByEndpoint(app string) map[string]int {
	n.t.Helper()
	count := map[string]int{}
	for _, r := range n.allRuns(app) {
		if r.EndedAt == nil {
			continue
		}
		one := must[run.Run](n.t)(n.Run(n.t.Context(), r.ID))
		if last := len(one.Attempts) - 1; last >= 0 && one.Attempts[last].Response != nil {
			count[one.Attempts[last].Response.Endpoint]++
		}
	}
	return count
}
