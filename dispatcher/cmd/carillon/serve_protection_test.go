package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
)

// A node asks the ECS agent for protection while an attempt runs that a drain could cut off, and
// not before. The attempt does not wait for the response.
func TestNodeProtectsItsTaskDuringALongAttempt(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	asked, answer := make(chan string, 10), make(chan struct{})
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		asked <- q.Method + " " + q.URL.Path + " " + string(body)
		<-answer
		fmt.Fprint(w, `{"requestID":"r","protection":{"ProtectionEnabled":true,"TaskArn":"arn:aws:ecs:eu-central-1:123456789012:task/c/7"}}`)
	}))
	t.Cleanup(agent.Close)
	sent, release := make(chan arrival, 10), make(chan struct{})
	r := newReceiver(t, func(w http.ResponseWriter, a arrival) {
		sent <- a
		if a.path == "/long" {
			<-release
		}
		w.WriteHeader(http.StatusNoContent)
	})
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	token := newToken(t, database)
	n := startNodeWith(t, database, token, []string{"ECS_AGENT_URI=" + agent.URL + "/api/7"}, "--task-protection", "--drain-timeout=30s")
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	call := func(name string, timeout input.Duration) {
		t.Helper()
		job := webhookJob("app", name, r.URL+"/"+name, nil)
		job.Target.Webhook.Timeout = timeout
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		must[run.Run](t)(n.RunJob(t.Context(), "app", name))
		receive(t, sent)
	}
	call("short", target.DefaultTimeout)
	if len(asked) > 0 {
		t.Errorf("for a short attempt it asked %s", <-asked)
	}
	call("long", 2*target.DefaultTimeout) // arrives although the agent has not responded
	want := `PUT /api/7/task-protection/v1/state {"ProtectionEnabled":true,"ExpiresInMinutes":30}`
	if got := receive(t, asked); got != want {
		t.Errorf("it asked %s, want %s", got, want)
	}
	if metrics := n.get(t, "/metrics"); !strings.Contains(metrics, "\ncarillon_task_protection 0\n") {
		t.Error("carillon_task_protection is not 0 before ECS has granted it")
	}
	close(answer)
	until(t, "the metric to show the protection", func() bool {
		return strings.Contains(n.get(t, "/metrics"), "\ncarillon_task_protection 1\n")
	})
	close(release)
	n.terminate()
}

func TestTaskProtectionNeedsTheECSAgent(t *testing.T) {
	t.Parallel()
	_, stderr, code := carillon(t, []string{"ECS_AGENT_URI="}, "serve", "--database=sqlite:x", "--task-protection")
	if code != exitUsage || !strings.Contains(stderr, "--task-protection") || !strings.Contains(stderr, "ECS_AGENT_URI") {
		t.Errorf("exit code %d, %s; want 2 and the flag and the variable", code, stderr)
	}
}
