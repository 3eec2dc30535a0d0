package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestCompareShowsChangedAttributes(t *testing.T) {
	t.Parallel()
	w := newTrial(t)
	w.declareEvery("report", time.Hour)
	change := w.declareEvery("report", 2*time.Hour)
	b := w.signedIn(everything())
	job := b.get("apps/shop/jobs/report").text
	ids := regexp.MustCompile(`name="new" value="([^"]*)"`).FindAllStringSubmatch(job, -1)
	if len(ids) != 2 {
		t.Fatalf("the page of a job at revision %d offers %d changes to compare, want 2", change.Revision, len(ids))
	}
	for _, at := range []string{"?old=" + ids[1][1] + "&new=" + ids[0][1], "?old=" + ids[0][1] + "&new=" + ids[1][1]} {
		got := b.get("apps/shop/jobs/report/compare" + at).text
		for _, want := range []string{"triggers.tick.expression", "<del><code>&#34;rate(1h", "<ins><code>&#34;rate(2h"} {
			if !strings.Contains(got, want) {
				t.Errorf("the comparison does not show %s:\n%s", want, got)
			}
		}
	}
	for _, at := range []string{"", "?old=" + ids[0][1], "?old=x&new=y"} {
		if got := b.get("apps/shop/jobs/report/compare" + at); got.StatusCode != http.StatusNotFound {
			t.Errorf("compare%s: status %d, want 404", at, got.StatusCode)
		}
	}
}
