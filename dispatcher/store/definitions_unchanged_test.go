package store_test

import (
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A client that declares in a loop what is stored keeps nobody who writes waiting, and waits for nobody.
func TestWhatChangesNothingTakesNoLock(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func() string{
		"SQLite": func() string { return newFile(t) }, "PostgreSQL": func() string { return pgtest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := database()
			s := ownClaims(t, database, 20)
			change := input.Change{Actor: "test"}
			_, _, err := s.PutCalendar(t.Context(), dispatcher.Calendar{App: "app", Name: "freeze"}, change)
			must(t, err)
			_, err = s.PauseJob(t.Context(), "app", "job", "t0", true, change)
			must(t, err)
			job, err := s.Job(t.Context(), "app", "job")
			must(t, err)
			// In PostgreSQL, this mode lets others read, and neither write nor lock rows.
			release, err := store.Freeze(t.Context(), s, map[string]string{
				"SQLite":     `UPDATE installation SET id = id`,
				"PostgreSQL": `LOCK TABLE apps, jobs, triggers, trigger_clock, trigger_revisions, calendars, audit_log IN EXCLUSIVE MODE`,
			}[name])
			must(t, err)
			defer release()
			for range 3 {
				_, _, err = s.PutApp(t.Context(), access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
				must(t, err)
				_, _, err = s.PutCalendar(t.Context(), dispatcher.Calendar{App: "app", Name: "freeze"}, change)
				must(t, err)
				same, _, err := s.PutJob(t.Context(), job, change)
				if err != nil || same.Revision != job.Revision {
					t.Errorf("put the job again: revision %d, %v, want %d", same.Revision, err, job.Revision)
				}
				_, err = s.PauseJob(t.Context(), "app", "job", "t0", true, change)
				must(t, err)
				_, err = s.PauseJob(t.Context(), "app", "job", "", false, change)
				must(t, err)
			}
		})
	}
}
