package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// rowKey finds the keys of the rows of tables.
var rowKey = regexp.MustCompile(`<tr data-key="([^"]*)"`)

func rowsOf(text string) (keys []string) {
	for _, found := range rowKey.FindAllStringSubmatch(text, -1) {
		keys = append(keys, found[1])
	}
	return keys
}

func TestCompleteListsAreSortedByTheirColumns(t *testing.T) {
	t.Parallel()
	took := func(id string, seconds int) run.Run {
		r := failedRun(id)
		r.StartedAt, r.EndedAt = after(0), after(seconds)
		return r
	}
	waits := failedRun("r4")
	waits.StartedAt, waits.EndedAt = nil, nil
	all := []run.Run{took("r1", 5), took("r2", 9), took("r3", 5), waits}
	w, api := newCanned(t, map[string]any{"GET /v1/apps/billing/runs": items(all, "")})
	b := w.signedIn(reads())
	for at, want := range map[string]string{
		"apps/billing/runs": "r1 r2 r3 r4", "apps/billing/runs?sort=took": "r4 r1 r3 r2", "apps/billing/runs?sort=-took": "r2 r1 r3 r4",
		"apps/billing/runs?sort=none": "r1 r2 r3 r4",
	} {
		if got := strings.Join(rowsOf(b.get(at).text), " "); got != want {
			t.Errorf("page %s has the rows %s, want %s", at, got, want)
		}
	}
	text := b.get("apps/billing/runs?job=invoices&sort=took").text
	for _, want := range []string{`aria-sort="ascending"><a href="?job=invoices&amp;sort=-took">`, `<a href="?job=invoices&amp;sort=state">`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %s:\n%s", want, text)
		}
	}
	api.responses["GET /v1/apps/billing/runs"] = items(all, "further")
	if got := b.get("apps/billing/runs?sort=took").text; strings.Contains(got, "aria-sort") || strings.Contains(got, "sort=state") ||
		strings.Join(rowsOf(got), " ") != "r1 r2 r3 r4" {
		t.Error("one page of a longer list is sorted as if it were all")
	}
}

// declareEvery declares a job of app shop that fires each so often, beginning so long from now.
func (w *trial) declareEvery(name string, every time.Duration) dispatcher.Job {
	w.t.Helper()
	app := access.App{Name: "shop", AppSpec: access.AppSpec{Enabled: true}}
	if _, _, err := w.store.PutApp(w.t.Context(), app, input.Change{}); err != nil {
		w.t.Fatal(err)
	}
	start := time.Now().Add(every).UTC().Truncate(time.Second)
	job := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(every, start)})
	stored, _, err := w.store.PutJob(w.t.Context(), job, input.Change{Actor: "ada"})
	if err != nil {
		w.t.Fatal(err)
	}
	return stored
}

func TestListOfJobsHasTheOrdersOfTheStore(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.declareEvery("late", 48*time.Hour)
	w.declareEvery("soon", time.Hour)
	b := w.signedIn(reads())
	for at, want := range map[string][]string{
		"jobs": {"shop/late", "shop/soon"}, "jobs?sort=next": {"shop/soon", "shop/late"}, "jobs?sort=next&name=late": {"shop/late"},
	} {
		if got := rowsOf(b.get(at).text); !slices.Equal(got, want) {
			t.Errorf("page %s has the rows %q, want %q", at, got, want)
		}
	}
	if got := b.get("jobs?sort=next").text; !strings.Contains(got, `aria-sort="ascending"><a href="?sort=next">`) {
		t.Errorf("the column of next fires is not marked as sorted:\n%s", got)
	}
}

func TestChosenRunsAreChangedOneByOne(t *testing.T) {
	t.Parallel()
	w, api := newCanned(t, map[string]any{
		"GET /v1/runs": items([]run.Run{failedRun("r1"), failedRun("r2")}, ""), "POST /v1/runs/r1/retry": failedRun("r1"),
		"POST /v1/runs/r1/cancel": failedRun("r1"), "POST /v1/runs/r2/cancel": failedRun("r2"),
	})
	b := w.signedIn(everything())
	list := b.get("runs?state=failed").text
	for _, want := range []string{`name="run" value="r2"`, `name="back" value="runs?state=failed"`, `name="do" value="retry"`} {
		if !strings.Contains(list, want) {
			t.Errorf("the list of runs has no %s", want)
		}
	}
	if reader := w.signedIn(reads()); strings.Contains(reader.get("runs").text, `type="checkbox"`) ||
		reader.get("chosen-runs?run=r1&do=retry").StatusCode != http.StatusForbidden {
		t.Error("a reader may choose runs")
	}
	api.take()
	asked := b.get("chosen-runs?run=r1&run=r2&do=cancel&back=runs%3Fstate%3Dfailed")
	if len(api.take()) > 0 || !strings.Contains(asked.text, "Cancel these runs?") {
		t.Errorf("status %d, want a question before anything is done:\n%s", asked.StatusCode, asked.text)
	}
	for _, tt := range []struct{ do, requests, notice string }{
		{"cancel", "POST /v1/runs/r1/cancel POST /v1/runs/r2/cancel", "2 runs are cancelled."},
		{"retry", "POST /v1/runs/r1/retry POST /v1/runs/r2/retry", "1 runs are changed, 1 are not. The first of these: r2: "},
	} {
		api.take()
		got := b.post("chosen-runs?run=r1&run=r2&do="+tt.do, url.Values{"run": {"r1", "r2"}, "do": {tt.do}, "back": {"runs?state=failed"}})
		if requests := strings.Join(api.take(), " "); requests != tt.requests || got.Header.Get("Location") != "./runs?state=failed" {
			t.Errorf("%s: requests %s, then to %s, want %s and the list", tt.do, requests, got.Header.Get("Location"), tt.requests)
		}
		if text := b.get("runs?state=failed").text; !strings.Contains(text, tt.notice) {
			t.Errorf("%s: the list does not say %q", tt.do, tt.notice)
		}
	}
	for _, form := range []url.Values{{"do": {"cancel"}}, {"run": {"r1"}}, {"run": {"r1"}, "do": {"delete"}}} {
		if got := b.post("chosen-runs", form); got.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%v: status %d, want 422", form, got.StatusCode)
		}
	}
}
