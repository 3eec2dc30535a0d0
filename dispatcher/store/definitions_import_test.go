package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// An import leaves a run alone that has the key of one of its own and is of another job. Only two equal hashes could have it so.
func TestImportReplacesNoRunOfAnotherJob(t *testing.T) {
	t.Parallel()
	onMoves(t, func(t *testing.T, m moving) {
		m.declare("job", nil)
		r, err := m.old.RequestRun(t.Context(), "app", "job", nil, m.at(-time.Minute))
		must(t, err)
		key, err := run.ParseKey(r.ID)
		must(t, err)
		export := m.moveOnly()
		must(t, store.Exec(t.Context(), m.new, fmt.Sprintf(`INSERT INTO live_runs (app_id, scheduled_at, trigger_id, job_id, revision, node,
			token, attempt, kind, state) VALUES (1, %d, %d, 12345, 1, 0, 0, 0, %d, 'queued')`,
			key.ScheduledAt.UnixMilli(), key.TriggerID, key.Code())))
		if _, err = m.new.ImportApp(t.Context(), export, m.at(0)); !errors.Is(err, dispatcher.ErrConflict) {
			t.Errorf("over a run that waits: got error %v, want ErrConflict", err)
		}
		if n, err := store.Count(t.Context(), m.new, `SELECT COUNT(*) FROM live_runs WHERE job_id = 12345`); err != nil || n != 1 {
			t.Errorf("%d runs of the other job wait, %v; want 1", n, err)
		}
	})
}

// moveOnly exports the disabled app.
func (m moving) moveOnly() access.Export {
	m.t.Helper()
	m.disable()
	export, err := m.old.ExportApp(m.t.Context(), "app")
	must(m.t, err)
	return export
}
