package provider_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/test/freeport"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/program"
)

// carillonProgram builds the program once and returns its path.
var carillonProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch(), "carillon")
	return path, program.Build(context.Background(), "..", path, "./dispatcher/cmd/carillon")
})

// realNode is a process that serves the API of a database, which outlives it.
type realNode struct {
	fixture
	program, database string
	serve             *exec.Cmd
}

// newRealNode starts a node with an empty database.
func newRealNode(t *testing.T, client clientProgram) *realNode {
	t.Helper()
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := &realNode{program: path, database: "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")}
	n.endpoint, n.fixture.client = "http://"+address, client
	n.command(t, "migrate", "--database", n.database)
	n.token = strings.TrimSpace(n.command(t, "token", "create", "--name", "terraform", "--scope", "read,write,admin",
		"--database", n.database))
	n.start(t)
	return n
}

// command runs a command with the node's endpoint and token.
func (n *realNode) command(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), n.program, arguments...)
	command.Env = append(os.Environ(), "CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+n.token)
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		t.Fatalf("carillon %v: %v\n%s", arguments, err, &errs)
	}
	return string(out)
}

// start starts the process. The provider waits until it serves.
func (n *realNode) start(t *testing.T) {
	t.Helper()
	n.serve = exec.CommandContext(t.Context(), n.program, "serve", "--database", n.database,
		"--listen", strings.TrimPrefix(n.endpoint, "http://"))
	n.serve.Env = append(os.Environ(), "CARILLON_SECRET_KEYS="+secretKeys)
	if err := n.serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
}

// kill ends the process as kill -9 does.
func (n *realNode) kill() {
	_ = n.serve.Process.Kill()
	_ = n.serve.Wait()
}

// A story: the only node is killed in the middle of an apply and starts again. The apply waits for it and makes all jobs.
func TestStoryApplyOutlivesItsNode(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, program clientProgram) {
		n := newRealNode(t, program)
		api, err := client.New(n.endpoint, n.token, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d := n.directory(t, contents(t, "testdata/many_jobs/main.tf"), providerBlock(""))
		applied := make(chan string)
		go func() {
			output, err := d.terraform(t, "apply", "-auto-approve", "-parallelism=2")
			applied <- output + errorText(err)
		}()
		deadline := time.After(5 * time.Minute)
		for made := 0; made < 10; {
			list, _ := api.Jobs(t.Context(), "shops", input.Page{}) // the node or the app may not be there yet
			made = len(list.Items)
			select {
			case output := <-applied:
				t.Fatalf("the apply ended before the node was killed:\n%s", output)
			case <-deadline:
				t.Fatal("no jobs are made")
			default:
			}
		}
		n.kill()
		n.start(t)
		mustSay(t, <-applied, "61 added, 0 changed, 0 destroyed")
		mustChangeNothing(t, d)
	})
}

// errorText is the text of an error, or empty.
func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// A story: "carillon export" of an app with every kind of object is imported without a change.
func TestStoryExportIsImportedWithoutAChange(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	eachClient(t, func(t *testing.T, client clientProgram) {
		n := newRealNode(t, client)
		for app, main := range map[string]string{
			"billing": contents(t, alertDir+"main.tf"), "shop": contents(t, followDir+"main.tf"), "crm": contents(t, everything),
			"fleet": strings.Replace(contents(t, "testdata/endpoint_group/main.tf"), `= "billing"`, `= "fleet"`, 1),
		} {
			n.directory(t, main, providerBlock("")).with(oldToken).must(t, "apply", "-auto-approve")
			exported := n.command(t, "export", app)
			d := n.directory(t, exported, providerBlock(""))
			for _, secret := range regexp.MustCompile(`variable "(secret_\S+)"`).FindAllStringSubmatch(exported, -1) {
				d = d.with("TF_VAR_" + secret[1] + "=whsec_bm90IHRoZSBzdG9yZWQgb25lLCBidXQgYSBzZWNyZXQ=")
			}
			mustSay(t, d.must(t, "plan"), strconv.Itoa(strings.Count(exported, "import {"))+" to import", "0 to add, 0 to change, 0 to destroy")
		}
	})
}
