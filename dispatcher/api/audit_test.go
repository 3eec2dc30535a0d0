package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// auditPage is a response of the route.
type auditPage struct {
	Items []access.AuditEntry
	Next  string
}

// flush writes the waiting refusals, like the end of a node.
func (w *world) flush() {
	w.t.Helper()
	w.api.(*api.API).WriteRefusals(w.t.Context())
	ended, cancel := context.WithCancel(w.t.Context())
	cancel()
	w.api.(*api.API).Run(ended)
}

// awaitRefusals waits until a number of refusals are written, as on a running node: one that ends has no time for many.
func (w *world) awaitRefusals(count int) {
	w.t.Helper()
	running, stop := context.WithCancel(w.t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { w.api.(*api.API).Run(running) })
	for written := 0; written < count; {
		written = len(into[auditPage](w.must(http.StatusOK, "GET", "/v1/audit?refused=true", "")).Items)
	}
	stop()
	ended.Wait()
}

// log returns the entries that the token sees, oldest first, as "actor action subject refused".
func (w *world) log(token, query string) (all []string) {
	w.t.Helper()
	w.flush()
	for _, e := range into[auditPage](w.must(http.StatusOK, "GET", "/v1/audit?order=oldest"+query, "", "Authorization: Bearer "+token)).Items {
		all = append(all, strings.TrimSpace(strings.Join([]string{e.Actor, e.Action, e.Subject, e.Refused}, " ")))
	}
	return all
}

func TestAuditLogHasActorAddressRequestAndDiff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{"description":"one"}`)
	w.must(http.StatusOK, "PUT", oneApp, `{"description":"two"}`, "X-Request-Id: my-request", `If-Match: "1"`)
	page := into[auditPage](w.must(http.StatusOK, "GET", "/v1/audit?app=crm&limit=1", ""))
	if len(page.Items) != 1 || page.Next != page.Items[0].ID {
		t.Fatalf("the page is %+v, want one entry, and more", page)
	}
	e := page.Items[0]
	if e.Actor != "admin" || e.TokenID != "admin" || e.Address != "192.0.2.1" || e.RequestID != "my-request" || e.Revision != 2 {
		t.Errorf("the entry is %+v", e)
	}
	if !strings.Contains(string(e.Before), `"description":"one"`) || !strings.Contains(string(e.After), `"description":"two"`) {
		t.Errorf("before %s, after %s", e.Before, e.After)
	}
	w.do("GET", "/v1/audit?cursor=x", "").refused(400, "/cursor page_cursor")
	w.do("GET", "/v1/audit?refused=maybe", "").refused(422, "/refused enum")
	w.do("GET", "/v1/audit?order=up", "").refused(422, "/order enum")
	w.do("GET", "/v1/audit?app=A", "").refused(422, "/app name_format")
	w.do("GET", "/v1/audit?actor=a%00b", "").refused(422, "/actor text_invalid")
	w.do("GET", "/v1/audit?from=2026-05-02T00:00:00Z&to=2026-05-01T00:00:00Z", "").refused(422, "/from window_order")
}

// A token of one app sees the changes and refusals of that app, and nothing about others.
func TestAuditLogShowsBoundReadersTheirAppOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", "/v1/apps/other", `{}`)
	mine, theirs := w.newToken("crm-ci", writes, "crm"), w.newToken("other-ci", writes, "other")
	both := w.newToken("both", reads, "crm", "other")
	as := func(token string) string { return "Authorization: Bearer " + token }
	w.do("PUT", oneApp, `{}`, as(theirs)).refused(403, " forbidden")
	w.must(422, "PUT", oneJob, `{}`, as(mine))
	w.do("DELETE", "/v1/apps/other", "", as(mine)).refused(403, " forbidden")
	w.must(409, "DELETE", oneApp, "", as(mine), "If-Match: *")
	seen := w.log(mine, "")
	for _, entry := range seen {
		if strings.Contains(entry, "other") {
			t.Errorf("a reader of crm sees %q", entry)
		}
	}
	want := []string{"crm-ci put job sync required", "crm-ci delete app crm app_not_empty"}
	if diff := cmp.Diff(want, w.log(mine, "&refused=true")); diff != "" {
		t.Errorf("refusals of crm (-want +got):\n%s", diff)
	}
	if got := w.log(both, ""); len(got) != len(seen)+len(w.log(theirs, "")) {
		t.Errorf("a reader of both sees %q", got)
	}
	w.do("GET", "/v1/audit?app=other", "", as(mine)).refused(403, " forbidden")
	if diff := cmp.Diff([]string{
		"other-ci put app crm of app crm forbidden", "crm-ci put job sync required",
		"crm-ci delete app other of app other forbidden", "crm-ci delete app crm app_not_empty",
	}, w.log(w.token, "&refused=true")); diff != "" {
		t.Errorf("refusals that an operator sees (-want +got):\n%s", diff)
	}
}

// Each kind of refusal of a change is recorded. Reads, unknown callers and bodies are not.
func TestRefusedChangesAreInTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	reader, runner := w.newToken("reader", reads), w.newToken("runner", []access.Scope{access.ScopeRun}, "crm")
	run := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	for _, one := range []struct {
		method, path, body, header string
		status                     int
	}{
		{"PUT", oneJob, `{"description":"CANARY"}`, "Authorization: Bearer " + reader, 403},
		{"PUT", oneJob, `{"target":{"webhook":{"url":"https://example.com/","CANARY":"CANARY"}},"description":"CANARY"}`, "", 400},
		{"PUT", oneJob, `{"target":{"webhook":{"url":"CANARY"}},"triggers":{"n":{"expression":"CANARY"}}}`, "", 422},
		{"PUT", oneApp, `{"description":"CANARY"}`, `If-Match: "7"`, 412},
		{"POST", "/v1/runs/" + run.ID + "/retry", "", "Authorization: Bearer " + runner, 409},
		{"POST", "/v1/nodes/000000000000000a/pause", "", "Authorization: Bearer " + runner, 403},
		{"DELETE", "/v1/apps/CANARY", "", "Authorization: Bearer " + reader, 403},
		{"POST", "/v1/rollback/skip", "", "", 409},
		{"PUT", oneApp, `{}`, "Authorization: Bearer CANARY", 401},
		{"GET", "/v1/nodes", "", "Authorization: Bearer " + runner, 403},
		{"POST", "/v1/schedules/preview", `{"expression":"CANARY"}`, "", 422},
	} {
		w.must(one.status, one.method, one.path, one.body, one.header)
	}
	if diff := cmp.Diff([]string{
		"reader put job sync forbidden", "admin put job sync url_scheme", "admin put app crm precondition_failed",
		"runner retry run " + run.ID + " state_conflict", "runner pause node 000000000000000a forbidden",
		"reader delete app (no valid name) of app (no valid name) forbidden", "admin skip rollback state_conflict",
	}, w.log(w.token, "&refused=true")); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
	if got := w.log(w.newToken("crm-reader", reads, "crm"), "&refused=true&action=retry"); len(got) != 1 {
		t.Errorf("the reader of an app does not see that a retry of its run was refused: %q", got)
	}
	all := w.must(http.StatusOK, "GET", "/v1/audit", "").Body.String()
	if strings.Contains(all, "CANARY") {
		t.Errorf("the log holds something of a refused body or path: %s", all)
	}
}

// A thousand refusals of a caller get ten entries, and one that counts the others. Requests never wait for them.
func TestFloodOfRefusalsIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	flood, other := w.newToken("flood", reads, "crm"), w.newToken("calm", reads, "crm")
	for i := range 1000 {
		method := []string{"PUT", "DELETE"}[i%2]
		w.must(403, method, fmt.Sprintf("%s/jobs/job-%d", oneApp, i), `{}`, "Authorization: Bearer "+flood)
	}
	w.must(403, "DELETE", oneJob, "", "Authorization: Bearer "+other)
	w.awaitRefusals(11)
	got := w.log(flood, "&refused=true")
	if len(got) != 12 || !slices.Contains(got, "calm delete job sync forbidden") {
		t.Fatalf("the log has %q, want ten entries of the flood, one that counts, and one of the calm", got)
	}
	page := into[auditPage](w.must(http.StatusOK, "GET", "/v1/audit?action=more_refused", ""))
	want := `{"codes":{"forbidden":990},"count":990}`
	if len(page.Items) != 1 || string(page.Items[0].After) != want || page.Items[0].App != "crm" {
		t.Errorf("what counts the others is %+v, want %s", page.Items, want)
	}
}

// deaf is a store whose audit log cannot be written.
type deaf struct{ *store.Store }

func (deaf) RecordRefusal(ctx context.Context, _ access.AuditEntry) error {
	<-ctx.Done()
	return ctx.Err()
}

// While the audit log cannot be written, changes are refused as before, and as fast.
func TestRefusalsDoNotWaitForTheAuditLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	served := api.New(deaf{w.store}, api.Options{Logger: slog.New(slog.DiscardHandler)})
	running, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { served.Run(running); close(ended) }()
	w.api = served
	for i := range 40 {
		token := w.newToken(fmt.Sprint("reader-", i), reads)
		for range 10 { // together, more than may wait
			w.must(403, "DELETE", oneJob, "", "Authorization: Bearer "+token)
		}
	}
	w.do("DELETE", oneJob, "", `If-Match: "9"`).refused(412, " precondition_failed")
	stop()
	<-ended
}
