package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

func TestPutReturnsTheResolvedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	got := into[dispatcher.Job](w.must(http.StatusCreated, "PUT", oneJob,
		`{"payload":{"html":"<b>&","n":1.0},"target":{"webhook":{"url":"https://example.com/"}},
			"triggers":{"n":{"expression":"*/5 * * * *","timezone":"UTC"}}}`))
	trigger := got.Triggers["n"]
	if trigger.Dialect != "unix" || trigger.Timezone != "UTC" || trigger.MisfireAfter != dispatcher.DefaultMisfireAfter ||
		!trigger.Enabled || trigger.State != dispatcher.TriggerWaiting || trigger.NextFireTime == nil {
		t.Errorf("trigger is %+v, want it resolved with a fire time", trigger)
	}
	webhook := got.Target.Webhook
	if !got.Enabled || got.State != dispatcher.JobExecuting || got.Revision != 1 || webhook.Method != "POST" ||
		webhook.Timeout != target.DefaultTimeout {
		t.Errorf("job is %+v with webhook %+v, want the defaults", got, webhook)
	}
	if want := `{"html":"<b>&","n":1.0}`; string(got.Payload) != want {
		t.Errorf("payload is %s, want %s as it was sent", got.Payload, want)
	}
	read := into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, ""))
	if diff := cmp.Diff(got, read); diff != "" {
		t.Errorf("GET differs from what PUT returned (-put +get):\n%s", diff)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for _, step := range []struct {
		path, headers string
		job, trigger  bool
		state         dispatcher.JobState
		revision      int64
	}{
		{"/pause", `If-Match: "1"`, true, false, dispatcher.JobPaused, 2},
		{"/triggers/nightly/pause", "", true, true, dispatcher.JobPaused, 3},
		{"/resume", "", false, true, dispatcher.JobPaused, 4},
		{"/triggers/nightly/resume", "", false, false, dispatcher.JobExecuting, 5},
	} {
		got := w.must(http.StatusOK, "POST", oneJob+step.path, "", step.headers)
		job := into[dispatcher.Job](got)
		if job.Paused != step.job || job.Triggers["nightly"].Paused != step.trigger || job.State != step.state || job.Revision != step.revision {
			t.Errorf("after %s: paused %v, trigger %v, state %s, revision %d; want %+v",
				step.path, job.Paused, job.Triggers["nightly"].Paused, job.State, job.Revision, step)
		}
	}
	w.do("POST", oneJob+"/pause", "", `If-Match: "1"`).refused(412, " precondition_failed")
	w.do("POST", oneJob+"/triggers/nosuch/pause", "").refused(404, " not_found")
	w.do("POST", "/v1/apps/crm/jobs/nosuch/pause", "").refused(404, " not_found")
	w.do("POST", oneJob+"/pause", `{"why":"tomorrow"}`).refused(400, "/why json_unknown_field")
	w.do("POST", oneJob+"/pause", `{"until":"2020-05-01T10:00:00Z"}`).refused(422, "/until at_past")
	w.must(http.StatusOK, "POST", oneJob+"/pause", `{}`)
	w.must(http.StatusOK, "POST", oneJob+"/resume", "")
	w.do("POST", oneJob+"/resume", `{"reason":"done"}`).refused(400, "/reason json_unknown_field")
	w.do("POST", oneJob+"/pause", `{"reason":"`+strings.Repeat("x", 1025)+`"}`).refused(422, "/reason text_too_long")
	paused := into[dispatcher.Job](w.must(http.StatusOK, "POST", oneJob+"/pause", `{"reason":"a migration"}`))
	if paused.PausedBy == "" || paused.PausedAt == nil || paused.PauseReason != "a migration" {
		t.Errorf("the pause is by %q at %v because of %q", paused.PausedBy, paused.PausedAt, paused.PauseReason)
	}
	again := w.must(http.StatusOK, "POST", oneJob+"/pause", `{"reason":"another"}`)
	if diff := cmp.Diff(paused, into[dispatcher.Job](again)); diff != "" {
		t.Error("paused again (-before +after):\n" + diff)
	}
}

func TestRunsAreRequestedCancelledAndRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	got := w.must(http.StatusAccepted, "POST", oneJob+"/run", "")
	r := into[run.Run](got)
	if r.State != run.Queued || r.Kind != run.KindManual || got.Header().Get("Location") != "/v1/runs/"+r.ID {
		t.Errorf("requested run is %+v at %q", r, got.Header().Get("Location"))
	}
	path := "/v1/runs/" + r.ID
	w.do("POST", path+"/retry", "").refused(409, " state_conflict")
	w.do("POST", path+"/retry", "").says("is not finished; wait until it ends, or cancel it first")
	if r = into[run.Run](w.must(http.StatusOK, "POST", path+"/cancel", "")); r.State != run.Cancelled {
		t.Errorf("cancelled run is %s", r.State)
	}
	w.do("POST", path+"/cancel", "").refused(409, " state_conflict")
	w.do("POST", path+"/cancel", "").says("is finished; its outcome is final; retry it to run it again")
	if r = into[run.Run](w.must(http.StatusOK, "POST", path+"/retry", "")); r.State != run.Queued {
		t.Errorf("retried run is %s", r.State)
	}
	if r = into[run.Run](w.must(http.StatusOK, "GET", path, "")); r.State != run.Queued || r.Job != "sync" {
		t.Errorf("run is %+v", r)
	}
	w.do("POST", "/v1/apps/crm/jobs/nosuch/run", "").refused(404, " not_found")
}

func TestExplainAndVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	explain := oneJob + "/triggers/nightly/explain"
	got := into[verify.Explanation](w.must(http.StatusOK, "GET", explain+"?at=2026-05-01T10:00:00Z", ""))
	if got.Verdict == "" || got.Reason == "" || got.Trigger != "nightly" || got.Steps == nil {
		t.Errorf("explanation is %+v", got)
	}
	w.do("GET", explain, "").refused(422, "/at required")
	w.do("GET", explain+"?at=now", "").refused(422, "/at time_invalid")
	w.do("GET", oneJob+"/triggers/nosuch/explain?at=2026-05-01T10:00:00Z", "").refused(404, " not_found")
	page := into[verify.Page](w.must(http.StatusOK, "GET", oneApp+"/verify", ""))
	if len(page.Items) != 1 || page.Items[0].Trigger != "nightly" || page.Items[0].Unexplained != 0 || page.Next != "" {
		t.Errorf("verify page is %+v", page)
	}
	w.do("GET", oneApp+"/verify?cursor=a@b", "").refused(400, "/cursor page_cursor")
	w.do("GET", oneApp+"/verify?from=2026-05-02T00:00:00Z&to=2026-05-01T00:00:00Z", "").refused(422, "/from window_order")
	w.do("GET", "/v1/apps/nosuch/verify", "").refused(404, " not_found")
}

// No node claims runs of a disabled app, so a requested run would wait silently.
func TestRunOfDisabledAppIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	run := into[run.Run](w.must(http.StatusAccepted, "POST", oneJob+"/run", ""))
	w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":false}`)
	w.do("POST", oneJob+"/run", "").refused(409, " app_disabled")
	w.do("POST", oneJob+"/run", "").says(`PATCH /v1/apps/crm`)
	w.do("POST", "/v1/apps/crm/jobs/nosuch/run", "").refused(404, " not_found")
	path := "/v1/runs/" + run.ID
	w.do("POST", path+"/retry", "").refused(409, " state_conflict")
	w.must(http.StatusOK, "POST", path+"/cancel", "")
	w.do("POST", path+"/retry", "").refused(409, " app_disabled")
	w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":true}`)
	w.must(http.StatusOK, "POST", path+"/retry", "")
	w.must(http.StatusAccepted, "POST", oneJob+"/run", "")
}

func TestNodesAreListedAndPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 0xbe11)
	nodes := into[page[dispatcher.Node]](w.must(http.StatusOK, "GET", "/v1/nodes", "")).Items
	if len(nodes) != 1 || nodes[0].ID != 0xbe11 || nodes[0].State != dispatcher.NodeActive {
		t.Fatalf("nodes are %+v", nodes)
	}
	path := "/v1/nodes/" + nodes[0].ID.String()
	for _, step := range []struct {
		verb string
		want dispatcher.NodeState
	}{{"pause", dispatcher.NodePaused}, {"resume", dispatcher.NodeActive}, {"drain", dispatcher.NodeDraining}} {
		if got := into[dispatcher.Node](w.must(http.StatusOK, "POST", path+"/"+step.verb, "")); got.State != step.want {
			t.Errorf("node after %s is %s, want %s", step.verb, got.State, step.want)
		}
	}
	if err := w.store.Deregister(t.Context(), 0xbe11); err != nil {
		t.Fatal(err)
	}
	w.do("POST", path+"/resume", "").refused(409, " state_conflict")
	for _, id := range []string{"1", "n", "000000000000BE11", "0000000000000001", "1%20OR%201=1", "%00"} {
		w.do("POST", "/v1/nodes/"+id+"/pause", "").refused(404, " not_found")
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	got := w.must(http.StatusOK, "POST", "/v1/schedules/preview",
		`{"expression":"0 0 2 * * ?","timezone":"Europe/Berlin","from":"2026-03-27T12:00:00+01:00","count":3}`)
	want := `{"expression":"0 0 2 * * ?","dialect":"quartz","timezone":"Europe/Berlin","gap":"","overlap":"",` +
		`"from":"2026-03-27T11:00:00Z","fire_times":["2026-03-28T01:00:00Z","2026-03-30T00:00:00Z","2026-03-31T00:00:00Z"]}` + "\n"
	if diff := cmp.Diff(want, got.Body.String()); diff != "" {
		t.Errorf("preview (-want +got):\n%s", diff)
	}
	preview := into[view.Preview](w.must(http.StatusOK, "POST", "/v1/schedules/preview", `{"expression":"* * * * *","timezone":"UTC"}`))
	if len(preview.FireTimes) != view.DefaultPreview || preview.From.IsZero() {
		t.Errorf("preview without count and from is %+v", preview)
	}
	for body, problem := range map[string]string{
		`{"expression":"* * * * *","timezone":"UTC","count":0}`:        "/count count_range",
		`{"expression":"* * * * *","timezone":"UTC","count":101}`:      "/count count_range",
		`{"expression":"* * * *"}`:                                     "/expression cron_fields",
		`{}`:                                                           "/expression cron_empty",
		`{"expression":"0 0 30 2 *","timezone":"UTC"}`:                 "/expression cron_never",
		`{"expression":"* * * * *","timezone":"UTC","from":"now"}`:     "/from time_invalid",
		`{"expression":"* * * * *","timezone":"X"}`:                    "/timezone tz_unknown",
		`{"expression":"* * * * *","timezone":"UTC","dialect":"cron"}`: "/dialect enum",
	} {
		w.do("POST", "/v1/schedules/preview", body).refused(422, problem)
	}
}

func TestMissingObjectsReturnNotFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	unknownRun := run.Key{TriggerID: 5, Kind: run.KindManual}.String()
	for _, path := range []string{
		"/v1/apps/nosuch", "/v1/apps/1%20OR%201=1", "/v1/apps/%00", "/v1/apps/%ff", "/v1/apps/..%2Fcrm",
		"/v1/apps/crm/jobs/nosuch", "/v1/apps/crm/jobs/%00", "/v1/apps/nosuch/jobs/sync", "/v1/apps/%00/jobs/sync",
		"/v1/runs/1%20OR%201=1", "/v1/runs/%00", "/v1/runs/x", "/v1/runs/" + unknownRun, "/v1/runs/550e8400-e29b-41d4-a716-446655440000",
	} {
		w.do("GET", path, "").refused(404, " not_found")
	}
	w.do("PUT", "/v1/apps/nosuch/jobs/sync", validJob).refused(404, " not_found")
	w.do("PUT", "/v1/apps/%00/jobs/sync", validJob).refused(404, " not_found")
	w.do("DELETE", "/v1/apps/crm/jobs/nosuch", "").refused(404, " not_found")
	w.do("DELETE", oneApp, "").refused(409, " app_not_empty")
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	for _, path := range []string{"/", "/v1", "/v1/apps/", "/v1//apps", "/v1/apps/../apps/crm",
		"/v1/apps/crm/jobs/sync/", "/v2/apps", "/V1/apps", "/livez/"} {
		w.do("GET", path, "").refused(404, " route_unknown")
	}
	for request, allow := range map[string]string{
		"POST /v1/apps":                         "GET, HEAD",
		"POST " + oneApp:                        "DELETE, GET, HEAD, PATCH, PUT",
		"PATCH " + oneJob:                       "DELETE, GET, HEAD, PUT",
		"GET " + oneJob + "/run":                "POST",
		"OPTIONS /v1/nodes":                     "GET, HEAD",
		"BREW /livez":                           "GET, HEAD",
		"DELETE /v1/runs/x?and=an&odd=argument": "GET, HEAD",
	} {
		method, path, _ := strings.Cut(request, " ")
		got := w.do(method, path, "")
		got.refused(405, " method_not_allowed")
		if got.Header().Get("Allow") != allow {
			t.Errorf("%s: Allow is %q, want %q", request, got.Header().Get("Allow"), allow)
		}
	}
}

func TestHeadHasTheHeadersOfGet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	get, head := w.must(http.StatusOK, "GET", oneJob, "", "X-Request-Id: a"), w.must(http.StatusOK, "HEAD", oneJob, "", "X-Request-Id: a")
	if diff := cmp.Diff(get.Header(), head.Header()); diff != "" {
		t.Errorf("headers (-GET +HEAD):\n%s", diff)
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	if got := w.do("GET", "/livez", "", "X-Request-Id: my-id.7_A").Header().Get("X-Request-Id"); got != "my-id.7_A" {
		t.Errorf("request id is %q, want the caller's", got)
	}
	seen := map[string]bool{}
	for _, id := range []string{"", "a b", "a\nb", strings.Repeat("a", 65), `"><script>`, "é"} {
		got := w.do("GET", "/livez", "", "X-Request-Id: "+id).Header().Get("X-Request-Id")
		if got == "" || got == id || seen[got] {
			t.Errorf("request id for %q is %q, want a new one", id, got)
		}
		seen[got] = true
	}
}

func TestResponsesAreJSON(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	got := w.must(http.StatusOK, "GET", oneJob, "")
	if got.Header().Get("Content-Type") != "application/json" || !json.Valid(got.Body.Bytes()) ||
		got.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("response has headers %v", got.Header())
	}
}

func TestMetricsNeedATokenForAllApps(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "carillon_test_total", Help: "Tests."})
	registry.MustRegister(counter)
	counter.Inc()
	w := newWorld(t, api.Options{Metrics: registry})
	got := w.must(http.StatusOK, "GET", "/metrics", "")
	got.says("carillon_test_total 1")
	if media := got.Header().Get("Content-Type"); !strings.HasPrefix(media, "text/plain") {
		t.Errorf("Content-Type is %q", media)
	}
	open := w.must(http.StatusOK, "GET", "/metrics", "", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	open.says("# EOF")
	if media := open.Header().Get("Content-Type"); !strings.HasPrefix(media, "application/openmetrics-text; version=1.0.0") {
		t.Errorf("Content-Type of OpenMetrics is %q", media)
	}
	w.do("GET", "/metrics", "", "Authorization:").refused(401, " unauthorized")
	bound := w.newToken("bound", access.Scopes(), "crm")
	w.do("GET", "/metrics", "", "Authorization: Bearer "+bound).refused(403, " forbidden")
}

func TestRollbackIsShownAndResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.do("GET", "/v1/rollback", "").refused(http.StatusNotFound, " not_found")
	w.do("POST", "/v1/rollback/replay", "").refused(http.StatusConflict, " state_conflict")
	if err := w.store.Register(t.Context(), dispatcher.Node{ID: 7, Name: "host"}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.DeclareRollback(t.Context(), "restored", input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	if got := into[dispatcher.Rollback](w.must(http.StatusOK, "GET", "/v1/rollback", "")); got.Reason != "restored" ||
		got.At.IsZero() || got.Choice != "" {
		t.Errorf("the rollback is %+v", got)
	}
	w.do("POST", "/v1/nodes/0000000000000007/resume", "").refused(http.StatusConflict, " state_conflict")
	w.do("POST", "/v1/rollback/skip", `{"now":true}`).refused(http.StatusBadRequest, "/now json_unknown_field")
	if got := into[dispatcher.Rollback](w.must(http.StatusOK, "POST", "/v1/rollback/skip", "")); got.Choice != dispatcher.RollbackSkip {
		t.Errorf("after the choice it is %+v", got)
	}
	w.do("POST", "/v1/rollback/replay", "").refused(http.StatusConflict, " state_conflict")
}
