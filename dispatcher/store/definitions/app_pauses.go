package definitions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// A pause of an app is applied to the matching jobs in portions, as its switch is. All current pauses of the app decide
// which jobs are held, so a portion does not depend on the change, and pauses may overlap. A job that is put meanwhile
// is held or not at once: writers of jobs queue at the row of the app, as the portions do.

// PauseColumns are the columns of an AppPause in app_pauses AS p, and of its app AS a.
const PauseColumns = `p.id, a.name, p.labels, p.reason, p.until_at, p.paused_by, p.paused_at, p.ended_at, p.ended_by,
	a.paused_to IS NOT NULL`

// ScanAppPause reads PauseColumns.
func ScanAppPause(row db.Scanner) (p dispatcher.AppPause, err error) {
	err = row.Scan(&p.ID, &p.App, db.LabelsColumn(&p.Labels), &p.Reason, db.OptionalColumn(&p.Until), &p.PausedBy,
		db.InstantColumn(&p.PausedAt), db.OptionalColumn(&p.EndedAt), &p.EndedBy, &p.Pending)
	return p, err
}

// heldPauses returns the current pauses of an app, oldest first.
func heldPauses(ctx context.Context, q db.Querier, app string) ([]dispatcher.AppPause, error) {
	// $1 app
	const held = `SELECT ` + PauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.app_id = $1 AND p.ended_at IS NULL ORDER BY p.paused_at, p.id`
	pauses, err := db.Collect(ctx, q, ScanAppPause, held, run.AppID(app))
	if err != nil {
		return nil, fmt.Errorf("read pauses of app %s: %w", app, err)
	}
	return pauses, nil
}

// AppPauses returns the current pauses of an app.
func (s *Store) AppPauses(ctx context.Context, app string) ([]dispatcher.AppPause, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	return heldPauses(ctx, s.db.Read, app)
}

// PauseApp adds a pause and applies it to the first portion of jobs.
func (s *Store) PauseApp(ctx context.Context, app string, asked dispatcher.AppPauseRequest,
	change input.Change) (pause dispatcher.AppPause, err error) {
	if err := asked.Validate(); err != nil {
		return pause, err
	}
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		if _, err := LockApp(ctx, t, app); err != nil {
			return err
		}
		before, err := heldPauses(ctx, t, app)
		if err != nil {
			return err
		}
		var problems input.Problems
		problems.AddError("", dispatcher.CheckUntil(asked.Until, t.At))
		if len(before) >= dispatcher.MaxAppPauses {
			problems.Add("", input.CodeTooMany, "app %s has %d pauses, which is the maximum; end some of them first", app, len(before))
		}
		if err := problems.Err(); err != nil {
			return err
		}
		if pause, err = insertPause(ctx, t, app, asked); err != nil {
			return fmt.Errorf("pause app %s: %w", app, err)
		}
		if err := startFollowing(ctx, t, app); err != nil {
			return err
		}
		_, pause.Pending, err = followPauses(ctx, t, app, dispatch.FollowAtOnce)
		return err
	})
	return pause, err
}

// insertPause writes a pause, and its entry in the audit log.
func insertPause(ctx context.Context, t *dispatch.Tx, app string, asked dispatcher.AppPauseRequest) (dispatcher.AppPause, error) {
	asked.Until = input.WholeMillis(asked.Until)
	pause := dispatcher.AppPause{
		ID: strings.ToLower(rand.Text()[:12]), App: app, AppPauseRequest: asked, PausedBy: t.By.Actor, PausedAt: t.At,
	}
	// $1 app, $2 id, $3 labels, $4 reason, $5 by whom, $6 now, $7 until when
	const insert = `INSERT INTO app_pauses (app_id, id, labels, reason, paused_by, paused_at, until_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	if err := t.Exec(ctx, insert, run.AppID(app), pause.ID, pause.Labels.String(), pause.Reason, pause.PausedBy,
		t.At.UnixMilli(), db.OrNullAt(pause.Until)); err != nil {
		return pause, err
	}
	return pause, t.AuditChange(ctx, dispatch.AuditEntry{
		Action: string(dispatcher.CausePause), App: app, Subject: "pause " + pause.ID, After: pause.AppPauseRequest,
	})
}

// startFollowing starts to apply the pauses of an app, from its first job on.
func startFollowing(ctx context.Context, t *dispatch.Tx, app string) error {
	// $1 app
	const start = `UPDATE apps SET paused_to = 0 WHERE id = $1`
	err := t.Exec(ctx, start, run.AppID(app))
	t.Notify(dispatcher.Notification{App: app})
	return err
}

// EndAppPause ends a pause and updates the first portion of jobs.
func (s *Store) EndAppPause(ctx context.Context, app, id string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		if _, err := LockApp(ctx, t, app); err != nil {
			return err
		}
		// $1 app, $2 id
		const find = `SELECT ` + PauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
			WHERE p.app_id = $1 AND p.id = $2 AND p.ended_at IS NULL`
		pause, found, err := db.First(ctx, t, ScanAppPause, find, run.AppID(app), id)
		if err = db.OrNotFound(found, err, "pause", app+"/"+id); err != nil {
			return err
		}
		if err := endPause(ctx, t, pause); err != nil {
			return err
		}
		if err := startFollowing(ctx, t, app); err != nil {
			return err
		}
		_, _, err = followPauses(ctx, t, app, dispatch.FollowAtOnce)
		return err
	})
}

// endPause ends a pause of a locked app.
func endPause(ctx context.Context, t *dispatch.Tx, pause dispatcher.AppPause) error {
	// $1 app, $2 id, $3 now, $4 by whom
	const end = `UPDATE app_pauses SET ended_at = $3, ended_by = $4 WHERE app_id = $1 AND id = $2 AND ended_at IS NULL`
	if err := t.Exec(ctx, end, run.AppID(pause.App), pause.ID, t.At.UnixMilli(), t.By.Actor); err != nil {
		return fmt.Errorf("end pause %s/%s: %w", pause.App, pause.ID, err)
	}
	return t.AuditChange(ctx, dispatch.AuditEntry{
		Action: string(dispatcher.CauseResume), App: pause.App, Subject: "pause " + pause.ID, Before: pause.AppPauseRequest,
	})
}

func endPauses(ctx context.Context, t *dispatch.Tx, app string) error {
	pauses, err := heldPauses(ctx, t, app)
	for _, pause := range pauses {
		err = errors.Join(err, endPause(ctx, t, pause))
	}
	return err
}

// importPauses adds the pauses of an export before its jobs, so that they apply at once. It skips expired pauses.
func importPauses(ctx context.Context, t *dispatch.Tx, export access.Export) error {
	for _, asked := range export.Pauses {
		if dispatcher.CheckUntil(asked.Until, t.At) != nil {
			continue
		}
		if _, err := insertPause(ctx, t, export.App.Name, asked); err != nil {
			return fmt.Errorf("import pause: %w", err)
		}
	}
	return nil
}

// FollowPauses applies the pauses of an app to its next jobs.
func (s *Store) FollowPauses(ctx context.Context, app string, limit int) (more bool, err error) {
	_, more, err = s.followPauses(ctx, app, limit)
	return more, err
}

// followPauses applies the pauses of an app to its next jobs, and notifies the nodes if jobs changed.
func (s *Store) followPauses(ctx context.Context, app string, limit int) (followed int, more bool, err error) {
	_, err = s.follow(ctx, dispatcher.Notification{App: app}, func(ctx context.Context, t *dispatch.Tx) (int, error) {
		followed, more, err = followPauses(ctx, t, app, limit)
		return followed, err
	})
	if err != nil {
		return 0, false, fmt.Errorf("let %d triggers follow the pauses of app %s: %w", limit, app, err)
	}
	return followed, more, nil
}

// pausable is a job for followPauses.
type pausable struct {
	id       int64
	labels   input.Labels
	held     bool // according to its row
	triggers int
}

// followPauses applies the pauses of an app to its next jobs, up to limit jobs or triggers. It returns how many
// triggers followed, and whether there are more jobs. The app is locked first, so that its pauses and jobs do not
// change meanwhile.
func followPauses(ctx context.Context, t *dispatch.Tx, app string, limit int) (followed int, more bool, err error) {
	id := run.AppID(app)
	// $1 app
	const pending = `SELECT paused_to FROM apps WHERE id = $1 AND paused_to IS NOT NULL`
	from, found, err := db.First(ctx, t, db.ScanInt, pending+t.ForUpdate(), id)
	if err != nil || !found {
		return 0, false, err
	}
	pauses, err := heldPauses(ctx, t, app)
	if err != nil {
		return 0, false, err
	}
	// $1 app, $2 id of the last job of the portion before, $3 limit
	const next = `SELECT j.id, j.labels, j.app_paused, (SELECT count(*) FROM triggers AS t WHERE t.job_id = j.id)
		FROM jobs AS j WHERE j.app_id = $1 AND j.id > $2 AND j.part_of = 0 AND j.deleted_at IS NULL ORDER BY j.id LIMIT $3`
	jobs, err := db.ReadRows(ctx, t, func(j *pausable) []any {
		return []any{&j.id, db.LabelsColumn(&j.labels), &j.held, &j.triggers}
	}, next, id, from, limit)
	if err != nil {
		return 0, false, err
	}
	var ids []int64
	var held []bool
	more = len(jobs) == limit
	for _, j := range jobs {
		if followed >= limit {
			more = true
			break
		}
		from = j.id
		if now := len(dispatcher.HeldBy(pauses, j.labels)) > 0; now != j.held {
			ids, held, followed = append(ids, j.id), append(held, now), followed+j.triggers
		}
	}
	if err := holdJobs(ctx, t, ids, held); err != nil {
		return 0, false, err
	}
	var cursor *int64
	if more {
		cursor = &from
	}
	// $1 app, $2 cursor
	const move = `UPDATE apps SET paused_to = $2 WHERE id = $1`
	err = t.Exec(ctx, move, id, cursor)
	return followed, more, err
}

// holdJobs notes whether pauses of their app hold jobs, and updates the clocks of their triggers. The ids of jobs and
// of clocks are in order, because claims lock them in this order.
func holdJobs(ctx context.Context, t *dispatch.Tx, ids []int64, held []bool) error {
	if len(ids) == 0 {
		return nil
	}
	columns := []db.Column{db.Col("id", db.Bigint), db.Col("held", db.Boolean)}
	// From $1 on: id, whether it is held
	ofJobs := t.Rows(0, 1, "", columns...) + ` UPDATE jobs AS j SET app_paused = b.held FROM b WHERE j.id = b.id`
	if err := t.Exec(ctx, ofJobs, t.Batch(ids, held)...); err != nil {
		return err
	}
	// From $1 on: id of the job, whether it is held
	triggers := t.Rows(0, 1, "", columns...) + ` SELECT t.id, b.held FROM b JOIN triggers AS t ON t.job_id = b.id ORDER BY t.id`
	var clocks []int64
	var off []int32
	if err := db.EachRow(ctx, t, func(row db.Scanner) error {
		var id int64
		var held bool
		err := row.Scan(&id, &held)
		clocks, off = append(clocks, id), append(off, dispatch.Number(held)*dispatch.OffPauses)
		return err
	}, triggers, t.Batch(ids, held)...); err != nil || len(clocks) == 0 {
		return err
	}
	// $1 the reason, from $2 on: id, the reason or 0
	write := t.Rows(0, 2, "", db.Col("id", db.Bigint), db.Col("off", db.Integer)) + ` UPDATE trigger_clock AS c
		SET off = (c.off & ~CAST($1 AS integer)) | b.off FROM b WHERE c.id = b.id`
	return t.Exec(ctx, write, append([]any{dispatch.OffPauses}, t.Batch(clocks, off)...)...)
}

// ExpirePauses ends expired pauses: each app, and each job, in its own transaction.
func (s *Store) ExpirePauses(ctx context.Context, limit int, now time.Time) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return 0, err
	}
	ofApps, err := s.overAppPauses(ctx, limit, now)
	ofJobs, wrong := s.overJobPauses(ctx, limit, now)
	errs := []error{err, wrong}
	ended := 0
	for _, over := range append(ofApps, ofJobs...) {
		err := dispatcher.WithoutPanic(func() error { return over.end(ctx) })
		// Another change came first; the next round looks again.
		changed := errors.Is(err, dispatcher.ErrNotFound) || errors.Is(err, dispatcher.ErrPrecondition)
		if !changed && s.dispatch.OfStored(ctx, err) {
			if err = s.dispatch.SetAside(ctx, over.row, err, now); err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			ended++
		case !changed:
			errs = append(errs, err)
		}
	}
	return ended, errors.Join(errs...)
}

// overPause is an expired pause, and its row if it cannot be ended.
type overPause struct {
	row dispatch.AsideRow
	end func(context.Context) error
}

// overAppPauses returns expired pauses of apps.
func (s *Store) overAppPauses(ctx context.Context, limit int, now time.Time) (all []overPause, err error) {
	// $1 now, $2 limit
	const over = `SELECT a.name, p.id FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.until_at IS NOT NULL AND p.ended_at IS NULL AND p.until_at <= $1 ORDER BY p.until_at LIMIT $2`
	pauses, err := db.ReadRows(ctx, s.db.Read, func(p *dispatcher.AppPause) []any { return []any{&p.App, &p.ID} },
		over, now.UnixMilli(), limit+s.dispatch.Asides.Count(dispatcher.WorkPauses))
	if err != nil {
		return nil, fmt.Errorf("look for pauses of apps that are over: %w", err)
	}
	item := func(p dispatcher.AppPause) string { return "pause " + p.ID }
	for _, pause := range dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkPauses, pauses, item, now) {
		row := dispatch.AsideRow{Work: dispatcher.WorkPauses, Item: item(pause), App: run.AppID(pause.App)}
		all = append(all, overPause{row, func(ctx context.Context) error {
			return s.EndAppPause(ctx, pause.App, pause.ID, input.Change{Actor: pausesActor, Now: now})
		}})
	}
	return all, nil
}

// pausesActor is the actor of expired pauses in the audit log.
const pausesActor = "system"

func (s *Store) overJobPauses(ctx context.Context, limit int, now time.Time) (all []overPause, err error) {
	type paused struct {
		app, job, trigger string
		revision          int64
	}
	// $1 now, $2 limit
	const (
		from = ` FROM jobs AS j JOIN apps AS a ON a.id = j.app_id`
		over = `SELECT a.name, j.name, '', j.revision` + from + ` WHERE j.pause_until IS NOT NULL AND j.pause_until <= $1 AND j.deleted_at IS NULL
			UNION ALL SELECT a.name, j.name, t.name, j.revision` + from + ` JOIN triggers AS t ON t.job_id = j.id
				WHERE t.pause_until IS NOT NULL AND t.pause_until <= $1 AND t.deleted_at IS NULL AND j.deleted_at IS NULL
			LIMIT $2`
	)
	found, err := db.ReadRows(ctx, s.db.Read, func(p *paused) []any { return []any{&p.app, &p.job, &p.trigger, &p.revision} },
		over, now.UnixMilli(), limit+s.dispatch.Asides.Count(dispatcher.WorkPauses))
	if err != nil {
		return nil, fmt.Errorf("look for pauses of jobs that are over: %w", err)
	}
	item := func(p paused) string { return dispatch.JobItem(run.JobID(p.app, p.job)) }
	for _, p := range dispatch.WithoutAsides(s.dispatch.Asides, dispatcher.WorkPauses, found, item, now) {
		row := dispatch.AsideRow{Work: dispatcher.WorkPauses, Item: item(p), Job: run.JobID(p.app, p.job)}
		all = append(all, overPause{row, func(ctx context.Context) error {
			_, err := s.PauseJob(ctx, p.app, p.job, p.trigger, false, input.Change{Actor: pausesActor, IfRevision: p.revision, Now: now})
			return err
		}})
	}
	return all, nil
}
