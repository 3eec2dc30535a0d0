package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// rehearsal is a fault that wakes a person on call.
type rehearsal struct {
	alert string
	app   string   // with the page that the alert links to; empty for none
	args  []string // of the node; {dir} is a directory of the rehearsal
	// ownClock gives the database a clock that the fault can change, and gated a connection that it can close.
	ownClock, gated bool
	// begin causes the fault and returns when its symptom shows.
	begin func(t *testing.T, s *stage) symptom
}

// stage is the environment of a fault.
type stage struct {
	*process
	database string
	dir      string
	shift    func(ahead time.Duration) // of the database's clock; nil without a clock of its own
	gate     *gate                     // nil if the database is reached directly
}

// symptom is the visible effect of a fault.
type symptom struct {
	left *process // its console is examined
	says []string // texts on its page
	// watched is the node whose metrics show the fault.
	watched *process
	// away means that sign-in is impossible: everybody gets the page, with 503.
	away bool
	// never is a text that the page must not contain, or empty.
	never string
}

// at is a symptom at the only node.
func (s *stage) at(says ...string) symptom {
	return symptom{left: s.process, watched: s.process, says: says}
}

// The alert of a fault fires, its link opens in the console, and the page names the cause.
func TestOnCallRehearsal(t *testing.T) {
	need.Step(t, "kills")
	t.Parallel()
	for name, r := range map[string]rehearsal{
		"target down": {alert: "CarillonAppFails", app: "night", begin: targetDown},
		"node killed": {alert: "CarillonNodeDown", begin: nodeKilled},
		"herd": {alert: "CarillonSaturated", begin: herd,
			args: []string{"--workers=1", "--min-workers=1", "--app-workers=1", "--host-workers=1", "--queue=1"}},
		"clock":                    {alert: "CarillonClock", ownClock: true, begin: clockWrong},
		"database away":            {alert: "CarillonDatabaseUnreachable", gated: true, begin: databaseAway},
		"paused job forgotten":     {alert: "CarillonForgottenPauses", ownClock: true, begin: pauseForgotten},
		"secret rotated wrongly":   {alert: "CarillonCredentials", app: "night", args: []string{"--secret-dir={dir}"}, begin: secretRotated},
		"executor fleet gone":      {alert: "CarillonGroupWithoutEndpoint", begin: fleetGone},
		"retention full":           {alert: "CarillonRetentionBehind", ownClock: true, begin: retentionBehind},
		"certificate near its end": {alert: "CarillonTargetCertificate", begin: certificateEnds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := r.prepare(t)
			metrics := record{every: 6 * time.Second}
			metrics.add(t, time.Now(), map[string]*process{"night-1": s.process})
			if metrics.ringing(t, true)[r.alert] {
				t.Errorf("%s fires before the fault", r.alert)
			}
			found := r.begin(t, s)
			metrics.add(t, time.Now(), map[string]*process{"night-1": found.watched})
			if got := metrics.ringing(t, true); !got[r.alert] {
				t.Errorf("%v fire in the fault, want %s", slices.Sorted(maps.Keys(got)), r.alert)
			}
			page := found.open(t, linkOf(t, r.alert, r.app))
			for _, want := range found.says {
				if !strings.Contains(page, want) {
					t.Errorf("the page of %s does not say %q:\n%s", r.alert, want, page)
				}
			}
			if found.never != "" && strings.Contains(page, found.never) {
				t.Errorf("the page of %s shows a secret", r.alert)
			}
		})
	}
}

// prepare starts a node over a new database, with an app.
func (r *rehearsal) prepare(t *testing.T) *stage {
	t.Helper()
	s := &stage{database: pgtest.New(t), dir: t.TempDir()}
	token, address := newToken(t, s.database), s.database
	if r.ownClock {
		s.shift = clockOf(t, s.database)
	}
	if r.gated {
		s.gate, address = newGate(t, s.database)
		s.gate.open()
	}
	args := append(quick(), "--node-name=night-1", "--breaker-failures=0")
	for _, arg := range r.args {
		args = append(args, strings.ReplaceAll(arg, "{dir}", s.dir))
	}
	s.process = startNode(t, address, token, args...)
	must[access.App](t)(s.PutApp(t.Context(), access.App{Name: "night", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	return s
}

// open returns the page that an alert links to.
func (s *symptom) open(t *testing.T, path string) string {
	t.Helper()
	if !s.away {
		return openConsole(t, s.left, path)
	}
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, s.left.endpoint+path, http.NoBody))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("%s: status %d, Retry-After %q, want 503 and a time", path, response.StatusCode, response.Header.Get("Retry-After"))
	}
	return string(must[[]byte](t)(io.ReadAll(response.Body)))
}

// targetDown makes every attempt of a job fail, because no server listens at its address.
func targetDown(t *testing.T, n *stage) symptom {
	t.Helper()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	job := webhookJob("night", "to-nowhere", gone.URL, map[string]string{"a": "* * * * * ?"})
	job.Retry = run.Retry{MaxAttempts: 1, Base: run.DefaultBase, Cap: run.DefaultCap, MaxAge: run.DefaultMaxAge}
	must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	until(t, "two failed attempts to be counted", func() bool {
		failed, _ := strconv.Atoi(scrape(t, n.process)[`carillon_attempts_total{app="night",state="failed"}`])
		return failed >= 2
	})
	return n.at("to-nowhere", string(run.ClassConnectRefused))
}

// nodeKilled kills the node and leaves another one.
func nodeKilled(t *testing.T, n *stage) symptom {
	t.Helper()
	left := startNode(t, n.database, n.token, append(quick(), "--node-name=night-2")...)
	n.kill()
	until(t, "the node to count as dead", func() bool {
		for _, node := range must[client.List[dispatcher.Node]](t)(left.Nodes(t.Context())).Items {
			if node.State == dispatcher.NodeDead && node.Name == "night-1" {
				return true
			}
		}
		return false
	})
	return symptom{left: left, watched: n.process, says: []string{"night-1", "night-2", string(dispatcher.NodeDead)}}
}

// herd makes more jobs fire at once than the node can run.
func herd(t *testing.T, n *stage) symptom {
	t.Helper()
	end := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(func() {
		close(end)
		slow.Close()
	})
	for i := range 30 {
		job := webhookJob("night", fmt.Sprint("herd-", i), slow.URL, map[string]string{"a": "* * * * * ?"})
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
	}
	until(t, "fires to wait for a worker", func() bool { return n.metric(t, "carillon_timeline_waiting_fires") > 0 })
	return n.at("night-1")
}

// scrape returns the samples of a node by series, as Prometheus scrapes them; up is 0 without a node.
func scrape(t *testing.T, n *process) map[string]string {
	t.Helper()
	samples := map[string]string{`up{}`: "0"}
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, n.endpoint+"/metrics", http.NoBody))
	request.Header.Set("Authorization", "Bearer "+n.token)
	response, err := hasty.Do(request)
	if err != nil {
		return samples
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return samples
	}
	samples[`up{}`] = "1"
	sample := regexp.MustCompile(`(?m)^(carillon_\w+)(\{[^}]*\})? (\S+)$`)
	for _, parts := range sample.FindAllStringSubmatch(string(text), -1) {
		labels := parts[2]
		if labels == "" {
			labels = "{}"
		}
		samples[parts[1]+labels] = parts[3]
	}
	return samples
}

// hasty gives up on a node that does not respond, as Prometheus does.
var hasty = &http.Client{Timeout: 10 * time.Second} //nolint:gochecknoglobals // a constant

// linkOf returns the console path that an alert of an app links to.
func linkOf(t *testing.T, alert, app string) string {
	t.Helper()
	rules := string(must[[]byte](t)(os.ReadFile(repository("examples", "prometheus", "alerts.yml"))))
	_, rest, _ := strings.Cut(rules, "alert: "+alert+"\n")
	parts := regexp.MustCompile(`console: "\{\{ \$externalLabels\.carillon_console \}\}([^"]*)"`).FindStringSubmatch(rest)
	if parts == nil {
		t.Fatalf("alert %s has no link to the console", alert)
	}
	return strings.NewReplacer("{{ if $labels.app }}", "", "{{ end }}", "", "{{ $labels.app }}", app).Replace(parts[1])
}

// openConsole opens a page, signs in with the token of a node on the way, and returns the page.
func openConsole(t *testing.T, n *process, path string) string {
	t.Helper()
	browser := &http.Client{Jar: must[*cookiejar.Jar](t)(cookiejar.New(nil)), Timeout: patience}
	get := func(address string) (string, int) {
		request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody))
		response, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return string(must[[]byte](t)(io.ReadAll(response.Body))), response.StatusCode
	}
	form := url.Values{"token": {n.token}}
	request := must[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodPost, n.endpoint+"/console/login",
		strings.NewReader(form.Encode())))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Origin", n.endpoint)
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("login: status %d", response.StatusCode)
	}
	page, status := get(n.endpoint + path)
	if status != http.StatusOK || strings.Contains(page, `name="token"`) {
		t.Fatalf("%s: status %d, %s", path, status, page)
	}
	return page
}
