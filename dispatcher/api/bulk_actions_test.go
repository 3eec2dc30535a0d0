package api_test

import (
	"net/http"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/api"
	"github.com/carillon-dev/carillon/dispatcher/repeat"
)

func TestBulkActionIsRefusedIfTheConfirmedNumberHasChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, api.Options{})
	w.declare()
	bulk := oneApp + "/bulk"
	count := into[repeat.BulkCount](w.must(http.StatusOK, "POST", bulk, `{"action":"run_jobs","dry_run":true,"expected":7}`))
	if count.Total != 1 || count.More {
		t.Fatalf("counted %+v, want the one job", count)
	}
	w.do("POST", bulk, `{"action":"run_jobs","expected":0}`).refused(409, " state_conflict")
	w.do("POST", bulk, `{"action":"run_jobs","expected":"1"}`).refused(400, "/expected json_type")
	if all := w.must(http.StatusOK, "GET", bulk, "").Body.String(); all != `{"items":[]}`+"\n" {
		t.Errorf("after refusals there are bulk actions: %s", all)
	}
	w.must(http.StatusAccepted, "POST", bulk, `{"action":"run_jobs","expected":1}`)
	w.must(http.StatusAccepted, "POST", bulk, `{"action":"run_jobs"}`)
}
