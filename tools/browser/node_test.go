package browser_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// program builds the carillon program from this tree.
func program(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "carillon")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", file, "./dispatcher/cmd/carillon")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

// node is a node with its own database, and the users of its console.
type node struct {
	url    string
	tokens map[string]string // by the name of the user
}

// The users, by the rights of their tokens. Each sees a different console.
const (
	operator = "operator" // all rights
	writer   = "writer"   // of all apps
	reader   = "reader"   // of all apps
	bound    = "bound"    // may run and change one app
)

// people lists them with the flags of their tokens.
var people = map[string][]string{
	operator: {"--scope=read,run,write,admin"},
	writer:   {"--scope=read,run,write"},
	reader:   {"--scope=read"},
	bound:    {"--scope=read,run,write", "--apps=shop"},
}

// start starts a node and waits until it is ready.
func start(t *testing.T, args ...string) *node {
	t.Helper()
	program, dir := program(t), t.TempDir()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	n := &node{url: "http://" + address, tokens: map[string]string{}}
	database := "sqlite:" + filepath.Join(dir, "carillon.db")
	environment := append(os.Environ(), "CARILLON_DATABASE="+database, "CARILLON_SECRET_KEYS="+strings.Repeat("A", 43)+"=")
	run := func(ctx context.Context, args ...string) *exec.Cmd {
		command := exec.CommandContext(ctx, program, args...)
		command.Env = environment
		return command
	}
	for name, flags := range people {
		command := run(t.Context(), append([]string{"token", "create", "--name", name, "--database", database}, flags...)...)
		var complaint bytes.Buffer
		command.Stderr = &complaint
		secret, err := command.Output()
		if err != nil {
			t.Fatalf("create the token of %s: %v\n%s", name, err, complaint.String())
		}
		n.tokens[name] = strings.TrimSpace(string(secret))
	}
	ctx, end := context.WithCancel(context.Background())
	var log bytes.Buffer
	serve := run(ctx, append([]string{"serve", "--listen", address, "--egress-loopback", "--poll-window=1s"}, args...)...)
	serve.Stdout, serve.Stderr = &log, &log
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		_ = serve.Wait() // it was killed
		if t.Failed() {
			t.Logf("the node's log ends:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	n.eventually(t, "the node is ready", func() bool {
		response, err := http.Get(n.url + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return n
}

// eventually waits until a condition is true.
func (n *node) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

// call makes a request of the API as a person and returns the response.
func (n *node) call(t *testing.T, person, method, path string, body any) map[string]any {
	t.Helper()
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, n.url+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+n.tokens[person])
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %s\n%s", method, path, response.Status, text)
	}
	var answer map[string]any
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatalf("%s %s: %v\n%s", method, path, err, text)
		}
	}
	return answer
}

// hostile is text that an attacker places where people read it.
const hostile = `</textarea></title><script>alert(1)</script><img src=x onerror=alert(2)>"'{{.}}` + "\u202e"

// receiver is a target that responds with text.
func receiver(t *testing.T, text string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/fail") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintf(w, `{"text": %q, "number": 9007199254740993}`, text)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// fill declares what a team has after some weeks: jobs that succeed and jobs that fail, pauses,
// calendars, alerts. It uses text wherever people write and as the response of targets.
func (n *node) fill(t *testing.T, text string) {
	t.Helper()
	target := receiver(t, text)
	webhook := func(path string) map[string]any {
		return map[string]any{"webhook": map[string]any{"url": target + path, "method": "POST"}}
	}
	every := func(expression string) map[string]any {
		return map[string]any{"often": map[string]any{"expression": expression, "timezone": "Europe/Berlin"}}
	}
	for _, app := range []string{"shop", "bank"} {
		n.call(t, operator, "PUT", "/v1/apps/"+app, map[string]any{"description": text})
		at := "/v1/apps/" + app
		n.call(t, operator, "PUT", at+"/calendars/holidays", map[string]any{
			"rules": []any{map[string]any{"dates": []string{"12-25"}}}, "description": text,
		})
		large := json.Number("9007199254740993") // too large for a floating point number
		night := map[string]any{"expression": "0 30 2 * * ?", "timezone": "America/New_York", "calendar": "holidays"}
		jobs := map[string]map[string]any{
			"good": {
				"target": webhook("/"), "triggers": every("rate(2s)"), "description": text,
				"labels": map[string]string{"team": "payments"},
			},
			"bad": {
				"target": webhook("/fail"), "triggers": every("rate(2s)"),
				"payload": map[string]any{"text": text, "number": large},
			},
			"nightly": {"target": webhook("/"), "triggers": map[string]any{"night": night}},
			"paused":  {"target": webhook("/"), "triggers": every("rate(1h)")},
		}
		for name, job := range jobs {
			n.call(t, operator, "PUT", at+"/jobs/"+name, job)
		}
		n.call(t, operator, "POST", at+"/jobs/paused/pause", map[string]any{"reason": text})
		n.call(t, operator, "PUT", at+"/alerts/oncall", map[string]any{
			"failure": map[string]any{"after": 1}, "recovery": true,
			"destination": map[string]any{"webhook": map[string]any{"url": target + "/alerts"}},
		})
		n.call(t, operator, "POST", at+"/pauses", map[string]any{"labels": map[string]string{"team": "billing"}, "reason": text})
	}
	for _, job := range []string{"good", "bad"} {
		n.eventually(t, "the job "+job+" has runs that are over", func() bool {
			runs := n.call(t, operator, "GET", "/v1/apps/shop/runs?job="+job, nil)
			over := 0
			for _, item := range runs["items"].([]any) {
				if state := item.(map[string]any)["state"]; state == "succeeded" || state == "failed" || state == "retrying" {
					over++
				}
			}
			return over > 2
		})
	}
}
