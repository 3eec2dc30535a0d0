package release_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/program"
)

const imageUser = 65532

// volume is the directory of the image for writable data.
const volume = "/var/lib/carillon"

// container runs an image with bubblewrap: the unpacked image as a read-only root, the image's
// user, separate processes, and this machine's network.
type container struct {
	root, volume string // volume is a directory of this machine, or ""
}

// unpack writes an image to a new directory, without the mount points of /proc and /dev, which runtimes add.
func unpack(t *testing.T, m image) string {
	t.Helper()
	root := openDirectory(t)
	for _, e := range m.entries {
		path := filepath.Join(root, e.Name)
		mode := e.FileInfo().Mode()
		var err error
		if mode.IsDir() {
			err = os.Mkdir(path, 0o755)
		} else {
			err = program.Write(path, e.content)
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(path, e.Uid, e.Gid)
		}
		if err := errors.Join(err, os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"proc", "dev"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// openDirectory returns a directory that every user can traverse, unlike t.TempDir.
func openDirectory(t *testing.T) string {
	t.Helper()
	dir := must[string](t)(os.MkdirTemp(built.dir, "root-"))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// command returns the entrypoint of the image with arguments, as the first process of the
// container. It writes the id of that process on this machine to information.
func (c container) command(t *testing.T, information *os.File, args ...string) *exec.Cmd {
	t.Helper()
	wrap := []string{
		"--unshare-user", "--uid", fmt.Sprint(imageUser), "--gid", fmt.Sprint(imageUser), "--unshare-pid", "--unshare-ipc",
		"--as-pid-1", "--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--info-fd", "3",
		"--ro-bind", c.root, "/", "--proc", "/proc", "--dev", "/dev",
	}
	if c.volume != "" {
		wrap = append(wrap, "--bind", c.volume, volume)
	}
	command := exec.Command("bwrap", append(append(wrap, "/carillon"), args...)...)
	command.ExtraFiles = []*os.File{information}
	command.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: imageUser, Gid: imageUser}
	}
	return command
}

// run runs a command of the image to its end and returns its output.
func (c container) run(t *testing.T, args ...string) string {
	t.Helper()
	null := must[*os.File](t)(os.OpenFile(os.DevNull, os.O_WRONLY, 0))
	defer null.Close()
	var problem bytes.Buffer
	command := c.command(t, null, args...)
	command.Stderr = &problem
	out, err := command.Output()
	if err != nil {
		t.Fatalf("carillon %v in the container: %v\n%s", args, err, problem.String())
	}
	return string(out)
}

// node is a node in a container.
type node struct {
	*client.Client
	command *exec.Cmd
	pid     int // of the program on this machine
	logs    *lockedBuffer
	ended   chan error
}

// start starts the image's own command with further flags, and waits until the node is ready.
func (c container) start(t *testing.T, address, token string, args ...string) *node {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	n := &node{logs: &lockedBuffer{}, ended: make(chan error, 1)}
	n.Client = must[*client.Client](t)(client.New("http://"+address, token, client.Options{}))
	n.command = c.command(t, write, append([]string{"serve", "--listen", address, "--egress-loopback"}, args...)...)
	n.command.Stderr = n.logs
	if err := errors.Join(n.command.Start(), write.Close()); err != nil {
		t.Fatal(err)
	}
	go func() { n.ended <- n.command.Wait() }()
	t.Cleanup(func() {
		_ = n.command.Process.Kill()
		if t.Failed() {
			t.Logf("log of the node:\n%s", n.logs)
		}
	})
	var information struct {
		Pid int `json:"child-pid"`
	}
	if err := json.NewDecoder(read).Decode(&information); err != nil {
		t.Fatalf("bubblewrap: %v\n%s", err, n.logs)
	}
	n.pid = information.Pid
	awaitReady(t, address)
	return n
}

// awaitReady waits until a node is ready.
func awaitReady(t *testing.T, address string) {
	t.Helper()
	until(t, "the node to be ready", func() bool {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// until polls a condition of another process, which cannot signal the test.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// lockedBuffer is a buffer that a process writes and the test reads.
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

// rings is a server that reports its requests.
func rings(t *testing.T) (url string, came <-chan *http.Request) {
	t.Helper()
	requests := make(chan *http.Request, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		select {
		case requests <- r:
		default:
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// everySecond declares a job that calls url every second.
func (n *node) everySecond(t *testing.T, url string) {
	t.Helper()
	if _, err := n.PutApp(t.Context(), access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}); err != nil {
		t.Fatal(err)
	}
	job := dispatcher.Job{App: "shop", Name: "ring", JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{}}}
	job.Target.Webhook = &target.Webhook{}
	job.Target.Webhook.SetDefaults()
	job.Target.Webhook.URL = url
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = "rate(1s)"
	job.Triggers["second"] = trigger
	if _, err := n.PutJob(t.Context(), job, client.Condition{}); err != nil {
		t.Fatal(err)
	}
}

// needBubblewrap skips the test without bubblewrap. With CI=true the test fails.
func needBubblewrap(t *testing.T) {
	t.Helper()
	need.Program(t, "bwrap", "bubblewrap")
}

func TestImageFiresAWebhookOnAReadOnlyRoot(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	needBubblewrap(t)
	m := readImage(t, directory(t, built.snapshot))
	for name, prepare := range map[string]func(*testing.T, *container) string{
		"PostgreSQL": func(t *testing.T, _ *container) string { return postgresOverTCP(t) }, // no volume
		"SQLite": func(t *testing.T, c *container) string {
			c.volume = openDirectory(t)
			if os.Getuid() == 0 {
				if err := os.Chown(c.volume, imageUser, imageUser); err != nil {
					t.Fatal(err)
				}
			}
			return "sqlite:" + volume + "/carillon.db"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := container{root: unpack(t, m)}
			database := prepare(t, &c)
			c.run(t, "migrate", "--database", database)
			token := strings.TrimSpace(c.run(t, "token", "create", "--database", database, "--name", "test"))
			const drain = 10 * time.Second
			n := c.start(t, must[string](t)(freeport.Address(t.Context())), token, "--database", database, "--drain-timeout", drain.String())

			url, came := rings(t)
			n.everySecond(t, url)
			select {
			case r := <-came:
				if r.Header.Get("carillon-trigger") != "second" {
					t.Errorf("carillon-trigger: %q", r.Header.Get("carillon-trigger"))
				}
			case <-time.After(time.Minute):
				t.Fatal("no webhook came")
			}
			if got, want := owner(t, n.pid), fmt.Sprint(imageUser); os.Getuid() == 0 && got != want {
				t.Errorf("the program runs as user %s, want %s", got, want)
			}
			n.stop(t, drain)
		})
	}
}

// stop sends SIGTERM to the program itself, like a container runtime, and requires exit code 0 within the drain.
func (n *node) stop(t *testing.T, drain time.Duration) {
	t.Helper()
	if err := syscall.Kill(n.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.ended:
		if err != nil {
			t.Errorf("the node ended with %v, want exit code 0", err)
		}
	case <-time.After(drain):
		t.Errorf("the node still runs %s after SIGTERM", drain)
	}
}

// owner returns the user of a process, as this machine sees it.
func owner(t *testing.T, pid int) string {
	t.Helper()
	status := string(must[[]byte](t)(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))))
	_, uid, _ := strings.Cut(status, "\nUid:")
	return strings.Fields(uid)[0]
}

// postgresOverTCP returns the URL of a new database that a container reaches without a directory of this machine.
func postgresOverTCP(t *testing.T) string {
	t.Helper()
	if os.Getenv("DATABASE_URL") != "" {
		return pgtest.New(t)
	}
	bin, ok := postgres.Find()
	if !ok {
		return pgtest.New(t) // its message names the missing program
	}
	_, port, err := net.SplitHostPort(must[string](t)(freeport.Address(t.Context())))
	if err != nil {
		t.Fatal(err)
	}
	dir := must[string](t)(os.MkdirTemp("", "carillon-pg-"))
	server := postgres.New(bin, dir, "listen_addresses=127.0.0.1", "port="+port, "fsync=off")
	if err := errors.Join(server.Init(t.Context()), server.Start(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"
}
