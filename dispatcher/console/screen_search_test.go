package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/console"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func TestSearchGoesToTheOnlyResult(t *testing.T) {
	t.Parallel()
	id := run.Key{TriggerID: 7, ScheduledAt: fixedAt, Kind: run.KindSchedule}.String()
	one := failedRun(id)
	runs, jobs := items([]run.Run{one}, ""), items([]dispatcher.JobSummary{summaryOf("invoices")}, "")
	none := items([]run.Run{}, "")
	for name, tt := range map[string]struct {
		query      string
		runs, jobs any
		to         string // empty: the page is shown
		asks       string
	}{
		"a run":                     {id, none, jobs, "./runs/" + id, "GET /v1/runs/" + id},
		"the URL of a run":          {"https://ops.example/console/runs/" + id, none, jobs, "./runs/" + id, "GET /v1/runs/" + id},
		"a webhook-id":              {"evt_u73bvm1i2kr1mrr22hsd6o4nk8", runs, jobs, "./runs/" + id, "GET /v1/runs"},
		"a trace":                   {"4bf92f3577b34da6a3ce929d0e0e4736", runs, jobs, "./runs/" + id, "GET /v1/runs"},
		"a traceparent":             {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", runs, jobs, "./runs/" + id, "GET /v1/runs"},
		"a job":                     {"voice", none, jobs, "./apps/billing/jobs/invoices", "GET /v1/jobs"},
		"a job of an app":           {"billing/invoices", none, jobs, "./apps/billing/jobs/invoices", "GET /v1/jobs"},
		"an error":                  {"ledger is locked", runs, jobs, "./runs/" + id, "GET /v1/runs"},
		"a job and an error":        {"invoices", runs, jobs, "", "GET /v1/jobs"},
		"nothing":                   {"xyz", none, items([]dispatcher.JobSummary{}, ""), "", "GET /v1/jobs"},
		"an error with other pages": {"is locked", items([]run.Run{one}, "next"), jobs, "", "GET /v1/runs"},
		"a job among many":          {"voice", none, items([]dispatcher.JobSummary{summaryOf("invoices")}, "next"), "", "GET /v1/jobs"},
	} {
		w, api := newCanned(t, map[string]any{"GET /v1/runs/" + id: one, "GET /v1/runs": tt.runs, "GET /v1/jobs": tt.jobs})
		b := w.signedIn(reads())
		api.take()
		got := b.get("search?q=" + strings.ReplaceAll(tt.query, " ", "+"))
		status := http.StatusSeeOther
		if tt.to == "" {
			status = http.StatusOK
		}
		if calls := api.take(); got.StatusCode != status || got.Header.Get("Location") != tt.to || len(calls) == 0 || calls[0] != tt.asks {
			t.Errorf("%s: status %d to %q after %q, want %d to %q after %s", name, got.StatusCode, got.Header.Get("Location"), calls, status,
				tt.to, tt.asks)
		}
	}
}

func TestSearchSaysThatItReachedItsLimit(t *testing.T) {
	t.Parallel()
	const limited, link = "has not examined everything", "jobs?name=xyz"
	for name, tt := range map[string]struct{ runs, jobs, want string }{
		"all was examined":       {"", "", ""},
		"there are earlier runs": {"next", "", limited},
		"there are further jobs": {"", "next", limited + link},
		"there are more of both": {"next", "next", limited + link},
	} {
		w, _ := newCanned(t, map[string]any{
			"GET /v1/runs": items([]run.Run{}, tt.runs), "GET /v1/jobs": items([]dispatcher.JobSummary{}, tt.jobs),
		})
		got := w.signedIn(reads()).get("search?q=xyz").text
		for _, part := range []string{limited, link} {
			if strings.Contains(got, part) != strings.Contains(tt.want, part) {
				t.Errorf("%s: the page shows %q: %v", name, part, strings.Contains(got, part))
			}
		}
	}
}

func TestEveryPageHasTheSearch(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, watched(1))
	b := w.signedIn(reads())
	for _, at := range []string{"", "apps/billing/jobs/invoices", "runs/r1"} {
		if got := b.get(at).text; strings.Count(got, "data-search") != 1 || !strings.Contains(got, `name="q"`) {
			t.Errorf("page %q has %d searches, want one", at, strings.Count(got, "data-search"))
		}
	}
}

func TestRunsOfAllAppsAreFiltered(t *testing.T) {
	t.Parallel()
	w := newTrial(t, func(o *console.Options) {
		o.TraceURL = func(id string) string { return "https://traces.example/" + id }
	})
	w.declare(w.token("deploy", everything()), "billing", `{}`, "billing/jobs/invoices", daily, "bank", `{}`, "bank/jobs/loans", daily)
	for app, job := range map[string]string{"billing": "invoices", "bank": "loans"} {
		if _, err := w.store.RequestRun(t.Context(), app, job, nil, input.Change{Actor: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	b := w.signedIn(reads())
	for query, want := range map[string]string{
		"": "billing/invoices bank/loans", "?app=bank": "bank/loans", "?kind=manual&last=1h": "billing/invoices bank/loans", "?class=tls": "",
		"?job=invoices": "billing/invoices", "?state=queued&app=billing": "billing/invoices", "?kind=schedule": "",
	} {
		got := b.get("runs" + query)
		for _, job := range []string{"billing/invoices", "bank/loans"} {
			if shown := strings.Contains(got.text, ">"+job+"</a>"); got.StatusCode != http.StatusOK || shown != strings.Contains(want, job) {
				t.Errorf("runs%s: status %d, %s is shown: %v", query, got.StatusCode, job, shown)
			}
		}
	}
	if got := b.get("runs?class=nosuch&node=x"); got.StatusCode != http.StatusOK || !strings.Contains(got.text, `role="alert"`) {
		t.Errorf("a filter with problems: status %d:\n%s", got.StatusCode, got.text)
	}
	bound := w.signedIn(reads(), "bank")
	if got := bound.get("runs").text; strings.Contains(got, "invoices") || !strings.Contains(got, ">bank/loans</a>") {
		t.Errorf("a person of one app sees the runs of others:\n%s", got)
	}
	run, err := w.store.RequestRun(t.Context(), "bank", "loans", nil, input.Change{Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if got := bound.get("runs/" + run.ID).text; !strings.Contains(got, `href="https://traces.example/`) {
		t.Errorf("the page of a run has no link to its trace:\n%s", got)
	}
}

func TestSearchShowsAnyText(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, map[string]any{"GET /v1/runs": items([]run.Run{}, ""), "GET /v1/jobs": items([]dispatcher.JobSummary{}, "")})
	b := w.signedIn(reads())
	for name, text := range hostileTexts {
		if name == "long" {
			continue
		}
		got := b.get("search?" + url.Values{"q": {text("q")}}.Encode())
		page := read(t, got.text)
		page.at = "search"
		want := strings.TrimSpace(input.ShownText(text("q"), "\n\t\r"))
		if got.StatusCode != http.StatusOK || !strings.Contains(strings.Join(page.texts, " "), want) || len(page.foreign()) > 0 ||
			strings.Contains(got.text, "<script>") {
			t.Errorf("%s: status %d, want %q in its text:\n%s", name, got.StatusCode, want, got.text)
		}
	}
}
