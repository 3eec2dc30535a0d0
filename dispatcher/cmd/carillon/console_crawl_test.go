package main

import (
	"database/sql"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/net/html"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/markup"
	"github.com/carillon-dev/carillon/test/need"
)

// visitor is a person with a browser at the console of a node. It follows no redirects.
type visitor struct {
	*http.Client
	t       *testing.T
	console string
}

// visitConsole signs in with the token of a node.
func visitConsole(t *testing.T, n *process) *visitor {
	t.Helper()
	v := &visitor{t: t, console: n.endpoint + "/console/", Client: &http.Client{
		Jar: must[*cookiejar.Jar](t)(cookiejar.New(nil)), Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if got := v.post("login", url.Values{"token": {n.token}}, "Sec-Fetch-Site", "same-origin"); got.status != http.StatusSeeOther {
		t.Fatalf("login: status %d\n%s", got.status, got.text)
	}
	return v
}

// consolePage is a response with its body.
type consolePage struct {
	status     int
	kind, text string
	location   string // the target of a redirect
}

// send sends a request to an address, absolute or below the console, with a header.
func (v *visitor) send(method, at string, form url.Values, header ...string) consolePage {
	v.t.Helper()
	address := must[*url.URL](v.t)(must[*url.URL](v.t)(url.Parse(v.console)).Parse(at)).String()
	request := must[*http.Request](v.t)(http.NewRequestWithContext(v.t.Context(), method, address, strings.NewReader(form.Encode())))
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := v.Do(request)
	if err != nil {
		v.t.Fatal(err)
	}
	defer response.Body.Close()
	text := must[[]byte](v.t)(io.ReadAll(response.Body))
	return consolePage{response.StatusCode, response.Header.Get("Content-Type"), string(text), response.Header.Get("Location")}
}

func (v *visitor) get(at string) consolePage {
	v.t.Helper()
	return v.send(http.MethodGet, at, nil)
}

func (v *visitor) post(at string, form url.Values, header ...string) consolePage {
	v.t.Helper()
	return v.send(http.MethodPost, at, form, header...)
}

// signedIn reports whether the session is valid.
func (v *visitor) signedIn() bool {
	v.t.Helper()
	return v.get("").status == http.StatusOK
}

// named are the parts of a path that differ between pages of one kind.
var named = regexp.MustCompile(`/(apps|jobs|triggers|runs|groups|calendars|backfills|alerts|bulk|nodes|tokens|audit)/[^/]+`)

// kindOf returns the part that addresses of pages of one kind share.
func kindOf(at *url.URL) string {
	return named.ReplaceAllString(at.Path, "/$1/*") + "?" + strings.Join(slices.Sorted(maps.Keys(at.Query())), "&")
}

// crawl gets all linked pages, few of a kind, and returns the targets of their forms. Every page must be valid.
func (v *visitor) crawl() (pages, actions []string) {
	v.t.Helper()
	kinds, known, waiting := map[string]int{}, map[string]bool{}, []string{v.console}
	for len(waiting) > 0 {
		at := must[*url.URL](v.t)(url.Parse(waiting[0]))
		waiting = waiting[1:]
		if at.Fragment = ""; known[at.String()] || kinds[kindOf(at)] == 3 || !strings.HasPrefix(at.String(), v.console) {
			continue
		}
		known[at.String()] = true
		kinds[kindOf(at)]++
		page := v.get(at.String())
		if page.status != http.StatusOK || !strings.HasPrefix(page.kind, "text/html") {
			v.t.Errorf("GET %s: status %d, %s", at, page.status, page.kind)
		}
		pages = append(pages, at.String())
		for _, fault := range markup.Faults(page.text) {
			v.t.Errorf("%s: %s", at, fault)
		}
		doc := must[*html.Node](v.t)(html.Parse(strings.NewReader(page.text)))
		for node := range doc.Descendants() {
			to := func(name string) string { return must[*url.URL](v.t)(at.Parse(attributeOf(node, name))).String() }
			switch {
			case node.Data == "a":
				waiting = append(waiting, to("href"))
			case node.Data == "form" && attributeOf(node, "method") == "post":
				actions = append(actions, to("action"))
			case node.Data == "button" && attributeOf(node, "formaction") != "":
				actions = append(actions, to("formaction"))
			}
		}
	}
	slices.Sort(actions)
	return pages, slices.Compact(actions)
}

// attributeOf returns an attribute of an element, or "".
func attributeOf(node *html.Node, name string) string {
	at := slices.IndexFunc(node.Attr, func(a html.Attribute) bool { return a.Key == name })
	if at < 0 {
		return ""
	}
	return node.Attr[at].Val
}

// changingTables are the tables that a node writes at any time: heartbeats, turns, and counts of earlier runs.
var changingTables = []string{"app_bytes", "app_failures", "app_usage", "locks", "nodes", "run_statistics"}

// rowsOf returns all rows of a database as text, except those of changingTables and the times of last use.
func rowsOf(t *testing.T, database string) map[string][]string {
	t.Helper()
	driver, address, tables := "pgx", database, `SELECT tablename FROM pg_tables WHERE schemaname = current_schema()`
	if file, is := strings.CutPrefix(database, "sqlite:"); is {
		driver, address, tables = "sqlite", file, `SELECT name FROM sqlite_master WHERE type = 'table'`
	}
	db := must[*sql.DB](t)(sql.Open(driver, address))
	defer db.Close()
	all := map[string][]string{}
	for _, table := range rowsFrom(t, db, tables) {
		if name := fmt.Sprint(table[0].value); !slices.Contains(changingTables, name) {
			for _, row := range rowsFrom(t, db, `SELECT * FROM "`+name+`"`) {
				row = slices.DeleteFunc(row, func(c cell) bool { return c.column == "used_at" || c.column == "last_used_at" })
				all[name] = append(all[name], fmt.Sprint(row))
			}
			slices.Sort(all[name])
		}
	}
	return all
}

// cell is a value of a row.
type cell struct {
	column string
	value  any
}

// rowsFrom returns the rows of a query.
func rowsFrom(t *testing.T, db *sql.DB, query string) (all [][]cell) {
	t.Helper()
	found, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	columns := must[[]string](t)(found.Columns())
	for found.Next() {
		row, into := make([]cell, len(columns)), make([]any, len(columns))
		for i, column := range columns {
			row[i].column, into[i] = column, &row[i].value
		}
		if err := found.Scan(into...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// declareOfEverything declares an object of each kind for the console, and waits until all runs have ended.
func declareOfEverything(t *testing.T, n *process, to string) {
	t.Helper()
	ctx := t.Context()
	must[access.App](t)(n.PutApp(ctx, access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	must[dispatcher.Calendar](t)(n.PutCalendar(ctx, dispatcher.Calendar{App: "shop", Name: "holidays",
		CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{Dates: []string{"12-25"}}}}}, client.Condition{}))
	must[target.EndpointGroup](t)(n.PutGroup(ctx, target.EndpointGroup{App: "shop", Name: "fleet",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{"a": {URL: to}}}}, client.Condition{}))
	a := alert.Alert{App: "shop", Name: "on-call", Spec: alert.Spec{Destination: target.AlertDestination{Webhook: &target.AlertWebhook{}}}}
	a.Failure = &alert.Failures{After: 1}
	a.Destination.Webhook.URL = to + "/alerts"
	must[alert.Alert](t)(n.PutAlert(ctx, a, client.Condition{}))
	daily := fmt.Sprintf("0 %d * * *", (time.Now().UTC().Hour()+12)%24) // not during the test
	for _, job := range []dispatcher.Job{
		webhookJob("shop", "good", to, map[string]string{"yearly": "0 0 1 1 *", "daily": daily}),
		webhookJob("shop", "bad", to+"/fail", nil), webhookJob("shop", "paused", to, map[string]string{"yearly": "0 0 1 1 *"}),
	} {
		job.Retry.SetDefaults()
		job.Retry.MaxAttempts = 1
		must[dispatcher.Job](t)(n.PutJob(ctx, job, client.Condition{}))
	}
	must[dispatcher.Job](t)(n.PauseJob(ctx, client.Pausable{App: "shop", Job: "paused"}, dispatcher.PauseRequest{}, client.Condition{}))
	must[dispatcher.AppPause](t)(n.PauseApp(ctx, "shop", dispatcher.AppPauseRequest{Labels: input.Labels{"team": "billing"}}))
	for _, job := range []string{"good", "bad", "good"} {
		must[run.Run](t)(n.RunJob(ctx, "shop", job))
	}
	backfill := must[repeat.Backfill](t)(n.CreateBackfill(ctx, "shop", "good", repeat.BackfillSpec{Trigger: "daily",
		From: time.Now().Add(-72 * time.Hour), To: time.Now().Add(-time.Hour), Concurrency: 1,
		Order: repeat.BackfillOldestFirst, Existing: repeat.ExistingSkip}))
	bulk := must[repeat.BulkAction](t)(n.CreateBulkAction(ctx, "shop", repeat.BulkRequest{BulkSpec: repeat.BulkSpec{
		Action: repeat.BulkRunJobs, Filter: repeat.BulkFilter{Name: "goo"}}}))
	firing := alert.StateQuery{App: "shop", Alert: "on-call", Firing: true}
	until(t, "all that was asked for to end", func() bool {
		states := must[client.List[alert.State]](t)(n.AlertStates(ctx, firing)).Items
		live := func(run run.Run) bool { return run.EndedAt == nil }
		jobs := must[client.List[dispatcher.Job]](t)(n.Jobs(ctx, "shop", input.Page{Limit: 100})).Items
		busy := func(job dispatcher.Job) bool { // the handler rolls up later that its runs have ended
			return job.State == dispatcher.JobExecuting && len(job.Triggers) == 0
		}
		return !slices.ContainsFunc(jobs, busy) &&
			len(states) == 1 && states[0].Notification != nil && states[0].Notification.State == run.Succeeded &&
			must[repeat.Backfill](t)(n.Backfill(ctx, "shop", backfill.ID)).State.Ended() &&
			must[repeat.BulkAction](t)(n.BulkAction(ctx, "shop", bulk.ID)).State.Ended() && !slices.ContainsFunc(n.allRuns("shop"), live)
	})
}

// Reading changes nothing, other sites cannot write, and a session ends on every node, in every browser.
func TestConsoleOfALiveNode(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		target := newReceiver(t, func(w http.ResponseWriter, a arrival) {
			if a.path == "/fail" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		n := startNode(t, database, newToken(t, database), quick()...)
		declareOfEverything(t, n, target.URL)
		v := visitConsole(t, n)
		before := rowsOf(t, database)
		pages, actions := v.crawl()
		if len(pages) < 40 || len(actions) < 20 {
			t.Errorf("a crawl finds %d pages and %d forms, want 40 and 20 or more:\n%q", len(pages), len(actions), actions)
		}
		if diff := cmp.Diff(before, rowsOf(t, database)); diff != "" {
			t.Errorf("a crawl of %d pages changes rows (-before +after):\n%s", len(pages), diff)
		}
		for _, action := range append(actions, v.console+"login") {
			for _, header := range [][]string{
				{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
				{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
			} {
				if got := v.post(action, url.Values{"token": {n.token}}, header...); got.status != http.StatusForbidden {
					t.Errorf("POST %s with %q: status %d, want 403", action, header, got.status)
				}
			}
		}
		if diff := cmp.Diff(before, rowsOf(t, database)); diff != "" {
			t.Errorf("forms of other sites change rows (-before +after):\n%s", diff)
		}
		sessionsEnd(t, n, database)
	})
}

// sessionsEnd checks that logout ends a session on every node, and logout everywhere all sessions of the token.
func sessionsEnd(t *testing.T, n *process, database string) {
	t.Helper()
	other := n
	if !strings.HasPrefix(database, "sqlite:") {
		other = startNode(t, database, n.token, quick()...)
	}
	here, copied := visitConsole(t, n), visitConsole(t, n)
	at := must[*url.URL](t)(url.Parse(n.endpoint))
	copied.console = other.endpoint + "/console/"
	copied.Jar.SetCookies(at, here.Jar.Cookies(at)) // the same session in another browser, at another node
	second := visitConsole(t, other)
	for name, v := range map[string]*visitor{"a session": here, "its copy": copied, "a second one": second} {
		if !v.signedIn() {
			t.Errorf("%s does not hold before any logout", name)
		}
	}
	here.post("logout", nil, "Sec-Fetch-Site", "same-origin")
	if copied.signedIn() || !second.signedIn() {
		t.Errorf("after a logout its session holds at another node: %t, and a second session holds: %t", copied.signedIn(), second.signedIn())
	}
	third := visitConsole(t, n)
	third.post("logout", url.Values{"everywhere": {"true"}}, "Sec-Fetch-Site", "same-origin")
	if second.signedIn() {
		t.Error("a second session holds after a logout everywhere")
	}
}
