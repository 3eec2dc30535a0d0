package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

const twoTriggers = `{"target":{"webhook":{"url":"https://example.com/hook"}},"triggers":{
	"a":{"expression":"0 0 2 * * ?","timezone":"UTC"},"b":{"expression":"0 0 3 * * ?","timezone":"UTC"}}}`

func TestRenameOfJobAndTriggers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	before := into[dispatcher.Job](w.must(http.StatusCreated, "PUT", oneJob, twoTriggers))
	got := w.must(http.StatusOK, "POST", oneJob+"/rename", `{"name":"import","triggers":{"a":"b","b":"a"}}`, `If-Match: "1"`)
	if tag := got.Header().Get("ETag"); tag != `"2"` {
		t.Errorf("the ETag is %s, want that of revision 2", tag)
	}
	want := before
	want.Name, want.Origin, want.Revision = "import", "sync", 2
	a, b := before.Triggers["b"], before.Triggers["a"]
	a.Origin, b.Origin = "b", "a"
	want.Triggers = map[string]dispatcher.Trigger{"a": a, "b": b}
	renamed := into[dispatcher.Job](got)
	want.UpdatedAt = renamed.UpdatedAt
	if diff := cmp.Diff(want, renamed); diff != "" {
		t.Errorf("the renamed job (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(renamed, into[dispatcher.Job](w.must(http.StatusOK, "GET", oneApp+"/jobs/import", ""))); diff != "" {
		t.Errorf("GET differs from what the rename returned (-rename +get):\n%s", diff)
	}
	w.do("GET", oneJob, "").refused(404, " not_found")
	w.do("POST", oneJob+"/rename", `{"name":"x"}`, "If-Match: *").refused(412, " precondition_failed")
}

func TestJobIsFoundByItsOriginWhateverItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneJob, twoTriggers)
	w.must(http.StatusOK, "POST", oneJob+"/rename", `{"name":"import"}`, "If-Match: *")
	w.must(http.StatusCreated, "PUT", oneJob, twoTriggers) // another job
	found := func(origin string) (names string) {
		for _, job := range into[client.List[dispatcher.Job]](w.must(http.StatusOK, "GET", oneApp+"/jobs?origin="+origin, "")).Items {
			names += job.Name + " "
		}
		return names
	}
	for origin, want := range map[string]string{"sync": "import ", "sync~2": "sync ", "import": "", "nosuch": ""} {
		if got := found(origin); got != want {
			t.Errorf("jobs with origin %s: %q, want %q", origin, got, want)
		}
	}
	w.must(http.StatusNoContent, "DELETE", oneApp+"/jobs/import", "")
	if got := found("sync"); got != "" {
		t.Errorf("a deleted job is found: %q", got)
	}
}

func TestRenameNeedsACondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	rename := oneJob + "/rename"
	w.do("POST", rename, `{"name":"import"}`, "If-Match:").refused(428, " precondition_required")
	w.do("POST", rename, `{"name":"import"}`, "If-None-Match: *").refused(428, " precondition_required")
	w.do("POST", rename, `{"name":"import"}`, `If-Match: "7"`).refused(412, " precondition_failed")
	w.do("POST", oneApp+"/jobs/nosuch/rename", `{"name":"import"}`, "If-Match:").refused(404, " not_found")
	w.must(http.StatusOK, "POST", rename, `{"name":"import"}`, "If-Match: *")
}

func TestRefusedRenames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.must(http.StatusCreated, "PUT", oneApp, `{}`)
	w.must(http.StatusCreated, "PUT", oneJob, twoTriggers)
	w.must(http.StatusCreated, "PUT", oneApp+"/jobs/other", validJob)
	w.must(http.StatusCreated, "PUT", oneApp+"/jobs/deleted", validJob)
	w.must(http.StatusNoContent, "DELETE", oneApp+"/jobs/deleted", "")
	for _, one := range []struct {
		name, job, body string
		status          int
		problems        []string
		says            string
	}{
		{"nothing", "sync", `{}`, 422, []string{" required"}, ""},
		{"the names that there are", "sync", `{"name":"sync","triggers":{"a":"a"}}`, 422, []string{" required"}, ""},
		{"no names", "sync", `{"name":"Sync","triggers":{"a":"~","nosuch":"x"}}`, 422,
			[]string{"/name name_format", "/triggers/a name_format"}, ""},
		{"an unknown trigger and a name that is taken", "sync", `{"name":"other","triggers":{"c":"x"}}`, 409,
			[]string{"/name name_taken", "/triggers/c enum"}, "rename or delete that job first"},
		{"an unknown trigger", "sync", `{"triggers":{"c":"x"}}`, 422, []string{"/triggers/c enum"}, "its triggers: a, b"},
		{"a trigger that stays has the name", "sync", `{"triggers":{"a":"b"}}`, 409, []string{"/triggers/a name_taken"}, ""},
		{"two triggers get one name", "sync", `{"triggers":{"a":"c","b":"c"}}`, 409,
			[]string{"/triggers/a name_taken", "/triggers/b name_taken"}, ""},
		{"the name of a deleted job", "sync", `{"name":"deleted"}`, 409, []string{"/name name_taken"}, "is kept under this name until about "},
		{"an unknown field", "sync", `{"nam":"x"}`, 400, []string{" required", "/nam json_unknown_field"}, ""},
		{"no body", "sync", ``, 415, []string{" media_type"}, ""},
	} {
		t.Run(one.name, func(t *testing.T) {
			got := w.do("POST", oneApp+"/jobs/"+one.job+"/rename", one.body, "If-Match: *")
			got.t = t
			got.refused(one.status, one.problems...)
			got.says(one.says)
		})
	}
	if job := into[dispatcher.Job](w.must(http.StatusOK, "GET", oneJob, "")); job.Revision != 1 {
		t.Errorf("refused renames made revision %d", job.Revision)
	}
}

func TestAuditLogHasARenameUnderEachName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	w.must(http.StatusOK, "POST", oneJob+"/rename", `{"name":"import","triggers":{"nightly":"daily"}}`)
	for _, subject := range []string{"job sync", "job import", "job sync trigger nightly", "job import trigger daily"} {
		query := "/v1/audit?action=rename&subject=" + strings.ReplaceAll(subject, " ", "%20")
		found := into[struct{ Items []access.AuditEntry }](w.must(http.StatusOK, "GET", query, "")).Items
		if len(found) != 1 || found[0].Revision != 2 || found[0].App != "crm" || len(found[0].Before) == 0 || len(found[0].After) == 0 {
			t.Errorf("entries of %s: %+v, want one of revision 2", subject, found)
		}
	}
	w.do("POST", oneApp+"/jobs/import/rename", `{"name":"x"}`, `If-Match: "1"`).says("changed by ")
}
