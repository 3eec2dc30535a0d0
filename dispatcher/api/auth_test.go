package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func TestRoutesNeedAToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	unknown, _ := access.NewToken()
	var responses []string
	for name, header := range map[string]string{
		"missing":      "Authorization:",
		"unknown":      "Authorization: Bearer " + unknown,
		"cut":          "Authorization: Bearer " + w.token[:len(w.token)-1],
		"another case": "Authorization: Bearer " + strings.ToUpper(w.token),
		"no scheme":    "Authorization: " + w.token,
		"basic":        "Authorization: Basic YTpi",
		"empty":        "Authorization: Bearer",
		"garbage":      "Authorization: Bearer \xff\x01'; DROP TABLE tokens; --",
	} {
		got := w.do("GET", oneApp, "", header, "X-Request-Id: same")
		got.refused(http.StatusUnauthorized, " unauthorized")
		if challenge := got.Header().Get("WWW-Authenticate"); !strings.HasPrefix(challenge, "Bearer") {
			t.Errorf("%s: WWW-Authenticate is %q", name, challenge)
		}
		if !strings.Contains(got.Body.String(), "carillon token create") {
			t.Errorf("%s: %s does not say how to make a token", name, got.Body)
		}
		responses = append(responses, got.Body.String())
	}
	for _, response := range responses {
		if diff := cmp.Diff(responses[0], response); diff != "" {
			t.Errorf("responses differ between bad tokens:\n%s", diff)
		}
	}
	w.must(http.StatusOK, "GET", oneApp, "", "Authorization: bearer "+w.token) // schemes are case-insensitive
	if logs := w.logs.String(); strings.Contains(logs, w.token) || strings.Contains(logs, w.token[:len(w.token)-1]) ||
		strings.Contains(logs, unknown) {
		t.Error("a token is in the logs")
	}
}

func TestProbesNeedNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Server: dispatcher.ServerVersion{Version: "v1.2.3"}})
	for _, path := range []string{"/livez", "/readyz", "/version", "/openapi.json"} {
		w.must(http.StatusOK, "GET", path, "", "Authorization:")
		w.must(http.StatusOK, "HEAD", path, "", "Authorization:")
	}
	want := dispatcher.ServerVersion{Version: "v1.2.3", Zones: schedule.ZonesVersion()}
	if got := into[dispatcher.ServerVersion](w.do("GET", "/version", "")); got != want {
		t.Errorf("version is %v, want %v", got, want)
	}
}

func TestReadTokenCannotWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	run := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	w.register(t.Context(), 7)
	w.token = w.newToken("reader", reads)
	for _, request := range []string{
		"PUT " + oneApp, "PATCH " + oneApp, "DELETE " + oneApp, "PUT " + oneJob, "DELETE " + oneJob,
		"POST " + oneJob + "/run", "POST " + oneJob + "/pause", "POST " + oneJob + "/resume",
		"POST " + oneJob + "/triggers/nightly/pause", "POST " + oneJob + "/triggers/nightly/resume",
		"POST /v1/runs/" + run.ID + "/cancel", "POST /v1/runs/" + run.ID + "/retry",
		"POST /v1/nodes/0000000000000007/pause", "POST /v1/nodes/0000000000000007/resume",
		"POST /v1/nodes/0000000000000007/drain", "POST /v1/rollback/skip", "POST /v1/rollback/replay",
		"POST /v1/zones/use", "POST /v1/zones/reset",
	} {
		method, path, _ := strings.Cut(request, " ")
		w.do(method, path, `{}`).refused(http.StatusForbidden, " forbidden")
	}
	for _, path := range []string{
		"/v1/apps", oneApp, oneApp + "/jobs", oneJob, oneJob + "/slots", oneApp + "/runs", oneApp + "/misfires",
		"/v1/runs/" + run.ID, "/v1/nodes",
	} {
		w.must(http.StatusOK, "GET", path, "")
	}
	w.must(http.StatusOK, "POST", "/v1/schedules/preview", `{"expression":"* * * * *","timezone":"UTC"}`)
}

func TestBoundTokenSeesOnlyItsApps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusCreated, "PUT", "/v1/apps/billing", `{}`)
	foreign := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	w.token = w.newToken("bound", writes, "shop", "billing", "nosuch")

	w.must(http.StatusCreated, "PUT", "/v1/apps/shop", `{}`)
	for _, path := range []string{oneApp, oneJob, oneApp + "/jobs", oneApp + "/runs", oneApp + "/misfires", "/v1/apps/unknown"} {
		w.do("GET", path, "").refused(http.StatusForbidden, " forbidden")
	}
	w.do("PUT", oneJob, validJob).refused(http.StatusForbidden, " forbidden")
	w.do("GET", "/v1/nodes", "").refused(http.StatusForbidden, " forbidden")
	for _, path := range []string{"/v1/apps", "/v1/apps?limit=2"} {
		got := into[page[access.App]](w.must(http.StatusOK, "GET", path, ""))
		if names := appNames(got.Items); !cmp.Equal(names, []string{"billing", "shop"}) || got.Next != "" {
			t.Errorf("GET %s lists %v with next %q, want its own two", path, names, got.Next)
		}
	}
	got := into[page[access.App]](w.must(http.StatusOK, "GET", "/v1/apps?limit=1", ""))
	if names := appNames(got.Items); !cmp.Equal(names, []string{"billing"}) || got.Next == "" {
		t.Errorf("first page of one lists %v with next %q", names, got.Next)
	}

	// A foreign run and one that does not exist get the same response, except for the id.
	unknown := run.Key{TriggerID: 1, ScheduledAt: foreign.ScheduledAt, Kind: run.KindManual}.String()
	for _, suffix := range []string{"", "/cancel", "/retry"} {
		method := map[bool]string{true: "GET", false: "POST"}[suffix == ""]
		a := w.do(method, "/v1/runs/"+foreign.ID+suffix, "", "X-Request-Id: same")
		b := w.do(method, "/v1/runs/"+unknown+suffix, "", "X-Request-Id: same")
		a.refused(http.StatusNotFound, " not_found")
		if diff := cmp.Diff(strings.ReplaceAll(b.Body.String(), unknown, "ID"),
			strings.ReplaceAll(a.Body.String(), foreign.ID, "ID")); diff != "" {
			t.Errorf("%s tells a foreign run from none (-none +foreign):\n%s", suffix, diff)
		}
	}
}

func TestNewTokensAreDistinctAndPrefixed(t *testing.T) {
	t.Parallel()
	a, hash := access.NewToken()
	b, _ := access.NewToken()
	if a == b || !strings.HasPrefix(a, "carillon_") || len(a) != len("carillon_")+43 || hash != access.HashToken(a) {
		t.Errorf("NewToken gives %d and %d characters", len(a), len(b))
	}
}

func TestMetricsAreReadWhileTheDatabaseIsUnreachable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	prometheus := "Authorization: Bearer " + w.newToken("prometheus", access.Scopes())
	bound := "Authorization: Bearer " + w.newToken("bound", access.Scopes(), "shop")
	unused := "Authorization: Bearer " + w.newToken("unused", access.Scopes())
	revoked := "Authorization: Bearer " + w.newToken("revoked", access.Scopes())
	w.must(http.StatusOK, "GET", "/metrics", "", prometheus)
	w.must(http.StatusOK, "GET", "/metrics", "", revoked)
	w.do("GET", "/metrics", "", bound).refused(http.StatusForbidden, " forbidden")
	if err := w.store.DeleteToken(t.Context(), "revoked", input.Change{}); err != nil {
		t.Fatal(err)
	}
	w.do("GET", "/metrics", "", revoked).refused(http.StatusUnauthorized, " unauthorized")

	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	w.must(http.StatusOK, "GET", "/metrics", "", prometheus)
	w.do("GET", "/metrics", "", bound).refused(http.StatusForbidden, " forbidden")
	w.do("GET", "/v1/apps", "", prometheus).refused(http.StatusServiceUnavailable, " unavailable")
	for name, token := range map[string]string{"never used": unused, "revoked": revoked} {
		if got := w.do("GET", "/metrics", "", token); got.Code == http.StatusOK {
			t.Errorf("a token that is %s reads metrics without a database", name)
		}
	}
}
