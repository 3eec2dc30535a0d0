package api_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
)

// manyOf is a list of n elements.
func manyOf(n int, element string) string {
	return `[` + element + strings.Repeat(`,`+element, n-1) + `]`
}

func evilImport(lists string) string {
	return `{"format":1,"installation":"w","app":{"name":"evil"},` + lists + `}`
}

// The quotas of an app apply before its import is decoded: a list of a million empty objects would take hundreds of
// times its size.
func TestQuotasHoldBeforeAnImportIsDecoded(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	for name, tt := range map[string]struct{ body, want string }{
		"empty jobs":         {evilImport(`"jobs":` + manyOf(1_000_000, `{}`)), "/jobs bound_quota"},
		"jobs with a target": {evilImport(`"jobs":` + manyOf(400_000, `{"job":{"target":{"webhook":{}}}}`)), "/jobs bound_quota"},
		"jobs of nothing":    {evilImport(`"jobs" : ` + manyOf(1_000_000, `0`)), "/jobs bound_quota"},
		"a key with escapes": {evilImport(`"\u006aobs":` + manyOf(10_001, `{}`)), "/jobs bound_quota"},
		"triggers of few jobs": {evilImport(`"jobs":` + manyOf(101, `{"job":{"triggers":{"a":{}`+strings.Repeat(`,"a":{}`, 1000)+`}}}`)),
			"/jobs bound_quota"},
		"runs that wait":          {evilImport(`"waiting_runs":` + manyOf(1_000_000, `{}`)), "/waiting_runs bound_quota"},
		"no more than the quotas": {evilImport(`"jobs":` + manyOf(10_000, `{}`)), "/jobs payload_too_large"},
		"no more, and a problem in each": {evilImport(`"jobs":` + manyOf(5_000, `{"job":{"nickname":"`+strings.Repeat("x", 100)+`"}}`)),
			"/jobs/0/job/nickname json_unknown_field"},
	} {
		w := newWorld(t, api.Options{}) // of its own: on a busy machine, one app may not use a node for as long as all of them take
		w.token = w.newToken("evil", []access.Scope{access.ScopeImport, access.ScopeWrite, access.ScopeRead}, "evil")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := w.do(http.MethodPost, "/v1/apps/evil/import", tt.body)
		runtime.ReadMemStats(&after)
		if problems := got.problems(); problems[0] != tt.want {
			t.Errorf("%s: %d with %v, want %s", name, got.Code, problems, tt.want)
		}
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 20*len(tt.body)+4<<20 || got.Body.Len() > 100<<10 { //nolint:gosec // less
			t.Errorf("%s: %d bytes allocate %d, and their response has %d", name, len(tt.body), took, got.Body.Len())
		}
	}
}

// The quotas of an import are those of a deleted app of its name, and its own if an operator imports it.
func TestImportsKeepTheQuotasOfTheirApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	operator, bound := w.token, w.newToken("evil", []access.Scope{access.ScopeImport}, "evil")
	three := `"jobs":` + manyOf(3, `0`)
	brings := func(quotas string) string {
		return `{"format":1,"installation":"w","app":{"name":"evil","bounds":{"quotas":` + quotas + `}},` + three + `}`
	}
	first := func(token, body string) string {
		w.token = token
		return w.do(http.MethodPost, "/v1/apps/evil/import", body).problems()[0]
	}
	for _, tt := range []struct{ name, token, body, want string }{
		{"bound, default", bound, evilImport(three), "/jobs/0 json_type"},
		{"bound, brings less, which does not count", bound, brings(`{"jobs":2}`), "/jobs/0 json_type"},
		{"operator brings less", operator, brings(`{"jobs":2}`), "/jobs bound_quota"},
		{"operator brings what is no quota", operator, brings(`{"jobs":-2}`), "/jobs/0 json_type"},
	} {
		if got := first(tt.token, tt.body); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	w.token = operator
	w.must(http.StatusCreated, http.MethodPut, "/v1/apps/evil", `{"bounds":{"quotas":{"jobs":2}}}`)
	w.must(http.StatusNoContent, http.MethodDelete, "/v1/apps/evil", "", "If-Match: *")
	if got := first(bound, evilImport(three)); got != "/jobs bound_quota" {
		t.Errorf("after an app with a quota of 2 jobs was deleted: %s, want /jobs bound_quota", got)
	}
}
