package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// agent is the ECS agent as tasks see it: task protection. One server serves all tasks, each under
// a separate address.
type agent struct {
	address string
	server  *http.Server

	mu    sync.Mutex
	tasks map[string]*protection // by id
}

// protection is the protection of a task.
type protection struct {
	until    time.Time // zero without protection
	stopping bool      // no further protection is possible
	requests int
}

func startAgent(ctx context.Context) (*agent, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &agent{address: "http://" + listener.Addr().String() + "/api/", tasks: map[string]*protection{}}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(listener) }() // ends with close
	return a, nil
}

func (a *agent) close() { _ = a.server.Close() }

// add returns the value of ECS_AGENT_URI for a new task.
func (a *agent) add(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks[id] = &protection{}
	return a.address + id
}

// tryStop marks a task to be stopped, unless it is protected. A later request for protection fails.
func (a *agent) tryStop(id string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.tasks[id]
	if now.Before(p.until) {
		return false
	}
	p.stopping = true
	return true
}

// requests returns how often tasks requested or dropped protection.
func (a *agent) requests() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.tasks {
		n += p.requests
	}
	return n
}

// ServeHTTP serves PUT and GET of a task's protection.
func (a *agent) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	id, found := strings.CutSuffix(strings.TrimPrefix(q.URL.Path, "/api/"), "/task-protection/v1/state")
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.tasks[id]
	if !found || p == nil || q.Method != http.MethodPut && q.Method != http.MethodGet {
		http.NotFound(w, q)
		return
	}
	arn := "arn:aws:ecs:eu-central-1:123456789012:task/rollout/" + id
	w.Header().Set("Content-Type", "application/json")
	if q.Method == http.MethodPut {
		var asked struct {
			ProtectionEnabled *bool
			ExpiresInMinutes  *int
		}
		p.requests++
		problem := json.NewDecoder(q.Body).Decode(&asked)
		minutes := 120
		if asked.ExpiresInMinutes != nil {
			minutes = *asked.ExpiresInMinutes
		}
		if problem != nil || asked.ProtectionEnabled == nil || minutes < 1 || minutes > 2880 {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"requestID":"r","error":{"Arn":%q,"Code":"InvalidParameterException","Message":"not a request"}}`, arn)
			return
		}
		if p.stopping {
			fmt.Fprintf(w, `{"requestID":"r","failure":{"Arn":%q,"Detail":"the task is stopping","Reason":"TASK_NOT_VALID"}}`, arn)
			return
		}
		p.until = time.Time{}
		if *asked.ProtectionEnabled {
			p.until = time.Now().Add(time.Duration(minutes) * time.Minute)
		}
	}
	expires, protected := "", time.Now().Before(p.until)
	if protected {
		expires = fmt.Sprintf(`"ExpirationDate":%q,`, p.until.UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(w, `{"requestID":"r","protection":{%s"ProtectionEnabled":%t,"TaskArn":%q}}`, expires, protected, arn)
}
