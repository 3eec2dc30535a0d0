package store_test

import (
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/crowd"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

// mostQueries are the maximum queries of pages on both databases, for any user and any amount of data. The runs of an
// app are searched further and further back, at most seven times. A page that finds nothing takes fewer.
var mostQueries = map[string]int{
	"alert": 12, "alerts": 11, "app": 34, "apps": 3, "attention": 31, "attention of an app": 29, "audit log": 3,
	"audit log of an actor": 3, "audit log of an app": 3, "backfills": 4, "bulk actions": 4, "calendar": 9,
	"calendars": 4, "count of a backfill": 11, "count of a bulk action": 11, "count of cancellations": 12,
	"count of retries": 19, "dead letters": 16, "explain": 14, "groups": 4, "job": 26, "jobs": 8, "jobs by host": 9,
	"jobs by label": 10, "jobs by label that none has": 10, "jobs by name": 13, "jobs by one name": 13,
	"jobs by result": 13, "jobs by state": 13, "jobs by state that none has": 10, "jobs further on": 7,
	"jobs of an app by next fire": 9, "jobs of all apps by next fire": 8, "objectives": 4,
	"objectives of an app": 5, "job_statistics": 6,
	"jobs of all apps by host": 7, "jobs of all apps by label": 5, "jobs of all apps by name": 8,
	"jobs of all apps by result": 8, "jobs of all apps by state": 5, "jobs of an app": 13, "misfires": 9, "nodes": 3,
	"rollback": 3, "run": 22, "run_job": 5, "runs": 12, "runs by class": 8, "runs by error": 8, "runs by kind": 12, "runs by label": 12,
	"search": 18, "search for an id": 8,
	"runs of an app by class": 8, "runs of a job": 6, "runs of an app": 16,
	"runs of an app by rare state": 16, "runs of an app by state": 16, "statistics": 6, "statistics of an app": 7,
	"timeline": 9, "timeline of all apps": 3, "tokens": 3,
}

// histories are the tables that grow with the kept days. Inputs of runs are left out: PostgreSQL may scan those of a
// day without inputs.
var histories = []string{"runs", "attempts", "responses", "misfires", "audit_log", "alert_events", "trigger_revisions",
	"objective_counts", "run_statistics"}

// reader is a person at the console of a store.
type reader struct {
	*http.Client
	t       *testing.T
	console string
}

// patience is how long one API serves: an API works a quarter of the time for an app, but five seconds at once.
const patience = 2 * time.Second

// patientConsole replaces the API of the console from time to time, so that users never wait for the share of an app.
type patientConsole struct {
	t     *testing.T
	store *store.Store

	pages http.Handler
	left  time.Duration
}

// ServeHTTP serves one request after the other.
func (p *patientConsole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.left <= 0 || p.pages == nil {
		log := slog.New(slog.DiscardHandler)
		served := api.New(p.store, api.Options{Logger: log, Limits: gate.Limits{TokenCache: -1}})
		pages, err := console.New(console.Options{API: served, Sessions: p.store, Logger: log,
			Definition: func(dispatcher.Job) (string, error) { return "", nil }})
		if err != nil {
			p.t.Error(err)
			return
		}
		p.pages, p.left = pages, patience
	}
	began := time.Now()
	p.pages.ServeHTTP(w, r)
	p.left -= time.Since(began) // wall clock: an API works a share of the time
}

// consoleOf serves the console over a store, and returns a function that logs in a user for some apps; nil: all.
func consoleOf(t *testing.T, s *store.Store) func(apps ...string) reader {
	t.Helper()
	served := &patientConsole{t: t, store: s, left: patience}
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	return func(apps ...string) reader {
		secret, hash := access.NewToken()
		token := access.APIToken{ID: access.NewTokenID(), Name: "person " + access.NewTokenID(), Hash: hash,
			TokenSpec: access.TokenSpec{Apps: apps,
				Scopes: []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite}}}
		if apps == nil {
			token.Scopes = access.Scopes()
		}
		must(t, s.CreateToken(t.Context(), token))
		jar, err := cookiejar.New(nil)
		must(t, err)
		r := reader{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t,
			server.URL + "/console/"}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.console+"login",
			strings.NewReader(url.Values{"token": {secret}}.Encode()))
		must(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Sec-Fetch-Site", "same-origin")
		if status, text := r.send(request); status != http.StatusSeeOther {
			t.Fatalf("login: status %d\n%s", status, text)
		}
		return r
	}
}

func (r reader) send(request *http.Request) (status int, text string) {
	r.t.Helper()
	response, err := r.Do(request)
	must(r.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(r.t, err)
	return response.StatusCode, string(body)
}

// problem is the message of a page that could not be shown.
var problem = regexp.MustCompile(`(?s)<section class="problem".*?</section>`)

// view gets a page.
func (r reader) view(page crowd.Page) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.console+page.At, nil)
	must(r.t, err)
	if status, text := r.send(request); status != http.StatusOK {
		r.t.Errorf("%s (%s): status %d\n%s", page.Name, page.At, status, problem.FindString(text))
	}
}

// crowded is a database with many jobs, and its users.
type crowded struct {
	*crowd.Crowd
	store   *store.Store
	queries *store.Queries
	people  []person
}

// person is a user who views the pages of an app.
type person struct {
	reader
	name, app string
	operator  bool
}

func newCrowded(t *testing.T, database string) crowded {
	t.Helper()
	c := crowded{store: open(t, database)}
	c.queries = store.Watch(c.store)
	var err error
	c.Crowd, err = crowd.Fill(t.Context(), database, 1200, time.Now())
	must(t, err)
	person1 := consoleOf(t, c.store)
	c.people = []person{
		{person1(), "operator", crowd.Big, true}, {person1(crowd.Big), "reader of the big app", crowd.Big, false},
		{person1(crowd.Small), "reader of a small app", crowd.Small, false},
	}
	return c
}

// pages are the pages that a person views. The state of the endpoints of a group, which nodes know, is not among them.
func (c crowded) pages(p person, n int) []crowd.Page {
	return slices.DeleteFunc(c.Pages(p.app, n, p.operator), func(page crowd.Page) bool { return page.Name == "group" })
}

// ownQueries is the query with which the API reads the quotas of an app again, every ten seconds.
const ownQueries = 1

// count fails for pages that take too many queries, and returns all queries by page.
func (c crowded) count(t *testing.T) (sent map[string][]store.Query) {
	t.Helper()
	sent = map[string][]store.Query{}
	for _, p := range c.people {
		for n := range 3 {
			for _, page := range c.pages(p, 7*n) {
				name, most := page.Name+" for "+p.name, mostQueries[page.Name]+ownQueries
				queries, fewest := c.fewest(p, page, most)
				sent[name] = append(sent[name], queries...)
				if fewest > most {
					t.Errorf("%s takes %d queries, want %d at most", name, fewest, most)
				}
			}
		}
	}
	return sent
}

// fewest returns all queries of some views of a page, and the minimum of queries per view. It repeats views with too
// many queries: the first fill caches, and the API's own reads, such as of upcoming fires, fall into others.
func (c crowded) fewest(p person, page crowd.Page, most int) (all []store.Query, fewest int) {
	for view := 0; view == 0 || view < 5 && fewest > most; view++ {
		c.queries.Take()
		p.view(page)
		queries := c.queries.Take()
		if view == 0 || len(queries) < fewest {
			fewest = len(queries)
		}
		all = append(all, queries...)
	}
	return all, fewest
}

// scans reports each query of a page that reads through a history.
func (c crowded) scans(t *testing.T, sent map[string][]store.Query) {
	t.Helper()
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		for _, query := range sent[name] {
			if known[query.Text] {
				continue
			}
			known[query.Text] = true
			found, err := store.ReadThrough(t.Context(), c.store, query, histories)
			if err != nil {
				t.Fatalf("%s: %v in %s", name, err, query.Text)
			}
			for table, plan := range found {
				t.Errorf("%s reads %s through by\n%s\n%s", name, table, query.Text, plan)
			}
		}
	}
	if len(known) < 40 {
		t.Errorf("the pages sent %d different queries, want some 40 at least", len(known))
	}
}

// Pages do not read through a history, and take the same number of queries for any amount of data.
func TestPagesOnPostgreSQL(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	testPages(t, func(t testing.TB) string { return pgtest.New(t) })
}

func TestPagesOnSQLite(t *testing.T) {
	need.Step(t, "scale")
	t.Parallel()
	testPages(t, sqlitetest.New)
}

func testPages(t *testing.T, database func(testing.TB) string) {
	t.Helper()
	c := newCrowded(t, database(t))
	c.scans(t, c.count(t))
}
