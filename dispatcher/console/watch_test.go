package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// watchPages are the pages about events, and how many requests each makes at most, for one object and for fifty.
var watchPages = map[string]struct {
	at    string
	calls int
}{
	"attention": {"", 2}, "jobs": {"jobs?name=in&state=paused", 1}, "runs": {"apps/billing/runs?state=failed", 1},
	"all_runs": {"runs?class=http_5xx&last=24h", 1}, "search": {"search?q=inv", 2},
	"job": {"apps/billing/jobs/invoices?trigger=nightly", 8}, "run": {"runs/r1", 3}, "run_long": {"runs/r3", 3}, "run_callback": {"runs/r2",
		4},
	"job_statistics": {"apps/billing/jobs/invoices/statistics", 1},
	"explain":        {"apps/billing/jobs/invoices/triggers/nightly/explain?at=2026-03-29T00:30:00Z", 1},
	"timeline":       {"timeline?app=billing", 1}, "timeline_apps": {"timeline", 1},
	"preview": {"preview?expression=0+30+2+*+*+%3F&timezone=Europe/Berlin", 1}, "preview_form": {"preview", 0},
	"run_job": {"apps/billing/jobs/invoices/run", 1}, "cancel_run": {"runs/r2/cancel", 1},
	"slot_release": {"apps/billing/jobs/invoices/slots/r1/release", 1}, "slot_cancel": {"apps/billing/jobs/invoices/slots/r2/release", 1},
}

func TestWatchPagesShowNothingOneAndMany(t *testing.T) {
	t.Parallel()
	for count, name := range map[int]string{0: "none", 1: "one", 50: "many"} {
		w, api := newCanned(t, watched(count))
		b := w.signedIn(everything())
		for page, want := range watchPages {
			api.take()
			got := b.get(want.at)
			calls := api.take()
			most := want.calls
			if page == "job" && count == 0 {
				most = 5 // it has no slots, no state and no objective
			}
			if page == "run_callback" && count == 0 {
				most = 3 // its job has no slots
			}
			if got.StatusCode != http.StatusOK || len(calls) != most {
				t.Errorf("%s with %s: status %d after %d requests, want 200 after %d: %q\n%s", page, name, got.StatusCode, len(calls), most, calls,
					w.logs)
				continue
			}
			if strings.Contains(got.text, "<script>") || len(got.text) > 110<<10 {
				t.Errorf("%s with %s has %d bytes, at most 110 KiB are allowed, or shows a text as markup", page, name, len(got.text))
			}
			if count < 2 && page != "run_long" && page != "run_callback" && page != "job_statistics" { // it has the time
				golden(t, "watch/"+page+"-"+name, got.text)
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

// pictureEdge finds the labels of the ends of pictures of time.
var pictureEdge = regexp.MustCompile(`(?s)<svg class="axis".*?</svg>|` +
	`<thead><tr><th scope="col">[^<]*</th><th scope="col"><svg class="row".*?</svg>|` +
	`<p class="scale"><span><time.*?</p>`)

func TestPicturesOfTimeShowTheirOffsets(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, watched(50))
	b := w.signedIn(everything())
	for zone, want := range map[string]string{"utc": `class="offset">[ ]?Z<`, "trigger": `class="offset">[ ]?(Z|[+]01:00)<`} {
		b.post("settings", url.Values{"zone": {zone}})
		for at, pictures := range map[string]int{
			"": 1, "timeline?app=billing": 1, "apps/billing/jobs/invoices?trigger=nightly": 3, "runs/r1": 1,
		} {
			edges := pictureEdge.FindAllString(b.get(at).text, -1)
			if len(edges) != pictures {
				t.Errorf("page %q has %d pictures of time with labels, want %d: %q", at, len(edges), pictures, edges)
			}
			for _, edge := range edges {
				if !regexp.MustCompile(want).MatchString(html.UnescapeString(edge)) {
					t.Errorf("page %q, zone %s: no offset in %s", at, zone, edge)
				}
			}
		}
	}
	offered := regexp.MustCompile(`value="trigger"[^>]*>[^<]* · Europe/Berlin [+]0[12]:00<`)
	for _, at := range []string{"apps/billing/jobs/invoices?trigger=nightly", "preview?expression=0+30+2+*+*+%3F&timezone=Europe/Berlin"} {
		if !offered.MatchString(html.UnescapeString(b.get(at).text)) {
			t.Errorf("page %q does not offer the zone of the trigger with its offset", at)
		}
	}
}

func TestNumbersAndResponsesAreShownExactly(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, watched(1))
	b := w.signedIn(everything())
	shown := strings.NewReplacer("&#34;", `"`, "&lt;", "<", "&gt;", ">", "&amp;", "&")
	for at, wants := range map[string][]string{
		"runs/r3":                        {exactNumber, longest(), target.Mask, "auth bearer token"},
		"runs/r1?attempt=1":              {`<pre tabindex="0" class="code">first</pre>`},
		"apps/billing/jobs/invoices":     {exactNumber, hostile},
		"apps/billing/jobs/invoices/run": {exactNumber},
	} {
		text := shown.Replace(b.get(at).text)
		for _, want := range wants {
			if !strings.Contains(text, input.ShownText(want, "\n")) {
				t.Errorf("%s does not show %.60q", at, want)
			}
		}
	}
}

// watchForms are the actions of these pages: their requests to the API, and the next page.
var watchForms = []struct {
	at   string
	form url.Values
	asks string
	to   string
}{
	{"apps/billing/jobs/invoices/run", url.Values{"payload": {exactNumber}},
		`POST /v1/apps/billing/jobs/invoices/run {"payload":` + exactNumber + `}`, "runs/r1"},
	{"apps/billing/jobs/invoices/run", nil, `POST /v1/apps/billing/jobs/invoices/run {}`, "runs/r1"},
	{"apps/billing/jobs/invoices/pause", url.Values{"reason": {"freeze"}, "until": {"2099-05-01T06:00:00+02:00"}},
		`POST /v1/apps/billing/jobs/invoices/pause {"reason":"freeze","until":"2099-05-01T04:00:00Z"}`, "apps/billing/jobs/invoices"},
	{"apps/billing/jobs/invoices/resume", nil, "POST /v1/apps/billing/jobs/invoices/resume", "apps/billing/jobs/invoices"},
	{"apps/billing/jobs/invoices/triggers/nightly/pause", nil, "POST /v1/apps/billing/jobs/invoices/triggers/nightly/pause {}",
		"apps/billing/jobs/invoices"},
	{"apps/billing/jobs/invoices/triggers/nightly/resume", nil, "POST /v1/apps/billing/jobs/invoices/triggers/nightly/resume",
		"apps/billing/jobs/invoices"},
	{"runs/r1/retry", nil, "POST /v1/runs/r1/retry", "runs/r1"},
	{"runs/r2/cancel", nil, "POST /v1/runs/r2/cancel", "runs/r2"},
	{"apps/billing/jobs/invoices/slots/r2/release", url.Values{"reason": {"stuck"}, "cancel": {"yes"}},
		`POST /v1/apps/billing/jobs/invoices/slots/release {"run":"r2","reason":"stuck","cancel":true}`, "apps/billing/jobs/invoices"},
	{"runs/r2/complete", url.Values{"message": {"done"}}, `POST /v1/runs/r2/complete {"message":"done"}`, "runs/r2"},
	{"runs/r2/fail", url.Values{"message": {"no"}}, `POST /v1/runs/r2/fail {"message":"no"}`, "runs/r2"},
}

// watchDone are the responses to the requests of the forms.
func watchDone() map[string]any {
	done := watched(1)
	job, one := "POST /v1/apps/billing/jobs/invoices", watchedJob(1)
	for _, verb := range []string{"/pause", "/resume", "/triggers/nightly/pause", "/triggers/nightly/resume"} {
		done[job+verb] = one
	}
	done[job+"/run"] = run.Run{ID: "r1", App: "billing", Job: "invoices"}
	done["POST /v1/apps/billing/jobs/invoices/slots/release"] = done["GET /v1/runs/r2"]
	done["POST /v1/runs/r1/retry"], done["POST /v1/runs/r2/cancel"] = done["GET /v1/runs/r1"], done["GET /v1/runs/r2"]
	for _, verb := range []string{"complete", "fail"} {
		done["POST /v1/runs/r2/"+verb] = run.CallbackReply{Run: "r2"}
	}
	return done
}

func TestWatchFormsAskTheAPI(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, watchDone())
	b := w.signedIn(everything())
	for _, form := range watchForms {
		api.take()
		got := b.post(form.at, form.form)
		calls := api.take()
		if got.StatusCode != http.StatusSeeOther || len(calls) != 1 || calls[0] != form.asks {
			t.Errorf("%s: status %d after %q, want 303 after %q\n%s", form.at, got.StatusCode, calls, form.asks, got.text)
		}
		if to := got.Header.Get("Location"); !strings.HasSuffix(to, "../"+form.to) {
			t.Errorf("%s leads to %s, want %s", form.at, to, form.to)
		}
	}
}

// The form of a bulk action has other names for some filters, and it is for one app.
func TestListOfJobsLeadsToABulkActionOnItsFilter(t *testing.T) {
	t.Parallel()
	w, _ := newCanned(t, watchDone())
	b := w.signedIn(everything())
	for at, want := range map[string]string{
		"jobs?app=billing&label=team%3Dpay&state=paused&name=in": `apps/billing/new-bulk?labels=team%3Dpay&amp;name=in&amp;state=paused"`,
		"jobs?app=billing": `apps/billing/new-bulk"`,
		"jobs?name=in":     "",
	} {
		text := b.get(at).text
		if is := strings.Contains(text, "new-bulk"); is != (want != "") || !strings.Contains(text, want) {
			t.Errorf("page %q has a link: %v, want %q", at, is, want)
		}
	}
}

func TestReadersSeeNoButtonsOfJobsAndRuns(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, watchDone())
	b := w.signedIn(reads())
	for _, at := range []string{"", "jobs", "apps/billing/jobs/invoices", "runs/r1", "runs/r2", "timeline?app=billing"} {
		text := b.get(at).text
		_, main, _ := strings.Cut(text, "<main")
		main, _, _ = strings.Cut(main, "</main>")
		if strings.Contains(main, `method="post"`) || strings.Contains(main, `class="button"`) {
			t.Errorf("page %q shows a reader what only others may do:\n%s", at, main)
		}
	}
	for _, form := range watchForms {
		api.take()
		if got := b.post(form.at, form.form); got.StatusCode != http.StatusForbidden || len(api.take()) != 0 {
			t.Errorf("%s by a reader: status %d, want 403 without a request", form.at, got.StatusCode)
		}
	}
	for _, at := range []string{"apps/billing/jobs/invoices/run", "runs/r2/cancel"} {
		if got := b.get(at); got.StatusCode != http.StatusForbidden {
			t.Errorf("page %s for a reader: status %d, want 403", at, got.StatusCode)
		}
	}
}

func TestInvalidFormsComeBackWithTheirFields(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, watchDone())
	b := w.signedIn(everything())
	for at, tt := range map[string]struct {
		form url.Values
		want []string
	}{
		"apps/billing/jobs/invoices/run": {url.Values{"payload": {"{no"}}, []string{"payload is not JSON", ">{no</textarea>"}},
		"apps/billing/jobs/invoices/pause": {url.Values{"until": {"tomorrow"}, "reason": {"because"}}, []string{"neither a duration",
			`value="because"`}},
	} {
		api.take()
		got := b.post(at, tt.form)
		if got.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: status %d, want 422", at, got.StatusCode)
		}
		for _, want := range tt.want {
			if !strings.Contains(got.text, want) {
				t.Errorf("%s does not say %q:\n%s", at, want, got.text)
			}
		}
		for _, call := range api.take() {
			if strings.HasPrefix(call, http.MethodPost) {
				t.Errorf("%s asks the API: %s", at, call)
			}
		}
	}
	for at, want := range map[string]string{
		"apps/billing/runs?from=yesterday":                                       "from: time",
		"apps/billing/jobs/invoices/triggers/nightly/explain?at=now":             "is not an instant",
		"timeline?app=billing&from=2026-05-01T00:00:00Z&to=2026-05-01T00:00:00Z": "to is not after from",
		"preview?expression=x&count=many":                                        "is not a number",
	} {
		api.take()
		if text := b.get(at).text; !strings.Contains(text, want) || len(api.take()) != 0 {
			t.Errorf("%s does not say %q, or asks the API:\n%s", at, want, text)
		}
	}
}

func TestFailureOfAPartLeavesTheRestOfThePage(t *testing.T) {
	t.Parallel()
	responses := watched(1)
	for _, lost := range []string{
		"GET /v1/upcoming", "GET /v1/audit", "GET /v1/apps/billing/runs", "GET /v1/apps/billing/jobs/invoices/triggers/nightly/strip",
		"GET /v1/runs/r1/request",
	} {
		delete(responses, lost)
	}
	w, _ := newCanned(t, responses)
	b := w.signedIn(everything())
	for at, wants := range map[string][]string{
		"":                           {"nothing at GET /v1/upcoming", "Failed runs"},
		"apps/billing/jobs/invoices": {"nothing at GET /v1/audit", "nothing at GET /v1/apps/billing/runs", "nightly/strip", "Error budget left"},
		"runs/r1":                    {"nothing at GET /v1/runs/r1/request", "Time line"},
	} {
		got := b.get(at)
		for _, want := range wants {
			if got.StatusCode != http.StatusOK || !strings.Contains(got.text, want) {
				t.Errorf("page %q: status %d, want 200 and %q:\n%s", at, got.StatusCode, want, got.text)
			}
		}
	}
	for at := range map[string]bool{"runs/unknown": true, "apps/billing/jobs/unknown": true} {
		if got := b.get(at); got.StatusCode != http.StatusNotFound || !strings.Contains(got.text, "nothing at GET") {
			t.Errorf("page %s: status %d, want 404 with the words of the API", at, got.StatusCode)
		}
	}
}
