package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// addGroups adds a group with a declared and a registered endpoint, a job that uses it, and an unused group.
func (s *shop) addGroups(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	group := target.EndpointGroup{App: "shop", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Description: hostile, Path: "/jobs", Strategy: "weighted", EjectAfter: 5,
			HealthCheck: &target.HealthCheck{},
			Endpoints: map[string]target.StaticEndpoint{
				"a": {URL: "https://a.example.com", Weight: 3, Labels: input.Labels{"zone": "a"}},
				"b": {URL: "https://b.example.com", Backup: true},
			},
			// The endpoint outlives a slow test.
			Registration: &target.Registration{Networks: []string{"10.0.0.0/16"}, Ports: []int{8080, 8081},
				ExpireAfter: input.Duration(24 * time.Hour)}},
	}
	must[target.EndpointGroup](t)(s.PutGroup(ctx, group, client.Condition{}))
	must[target.EndpointGroup](t)(s.PutGroup(ctx, target.EndpointGroup{App: "shop", Name: "idle"}, client.Condition{}))
	must[target.Endpoint](t)(s.RegisterEndpoint(ctx, "shop", "workers", "w-1", target.StaticEndpoint{URL: "http://10.0.3.4:8080"}))
	job := dispatcher.Job{App: "shop", Name: "grouped"}
	job.SetDefaults()
	job.Target.Group = &target.GroupTarget{Name: "workers", Path: "/nightly"}
	job.Target.Group.SetDefaults()
	must[dispatcher.Job](t)(s.PutJob(ctx, job, client.Condition{}))
}

// The example registers a program while it runs, with a token limited to that, and deregisters it
// before the program ends.
func TestExampleRegistersAProgramWhileItRuns(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	need.Program(t, "curl", "curl")
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database), quick()...)
	ctx := t.Context()
	must[access.App](t)(n.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[target.EndpointGroup](t)(n.PutGroup(ctx, target.EndpointGroup{App: "shop", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Registration: &target.Registration{Networks: []string{"10.0.0.0/16"},
			Ports: []int{8080}}}}, client.Condition{}))
	token := must[access.IssuedToken](t)(n.PutToken(ctx, access.APIToken{Name: "worker", TokenSpec: access.TokenSpec{Apps: []string{"shop"},
		Scopes: []access.Scope{access.ScopeRegister}}}, client.Condition{Absent: true})).Secret
	count := func() int {
		return len(must[client.List[target.Endpoint]](t)(n.Endpoints(ctx, "shop", "workers", input.Page{})).Items)
	}
	ended := filepath.Join(t.TempDir(), "ended")
	program := `trap "touch ` + ended + `; exit 7" TERM; while :; do sleep 0.1; done`
	script := exec.CommandContext(ctx, "../../../examples/endpoint-group/register.sh", "shop/workers", "w-1", "http://10.0.3.4:8080",
		"sh", "-c", program)
	script.Env = append(os.Environ(), "CARILLON_ENDPOINT="+n.endpoint, "CARILLON_TOKEN="+token, "HEARTBEAT=1")
	var log lockedBuffer
	script.Stdout, script.Stderr = &log, &log
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the program to be registered", func() bool { return count() == 1 })
	if err := script.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := script.Wait(); script.ProcessState.ExitCode() != 7 {
		t.Errorf("the example ended with %v, want the exit code of the program, 7: %s", err, log.String())
	}
	if _, err := os.Stat(ended); err != nil || count() != 0 {
		t.Errorf("the program was told to end: %v; endpoints that are left: %d", err, count())
	}
}
