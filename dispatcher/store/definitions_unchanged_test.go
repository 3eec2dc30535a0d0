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

// The snapshot of a change spares others its locks. Where it fails, as while the database fails over, the transaction does without. On
// SQLite, reads have connections of their own, which a test can close.
func TestAChangeDoesWithoutItsSnapshot(t *testing.T) {
	t.Parallel()
	s := ownClaims(t, newFile(t), 20)
	change := input.Change{Actor: "test"}
	job, err := s.Job(t.Context(), "app", "job")
	must(t, err)
	must(t, store.CloseReads(s))
	job.Description = "changed"
	stored, created, err := s.PutJob(t.Context(), job, change)
	if err != nil || created || stored.Revision != job.Revision+1 {
		t.Errorf("put a job: revision %d, created %v, %v; want %d", stored.Revision, created, err, job.Revision+1)
	}
	_, _, err = s.PutCalendar(t.Context(), dispatcher.Calendar{App: "app", Name: "freeze"}, change)
	must(t, err)
}
