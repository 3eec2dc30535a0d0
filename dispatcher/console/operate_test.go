package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// operatePages are the pages of apps and their objects other than jobs, of nodes, tokens and the audit log, and how
// many requests each makes.
var operatePages = map[string]struct {
	at    string
	calls int
}{
	"apps": {"apps", 1}, "app": {"apps/billing", 3}, "groups": {"apps/billing/groups", 1}, "group": {"apps/billing/groups/fleet", 4},
	"calendars": {"apps/billing/calendars", 1}, "calendar": {"apps/billing/calendars/holidays", 3},
	"misfires":  {"apps/billing/misfires", 1},
	"backfills": {"apps/billing/backfills", 1}, "backfill": {"apps/billing/backfills/b1", 1}, "alerts": {"apps/billing/alerts", 3},
	"alert": {"apps/billing/alerts/on-call", 3}, "dead_letters": {"apps/billing/dead-letters", 1},
	"statistics": {"statistics?app=billing&days=7", 1}, "nodes": {"nodes", 1}, "audit": {"audit", 1},
	"audit_entry": {"audit/" + access.AuditID(fixedAt, 5), 1}, "tokens": {"tokens", 1}, "token_new": {"tokens/new", 0},
	"rollback": {"rollback", 1}, "objectives": {"objectives", 1},
	"compare":      {"apps/billing/jobs/invoices/compare?old=" + access.AuditID(fixedAt, 5) + "&new=" + access.AuditID(fixedAt, 5), 2},
	"chosen_retry": {"chosen-runs?run=r1&run=r2&do=retry", 0}, "chosen_cancel": {"chosen-runs?run=r1&do=cancel&back=runs", 0},
	"backfill_new":   {"apps/billing/new-backfill", 0},
	"backfill_count": {"apps/billing/new-backfill?job=invoices&from=2026-03-01T00:00:00Z&to=2026-03-31T00:00:00Z", 1},
	"app_pause":      {"apps/billing/pause", 1}, "app_disable": {"apps/billing/disable", 1},
	"backfill_cancel": {"apps/billing/backfills/b1/cancel", 1},
	"token_rotate":    {"tokens/deploy/rotate", 1}, "token_revoke": {"tokens/deploy/revoke", 1},
	"bulk": {"apps/billing/bulk", 1}, "bulk_action": {"apps/billing/bulk/k1", 1}, "bulk_new": {"apps/billing/new-bulk", 0},
	"bulk_count": {"apps/billing/new-bulk?action=pause_jobs&name=inv&labels=team%3Dpayments", 2},
	"node_pause": {"nodes/" + nodeOf("").ID.String() + "/pause", 1}, "node_drain": {"nodes/" + nodeOf("").ID.String() + "/drain", 1},
	"rollback_skip": {"rollback/skip", 1}, "rollback_replay": {"rollback/replay", 1},
}

// ofSomething are the pages that are not found without their object.
var ofSomething = map[string]bool{
	"audit_entry": true, "compare": true, "node_pause": true, "node_drain": true, "rollback_skip": true, "rollback_replay": true,
}

// rawKey is a key of the texts that a page shows instead of its text.
var rawKey = regexp.MustCompile(`>[a-z_]+\.[a-z_.]+<`)

func TestOperatePagesShowNothingOneAndMany(t *testing.T) {
	t.Parallel()
	for count, name := range map[int]string{0: "none", 1: "one", 50: "many"} {
		w, api := newCanned(t, operated(count))
		b := w.signedIn(everything())
		for page, want := range operatePages {
			api.take()
			got := b.get(want.at)
			if ofSomething[page] && count == 0 {
				continue
			}
			calls := api.take()
			if got.StatusCode != http.StatusOK || len(calls) != want.calls {
				t.Errorf("%s with %s: status %d after %d requests, want 200 after %d: %q\n%s", page, name, got.StatusCode, len(calls),
					want.calls, calls, got.text)
				continue
			}
			if strings.Contains(got.text, "<script>") || len(got.text) > 100<<10 {
				t.Errorf("%s with %s has %d bytes, at most 100 KiB are allowed, or shows a text as markup", page, name, len(got.text))
			}
			if count < 2 {
				golden(t, "operate/"+page+"-"+name, got.text)
			}
			b.post("settings", url.Values{"language": {"zh"}})
			chinese := b.get(want.at).text
			b.post("settings", url.Values{"language": {"en"}})
			for _, text := range []string{got.text, chinese} {
				if found := rawKey.FindAllString(text, -1); found != nil {
					t.Errorf("%s with %s shows keys of texts that there are not: %q", page, name, found)
				}
			}
		}
	}
}

// pagesAt are the addresses of the pages that tests show.
func pagesAt() map[string]string {
	all := map[string]string{}
	for name, page := range watchPages {
		all["watch/"+name] = page.at
	}
	for name, page := range operatePages {
		all["operate/"+name] = page.at
	}
	return all
}

func TestEveryScreenIsShownByATest(t *testing.T) {
	t.Parallel()
	wildcard := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for _, path := range console.Screens() {
		pattern := regexp.MustCompile("^" + wildcard.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + `(\?|$)`)
		if !slices.ContainsFunc(slices.Collect(maps.Values(pagesAt())), pattern.MatchString) {
			t.Errorf("no test shows the screen %q; add its address to watchPages or operatePages", path)
		}
	}
}

// everything are the scopes of an operator.
func everything() []access.Scope {
	return []access.Scope{access.ScopeRead, access.ScopeRun, access.ScopeWrite, access.ScopeAdmin}
}

// operateForms are the actions of these pages: their requests to the API, and the next page.
var operateForms = []struct {
	at   string
	form url.Values
	asks string
	to   string
}{
	{"apps/billing/pause", url.Values{"labels": {"team=payments"}, "reason": {"freeze"}},
		`POST /v1/apps/billing/pauses {"labels":{"team":"payments"},"reason":"freeze"}`, "apps/billing"},
	{"apps/billing/pauses/p1/end", nil, "DELETE /v1/apps/billing/pauses/p1", "apps/billing"},
	{"apps/billing/disable", nil, `PATCH /v1/apps/billing {"enabled":false}`, "apps/billing"},
	{"apps/billing/enable", nil, `PATCH /v1/apps/billing {"enabled":true}`, "apps/billing"},
	{"apps/billing/groups/fleet/endpoints/a/drain", nil, "POST /v1/apps/billing/groups/fleet/endpoints/a/drain",
		"apps/billing/groups/fleet"},
	{"apps/billing/groups/fleet/endpoints/a/resume", nil, "POST /v1/apps/billing/groups/fleet/endpoints/a/resume",
		"apps/billing/groups/fleet"},
	{"apps/billing/backfills/b1/pause", nil, "POST /v1/apps/billing/backfills/b1/pause", "apps/billing/backfills/b1"},
	{"apps/billing/backfills/b1/resume", nil, "POST /v1/apps/billing/backfills/b1/resume", "apps/billing/backfills/b1"},
	{"apps/billing/backfills/b1/cancel", nil, "POST /v1/apps/billing/backfills/b1/cancel", "apps/billing/backfills/b1"},
	{"apps/billing/alerts/on-call/mute", url.Values{"reason": {"known"}},
		`POST /v1/apps/billing/alerts/on-call/mute {"reason":"known"}`, "apps/billing/alerts/on-call"},
	{"apps/billing/alerts/on-call/unmute", nil, "POST /v1/apps/billing/alerts/on-call/unmute", "apps/billing/alerts/on-call"},
	{"apps/billing/alerts/on-call/acknowledge", url.Values{"job": {"invoices"}, "condition": {"failure"}},
		`POST /v1/apps/billing/alerts/on-call/acknowledge {"job":"invoices","condition":"failure"}`, "apps/billing/alerts/on-call"},
	{"apps/billing/alerts/on-call/unacknowledge", url.Values{"job": {"invoices"}},
		`POST /v1/apps/billing/alerts/on-call/unacknowledge {"job":"invoices"}`, "apps/billing/alerts/on-call"},
	{"apps/billing/alerts/on-call/test", nil, "POST /v1/apps/billing/alerts/on-call/test", "runs/r1"},
	{"apps/billing/dead-letters/r1/retry", nil, "POST /v1/runs/r1/retry", "runs/r1"},
	{"apps/billing/bulk", url.Values{"action": {"pause_jobs"}, "name": {"inv"}, "labels": {"team=payments"}, "reason": {"freeze"},
		"expected": {"12"}},
		`POST /v1/apps/billing/bulk {"action":"pause_jobs","filter":{"name":"inv","labels":{"team":"payments"}},"reason":"freeze","expected":12}`,
		"apps/billing/bulk/k1"},
	{"apps/billing/bulk/k1/cancel", nil, "POST /v1/apps/billing/bulk/k1/cancel", "apps/billing/bulk/k1"},
	{"nodes/000000000000001f/pause", nil, "POST /v1/nodes/000000000000001f/pause", "nodes"},
	{"nodes/000000000000001f/drain", nil, "POST /v1/nodes/000000000000001f/drain", "nodes"},
	{"nodes/000000000000001f/resume", nil, "POST /v1/nodes/000000000000001f/resume", "nodes"},
	{"tokens/deploy/revoke", url.Values{"revision": {"2"}}, "DELETE /v1/tokens/deploy", "tokens"},
	{"rollback/skip", nil, "POST /v1/rollback/skip", "rollback"},
	{"rollback/replay", nil, "POST /v1/rollback/replay", "rollback"},
}

// operateDone are the responses to the requests of the forms.
func operateDone() map[string]any {
	of, done := "/v1/apps/billing", operated(1)
	for _, verb := range []string{"drain", "resume"} {
		done["POST "+of+"/groups/fleet/endpoints/a/"+verb] = target.Endpoint{ID: "a"}
	}
	for _, verb := range []string{"pause", "resume", "cancel"} {
		done["POST "+of+"/backfills/b1/"+verb] = done["GET "+of+"/backfills/b1"]
	}
	for _, verb := range []string{"mute", "unmute"} {
		done["POST "+of+"/alerts/on-call/"+verb] = done["GET "+of+"/alerts/on-call"]
	}
	for _, verb := range []string{"acknowledge", "unacknowledge"} {
		done["POST "+of+"/alerts/on-call/"+verb] = items([]alert.State{}, "")
	}
	for _, verb := range []string{"pause", "drain", "resume"} {
		done["POST /v1/nodes/000000000000001f/"+verb] = nodeOf("one")
	}
	for _, verb := range []string{"skip", "replay"} {
		done["POST /v1/rollback/"+verb] = dispatcher.Rollback{At: fixedAt}
	}
	done["POST "+of+"/bulk"], done["POST "+of+"/bulk/k1/cancel"] = bulkOf("k1"), bulkOf("k1")
	done["POST "+of+"/pauses"] = dispatcher.AppPause{ID: "p1", App: "billing"}
	done["PATCH "+of] = done["GET "+of]
	done["POST "+of+"/alerts/on-call/test"] = run.Run{ID: "r1", App: "billing"}
	done["POST /v1/runs/r1/retry"] = run.Run{ID: "r1", App: "billing"}
	return done
}

func TestOperateFormsAskTheAPI(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, operateDone())
	b := w.signedIn(everything())
	for _, form := range operateForms {
		api.take()
		got := b.post(form.at, form.form)
		if got.StatusCode != http.StatusSeeOther || !strings.HasSuffix(got.Header.Get("Location"), "/"+form.to) {
			t.Errorf("POST %s: status %d to %q, want 303 to %s\n%s", form.at, got.StatusCode, got.Header.Get("Location"), form.to,
				got.text)
		}
		if diff := cmp.Diff([]string{form.asks}, api.take()); diff != "" {
			t.Errorf("POST %s asks (-want +got):\n%s", form.at, diff)
		}
	}
}

func TestReadersHaveNoButtonsAndTheirActionsAreRefused(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, operateDone())
	b := w.signedIn(reads())
	for name, page := range operatePages {
		got := b.get(page.at)
		if got.StatusCode == http.StatusForbidden {
			continue // it is a form
		}
		if forms := strings.Count(got.text, `method="post"`); got.StatusCode != http.StatusOK || forms != 2 {
			t.Errorf("%s: status %d with %d forms that write, want the settings and the logout", name, got.StatusCode, forms)
		}
	}
	api.take()
	for _, form := range operateForms {
		if got := b.post(form.at, form.form); got.StatusCode != http.StatusForbidden {
			t.Errorf("POST %s by a reader: status %d, want 403", form.at, got.StatusCode)
		}
	}
	if asked := api.take(); asked != nil {
		t.Errorf("the forms of a reader asked %q", asked)
	}
}

func TestSecretOfATokenIsShownOnce(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, map[string]any{
		"PUT /v1/tokens/deploy":         access.IssuedToken{APIToken: tokenOf("deploy"), Secret: "carillon_secret1"},
		"POST /v1/tokens/deploy/rotate": access.IssuedToken{APIToken: tokenOf("deploy"), Secret: "carillon_secret2"},
	})
	b := w.signedIn(everything())
	api.take()
	created := b.post("tokens/new", url.Values{"name": {"deploy"}, "scope": {"read", "run"}, "apps": {"billing, shop"}})
	rotated := b.post("tokens/deploy/rotate", url.Values{"overlap": {"1h"}})
	if !strings.Contains(created.text, "carillon_secret1") || !strings.Contains(rotated.text, "carillon_secret2") {
		t.Errorf("the secrets are not shown: status %d and %d\n%s", created.StatusCode, rotated.StatusCode, created.text)
	}
	for _, got := range []page{created, rotated} {
		if got.Header.Get("Cache-Control") != "no-store" || strings.Contains(fmt.Sprint(got.Header), "carillon_secret") {
			t.Errorf("a secret may be stored, or is in a header: %v", got.Header)
		}
	}
	if strings.Contains(w.logs.String(), "carillon_secret") {
		t.Error("a secret is in the log")
	}
	if asked := api.take(); len(asked) != 2 || !strings.Contains(asked[0], `"scopes":["read","run"],"apps":["billing","shop"]`) ||
		!strings.HasSuffix(asked[1], `{"overlap":"1h0m0s"}`) {
		t.Errorf("the forms asked %q", asked)
	}
}

func TestWrongFieldsAreShownWithTheForm(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, operateDone())
	b := w.signedIn(everything())
	for at, want := range map[string]string{
		"apps/billing/misfires?from=yesterday": "is not a time", "apps/billing/dead-letters?to=noon": "is not a time",
		"audit?from=1": "is not a time",
		"apps/billing/new-backfill?job=invoices&from=x": "is not a time", "apps/billing/new-backfill?pace=5": "has no unit",
	} {
		api.take()
		got := b.get(at)
		if got.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(got.text, want) || len(api.take()) != 0 {
			t.Errorf("GET %s: status %d, want 422 and %q without a request\n%s", at, got.StatusCode, want, got.text)
		}
	}
	got := b.post("apps/billing/alerts/on-call/mute", url.Values{"for": {"soon"}, "reason": {hostile}})
	if got.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(got.text, "duration") || !strings.Contains(got.text,
		"&lt;script&gt;") {
		t.Errorf("a mute for %q: status %d\n%s", "soon", got.StatusCode, got.text)
	}
}
