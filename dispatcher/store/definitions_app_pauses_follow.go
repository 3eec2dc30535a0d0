package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// FollowPauses lets the next jobs of an app follow its pauses.
func (s *Store) FollowPauses(ctx context.Context, app string, limit int) (more bool, err error) {
	_, more, err = s.followPauses(ctx, app, limit)
	return more, err
}

// followPauses lets the next jobs of an app follow its pauses, and tells the nodes if there were any.
func (s *Store) followPauses(ctx context.Context, app string, limit int) (followed int, more bool, err error) {
	_, err = s.follow(ctx, dispatcher.Notification{App: app}, func(ctx context.Context, t *tx) (int, error) {
		followed, more, err = followPauses(ctx, t, app, limit)
		return followed, err
	})
	if err != nil {
		return 0, false, fmt.Errorf("let %d triggers follow the pauses of app %s: %w", limit, app, err)
	}
	return followed, more, nil
}

// pausable is a job as followPauses looks at it.
type pausable struct {
	id       int64
	labels   input.Labels
	held     bool // as its row says
	triggers int
}

// followPauses lets the next jobs of an app follow its pauses, until they have limit triggers or are as many. It returns how
// many triggers followed, and whether there are more jobs. The app is locked first, so that neither its pauses nor its jobs
// change meanwhile.
func followPauses(ctx context.Context, t *tx, app string, limit int) (followed int, more bool, err error) {
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
	jobs, err := db.Collect(ctx, t, func(row db.Scanner) (j pausable, err error) {
		err = row.Scan(&j.id, db.LabelsColumn(&j.labels), &j.held, &j.triggers)
		return j, err
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
	_, err = t.ExecContext(ctx, move, id, cursor)
	return followed, more, err
}

// holdJobs notes whether pauses of their app hold jobs, and lets the clocks of their triggers follow. The ids are in order,
// and so are those of the clocks, as claims lock them.
func holdJobs(ctx context.Context, t *tx, ids []int64, held []bool) error {
	if len(ids) == 0 {
		return nil
	}
	columns := []db.Column{db.Col("id", db.Bigint), db.Col("held", db.Boolean)}
	// From $1 on: id, whether it is held
	ofJobs := t.Rows(0, 1, "", columns...) + ` UPDATE jobs AS j SET app_paused = b.held FROM b WHERE j.id = b.id`
	if _, err := t.ExecContext(ctx, ofJobs, t.Batch(ids, held)...); err != nil {
		return err
	}
	// From $1 on: id of the job, whether it is held
	triggers := t.Rows(0, 1, "", columns...) + ` SELECT t.id, b.held FROM b JOIN triggers AS t ON t.job_id = b.id ORDER BY t.id`
	var clocks []int64
	var off []int32
	if _, err := db.Collect(ctx, t, func(row db.Scanner) (struct{}, error) {
		var id int64
		var held bool
		err := row.Scan(&id, &held)
		clocks, off = append(clocks, id), append(off, number(held)*offPauses)
		return struct{}{}, err
	}, triggers, t.Batch(ids, held)...); err != nil || len(clocks) == 0 {
		return err
	}
	// $1 the reason, from $2 on: id, the reason or 0
	write := t.Rows(0, 2, "", db.Col("id", db.Bigint), db.Col("off", db.Integer)) + ` UPDATE trigger_clock AS c
		SET off = (c.off & ~CAST($1 AS integer)) | b.off FROM b WHERE c.id = b.id`
	_, err := t.ExecContext(ctx, write, append([]any{offPauses}, t.Batch(clocks, off)...)...)
	return err
}

// ExpirePauses ends the pauses whose time is over: each app, and each job, in a transaction of its own.
func (s *Store) ExpirePauses(ctx context.Context, limit int, now time.Time) (int, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	now, err := s.db.OrClock(ctx, now)
	if err != nil {
		return 0, err
	}
	ofApps, err := s.expireAppPauses(ctx, limit, now)
	ofJobs, wrong := s.expireJobPauses(ctx, limit, now)
	return ofApps + ofJobs, errors.Join(err, wrong)
}

// expireAppPauses ends pauses of apps.
func (s *Store) expireAppPauses(ctx context.Context, limit int, now time.Time) (ended int, err error) {
	// $1 now, $2 limit
	const over = `SELECT a.name, p.id FROM app_pauses AS p JOIN apps AS a ON a.id = p.app_id
		WHERE p.until_at IS NOT NULL AND p.ended_at IS NULL AND p.until_at <= $1 ORDER BY p.until_at LIMIT $2`
	pauses, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (p dispatcher.AppPause, err error) {
		err = row.Scan(&p.App, &p.ID)
		return p, err
	}, over, now.UnixMilli(), limit+s.asides.count(dispatcher.WorkPauses))
	if err != nil {
		return 0, fmt.Errorf("look for pauses of apps that are over: %w", err)
	}
	var errs []error
	item := func(p dispatcher.AppPause) string { return "pause " + p.ID }
	for _, pause := range withoutAsides(s, dispatcher.WorkPauses, pauses, item, now) {
		err := dispatcher.WithoutPanic(func() error {
			return s.EndAppPause(ctx, pause.App, pause.ID, input.Change{Actor: pausesActor, Now: now})
		})
		if s.ofPause(ctx, err) {
			row := asideRow{work: dispatcher.WorkPauses, item: item(pause), app: run.AppID(pause.App)}
			if err = s.setAside(ctx, row, err, now); err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			ended++
		case !errors.Is(err, dispatcher.ErrNotFound): // somebody else ended it
			errs = append(errs, err)
		}
	}
	return ended, errors.Join(errs...)
}

// ofPause tells whether an error of the end of a pause is about what is stored, and not that somebody else was faster.
func (s *Store) ofPause(ctx context.Context, err error) bool {
	return s.ofStored(ctx, err) && !errors.Is(err, dispatcher.ErrNotFound) && !errors.Is(err, dispatcher.ErrPrecondition)
}

// pausesActor is who ends a pause whose time is over, as the audit log names it.
const pausesActor = "system"

// expireJobPauses ends pauses of jobs and triggers.
func (s *Store) expireJobPauses(ctx context.Context, limit int, now time.Time) (ended int, err error) {
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
	found, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (p paused, err error) {
		err = row.Scan(&p.app, &p.job, &p.trigger, &p.revision)
		return p, err
	}, over, now.UnixMilli(), limit+s.asides.count(dispatcher.WorkPauses))
	if err != nil {
		return 0, fmt.Errorf("look for pauses of jobs that are over: %w", err)
	}
	var errs []error
	item := func(p paused) string { return jobItem(run.JobID(p.app, p.job)) }
	for _, p := range withoutAsides(s, dispatcher.WorkPauses, found, item, now) {
		change := input.Change{Actor: pausesActor, IfRevision: p.revision, Now: now}
		err := dispatcher.WithoutPanic(func() error {
			_, err := s.PauseJob(ctx, p.app, p.job, p.trigger, false, change)
			return err
		})
		if s.ofPause(ctx, err) {
			row := asideRow{work: dispatcher.WorkPauses, item: item(p), job: run.JobID(p.app, p.job)}
			if err = s.setAside(ctx, row, err, now); err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			ended++
		case errors.Is(err, dispatcher.ErrNotFound), errors.Is(err, dispatcher.ErrPrecondition): // it changed; the next round looks again
		default:
			errs = append(errs, err)
		}
	}
	return ended, errors.Join(errs...)
}
