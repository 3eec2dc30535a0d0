package api_test

// Preparations of some routes before their credentials are tried.

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// pauseApp pauses the app.
func (w *world) pauseApp() string {
	w.t.Helper()
	w.must(http.StatusCreated, "POST", oneApp+"/pauses", "")
	return ""
}

// pauseID is the id of a pause of the app; "none" if there is none.
func (w *world) pauseID() string {
	w.t.Helper()
	pauses, err := w.store.AppPauses(w.t.Context(), "crm")
	if err != nil && !errors.Is(err, dispatcher.ErrNotFound) {
		w.t.Fatal(err)
	}
	if len(pauses) == 0 {
		return "none"
	}
	return pauses[0].ID
}

func (w *world) cancelRun() string {
	w.t.Helper()
	runs := into[page[run.Run]](w.must(http.StatusOK, "GET", oneApp+"/runs", ""))
	for _, r := range runs.Items {
		if r.State == run.Cancelled {
			continue
		}
		w.must(http.StatusOK, "POST", "/v1/runs/"+r.ID+"/cancel", "")
	}
	return ""
}

func (w *world) emptyApp() string {
	w.t.Helper()
	w.cancelRun()
	w.must(http.StatusNoContent, "DELETE", oneJob, "", "If-Match: *")
	w.must(http.StatusNoContent, "DELETE", oneApp+"/calendars/holidays", "", "If-Match: *")
	w.must(http.StatusNoContent, "DELETE", oneGroup, "", "If-Match: *")
	w.must(http.StatusNoContent, "DELETE", oneAlert, "", "If-Match: *")
	return ""
}

func (w *world) disableApp() string {
	w.t.Helper()
	w.cancelRun()
	w.must(http.StatusOK, "PATCH", oneApp, `{"enabled":false}`, "If-Match: *")
	return ""
}

// carryState lets the job carry a state and have an objective.
func (w *world) carryState() string {
	w.t.Helper()
	w.must(http.StatusOK, "PUT", oneJob, carryingJob(), "If-Match: *")
	return ""
}

// takeApp exports the app and deletes it.
func (w *world) takeApp() string {
	w.t.Helper()
	w.disableApp()
	export := w.must(http.StatusOK, "GET", oneApp+"/export", "").Body.String()
	w.emptyApp()
	w.must(http.StatusNoContent, "DELETE", oneApp, "", "If-Match: *")
	return export
}

func (w *world) rollBack() string {
	w.t.Helper()
	if _, err := w.store.DeclareRollback(w.t.Context(), "restored", input.Change{Actor: "test"}); err != nil {
		w.t.Fatal(fmt.Errorf("declare a rollback: %w", err))
	}
	return ""
}
