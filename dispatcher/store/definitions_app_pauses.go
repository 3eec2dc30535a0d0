package store

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
)

// A pause of an app reaches the jobs that fit it in portions, as its switch does. Which jobs are held follows from all pauses
// that the app has, so a portion needs to know nothing about what has changed, and pauses may overlap. A job that is put
// meanwhile is held or not at once: writers of jobs queue at the row of the app, as the portions do.

// pauseColumns are those of an AppPause in app_pauses AS p, and of its app AS a.
const pauseColumns = `p.id, a.name, p.labels, p.reason, p.until_at, p.paused_by, p.paused_at, p.ended_at, p.ended_by,
	a.paused_to IS NOT NULL`

func scanAppPause(row db.Scanner) (p dispatcher.AppPause, err error) {
	err = row.Scan(&p.ID, &p.App, db.LabelsColumn(&p.Labels), &p.Reason, db.OptionalColumn(&p.Until), &p.PausedBy,
		db.InstantColumn(&p.PausedAt),
		db.OptionalColumn(&p.EndedAt), &p.EndedBy, &p.Pending)
	return p, err
}

// heldPauses returns the pauses that an app has now, oldest first.
func heldPauses(ctx context.Context, q db.Querier, app string) ([]dispatcher.AppPause, error) {
	// $1 app
	const held = `SELECT ` + pauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.app_id = $1 AND p.ended_at IS NULL ORDER BY p.paused_at, p.id`
	pauses, err := db.Collect(ctx, q, scanAppPause, held, run.AppID(app))
	if err != nil {
		return nil, fmt.Errorf("read pauses of app %s: %w", app, err)
	}
	return pauses, nil
}

// pausesAround returns the pauses that an app had at an instant, and those that it has now.
func pausesAround(ctx context.Context, q db.Querier, app string, at time.Time) ([]dispatcher.AppPause, error) {
	// $1 app, $2 instant, $3 limit
	const around = `SELECT ` + pauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.app_id = $1 AND (p.ended_at IS NULL OR p.ended_at > $2 AND p.paused_at <= $2) ORDER BY p.paused_at, p.id LIMIT $3`
	pauses, err := db.Collect(ctx, q, scanAppPause, around, run.AppID(app), at.UnixMilli(), 2*dispatcher.MaxAppPauses)
	if err != nil {
		return nil, fmt.Errorf("read pauses of app %s at %s: %w", app, input.FormatInstant(at), err)
	}
	return pauses, nil
}

// AppPauses returns the pauses that an app has now.
func (s *Store) AppPauses(ctx context.Context, app string) ([]dispatcher.AppPause, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := readApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	return heldPauses(ctx, s.db.Read, app)
}

// PauseApp adds a pause, and lets the first portion of jobs follow.
func (s *Store) PauseApp(ctx context.Context, app string, asked dispatcher.AppPauseRequest,
	change input.Change) (pause dispatcher.AppPause, err error) {
	if err := asked.Validate(); err != nil {
		return pause, err
	}
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		if _, err := lockApp(ctx, t, app); err != nil {
			return err
		}
		before, err := heldPauses(ctx, t, app)
		if err != nil {
			return err
		}
		var problems input.Problems
		problems.AddError("", dispatcher.CheckUntil(asked.Until, t.now))
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
		_, pause.Pending, err = followPauses(ctx, t, app, followAtOnce)
		return err
	})
	return pause, err
}

// insertPause writes a pause, and its entry in the audit log.
func insertPause(ctx context.Context, t *tx, app string, asked dispatcher.AppPauseRequest) (dispatcher.AppPause, error) {
	asked.Until = input.WholeMillis(asked.Until)
	pause := dispatcher.AppPause{
		ID: strings.ToLower(rand.Text()[:12]), App: app, AppPauseRequest: asked, PausedBy: t.by.Actor, PausedAt: t.now,
	}
	// $1 app, $2 id, $3 labels, $4 reason, $5 by whom, $6 now, $7 until when
	const insert = `INSERT INTO app_pauses (app_id, id, labels, reason, paused_by, paused_at, until_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	if _, err := t.ExecContext(ctx, insert, run.AppID(app), pause.ID, pause.Labels.String(), pause.Reason, pause.PausedBy,
		t.now.UnixMilli(), db.OrNullAt(pause.Until)); err != nil {
		return pause, err
	}
	return pause, t.auditChange(ctx, auditEntry{
		action: string(dispatcher.CausePause), app: app, subject: "pause " + pause.ID, after: pause.AppPauseRequest,
	})
}

// startFollowing lets the jobs of an app follow its pauses from the first job on.
func startFollowing(ctx context.Context, t *tx, app string) error {
	// $1 app
	const start = `UPDATE apps SET paused_to = 0 WHERE id = $1`
	_, err := t.ExecContext(ctx, start, run.AppID(app))
	t.notify(dispatcher.Notification{App: app})
	return err
}

// EndAppPause ends a pause, and lets the first portion of jobs follow.
func (s *Store) EndAppPause(ctx context.Context, app, id string, change input.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		if _, err := lockApp(ctx, t, app); err != nil {
			return err
		}
		// $1 app, $2 id
		const find = `SELECT ` + pauseColumns + ` FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
			WHERE p.app_id = $1 AND p.id = $2 AND p.ended_at IS NULL`
		pause, found, err := db.First(ctx, t, scanAppPause, find, run.AppID(app), id)
		if err == nil && !found {
			err = dispatcher.NotFound("pause", app+"/"+id)
		}
		if err != nil {
			return err
		}
		if err := endPause(ctx, t, pause); err != nil {
			return err
		}
		if err := startFollowing(ctx, t, app); err != nil {
			return err
		}
		_, _, err = followPauses(ctx, t, app, followAtOnce)
		return err
	})
}

// endPause ends a pause of an app that is locked.
func endPause(ctx context.Context, t *tx, pause dispatcher.AppPause) error {
	// $1 app, $2 id, $3 now, $4 by whom
	const end = `UPDATE app_pauses SET ended_at = $3, ended_by = $4 WHERE app_id = $1 AND id = $2 AND ended_at IS NULL`
	if _, err := t.ExecContext(ctx, end, run.AppID(pause.App), pause.ID, t.now.UnixMilli(), t.by.Actor); err != nil {
		return fmt.Errorf("end pause %s/%s: %w", pause.App, pause.ID, err)
	}
	return t.auditChange(ctx, auditEntry{
		action: string(dispatcher.CauseResume), app: pause.App, subject: "pause " + pause.ID, before: pause.AppPauseRequest,
	})
}

// endPauses ends the pauses of an app that is deleted.
func endPauses(ctx context.Context, t *tx, app string) error {
	pauses, err := heldPauses(ctx, t, app)
	for _, pause := range pauses {
		err = errors.Join(err, endPause(ctx, t, pause))
	}
	return err
}

// exportedPauses returns the pauses of an app as another installation takes them.
func exportedPauses(ctx context.Context, q db.Querier, app string) (all []dispatcher.AppPauseRequest, err error) {
	pauses, err := heldPauses(ctx, q, app)
	for _, pause := range pauses {
		all = append(all, pause.AppPauseRequest)
	}
	return all, err
}

// importPauses adds the pauses of an export before its jobs, which then follow them at once. Those whose time is over are
// left out.
func importPauses(ctx context.Context, t *tx, export access.Export) error {
	for _, asked := range export.Pauses {
		if dispatcher.CheckUntil(asked.Until, t.now) != nil {
			continue
		}
		if _, err := insertPause(ctx, t, export.App.Name, asked); err != nil {
			return fmt.Errorf("import pause: %w", err)
		}
	}
	return nil
}
