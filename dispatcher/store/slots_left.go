package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// leftSlots are the slots of a page that a node has, although it does not work on their runs under the token of the slot, and the
// last of the page. A run that the node does work on, by what the database knows, is for reclaim. The page follows the
// primary key, so that it needs no index of nodes, which each slot that is granted or left would have to change.
// $1 node, $2 job, $3 scheduled instant, $4 trigger, $5 kind, $6 endpoint of the last slot of the page before, $7 limit
func leftSlots(f db.Flavor) string {
	return `SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, s.endpoint, s.token, s.gone, s.place FROM (
		SELECT p.*, CASE WHEN p.node = $1 THEN NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE` +
		f.SameRun("r", "p.scheduled_at", "p.trigger_id", "p.kind") + ` AND r.node = p.node AND r.token = p.token LIMIT 1 OFFSET 0)
			ELSE FALSE END AS gone
		FROM (SELECT x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint, x.node, x.token,
				row_number() OVER (ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) AS place
			FROM slots AS x WHERE (x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) > ($2, $3, $4, $5, $6)
			ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint LIMIT $7) AS p) AS s
	WHERE s.gone OR s.place = $7 ORDER BY s.place`
}

// LeftSlots returns slots that a node has for attempts that the database does not give to it.
func (s *Store) LeftSlots(ctx context.Context, node run.NodeID, after dispatcher.SlotKey, limit int) (
	left dispatcher.LeftSlots, err error,
) {
	_, err = db.Collect(ctx, s.db.Read, func(row db.Scanner) (struct{}, error) {
		var key dispatcher.SlotKey
		var token run.Token
		var gone bool
		var place int
		err := row.Scan(&key.JobID, db.InstantColumn(&key.ScheduledAt), &key.TriggerID, db.KindColumn(&key.Key), &key.Endpoint, &token,
			&gone, &place)
		if gone {
			left.Runs = append(left.Runs, run.HeldRun{Key: key.Key, JobID: key.JobID, Token: token})
		}
		if place == limit {
			left.Last, left.More = key, true
		}
		return struct{}{}, err
	}, s.hot.slots.left, int64(node), after.JobID, after.ScheduledAt.UnixMilli(), after.TriggerID, int64(after.Code()),
		after.Endpoint, int64(limit))
	if err != nil {
		return dispatcher.LeftSlots{}, fmt.Errorf("look for slots that were left: %w", err)
	}
	return left, nil
}

// ReleaseRun frees the slots of a run that has ended, for an operator who knows that no request of it is in flight.
func (s *Store) ReleaseRun(ctx context.Context, id string, change input.Change) (run.Run, error) {
	var released run.HeldRun
	r, err := s.changeRun(ctx, id, "release", change, func(ctx context.Context, t *tx, r run.Run, key []any) error {
		if r.EndedAt == nil {
			return fmt.Errorf("run %s has not ended: %w", r.ID, dispatcher.ErrConflict)
		}
		// $1 scheduled instant, $2 trigger, $3 kind, $4 job
		const leave = `UPDATE slots SET node = 0, token = 0 WHERE scheduled_at = $1 AND trigger_id = $2 AND kind = $3 AND job_id = $4
			AND node > 0 RETURNING job_id`
		job, found, err := db.First(ctx, t, db.ScanInt, leave, key...)
		switch {
		case err != nil:
			return err
		case !found:
			return fmt.Errorf("run %s has no slot: %w", r.ID, dispatcher.ErrConflict)
		}
		released.JobID = job
		released.Key, err = run.ParseKey(r.ID)
		return err
	})
	if err == nil {
		_ = s.ReleaseSlots(ctx, []run.HeldRun{released}) // the handler grants what this leaves undecided
	}
	return r, err
}
