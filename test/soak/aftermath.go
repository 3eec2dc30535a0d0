package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// Changes to the jobs of some apps before the jobs are multiplied. The store makes them, so that
// the rows look as usual; then the times are set back.

// inOld calls do with a store of the old database.
func (w *world) inOld(ctx context.Context, do func(*store.Store) error) error {
	s, err := store.Open(ctx, w.old.url, store.Options{})
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.Close())
}

// disable disables an app.
func (w *world) disable(ctx context.Context) error {
	return w.inOld(ctx, func(s *store.Store) error {
		app, err := s.App(ctx, disabled)
		if err != nil {
			return err
		}
		app.Enabled = false
		_, _, err = s.PutApp(ctx, app, bySoak())
		return err
	})
}

// deleteGone deletes the job that stands for all jobs deleted long ago.
func (w *world) deleteGone(ctx context.Context) error {
	err := w.inOld(ctx, func(s *store.Store) error { return s.DeleteJob(ctx, gone, "job-0", bySoak()) })
	return errors.Join(err, w.setBack(ctx, gone))
}

// removeTriggers removes all triggers but one from a job that continues, long ago.
func (w *world) removeTriggers(ctx context.Context) error {
	const app = idle + "-removed"
	err := w.inOld(ctx, func(s *store.Store) error {
		job, err := s.Job(ctx, app, "job-0")
		if err != nil {
			return err
		}
		for name := range job.Triggers {
			if name != "t0" {
				delete(job.Triggers, name)
			}
		}
		_, _, err = s.PutJob(ctx, job, bySoak())
		return err
	})
	return errors.Join(err, w.setBack(ctx, app))
}

// setBack moves an app's deletions, and the ends of trigger revisions, into the distant past.
func (w *world) setBack(ctx context.Context, app string) error {
	then := time.Now().Add(-longAgo).UnixMilli()
	for _, statement := range []string{
		`UPDATE jobs SET deleted_at = $2 WHERE app_id = $1 AND deleted_at IS NOT NULL`,
		`UPDATE triggers SET deleted_at = $2 WHERE app_id = $1 AND deleted_at IS NOT NULL`,
		`UPDATE trigger_revisions AS r SET to_at = $2, from_at = CAST($2 AS bigint) - 1000 FROM jobs AS j
			WHERE j.id = r.job_id AND j.app_id = $1 AND r.to_at IS NOT NULL`,
	} {
		if err := w.old.execute(ctx, statement, run.AppID(app), then); err != nil {
			return err
		}
	}
	return nil
}

// labelSets is the number of label sets that the labelled jobs require. One node of a fleet has the last set.
const labelSets = 1000

func requireLabels(job *dispatcher.Job) { job.NodeLabels = input.Labels{"zone": "z0"} }

// switchOffLabelled puts the trigger into the state that the handler sets if no live node has the labels of its job.
func (w *world) switchOffLabelled(ctx context.Context) error {
	return w.old.execute(ctx, `UPDATE trigger_clock SET off = off | 8 WHERE app_id = $1`, run.AppID(labelled))
}

// varyLabels gives the labelled jobs different labels, because all copies have the same set.
func (w *world) varyLabels(ctx context.Context) error {
	set := fmt.Sprintf(`CASE WHEN mod(%%[1]s, %[1]d) = 0 THEN '%[2]s' ELSE 'zone=z' || mod(%%[1]s, %[1]d) END`, labelSets, servedLabels())
	for _, statement := range []string{
		fmt.Sprintf(`UPDATE jobs SET node_labels = `+set+` WHERE app_id = $1`, "(id >> 1)"),
		fmt.Sprintf(`UPDATE triggers SET node_labels = `+set+` WHERE app_id = $1`, "(job_id >> 1)"),
		`UPDATE trigger_clock AS c SET node_labels = t.node_labels FROM triggers AS t WHERE t.id = c.id AND c.app_id = $1`,
		`INSERT INTO label_sets (node_labels, served) SELECT DISTINCT node_labels, FALSE FROM jobs WHERE app_id = $1 AND node_labels <> ''
			ON CONFLICT (node_labels) DO UPDATE SET served = FALSE`,
	} {
		if err := w.old.execute(ctx, statement, run.AppID(labelled)); err != nil {
			return err
		}
	}
	return nil
}

// retire deletes an app that kept its history for ten years.
func (w *world) retire(ctx context.Context) error {
	return w.inOld(ctx, func(s *store.Store) error {
		app := access.App{
			Name: retired, AppSpec: access.AppSpec{Enabled: true, Retention: input.Duration(input.MaxRetention), Bounds: boundless()},
		}
		if _, _, err := s.PutApp(ctx, app, bySoak()); err != nil {
			return err
		}
		return s.DeleteApp(ctx, retired, bySoak())
	})
}
