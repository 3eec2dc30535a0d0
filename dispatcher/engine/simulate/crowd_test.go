package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

const (
	// noisy is an app with targets on the host of all others, which hang or fail.
	noisy = "noisy"
	// deletedJobs is how many jobs were deleted long before a simulation begins.
	deletedJobs = 100
)

// crowd adds the parts of an old and crowded installation that a young one lacks: a noisy neighbour, jobs that were
// deleted beyond every retention, and a job that is deleted and declared again all the time; see declareAgain.
func (w *world) crowd() {
	w.t.Helper()
	w.enable(noisy, true)
	for _, name := range []string{"hanging", "unavailable"} {
		w.declare(name, "rate(3h)", func(j *dispatcher.Job, _ *dispatcher.Trigger) {
			j.App = noisy
			j.Retry.SetDefaults()
		})
	}
	long := input.Change{Actor: byTest.Actor, Now: w.clock().AddDate(-11, 0, 0)}
	for i := range deletedJobs {
		name := fmt.Sprint("deleted", i)
		w.declare(name, "rate(1h)", nil)
		delete(w.declared, name)
		if err := w.store.DeleteJob(w.t.Context(), "app", name, long); err != nil {
			w.t.Fatal(err)
		}
	}
	w.declareAgain(false)
}

// enable puts an app.
func (w *world) enable(name string, enabled bool) {
	w.t.Helper()
	app := access.App{Name: name, AppSpec: access.AppSpec{Enabled: enabled, Retention: input.Duration(24 * time.Hour)}}
	if _, _, err := w.store.PutApp(w.t.Context(), app, byTest); err != nil {
		w.t.Fatal(err)
	}
}

// declareAgain deletes a job and declares it again. The earlier fires are in the ledger of the same trigger, and none
// of them may be sent again. The ledger lacks the fires that were due and not yet claimed.
func (w *world) declareAgain(exists bool) {
	w.t.Helper()
	const again = "again"
	if exists {
		if err := w.store.DeleteJob(w.t.Context(), "app", again, input.Change{Actor: byTest.Actor, Now: w.clock()}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.declare(again, "0 0 0/2 * * ?", nil)
	delete(w.declared, again)
}

// noisyResponse draws the response of a target of the noisy app: after a day, or with an error.
func noisyResponse(job string, r *rand.Rand) (takes time.Duration, status int, noisy bool) {
	switch job {
	case "hanging":
		return 12*time.Hour + time.Duration(r.Int64N(int64(12*time.Hour))), 200, true
	case "unavailable":
		return time.Second, 503, true
	}
	return 0, 0, false
}

// purged requires that the jobs which were deleted long ago are gone from the database.
func (a *auditor) purged() {
	a.t.Helper()
	if n := a.count(`SELECT count(*) FROM jobs WHERE name LIKE 'deleted%'`); n != 0 {
		a.t.Errorf("%d of %d jobs that were deleted long ago are still there", n, deletedJobs)
	}
}
