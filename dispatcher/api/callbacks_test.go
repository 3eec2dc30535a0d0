package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/api/gate"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// adoptRun gives node 7 the run that waits for a node.
func (w *world) adoptRun() run.HeldRun {
	w.t.Helper()
	return w.adoptRuns(1)[0]
}

// adoptRuns lets node 7 adopt a number of runs.
func (w *world) adoptRuns(n int) []run.HeldRun {
	w.t.Helper()
	query := dispatcher.AdoptQuery{Node: 7, Token: 70, Limit: 10}
	found, err := w.store.Adoptable(w.t.Context(), query)
	if err != nil {
		w.t.Fatal(err)
	}
	held, err := w.store.Adopt(w.t.Context(), query, found)
	if err != nil || len(held) != n {
		w.t.Fatalf("adopted %v, error %v, want %d", held, err, n)
	}
	return held
}

// record records the outcome of an attempt of node 7, and the next attempt.
func (w *world) record(held run.HeldRun, state run.State, next *dispatcher.NextAttempt) {
	w.t.Helper()
	w.recordOutcome(held, run.Outcome{State: state, HTTPStatus: 202}, next)
}

// recordOutcome sets when the attempt began and ended to now.
func (w *world) recordOutcome(held run.HeldRun, outcome run.Outcome, next *dispatcher.NextAttempt) {
	w.t.Helper()
	now, err := w.store.Clock(w.t.Context())
	if err == nil {
		outcome.StartedAt, outcome.EndedAt = now, now
		err = w.store.Record(w.t.Context(), []dispatcher.Record{{
			Key: held.Key, JobID: held.JobID, Revision: held.Revision, ClaimedAt: held.ClaimedAt, Node: 7, Token: held.Token,
			Attempt: held.Attempt, Outcome: outcome, Next: next,
		}})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// acceptRun makes the requested run wait for its callback.
func (w *world) acceptRun() string {
	w.t.Helper()
	w.accept(w.adoptRun())
	return ""
}

func (w *world) accept(held run.HeldRun) {
	w.t.Helper()
	deadline := time.Now().Add(time.Hour)
	w.record(held, run.WaitingCallback, &dispatcher.NextAttempt{At: deadline, Callback: &run.Callback{Within: time.Hour}})
}

// longRun is a run of a job in app, in its first attempt.
func (w *world) longRun(app string) (r run.Run, held run.HeldRun) {
	w.t.Helper()
	at := "/v1/apps/" + app
	w.must(http.StatusCreated, "PUT", at, `{}`)
	w.must(http.StatusCreated, "PUT", at+"/jobs/sync", validJob)
	r = into[run.Run](w.must(http.StatusAccepted, "POST", at+"/jobs/sync/run", ""))
	return r, w.adoptRun()
}

// callbackToken returns the header with the token of an attempt.
func (w *world) callbackToken(r run.Run, attempt int) string {
	w.t.Helper()
	key, err := w.store.CallbackKey(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return "Authorization: Bearer " + run.CallbackToken(key, r.EventID, attempt)
}

func TestCallbackEndsTheAttemptOfItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 7)
	r, held := w.longRun("crm")
	w.accept(held)
	at, token := "/v1/runs/"+r.ID, w.callbackToken(r, 1)
	beat := into[run.CallbackReply](w.must(http.StatusOK, "POST", at+"/heartbeat", `{"progress":"half","percent":50}`, token))
	if c := beat.Callback; beat.State != run.WaitingCallback || c == nil || c.Progress != "half" || *c.Percent != 50 {
		t.Errorf("heartbeat: got %+v, want its progress", beat)
	}
	w.must(http.StatusOK, "POST", at+"/heartbeat", "", token)
	shown := into[run.Run](w.must(http.StatusOK, "GET", at, ""))
	if shown.Callback == nil || shown.Callback.Progress != "half" || shown.NextAttemptAt != nil {
		t.Errorf("run: got %+v, want what its target said", shown)
	}
	for range 2 { // a repeated callback gets the same response
		done := into[run.CallbackReply](w.must(http.StatusOK, "POST", at+"/complete", `{"message":"42 rows"}`, token))
		if done.State != run.Succeeded || done.Run != r.ID || done.Attempt != 1 {
			t.Errorf("complete: got %+v, want the run succeeded", done)
		}
	}
	w.do("POST", at+"/fail", "", token).refused(409, " state_conflict")
	w.do("POST", at+"/heartbeat", "", token).refused(409, " state_conflict")
	w.do("POST", at+"/heartbeat", "", token).says("stop the work")
	if strings.Contains(w.logs.String(), strings.TrimPrefix(token, "Authorization: Bearer ")) {
		t.Error("the log has the token")
	}
	for _, entry := range w.log(w.token, "&subject=run%20"+r.ID) {
		t.Errorf("the audit log says %s, want nothing of a callback", entry)
	}
}

func TestCallbackTokenIsTriedOnFewRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Limits: gate.Limits{BadTokens: 5}})
	w.register(t.Context(), 7)
	run, held := w.longRun("crm")
	w.accept(held)
	other, otherHeld := w.longRun("shop")
	w.accept(otherHeld)
	token := w.callbackToken(run, 1)
	w.must(http.StatusOK, "POST", "/v1/runs/"+run.ID+"/heartbeat", "", token)
	for range 5 {
		w.must(http.StatusUnauthorized, "POST", "/v1/runs/"+other.ID+"/heartbeat", "", token)
	}
	w.must(http.StatusTooManyRequests, "POST", "/v1/runs/"+other.ID+"/heartbeat", "", token)
	w.must(http.StatusOK, "GET", "/v1/apps", "")
}

// The token of a callback is for its attempt, and permits nothing else.
func TestCallbackTokenPermitsNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{Limits: gate.Limits{BadTokens: 1000}})
	w.register(t.Context(), 7)
	r, held := w.longRun("crm")
	w.accept(held)
	other, otherHeld := w.longRun("shop")
	w.accept(otherHeld)
	at, token := "/v1/runs/"+r.ID, w.callbackToken(r, 1)
	for what, header := range map[string]string{
		"of a run of another app": w.callbackToken(other, 1),
		"cut":                     token[:len(token)-1],
		"of another number":       strings.Replace(token, "cb_1_", "cb_2_", 1),
		"without a number":        "Authorization: Bearer " + run.CallbackTokenPrefix + "x",
		"of another kind":         "Authorization: Bearer carillon_x",
		"none":                    "Authorization:",
	} {
		for _, how := range []string{"/complete", "/fail", "/heartbeat"} {
			if got := w.do("POST", at+how, "", header); got.Code != http.StatusUnauthorized {
				t.Errorf("%s with a token %s: got status %d, want 401", how, what, got.Code)
			}
		}
	}
	// The token of a future attempt is valid, but its attempt does not exist yet.
	w.do("POST", at+"/complete", "", w.callbackToken(r, 2)).refused(409, " state_conflict")
	unknown := "/v1/runs/" + run.Key{TriggerID: 1, ScheduledAt: time.Unix(1, 0), Kind: run.KindManual}.String()
	w.do("POST", unknown+"/complete", "", token).refused(401, " unauthorized")
	for _, route := range api.Routes() {
		path := strings.NewReplacer("{app}", "crm", "{job}", "sync", "{trigger}", "nightly", "{run}", r.ID).Replace(route.Path)
		if route.Scope == "" || slices.Contains([]string{"/complete", "/fail", "/heartbeat"}, strings.TrimPrefix(path, at)) {
			continue
		}
		if got := w.do(route.Method, path, "", token); got.Code != http.StatusUnauthorized {
			t.Errorf("%s %s: got status %d, want 401", route.Method, route.Path, got.Code)
		}
	}
	w.do("POST", at+"/heartbeat", `{"percent":101}`, token).refused(422, "/percent count_range")
	w.do("POST", at+"/complete", `{"result":1}`, token).refused(400, "/result json_unknown_field")
	if state := into[run.Run](w.must(http.StatusOK, "GET", at, "")).State; state != run.WaitingCallback {
		t.Errorf("afterwards the run is %s, want it to wait", state)
	}
}

// Work that took hours is not lost because its result is long, and no text reveals the token to its readers.
func TestCallbackTextsAreCutAndHaveNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 7)
	r, held := w.longRun("crm")
	w.accept(held)
	at, header := "/v1/runs/"+r.ID, w.callbackToken(r, 1)
	token := strings.TrimPrefix(header, "Authorization: Bearer ")
	beat := into[run.CallbackReply](w.must(http.StatusOK, "POST", at+"/heartbeat",
		`{"progress":"`+token+strings.Repeat("é", 1000)+`"}`, header))
	if got := beat.Callback.Progress; !strings.HasPrefix(got, "[redacted]é") || len(got) > run.MostCallbackText {
		t.Errorf("progress: got %d bytes, %.40s…, want its beginning without the token", len(got), got)
	}
	w.do("POST", at+"/complete", `{"message":"x","state":{"last":"`+token+`"}}`, header).refused(422, "/state state_invalid")
	w.must(http.StatusOK, "POST", at+"/complete", `{"message":"request had `+token+" x"+strings.Repeat("é", 1000)+`"}`, header)
	shown := w.must(http.StatusOK, "GET", at, "")
	if text := shown.Body.String(); strings.Contains(text, token) || !strings.Contains(text, "request had [redacted]") ||
		strings.Contains(text, "\ufffd") {
		t.Errorf("the run shows %s, want its message without the token and cut between letters", text)
	}
}

func TestLateCallbacksAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 7)
	cancelled, held := w.longRun("crm")
	w.accept(held)
	w.must(http.StatusOK, "POST", "/v1/runs/"+cancelled.ID+"/cancel", "")
	w.do("POST", "/v1/runs/"+cancelled.ID+"/complete", "", w.callbackToken(cancelled, 1)).refused(409, " state_conflict")
	w.do("POST", "/v1/runs/"+cancelled.ID+"/complete", "", w.callbackToken(cancelled, 1)).says("cancelled")
	late, held := w.longRun("shop")
	w.record(held, run.TimedOut, nil)
	for _, how := range []string{"/complete", "/fail", "/heartbeat"} {
		w.do("POST", "/v1/runs/"+late.ID+how, "", w.callbackToken(late, 1)).refused(409, " state_conflict")
	}
}

// A callback may come before the node has recorded that the target accepted the attempt.
func TestEarlyCallbackCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 7)
	r, held := w.longRun("crm")
	at, token := "/v1/runs/"+r.ID, w.callbackToken(r, 1)
	w.must(http.StatusOK, "POST", at+"/heartbeat", `{"percent":1}`, token)
	w.must(http.StatusOK, "POST", at+"/complete", "", token)
	w.accept(held)
	if state := into[run.Run](w.must(http.StatusOK, "GET", at, "")).State; state != run.Succeeded {
		t.Errorf("the run is %s, want it succeeded", state)
	}
}

func TestOperatorEndsARunThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.register(t.Context(), 7)
	r, held := w.longRun("crm")
	at := "/v1/runs/" + r.ID
	w.do("POST", at+"/complete", "").refused(409, " state_conflict")
	w.accept(held)
	w.must(http.StatusOK, "POST", at+"/complete", `{"message":"seen in the log"}`)
	shown := into[run.Run](w.must(http.StatusOK, "GET", at, ""))
	if len(shown.Attempts) != 1 || shown.Attempts[0].Response == nil || shown.Attempts[0].Response.CallbackResult != "seen in the log" {
		t.Errorf("attempts: got %+v, want what the operator said", shown.Attempts)
	}
	if entries := w.log(w.token, "&action=complete&refused=false"); len(entries) != 1 {
		t.Errorf("the audit log has %v, want one entry", entries)
	}
}

func TestJobWithCallbackGetsAWarningWithoutAURL(t *testing.T) {
	t.Parallel()
	const long = `{"target":{"webhook":{"url":"https://example.com/hook","callback":{}}}}`
	for known, want := range map[bool]int{true: 0, false: 1} {
		w := newWorld(t, api.Options{Callbacks: known})
		w.must(http.StatusCreated, "PUT", oneApp, `{}`)
		job := into[dispatcher.Job](w.must(http.StatusCreated, "PUT", oneJob, long))
		if len(job.Warnings) != want || job.Target.Webhook.Callback.Timeout != run.DefaultCallbackTimeout {
			t.Errorf("URL known %v: got %+v and %+v, want %d warnings and an hour", known, job.Warnings, job.Target.Webhook.Callback, want)
		}
		w.do("PUT", oneJob, strings.Replace(long, "{}", `{"timeout":"169h"}`, 1)).refused(422, "/target/webhook/callback/timeout duration_max")
	}
}

func TestCallbacksAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorld(t, api.Options{Registerer: registry})
	w.register(t.Context(), 7)
	counted := func(when string, want ...string) {
		t.Helper()
		var all []string
		for _, result := range []string{"complete", "conflict", "fail", "heartbeat"} {
			all = append(all, fmt.Sprintf("carillon_callbacks_total{result=%q} %s", result, want[len(all)]))
		}
		text := "# HELP carillon_callbacks_total Callbacks that this node got, by what they said or that they came too late.\n" +
			"# TYPE carillon_callbacks_total counter\n" + strings.Join(all, "\n") + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "carillon_callbacks_total"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	counted("at first", "0", "0", "0", "0")
	run, held := w.longRun("crm")
	w.accept(held)
	at, token := "/v1/runs/"+run.ID, w.callbackToken(run, 1)
	w.must(http.StatusOK, "POST", at+"/heartbeat", "", token)
	w.must(http.StatusOK, "POST", at+"/heartbeat", "", token)
	w.must(http.StatusOK, "POST", at+"/complete", "", token)
	w.do("POST", at+"/fail", "", token).refused(409, " state_conflict")
	w.do("POST", at+"/fail", "", "Authorization: Bearer wrong").refused(401, " unauthorized")
	counted("in the end", "1", "1", "0", "2")
}
