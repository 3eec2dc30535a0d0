package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres"
)

// A vigil is a fleet of two nodes over a PostgreSQL of their own, and somebody who looks at everything that can ring:
// attention, probes, the notifications of alerts, and the rules of Prometheus.
type vigil struct {
	t       *testing.T // of the test, or of the fault under way
	root    *testing.T // of the test; nodes end with it
	server  *postgres.Server
	gates   map[string]*gate
	nodes   map[string]*process
	urls    map[string]string // of the database, through the gates
	args    []string
	dir     string // of the secrets
	token   string
	pager   *httptest.Server
	metrics record

	mu      sync.Mutex
	known   map[sighting]bool
	all     []sighting // in the order of their first sight
	stalled time.Time  // when this machine last gave the test no processor time
	resumed time.Time  // when a pause last ended
}

// sighting is one thing that rings. Those with the same text differ by their id, such as that of a run.
type sighting struct{ text, id string }

// watchedDatabase is the database of the fleet.
const watchedDatabase = "carillon"

// watch starts the fleet.
func watch(t *testing.T, every time.Duration, args ...string) *vigil {
	t.Helper()
	w := &vigil{t: t, root: t, gates: map[string]*gate{}, nodes: map[string]*process{}, urls: map[string]string{}, args: args,
		dir: t.TempDir(), metrics: record{every: every}, known: map[sighting]bool{}}
	w.server = startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, w.server, "postgres", "CREATE DATABASE "+watchedDatabase)
	if err := store.Migrate(t.Context(), w.server.URL(watchedDatabase)); err != nil {
		t.Fatal(err)
	}
	w.token = newToken(t, w.server.URL(watchedDatabase))
	w.pager = httptest.NewServer(http.HandlerFunc(w.page))
	t.Cleanup(w.pager.Close)
	go w.feel()
	for _, name := range []string{"a", "b"} {
		w.gates[name], w.urls[name] = newGate(t, w.server.URL(watchedDatabase))
		w.gates[name].open()
		w.start(name)
	}
	return w
}

// start starts a node, or starts it again.
func (w *vigil) start(name string) {
	w.t.Helper()
	args := append([]string{"--node-name=" + name, "--secret-dir=" + w.dir, "--callback-url=http://127.0.0.1:1",
		"--console-url=https://carillon.example.com"}, w.args...)
	w.nodes[name] = startNode(w.root, w.urls[name], w.token, args...)
}

// page takes the notifications of alerts.
func (w *vigil) page(_ http.ResponseWriter, r *http.Request) {
	var n target.AlertNotification
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &n)
	}
	if err != nil {
		w.root.Errorf("a notification %s: %v", body, err)
	}
	w.saw(fmt.Sprintf("%s: alert %s of %s", n.App, n.Condition, n.Transition), n.At.String())
}

// feel notes when the machine has no processor time for the fleet either, which makes nodes late indeed.
func (w *vigil) feel() {
	const interval, stall = 50 * time.Millisecond, 250 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-w.root.Context().Done():
			return
		case <-ticker.C:
		}
		w.took(time.Since(last), stall) // wall clock: it excuses lateness
	}
}

// took notes a stall of this machine if something took longer than it should.
func (w *vigil) took(took, most time.Duration) {
	if took > most {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stalled = time.Now()
	}
}

// lateness matches the signals of a machine without processor time: all that say that a node or a fire is late.
var lateness = regexp.MustCompile(`^node \w+: (late|saturated|silent)$|alerts? ([\w-]+ )?(late|objective)\b|: objectives` +
	`|^Carillon(Late|NodeSilent|PollDrift)`)

// owed matches the signals of fires that a pause held and that are claimed when it ends: their nodes count them as late.
var owed = regexp.MustCompile(`^node \w+: late$|: overdue`)

// excused reports whether a signal may come from this machine, which stalled lately, or from a pause that ended.
func (w *vigil) excused(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	return lateness.MatchString(text) && now.Sub(w.stalled) < time.Minute || owed.MatchString(text) && now.Sub(w.resumed) < 30*time.Second
}

// saw notes a signal. Its text begins with the app that it is about, or with a node.
func (w *vigil) saw(text, id string) {
	excused := w.excused(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	one := sighting{text, id}
	if excused {
		one.id = byMachine
	}
	if w.known[one] {
		return
	}
	w.known[one] = true
	if !slices.ContainsFunc(w.all, func(before sighting) bool { return before.text == text }) {
		w.root.Logf("%s %s, excused: %t", time.Now().UTC().Format(time.TimeOnly), text, excused)
	}
	w.all = append(w.all, one)
}

// forget makes the signals that were seen so far the past: those that stand are not seen again.
func (w *vigil) forget() {
	w.mu.Lock()
	w.known, w.metrics.scrapes = map[sighting]bool{}, nil
	w.mu.Unlock()
	w.look()
	w.mu.Lock()
	w.all = nil
	w.mu.Unlock()
}

// byMachine is the id of signals that may come from this machine.
const byMachine = "excused"

// texts are the signals that were seen since the latest forget, with or without those that may come from this machine.
func (w *vigil) texts(all bool) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := map[string]bool{}
	for _, one := range w.all {
		if all || one.id != byMachine {
			texts[one.text] = true
		}
	}
	return slices.Sorted(maps.Keys(texts))
}

// look looks at everything once, and returns the texts of what rings at this moment, except for notifications.
func (w *vigil) look() (now []string) {
	w.t.Helper()
	if at := time.Now(); w.metrics.due(at) {
		w.metrics.add(w.t, at, w.nodes)
	}
	see := func(text, id string) {
		now = append(now, text)
		w.saw(text, id)
	}
	read := false
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if status, body := w.read(name, "/readyz"); status != http.StatusOK || strings.Contains(body, "warnings") {
			see(strings.TrimSpace(fmt.Sprintf("node %s: %d %s", name, status, says(body))), "")
		}
		if read {
			continue
		}
		var found map[string]any
		if status, body := w.read(name, "/v1/attention"); status == http.StatusOK && json.Unmarshal([]byte(body), &found) == nil {
			read = true
			attention(found, see)
		}
	}
	return now
}

// says returns the messages of a response of /readyz.
func says(body string) string {
	var response struct {
		Errors   []struct{ Message string }
		Warnings []string
	}
	if json.Unmarshal([]byte(body), &response) != nil {
		return body
	}
	for _, e := range response.Errors {
		response.Warnings = append(response.Warnings, e.Message)
	}
	return strings.Join(response.Warnings, "; ")
}

// read reads a route of a node; without a response, the status is 0.
func (w *vigil) read(node, path string) (status int, body string) {
	w.t.Helper()
	q := must[*http.Request](w.t)(http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.nodes[node].endpoint+path, http.NoBody))
	q.Header.Set("Authorization", "Bearer "+w.token)
	begun := time.Now()
	defer func() { w.took(time.Since(begun), 500*time.Millisecond) }() // wall clock: it excuses lateness
	response, err := hasty.Do(q)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// attention yields what needs attention, from the JSON of the API.
func attention(found map[string]any, see func(text, id string)) {
	for kind, value := range found {
		items, _ := value.([]any)
		if one, ok := value.(map[string]any); ok {
			var list bool
			if items, list = one["items"].([]any); !list {
				see("fleet: "+kind, "") // a rollback
			}
		}
		for _, item := range items {
			of := item.(map[string]any)
			text := func(key string) string { s, _ := of[key].(string); return s }
			if reasons, ok := of["reasons"].([]any); ok {
				for _, reason := range reasons {
					see(fmt.Sprintf("node %s: %s", text("name"), reason), "")
				}
				continue
			}
			name := kind
			for _, key := range []string{"job", "group", "condition", "reason", "class"} {
				if text(key) != "" && kind != "misfires" && kind != "paused" || key == "job" {
					name += " " + text(key)
				}
			}
			see(text("app")+": "+strings.TrimSpace(name), text("id")+text("run")+text("decided_at")+text("paused_at"))
		}
	}
}

// until waits for a state, and looks meanwhile.
func (w *vigil) until(what string, condition func() bool) {
	w.t.Helper()
	until(w.t, what, func() bool {
		w.look()
		return condition()
	})
}

// put declares things of an app by their JSON: the paths below the app, as in "jobs/night".
func (w *vigil) put(app string, bodies map[string]string) {
	w.t.Helper()
	send := func(path, body string) {
		w.t.Helper()
		w.nodes["a"].send(w.t, http.MethodPut, "/v1/apps/"+app+path, w.token, body, http.StatusCreated)
	}
	send("", `{"enabled":true,"defaults":{"timezone":"UTC"}}`)
	order := []string{"calendars/", "groups/", "jobs/", "alerts/"}
	for _, kind := range order {
		for _, path := range slices.Sorted(maps.Keys(bodies)) {
			if strings.HasPrefix(path, kind) {
				send("/"+path, strings.ReplaceAll(bodies[path], "{pager}", w.pager.URL))
			}
		}
	}
}
