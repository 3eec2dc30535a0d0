package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
)

// T10: a request of 71 KB made a response of 6.8 MB and took 2.3 s of processor.
func TestDeepDuplicatesMakeASmallResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	for what, body := range map[string]string{
		"list": `{"retry":{"delays":["1s"` + strings.Repeat(`,"1s"`, 10_000) + `]}}`,
	} {
		if got := w.do(http.MethodPut, oneJob, body).problems(); !slices.Contains(got, "/retry/delays too_many") {
			t.Errorf("a %s of 10,001 elements: got %v, want too_many", what, got)
		}
	}
	key := strings.Repeat("k", 64)
	for name, levels := range map[string]int{"deeper than any body": 995, "as deep as bodies may be": 99 - 1} {
		body := strings.Repeat(`{"`+key+`":`, levels) + `{` + strings.Repeat(`"a":1,`, 110) + `"a":1}` + strings.Repeat(`}`, levels)
		got := w.do(http.MethodPost, "/v1/schedules/preview", body)
		if got.Code != http.StatusBadRequest || got.Body.Len() > 100<<10 {
			t.Errorf("%s: %d bytes made a response %d of %d bytes, want a 400 of 100 KiB at most", name, len(body), got.Code, got.Body.Len())
		}
	}
}
