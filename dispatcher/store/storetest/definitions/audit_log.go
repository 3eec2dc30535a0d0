package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// auditTests are the tests of the audit log.
func auditTests() tests {
	return tests{
		"a change has an entry in the audit log":            testAuditLog,
		"filters of the audit log select the right entries": testAuditFilters,
		"large definitions are cut in the audit log":        testAuditSizes,
		"readers of the audit log miss no racing entries":   testAuditRace,
	}
}

// words describes entries by action and subject.
func words(entries []access.AuditEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Action+" "+e.Subject)
	}
	return all
}

// changes makes one change of each kind, a minute apart.
func (f *wing) changes(by func(minute int) input.Change) {
	ctx := f.Context()
	f.Must(f.PutApp(ctx, access.App{Name: "books", AppSpec: access.AppSpec{Enabled: true}}, by(1)))
	f.Must(f.PutCalendar(ctx, dispatcher.Calendar{App: "books", Name: "holidays"}, by(2)))
	report := fixture.Job("report", map[string]dispatcher.Trigger{"eu": fixture.Every(time.Hour, fixture.T0.Add(24*time.Hour))})
	report.App = "books"
	f.Must(f.PutJob(ctx, report, by(3)))
	report.Description = "changed"
	f.Must(f.PutJob(ctx, report, by(4)))
	f.Must(f.PauseJob(ctx, "books", "report", "", true, by(5)))
	f.Must(f.PauseJob(ctx, "books", "report", "eu", true, by(6)))
	f.Must(f.PauseJob(ctx, "books", "report", "", false, by(7)))
	run, err := f.RequestRun(ctx, "books", "report", nil, by(8))
	f.Must(err)
	f.Must(f.CancelRun(ctx, run.ID, by(9)))
	f.Must(f.RetryRun(ctx, run.ID, by(10)))
	f.Must(f.CancelRun(ctx, run.ID, by(11)))
	f.Must(f.SetNodeState(ctx, fixture.NodeA, dispatcher.NodePaused, by(12)))
	f.Must(f.DeleteJob(ctx, "books", "report", by(13)))
	f.Must(f.DeleteCalendar(ctx, "books", "holidays", by(14)))
	f.Must(f.PutApp(ctx, access.App{Name: "books"}, by(15)))
	f.Must(f.DeleteApp(ctx, "books", by(16)))
}

// Each change has an entry with its author and origin, and the states before and after it.
func testAuditLog(t *testing.T, f *wing) {
	by := func(minute int) input.Change {
		return input.Change{Actor: "ann", TokenID: "id-of-ann", Address: "192.0.2.7", RequestID: fmt.Sprint("request-", minute),
			Now: fixture.T0.Add(time.Duration(minute) * time.Minute)}
	}
	f.changes(by)
	entries := f.AuditLog(access.AuditQuery{From: fixture.T0.Add(time.Minute), OldestFirst: true})
	want := []string{
		"put app books", "put calendar holidays", "put job report", "put job report", "pause job report", "pause job report trigger eu",
		"resume job report", "run job report", "cancel run", "retry run", "cancel run", "pause node 000000000000000a",
		"delete job report", "delete calendar holidays", "disable app books", "put app books", "delete app books",
	}
	got := words(entries)
	for i := range got {
		if cut, _, found := strings.Cut(got[i], " run "); found {
			got[i] = cut
		}
		if strings.HasPrefix(got[i], "cancel") || strings.HasPrefix(got[i], "retry") {
			got[i] = strings.Fields(got[i])[0] + " run"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal("the audit log (-want +got):\n" + diff)
	}
	for _, e := range entries {
		if e.Actor != "ann" || e.TokenID != "id-of-ann" || e.Address != "192.0.2.7" || !strings.HasPrefix(e.RequestID, "request-") {
			t.Errorf("%s %s is by %s (%s) from %s, request %s", e.Action, e.Subject, e.Actor, e.TokenID, e.Address, e.RequestID)
		}
		isNew := e.Action == "put" && e.Revision == 1
		gone := e.Action == "delete"
		if without := e.Action == "run" || e.Action == "disable"; !without && (e.Before == nil) != isNew || !without && (e.After == nil) != gone {
			t.Errorf("%s %s: before %s, after %s", e.Action, e.Subject, e.Before, e.After)
		}
	}
	change := entries[3]
	if got := field(t, change.Before, "description") + " " + field(t, change.After, "description"); got != `"" "changed"` {
		t.Errorf("description before and after = %s", got)
	}
	if got := string(entries[4].Before) + string(entries[4].After); got != `{"paused":false}{"paused":true}` {
		t.Errorf("paused before and after = %s", got)
	}
	if field(t, change.After, "state") != "" || field(t, change.After, "revision") != "" {
		t.Errorf("the entry holds what nobody declared: %s", change.After)
	}
}

// field returns the JSON of a field; empty if it is missing.
func field(t *testing.T, raw json.RawMessage, name string) string {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return string(parts[name])
}

// Each filter selects the right entries, alone and in any order, page by page.
func testAuditFilters(t *testing.T, f *wing) {
	for i := range 40 {
		f.Must(f.RecordRefusal(t.Context(), access.AuditEntry{
			At: fixture.T0.Add(time.Duration(i/4) * time.Second), Actor: []string{"ann", "bob", "id-1"}[i%3], TokenID: fmt.Sprint("id-", i%3),
			Action: []string{"put", "delete"}[i%2], App: []string{"books", "shop", ""}[i/2%3], Subject: fmt.Sprint("job ", i%5),
			Refused: []string{"forbidden", "precondition"}[i%2],
		}))
	}
	yes, no := true, false
	all := f.AuditLog(access.AuditQuery{})
	if !slices.IsSortedFunc(all, func(a, b access.AuditEntry) int { return strings.Compare(b.ID, a.ID) }) {
		t.Error("the log is not in the order of its ids, latest first")
	}
	for name, tt := range map[string]struct {
		query access.AuditQuery
		is    func(access.AuditEntry) bool
	}{
		"everything":      {access.AuditQuery{}, func(access.AuditEntry) bool { return true }},
		"an app":          {access.AuditQuery{Apps: []string{"books"}}, func(e access.AuditEntry) bool { return e.App == "books" }},
		"two apps":        {access.AuditQuery{Apps: []string{"books", "shop"}}, func(e access.AuditEntry) bool { return e.App != "" }},
		"no app":          {access.AuditQuery{Apps: []string{}}, func(access.AuditEntry) bool { return false }},
		"an actor's name": {access.AuditQuery{Actor: "ann"}, func(e access.AuditEntry) bool { return e.Actor == "ann" }},
		"a token's id":    {access.AuditQuery{Actor: "id-0"}, func(e access.AuditEntry) bool { return e.TokenID == "id-0" }},
		"a name and an id": {access.AuditQuery{Actor: "id-1"}, func(e access.AuditEntry) bool {
			return e.TokenID == "id-1" || e.Actor == "id-1"
		}},
		"a subject": {access.AuditQuery{Subject: "job 3"}, func(e access.AuditEntry) bool { return e.Subject == "job 3" }},
		"an action": {access.AuditQuery{Action: "delete"}, func(e access.AuditEntry) bool { return e.Action == "delete" }},
		"refusals":  {access.AuditQuery{Refused: &yes}, func(e access.AuditEntry) bool { return e.Refused != "" }},
		"changes":   {access.AuditQuery{Refused: &no}, func(e access.AuditEntry) bool { return e.Refused == "" }},
		"a span": {access.AuditQuery{From: fixture.T0.Add(2 * time.Second), To: fixture.T0.Add(5 * time.Second)}, func(e access.AuditEntry) bool {
			return !e.At.Before(fixture.T0.Add(2*time.Second)) && e.At.Before(fixture.T0.Add(5*time.Second))
		}},
		"all of them": {access.AuditQuery{
			Apps: []string{"books", "shop"}, Actor: "bob", Action: "put", Subject: "job 0", Refused: &yes, From: fixture.T0,
		}, func(e access.AuditEntry) bool {
			return e.App != "" && e.Actor == "bob" && e.Action == "put" && e.Subject == "job 0"
		}},
	} {
		var want []access.AuditEntry
		for _, e := range all {
			if tt.is(e) {
				want = append(want, e)
			}
		}
		for _, limit := range []int{1, 7, 1000} {
			tt.query.Limit, tt.query.OldestFirst = limit, false
			if diff := cmp.Diff(want, f.AuditLog(tt.query)); diff != "" {
				t.Errorf("%s, %d a page (-want +got):\n%s", name, limit, diff)
			}
		}
		slices.Reverse(want)
		tt.query.Limit, tt.query.OldestFirst = 7, true
		if diff := cmp.Diff(want, f.AuditLog(tt.query)); diff != "" {
			t.Errorf("%s, oldest first (-want +got):\n%s", name, diff)
		}
	}
	if _, err := f.AuditEntries(t.Context(), access.AuditQuery{Page: input.Page{Limit: 1, Cursor: "x"}}); err == nil {
		t.Error("a cursor that is none was taken")
	}
}

// A large definition is cut, its payload first, and a page of large entries ends early.
func testAuditSizes(t *testing.T, f *wing) {
	f.InCheck()
	// A payload of only quotes may take the race detector longer than a call without a deadline has.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	large := fixture.Job("large", nil)
	quoted := strings.Repeat(`\"`, input.MaxPayload/2-10)
	large.Payload = json.RawMessage(`"` + quoted + `"`)
	f.Must(f.PutJob(ctx, large, fixture.At(fixture.T0.Add(time.Minute))))
	for i := range 45 {
		large.Target.Webhook.Headers[fmt.Sprint("x-", i)] = strings.Repeat("ü<", 500)
	}
	f.Must(f.PutJob(ctx, large, fixture.At(fixture.T0.Add(2*time.Minute))))
	entries := f.AuditLog(access.AuditQuery{Subject: "job large"})
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2", len(entries))
	}
	payload := field(t, entries[1].After, "payload")
	if got := payload; !strings.Contains(got, `"cut":"the payload is too large`) || field(t, entries[1].After, "target") == "" {
		t.Errorf("the payload is %.200s, want it cut, and nothing else", got)
	}
	whole := field(t, entries[0].After, "cut")
	if !strings.Contains(whole, "the definition is too large") || field(t, entries[0].After, "sha256") == "" {
		t.Errorf("the definition is %.200s, want it cut", entries[0].After)
	}
	for _, e := range entries {
		if len(e.After) > access.MaxAuditDefinition || len(e.Before) > access.MaxAuditDefinition {
			t.Errorf("before has %d bytes and after %d, the most is %d", len(e.Before), len(e.After), access.MaxAuditDefinition)
		}
	}
	for i := range 40 {
		large.Description = fmt.Sprint("change ", i)
		f.Must(f.PutJob(ctx, large, fixture.At(fixture.T0.Add(time.Duration(3+i)*time.Minute))))
	}
	page, err := f.AuditEntries(ctx, access.AuditQuery{Page: input.Page{Limit: 1000}})
	f.Must(err)
	if !page.More || len(page.Entries) > 40 {
		t.Errorf("a page has %d entries of 128 KiB, and more = %v; want fewer than all", len(page.Entries), page.More)
	}
	if got := len(f.AuditLog(access.AuditQuery{Subject: "job large"})); got != 42 {
		t.Errorf("%d entries, page by page, want 42", got)
	}
}

// A reader that reads the log again from a minute and a half before its latest known entry misses no entry, though
// changes commit in another order than they began.
func testAuditRace(t *testing.T, f *wing) {
	const writers, each = 6, 15
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range each {
				if _, _, err := f.PutApp(t.Context(), access.App{Name: fmt.Sprintf("app-%d-%d", w, i), AppSpec: access.AppSpec{Enabled: true}},
					input.Change{Actor: "racer"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	seen := map[string]bool{}
	var latest time.Time
	read := func() {
		for _, e := range f.AuditLog(access.AuditQuery{Actor: "racer", OldestFirst: true, From: latest.Add(-90 * time.Second)}) {
			seen[e.Subject] = true
			if e.At.After(latest) {
				latest = e.At
			}
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		read()
	}
	if len(seen) != writers*each {
		t.Errorf("%d of %d changes were seen", len(seen), writers*each)
	}
}
