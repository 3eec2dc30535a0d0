package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
)

// exported creates an app, exports it, and deletes it.
func (w *world) exported() string {
	w.t.Helper()
	w.must(http.StatusCreated, "PUT", oneApp, `{"enabled":false}`, "If-None-Match: *")
	export := w.must(http.StatusOK, "GET", oneApp+"/export", "").Body.String()
	w.must(http.StatusNoContent, "DELETE", oneApp, "", "If-Match: *")
	return export
}

// The salt of an app is in its export, and in no other response.
func TestSaltIsInExportsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	text := w.exported()
	var export struct {
		Salt string `json:"salt"`
	}
	if err := json.Unmarshal([]byte(text), &export); err != nil || len(export.Salt) != 44 {
		t.Fatalf("the export has salt %q (%v), want 32 bytes in base64", export.Salt, err)
	}
	hidden := func(what string, response reply) {
		t.Helper()
		if body := response.Body.String(); strings.Contains(body, export.Salt) || strings.Contains(body, `"salt"`) {
			t.Errorf("the response to %s has the salt: %s", what, body)
		}
	}
	post := func(from, to string) reply { return w.do("POST", oneApp+"/import", strings.Replace(text, from, to, 1)) }
	for wrong, want := range map[string]string{
		`"` + export.Salt[:43] + `"`:          "/salt json_type",
		`"` + export.Salt[:40] + `"`:          "/salt count_range",
		`"` + export.Salt + export.Salt + `"`: "/salt json_type",
		`7`:                                   "/salt json_type",
		`[1,2,3]`:                             "/salt json_type",
	} {
		response := post(`"`+export.Salt+`"`, wrong)
		status := http.StatusBadRequest
		if strings.HasSuffix(want, "count_range") {
			status = http.StatusUnprocessableEntity
		}
		response.refused(status, want)
		if body := response.Body.String(); strings.Contains(body, export.Salt[:20]) {
			t.Errorf("the refusal of salt %s tells it: %s", wrong, body)
		}
	}
	hidden("an import", w.must(http.StatusOK, "POST", oneApp+"/import", text))
	for _, path := range []string{oneApp, "/v1/apps", oneApp + "/jobs", oneApp + "/alerts", "/v1/audit", "/v1/nodes"} {
		hidden("GET "+path, w.must(http.StatusOK, "GET", path, ""))
	}
	if again := w.must(http.StatusOK, "GET", oneApp+"/export", "").Body.String(); !strings.Contains(again, `"salt": "`+export.Salt+`"`) &&
		!strings.Contains(again, `"salt":"`+export.Salt+`"`) {
		t.Errorf("the app has another salt after the import of %s: %s", export.Salt, again)
	}
}

// An export of an older version, without a salt, is imported.
func TestExportWithoutSaltIsImported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	var export map[string]any
	if err := json.Unmarshal([]byte(w.exported()), &export); err != nil {
		t.Fatal(err)
	}
	delete(export, "salt")
	text, err := json.Marshal(export)
	if err != nil {
		t.Fatal(err)
	}
	w.must(http.StatusOK, "POST", oneApp+"/import", string(text))
	stored, err := w.store.ExportApp(t.Context(), "crm")
	if err != nil || len(stored.Salt) != 0 {
		t.Errorf("the app has a salt of %d bytes (%v), want none", len(stored.Salt), err)
	}
}
