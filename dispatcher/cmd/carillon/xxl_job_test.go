package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	"github.com/carillon-dev/carillon/test/program"
)

// The names are those of docs/how-to/move-from-xxl-job.md.
const (
	executorsApp, executorsGroup, executorsAppName = "finance", "billing", "billing-executor"

	executorsToken = "token-of-the-executors"
)

// xxlExecutor is a running test/xxljob, which knows only the protocol of XXL-JOB and nothing of Carillon.
type xxlExecutor struct {
	id, url string
	command *exec.Cmd
	log     *lockedBuffer
	exited  chan error
}

// buildExecutor builds test/xxljob.
func buildExecutor(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "xxljob")
	if err := program.Build(t.Context(), filepath.Join("..", "..", ".."), binary, "./test/xxljob"); err != nil {
		t.Fatal(err)
	}
	return binary
}

// startExecutor starts an executor that uses a group at a node as its scheduler.
func startExecutor(t *testing.T, binary, address, token string, n *process) *xxlExecutor {
	t.Helper()
	e := &xxlExecutor{
		id: strings.NewReplacer(".", "-", ":", "-").Replace(address), url: "http://" + address + "/",
		command: exec.Command(binary), log: &lockedBuffer{}, exited: make(chan error, 1),
	}
	e.command.Stderr = e.log
	e.command.Env = append(os.Environ(), "ADMIN="+n.endpoint+executorsAddress(t), "APP_NAME="+executorsAppName, "ACCESS_TOKEN="+token,
		"LISTEN="+address, "URL="+e.url, "LOG_DIR="+t.TempDir(), "BEAT=500ms", "RETRY=500ms")
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { e.exited <- e.command.Wait() }()
	t.Cleanup(func() {
		_ = e.command.Process.Kill()
		if t.Failed() {
			t.Logf("log of executor %s:\n%s", e.id, e.log)
		}
	})
	return e
}

// movePage returns the migration page.
func movePage(t *testing.T) string {
	t.Helper()
	return string(must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", "docs", "how-to", "move-from-xxl-job.md"))))
}

// executorsAddress returns the path after the nodes' address in the settings of executors, as the page shows it.
func executorsAddress(t *testing.T) string {
	t.Helper()
	_, after, _ := strings.Cut(movePage(t), "xxl.job.admin.addresses=https://carillon.internal:8080")
	address, _, _ := strings.Cut(after, "\n")
	if want := "/xxl-job/" + executorsApp + "/" + executorsGroup; address != want {
		t.Fatalf("the page tells the address %q, want %q", address, want)
	}
	return address
}

// freeAddresses returns unused addresses, and their ports.
func freeAddresses(t *testing.T, count int) (addresses []string, ports []int) {
	t.Helper()
	for range count {
		address := freeAddress(t)
		_, port, _ := strings.Cut(address, ":")
		addresses, ports = append(addresses, address), append(ports, must[int](t)(strconv.Atoi(port)))
	}
	return addresses, ports
}

// declareExecutors declares the app and the group.
func (n *process) declareExecutors(ports []int) {
	n.t.Helper()
	must[access.App](n.t)(n.PutApp(n.t.Context(), access.App{Name: executorsApp, AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	group := target.EndpointGroup{App: executorsApp, Name: executorsGroup}
	group.SetDefaults()
	group.Kind, group.AppName = target.GroupXXLJob, executorsAppName
	group.AccessToken = &target.Secret{Reference: "env:SECRET_FINANCE_TOKEN"}
	group.Registration = &target.Registration{Networks: []string{"127.0.0.0/8"}, Ports: ports,
		Heartbeat: input.Duration(time.Second), ExpireAfter: input.Duration(10 * time.Second)}
	must[target.EndpointGroup](n.t)(n.PutGroup(n.t.Context(), group, client.Condition{}))
}

// declareHandler declares a job with a group as its target and one attempt, unless change sets more.
func (n *process) declareHandler(name, group string, run target.XXLJobRun, change func(*dispatcher.Job)) {
	n.t.Helper()
	job := webhookJob(executorsApp, name, "", nil)
	job.Target = target.Target{Group: &target.GroupTarget{Name: group, XXLJob: &run}}
	job.Target.Group.SetDefaults()
	job.Retry.SetDefaults()
	job.Retry.MaxAttempts = 1
	if change != nil {
		change(&job)
	}
	must[dispatcher.Job](n.t)(n.PutJob(n.t.Context(), job, client.Condition{}))
}

// executors returns the ids of the group's executors.
func (n *process) executors() (ids []string) {
	n.t.Helper()
	page := must[client.List[target.Endpoint]](n.t)(n.Endpoints(n.t.Context(), executorsApp, executorsGroup, input.Page{}))
	for _, endpoint := range page.Items {
		ids = append(ids, endpoint.ID)
	}
	return ids
}

// runOf runs a job.
func (n *process) runOf(job string) run.Run {
	n.t.Helper()
	return must[run.Run](n.t)(n.RunJob(n.t.Context(), executorsApp, job))
}

// runUntil runs a job and waits until the run reaches a state.
func (n *process) runUntil(job string, state run.State) run.Run {
	n.t.Helper()
	r := n.runOf(job)
	id := r.ID
	until(n.t, "the run of "+job+" to be "+string(state), func() bool {
		r = must[run.Run](n.t)(n.Run(n.t.Context(), id))
		if r.State != state && r.EndedAt != nil {
			n.t.Fatalf("run of %s is %s, want %s: %s %s", job, r.State, state, r.Class, r.Error)
		}
		return r.State == state
	})
	return r
}

// logOf returns the output of the log command for a run.
func (n *process) logOf(run run.Run, args ...string) string {
	n.t.Helper()
	env := []string{"CARILLON_ENDPOINT=" + n.endpoint, "CARILLON_TOKEN=" + n.token}
	out, errs, code := carillon(n.t, env, append([]string{"run", "log", run.ID}, args...)...)
	if code != 0 {
		n.t.Errorf("run log: exit %d: %s", code, errs)
	}
	return out
}

// newExecutorNode starts a node with the token of the executors.
func newExecutorNode(t *testing.T) *process {
	t.Helper()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	env := []string{"SECRET_FINANCE_TOKEN=" + executorsToken, "SECRET_FINANCE_OTHER=another_token"}
	return startNodeWith(t, database, newToken(t, database), env, quick()...)
}

// sleeping returns a run that outlasts every test.
func sleeping() target.XXLJobRun { return target.XXLJobRun{Handler: "sleeping", Param: "1h"} }

// busyOver makes a job ask executors whether they are idle.
func busyOver(job *dispatcher.Job) { job.Target.Group.Strategy = "busyover" }

// An executor written from the protocol alone registers, responds, runs, logs, calls back, is stopped and expires.
func TestExecutorOfXXLJobRunsEndToEnd(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	n, binary := newExecutorNode(t), buildExecutor(t)
	addresses, ports := freeAddresses(t, 1)
	n.declareExecutors(ports)
	executor := startExecutor(t, binary, addresses[0], executorsToken, n)
	until(t, "the executor to register", func() bool { return fmt.Sprint(n.executors()) == "["+executor.id+"]" })

	n.declareHandler("invoices", executorsGroup, target.XXLJobRun{Handler: "demoJobHandler", Param: "monthly"}, busyOver)
	r := n.runUntil("invoices", run.Succeeded)
	if got := r.Attempts[0].Response.Endpoint; got != executor.id {
		t.Errorf("the run went to %q, want %s", got, executor.id)
	}
	if got, want := n.logOf(r), "job started with param monthly\nthe work is done\njob succeeded\n"; got != want {
		t.Errorf("log = %q, want %q", got, want)
	}
	if got, want := n.logOf(r, "--from", "3", "--follow"), "job succeeded\n"; got != want {
		t.Errorf("log from line 3 = %q, want %q", got, want)
	}

	tooLong := sleeping()
	tooLong.ExecutorTimeout = input.Duration(time.Second)
	for name, one := range map[string]struct {
		run   target.XXLJobRun
		state run.State
		class run.Class
		says  string
	}{
		"fails": {
			target.XXLJobRun{Handler: "failing", Param: "no invoices"}, run.Failed, run.ClassCallback,
			"code 500: no invoices",
		},
		"missing": {
			target.XXLJobRun{Handler: "nosuch"}, run.Failed, run.ClassExecutorRefused,
			"job handler [nosuch] not found",
		},
		"too-long": {tooLong, run.TimedOut, run.ClassFunctionTime, "code 502: job execute timeout"},
	} {
		n.declareHandler(name, executorsGroup, one.run, nil)
		if run := n.runUntil(name, one.state); run.Class != one.class || !strings.Contains(run.Error, one.says) {
			t.Errorf("%s ended with %s %q, want %s saying %q", name, run.Class, run.Error, one.class, one.says)
		}
	}
	late := sleeping()
	late.CallbackTimeout = input.Duration(time.Second)
	n.declareHandler("late", executorsGroup, late, nil)
	if r := n.runUntil("late", run.TimedOut); r.Class != run.ClassCallbackTime {
		t.Errorf("a run without callback ended with %s %q", r.Class, r.Error)
	}

	n.checkKill(executor)
	n.checkTokens(binary, addresses[0], executor)

	if err := executor.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	until(t, "the executor to expire", func() bool { return len(n.executors()) == 0 })
	if r := n.runUntil("invoices", run.Failed); r.Class != run.ClassNoEndpoint {
		t.Errorf("without executors: %s %q", r.Class, r.Error)
	}
	n.checkVerify(executorsApp)
}

// checkKill cancels a run. The executor is busy until it gets the cancellation.
func (n *process) checkKill(executor *xxlExecutor) {
	n.t.Helper()
	n.declareHandler("sleep", executorsGroup, sleeping(), busyOver)
	r := n.runUntil("sleep", run.WaitingCallback)
	if r.Callback == nil || r.Callback.Endpoint != executor.id {
		n.t.Errorf("callback of a run that waits = %+v, want that of %s", r.Callback, executor.id)
	}
	until(n.t, "the handler to begin", func() bool { return strings.HasSuffix(n.logOf(r), "asleep\n") })
	if busy := n.runUntil("sleep", run.Failed); busy.Class != run.ClassEndpointsBusy {
		n.t.Errorf("while the executor is busy: %s %q", busy.Class, busy.Error)
	}
	cancelled := must[run.Run](n.t)(n.CancelRun(n.t.Context(), r.ID))
	if cancelled.State != run.Cancelled {
		n.t.Errorf("cancelled run is %s", cancelled.State)
	}
	until(n.t, "the handler to be stopped", func() bool {
		return strings.HasSuffix(n.logOf(r), "job failed: scheduling center kill job.\n")
	})
	until(n.t, "the executor to be idle again", func() bool { // for a second, the node trusts the executor's response
		again := n.runOf("sleep")
		until(n.t, "the run to be accepted or refused", func() bool {
			again = must[run.Run](n.t)(n.Run(n.t.Context(), again.ID))
			return again.State == run.WaitingCallback || again.EndedAt != nil
		})
		return again.State == run.WaitingCallback
	})
}

// checkTokens checks that a wrong token is refused in either direction.
func (n *process) checkTokens(binary, address string, executor *xxlExecutor) {
	n.t.Helper()
	stranger := freeAddress(n.t)
	wrong := startExecutor(n.t, binary, stranger, "guessed", n)
	until(n.t, "the stranger to be refused", func() bool { return strings.Contains(wrong.log.String(), "the access token is wrong") })
	if got := n.executors(); fmt.Sprint(got) != "["+executor.id+"]" {
		n.t.Errorf("executors = %v, want only %s", got, executor.id)
	}
	group := target.EndpointGroup{App: executorsApp, Name: "mistaken",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{
			"one": {URL: "http://" + address},
		}}}
	group.SetDefaults()
	group.Kind, group.AccessToken = target.GroupXXLJob, &target.Secret{Reference: "env:SECRET_FINANCE_OTHER"}
	must[target.EndpointGroup](n.t)(n.PutGroup(n.t.Context(), group, client.Condition{}))
	n.declareHandler("mistaken", "mistaken", target.XXLJobRun{Handler: "demoJobHandler"}, nil)
	if r := n.runUntil("mistaken", run.Failed); r.Class != run.ClassExecutorRefused ||
		!strings.Contains(r.Error, "The access token is wrong") {
		n.t.Errorf("with a wrong token: %s %q", r.Class, r.Error)
	}
	for _, text := range []string{n.logs.String(), wrong.log.String(), executor.log.String()} {
		if strings.Contains(text, executorsToken) || strings.Contains(text, "another_token") {
			n.t.Error("an access token is in a log")
		}
	}
}

// A fleet of three executors moves over. One is killed and one stops, and every fire is done.
func TestFleetOfExecutorsLosesNoFire(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	n, binary := newExecutorNode(t), buildExecutor(t)
	addresses, ports := freeAddresses(t, 3)
	n.declareExecutors(ports)
	var fleet []*xxlExecutor
	for _, address := range addresses {
		fleet = append(fleet, startExecutor(t, binary, address, executorsToken, n))
	}
	until(t, "all executors to register", func() bool { return len(n.executors()) == 3 })
	handled := target.XXLJobRun{Handler: "sleeping", Param: "200ms", CallbackTimeout: input.Duration(10 * time.Second)}
	n.declareHandler("invoices", executorsGroup, handled, func(job *dispatcher.Job) {
		job.Retry.MaxAttempts, job.Retry.Base = run.MostAttempts, input.Duration(100*time.Millisecond)
		for i := range 4 {
			trigger := dispatcher.Trigger{}
			trigger.SetDefaults()
			trigger.Expression = "rate(1s)"
			job.Triggers[fmt.Sprint("t", i)] = trigger
		}
	})
	ran := func() map[string]int { return n.runsByEndpoint(executorsApp) }
	until(t, "every executor to work", func() bool { return len(ran()) == 3 })
	if err := fleet[0].command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := fleet[1].command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-fleet[1].exited; err != nil {
		t.Errorf("an executor that is told to stop ends with %v", err)
	}
	until(t, "the others to leave", func() bool { return fmt.Sprint(n.executors()) == "["+fleet[2].id+"]" })
	before := ran()
	until(t, "the last one to work on", func() bool { return ran()[fleet[2].id] > before[fleet[2].id]+5 })

	n.fireNoMore(executorsApp, "invoices")
	for _, r := range n.settled(t, executorsApp, time.Now()) {
		if r.State != run.Succeeded {
			t.Errorf("run %s ended as %s after %d attempts: %s", r.ID, r.State, r.Attempt, r.Error)
		}
	}
	n.checkVerify(executorsApp)
}

// A fleet of three executors moves over with the page's configuration and address, adapted to this machine.
func TestPageMovesAFleetOfExecutors(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte(testKey), 0o600); err != nil {
		t.Fatal(err)
	}
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), append(quick(), "--secret-keys-file="+keys)...)
	addresses, ports := freeAddresses(t, 3)
	_, fenced, _ := strings.Cut(movePage(t), "```hcl\n") // within a step of a list
	fenced, _, _ = strings.Cut(fenced, "```")
	config := `terraform {
			required_providers {
				carillon = { source = "carillon-dev/carillon" }
			}
		}
		resource "carillon_app" "finance" { name = "finance" }
		variable "xxl_job_access_token" { default = "` + executorsToken + `" }
		` + strings.NewReplacer("10.0.0.0/16", "127.0.0.0/8", "[9999]", strings.ReplaceAll(fmt.Sprint(ports), " ", ",")).
		Replace(fenced)
	w := emptyWorkspace(t, n)
	if err := os.WriteFile(filepath.Join(w.dir, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	w.apply()
	binary := buildExecutor(t)
	for _, address := range addresses {
		startExecutor(t, binary, address, executorsToken, n)
	}
	until(t, "all executors to register", func() bool { return len(n.executors()) == 3 })
	for range 3 {
		run := n.runUntil("invoices", run.Succeeded)
		if got, want := n.logOf(run), "job started with param monthly\nthe work is done\njob succeeded\n"; got != want {
			t.Errorf("log = %q, want %q", got, want)
		}
	}
	if ran := n.runsByEndpoint(executorsApp); len(ran) != 3 {
		t.Errorf("runs by executor: %v, want one for each", ran)
	}
}
