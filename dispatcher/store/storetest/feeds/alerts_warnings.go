package feeds

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// testAlertOfNoJob: an alert is stored although it selects jobs that are not there, and says so until they are.
func testAlertOfNoJob(t *testing.T, f *wing) {
	warnings := func(a alert.Alert) string {
		var all []string
		for _, w := range a.Warnings {
			all = append(all, w.Path+" "+w.Code)
		}
		return strings.Join(all, ", ")
	}
	f.Watched("orders", input.Labels{"team": "shop"})
	a := fixture.Pager("duty")
	a.Jobs, a.Labels = []string{"orders", "invoices", "refunds"}, input.Labels{"team": "billing"}
	const all = "/jobs/1 alert_job_unknown, /jobs/2 alert_job_unknown, /labels alert_job_unknown"
	stored := f.DeclareAlert(a, fixture.T0)
	if got := warnings(stored); got != all {
		t.Errorf("warnings = %q, want %q", got, all)
	}
	if again := f.DeclareAlert(a, fixture.T0.Add(time.Second)); again.Revision != stored.Revision || warnings(again) != all {
		t.Errorf("put again: revision %d, warnings %q, want %d with the same ones", again.Revision, warnings(again), stored.Revision)
	}
	f.Watched("invoices", input.Labels{"team": "billing", "tier": "1"})
	read, err := f.Alert(f.Context(), "shop", "duty")
	f.Must(err)
	if got := warnings(read); got != "/jobs/2 alert_job_unknown" {
		t.Errorf("warnings = %q, want none of invoices, which is declared", got)
	}
	f.Must(f.DeleteJob(f.Context(), "shop", "invoices", fixture.At(fixture.T0)))
	read, err = f.Alert(f.Context(), "shop", "duty")
	f.Must(err)
	if got := warnings(read); got != all {
		t.Errorf("warnings = %q after the job is deleted, want %q", got, all)
	}
	if got := f.DeclareAlert(fixture.Pager("default"), fixture.T0); len(got.Warnings) > 0 {
		t.Errorf("warnings of a default = %v, want none", got.Warnings)
	}
}
