package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// The end-to-end tests use the built binaries as processes, a real database, a real terraform and a
// real receiver. They wait for events with deadlines far beyond the usual times, and check order
// and counts, not speed.

// patience is how long a test waits for any event. A busy machine may be 30 times slower than an
// idle one, and a wait ends as soon as the event happens.
const patience = 5 * time.Minute

// binaries is the directory in which TestMain built carillon and the provider.
var binaries string //nolint:gochecknoglobals // TestMain has no other way to hand it over

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "carillon-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		for _, pkg := range []string{"./dispatcher/cmd/carillon", "./provider/cmd/terraform-provider-carillon"} {
			build := exec.Command("go", "build", "-o", dir, pkg)
			build.Env = append(os.Environ(), "CGO_ENABLED=0") // as in releases: it runs on any Linux
			build.Dir = filepath.Join("..", "..", "..")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
				return 1
			}
		}
		binaries = dir
		need.NoSettings()
		if err := errors.Join(os.Setenv("CARILLON_ENV_FILE", ""), os.Unsetenv("CARILLON_TOFU")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// onBothDatabases runs a test with the URL of a new database of each kind.
func onBothDatabases(t *testing.T, test func(t *testing.T, database string)) {
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.New(t))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+filepath.Join(t.TempDir(), "carillon.db"))
	})
}

// process is a running `carillon serve`.
type process struct {
	*client.Client
	t        *testing.T
	command  *exec.Cmd
	endpoint string
	token    string
	logs     *lockedBuffer
	exited   chan error
}

// lockedBuffer is a buffer that the pipe of a process writes and the test reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// carillon runs the built binary to its end.
func carillon(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(binaries, "carillon"), args...)
	command.Env = append(os.Environ(), env...)
	var out, err bytes.Buffer
	command.Stdout, command.Stderr = &out, &err
	runErr := command.Run()
	var exit *exec.ExitError
	if runErr != nil && !errors.As(runErr, &exit) {
		t.Fatal(runErr)
	}
	return out.String(), err.String(), command.ProcessState.ExitCode()
}

// newToken creates an API token in a database.
func newToken(t *testing.T, database string) string {
	t.Helper()
	out, errs, code := carillon(t, nil, "token", "create", "--database", database, "--name", "e2e",
		"--scope", "read,run,write,register,metrics,export,import,admin")
	if code != 0 {
		t.Fatalf("token create: exit %d: %s", code, errs)
	}
	return strings.TrimSpace(out)
}

// quick returns flags that make recovery fast enough for a test.
func quick() []string {
	return []string{"--handler-interval=500ms", "--heartbeat=200ms", "--dead-after=4s"}
}

// startNode starts a node and waits until it is ready. It is killed at the test's end.
func startNode(t *testing.T, database, token string, args ...string) *process {
	t.Helper()
	return startNodeWith(t, database, token, nil, args...)
}

// startNodeWith is startNode with further environment variables.
func startNodeWith(t *testing.T, database, token string, env []string, args ...string) *process {
	t.Helper()
	n := launchNode(t, database, token, env, args...)
	n.awaitReady()
	return n
}

// awaitReady waits until the node is ready.
func (n *process) awaitReady() {
	n.t.Helper()
	until(n.t, "the node to be ready", func() bool {
		select {
		case err := <-n.exited:
			n.exited <- err
			n.t.Fatalf("the node ended with %v before it was ready", err)
		default:
		}
		return n.status("/readyz") == http.StatusOK
	})
}

// givenAddresses are the addresses that freeAddress has returned.
var givenAddresses sync.Map //nolint:gochecknoglobals // tests run in parallel and share the ports of the machine

// freeAddress returns an address for a process that starts later, or again after a kill. No other
// test of this package gets it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		address := must[string](t)(freeport.Address(t.Context()))
		if _, given := givenAddresses.LoadOrStore(address, true); !given {
			return address
		}
	}
}

// launchNode starts a node and does not wait for it.
func launchNode(t *testing.T, database, token string, env []string, args ...string) *process {
	t.Helper()
	return launchNodeIn(t, surroundings{}, database, token, env, args...)
}

// surroundings are what a node process starts with.
type surroundings struct {
	program string   // empty for the built one
	log     *os.File // nil to keep it for the test
	files   int      // limit of open files; 0 for that of the test
}

// launchNodeIn is launchNode with surroundings.
func launchNodeIn(t *testing.T, around surroundings, database, token string, env []string, args ...string) *process {
	t.Helper()
	address := freeAddress(t)
	n := &process{t: t, endpoint: "http://" + address, token: token, logs: &lockedBuffer{}, exited: make(chan error, 1)}
	n.Client = must[*client.Client](t)(client.New(n.endpoint, token, client.Options{Timeout: patience}))
	program := cmp.Or(around.program, filepath.Join(binaries, "carillon"))
	n.command = exec.Command(program, append([]string{"serve", "--database", database, "--listen", address, "--egress-loopback"}, args...)...)
	n.command.Stderr, n.command.Env = n.logs, append(os.Environ(), env...)
	if around.log != nil {
		n.command.Stderr = around.log
	}
	if around.files > 0 {
		sh := must[string](t)(exec.LookPath("sh"))
		n.command.Path, n.command.Args = sh,
			append([]string{"sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(around.files)}, n.command.Args...)
	}
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { n.exited <- n.command.Wait() }()
	t.Cleanup(func() {
		_ = n.command.Process.Kill()
		if t.Failed() {
			t.Logf("log of node %s:\n%s", address, n.logs)
		}
	})
	return n
}

// kill ends the process as a crash does.
func (n *process) kill() {
	n.t.Helper()
	if err := n.command.Process.Kill(); err != nil {
		n.t.Fatal(err)
	}
	<-n.exited
}

// terminate ends the process as an orchestrator does, and requires exit code 0.
func (n *process) terminate() {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	n.awaitEnd()
}

func (n *process) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.command.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// beginDrain sends SIGTERM and waits until the node drains.
func (n *process) beginDrain() {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	until(n.t, "the drain to begin", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
}

// awaitEnd requires exit code 0.
func (n *process) awaitEnd() {
	n.t.Helper()
	select {
	case err := <-n.exited:
		if err != nil {
			n.t.Errorf("node ended with %v, want exit code 0", err)
		}
	case <-time.After(patience):
		n.t.Fatal("node did not end after SIGTERM")
	}
}

// elapse lets real time pass. It is the only wait of fixed length in these tests, for three cases
// without an event to wait for: a slow target, a process that must be missing for a while, and
// another process that must do nothing.
func elapse(d time.Duration) { <-time.NewTimer(d).C }

// until polls a condition of another process, which cannot signal the test.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		default:
			elapse(50 * time.Millisecond)
		}
	}
}

// awaitHeartbeats waits until heartbeats of the fleet have come for so long. Unlike a pause of the test, it
// proves that the nodes had time to do something wrong: a node without processor time sends none.
func (n *process) awaitHeartbeats(long time.Duration) {
	n.t.Helper()
	since := n.lastHeartbeat()
	until(n.t, "heartbeats over "+long.String(), func() bool { return n.lastHeartbeat().Sub(since) > long })
}

// lastHeartbeat returns the time of the latest heartbeat of any node, by the database's clock.
func (n *process) lastHeartbeat() (latest time.Time) {
	n.t.Helper()
	for _, node := range must[client.List[dispatcher.Node]](n.t)(n.Nodes(n.t.Context())).Items {
		if node.HeartbeatAt.After(latest) {
			latest = node.HeartbeatAt
		}
	}
	return latest
}

// begunAfter returns the runs of an app with a latest attempt that began after an instant. Unlike
// the arrival of requests, which may be delayed, it shows when a node decided to send.
func (n *process) begunAfter(app string, instant time.Time) (ids []string) {
	n.t.Helper()
	for _, run := range n.allRuns(app) {
		if run.StartedAt != nil && run.StartedAt.After(instant) {
			ids = append(ids, run.ID)
		}
	}
	return ids
}

// receive waits for a value that another goroutine sends.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatal("waited in vain for a request to arrive")
		panic("unreachable")
	}
}

// must returns the value of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// webhookJob returns a job that calls url.
func webhookJob(app, name, url string, triggers map[string]string) dispatcher.Job {
	job := dispatcher.Job{App: app, Name: name, JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
	job.Target.Webhook = &target.Webhook{}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = url
	for trigger, expression := range triggers {
		t := dispatcher.Trigger{}
		t.SetDefaults()
		t.Expression, t.Timezone = expression, "UTC"
		job.Triggers[trigger] = t
	}
	return job
}

// fireNoMore makes the interval triggers of a job fire once a year from now on. A pause would delay retries.
func (n *process) fireNoMore(app, job string) {
	n.t.Helper()
	stored := must[dispatcher.Job](n.t)(n.Job(n.t.Context(), app, job))
	for name, trigger := range stored.Triggers {
		trigger.Expression = "rate(8760h)"
		stored.Triggers[name] = trigger
	}
	must[dispatcher.Job](n.t)(n.PutJob(n.t.Context(), stored, client.Condition{Existing: true}))
}

// patient returns a job with a timeout that does not expire while the test's receiver lacks processor time.
func patient(job dispatcher.Job) dispatcher.Job {
	job.Target.Webhook.Timeout = input.Duration(patience)
	return job
}

// allRuns reads the whole run history of an app.
func (n *process) allRuns(app string) []run.Run {
	n.t.Helper()
	var runs []run.Run
	query := dispatcher.RunQuery{App: app, Page: input.Page{Limit: 1000}}
	for {
		var page client.List[run.Run]
		until(n.t, "a page of runs", func() bool {
			var err error
			page, err = n.Runs(n.t.Context(), query)
			var problem *client.Error
			if errors.As(err, &problem) && problem.Status == http.StatusServiceUnavailable { // "try again in a moment"
				return false
			}
			if err != nil {
				n.t.Fatal(err)
			}
			return true
		})
		runs = append(runs, page.Items...)
		if page.Next == "" {
			return runs
		}
		query.Page.Cursor = page.Next
	}
}

// workspace is a directory of Terraform configuration with its own state.
type workspace struct {
	t   *testing.T
	dir string
	env []string
}

// newWorkspace returns a copy of the quickstart.
func newWorkspace(t *testing.T, n *process) *workspace {
	t.Helper()
	w := emptyWorkspace(t, n)
	if err := os.CopyFS(w.dir, os.DirFS(filepath.Join("..", "..", "..", "examples", "quickstart"))); err != nil {
		t.Fatal(err)
	}
	return w
}

func emptyWorkspace(t *testing.T, n *process) *workspace {
	t.Helper()
	dir := t.TempDir()
	run := terraformRun{devCommand: &devCommand{Provider: filepath.Join(binaries, "terraform-provider-carillon")}}
	config, err := run.cliConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &workspace{t: t, dir: dir, env: append(os.Environ(),
		"TF_CLI_CONFIG_FILE="+config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0",
		"CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+n.token)}
}

// terraform runs the real binary and returns its output and exit code.
func (w *workspace) terraform(args ...string) (string, int) {
	w.t.Helper()
	command := exec.CommandContext(w.t.Context(), terraformBinary(w.t), args...)
	command.Dir, command.Env = w.dir, w.env
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return string(out), command.ProcessState.ExitCode()
}

// apply requires success.
func (w *workspace) apply(args ...string) {
	w.t.Helper()
	if out, code := w.terraform(append([]string{"apply", "-auto-approve", "-no-color"}, args...)...); code != 0 {
		w.t.Fatalf("terraform apply: exit %d\n%s", code, out)
	}
}

// terraformBinary finds terraform or tofu; with CI=true the test fails without one.
func terraformBinary(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CARILLON_TERRAFORM"), "terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	need.Missing(t, "neither terraform nor tofu is here; make test finds or builds one")
	return ""
}
