package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// carryingJob is validJob with a state and an objective.
func carryingJob() string {
	const more = `{"carry_state":true,"concurrency_policy":"queue","objective":{"within":"1s","of":"99.9%"},`
	return strings.Replace(validJob, "{", more, 1)
}

func TestCarriedStateHasARevisionOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	const at = oneJob + "/state"
	w.do("PUT", at, `{"state":1}`).refused(422, "/state carry_state")
	w.must(http.StatusOK, "PUT", oneJob, carryingJob(), "If-Match: *")
	if got := into[run.CarriedState](w.must(http.StatusOK, "GET", at, "")); string(got.State) != "null" || got.Revision != 0 {
		t.Errorf("state of a job that had none: %+v", got)
	}
	set := w.must(http.StatusOK, "PUT", at, `{"state":{"cursor":"\u00e4"}}`)
	if got := set.Header().Get("ETag"); got != `"1"` {
		t.Errorf("ETag of the first state is %s, want \"1\"", got)
	}
	w.do("PUT", at, `{"state":2}`, "If-Match:").refused(428, " precondition_required")
	w.do("PUT", at, `{"state":2}`, `If-Match: "7"`).refused(412, " precondition_failed")
	w.do("PUT", at, `{"state":2}`, "If-None-Match: *").refused(412, " name_taken")
	w.must(http.StatusOK, "PUT", at, set.Body.String(), `If-Match: "1"`) // the result of a read can be written
	w.must(http.StatusNoContent, "DELETE", at, "", "If-Match: *")
	w.must(http.StatusOK, "PUT", at, `{"state":3}`, "If-None-Match: *")
	w.do("PUT", at, `{}`, "If-Match: *").refused(422, "/state required")
	w.do("PUT", at, `{"state":"`+strings.Repeat("x", run.MaxCarriedState)+`"}`, "If-Match: *").refused(422, "/state state_invalid")
	w.do("PUT", at, `{"state":1,"x":2}`, "If-Match: *").refused(400, "/x json_unknown_field")
	w.do("GET", "/v1/apps/crm/jobs/nosuch/state", "").refused(404, " not_found")
	if got := into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, "")); got.Revision != 2 {
		t.Errorf("revision of the job is %d, want 2: its state has another", got.Revision)
	}
}

func TestJobsThatCannotCarryAStateAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	calling := func(target string) string {
		return strings.Replace(carryingJob(), `"webhook":{"url":"https://example.com/hook"}`, target, 1)
	}
	for name, from := range map[string]string{
		"allow":        strings.Replace(carryingJob(), `"queue"`, `"allow"`, 1),
		"replace":      strings.Replace(carryingJob(), `"queue"`, `"replace"`, 1),
		"two at once":  strings.Replace(carryingJob(), `"queue"`, `"queue","max_concurrency":2`, 1),
		"event":        calling(`"lambda":{"function":"f","invocation":"Event"}`),
		"xxl_job":      calling(`"group":{"name":"g","xxl_job":{"handler":"h"}}`),
		"of shards":    calling(`"group":{"name":"g","strategy":"broadcast"}`),
		"left to none": strings.Replace(carryingJob(), `"concurrency_policy":"queue",`, "", 1),
	} {
		if r := w.do("PUT", oneJob, from, "If-Match: *"); r.Code != 422 || !strings.Contains(r.Body.String(), `"/carry_state"`) {
			t.Errorf("%s: %d %s, want carry_state refused", name, r.Code, r.Body)
		}
	}
}

func TestObjectivesAreCheckedAndShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.do("GET", oneJob+"/objective", "").refused(404, " not_found")
	for of, code := range map[string]string{
		`{"within":"1s","of":"100%"}`:     "/objective/of objective_form",
		`{"within":"1s","of":"49.999%"}`:  "/objective/of objective_form",
		`{"within":"1s","of":"99.9999%"}`: "/objective/of objective_form",
		`{"within":"1s","of":"0.999"}`:    "/objective/of objective_form",
		`{"within":"0s","of":"99%"}`:      "/objective/within duration_min",
		`{"within":"25h","of":"99%"}`:     "/objective/within duration_max",
	} {
		w.do("PUT", oneJob, strings.Replace(validJob, "{", `{"objective":`+of+",", 1), "If-Match: *").refused(422, code)
	}
	jittered := strings.Replace(carryingJob(), `"timezone":"UTC"`, `"timezone":"UTC","jitter":"1s"`, 1)
	w.do("PUT", oneJob, jittered, "If-Match: *").refused(422, "/objective/within objective_form")
	w.must(http.StatusOK, "PUT", oneJob, carryingJob(), "If-Match: *")
	got := into[dispatcher.ObjectiveStatus](w.must(http.StatusOK, "GET", oneJob+"/objective", ""))
	if got.Of != "99.9%" || got.BudgetLeft != 100 || got.Attained != nil || len(got.BurnRates) != 5 {
		t.Errorf("objective %+v, want a whole budget", got)
	}
	if text := w.must(http.StatusOK, "GET", "/v1/objectives?app=crm", "").Body.String(); !strings.Contains(text, `"within":"1s"`) {
		t.Errorf("objectives %s, want that of the job", text)
	}
}
