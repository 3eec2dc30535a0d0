package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// leftSlots are the slots of a page that a node has, although it does not work on their runs under the token of the slot, and the
// last of the page. A run that the node does work on, by what the database knows, is for reclaim. The page follows the
// primary key, so that it needs no index of nodes, which each slot that is granted or left would have to change.
// $1 node, $2 job, $3 scheduled instant, $4 trigger, $5 kind, $6 endpoint of the last slot of the page before, $7 limit
func leftSlots(f flavor) string {
	return `SELECT s.job_id, s.scheduled_at, s.trigger_id, s.kind, s.endpoint, s.token, s.gone, s.place FROM (
		SELECT p.*, CASE WHEN p.node = $1 THEN NOT EXISTS (SELECT 1 FROM live_runs AS r WHERE` +
		f.sameRun("r", "p.scheduled_at", "p.trigger_id", "p.kind") + ` AND r.node = p.node AND r.token = p.token LIMIT 1 OFFSET 0)
			ELSE FALSE END AS gone
		FROM (SELECT x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint, x.node, x.token,
				row_number() OVER (ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) AS place
			FROM slots AS x WHERE (x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint) > ($2, $3, $4, $5, $6)
			ORDER BY x.job_id, x.scheduled_at, x.trigger_id, x.kind, x.endpoint LIMIT $7) AS p) AS s
	WHERE s.gone OR s.place = $7 ORDER BY s.place`
}

// LeftSlots returns slots that a node has for attempts that the database does not give to it.
func (s *store) LeftSlots(ctx context.Context, node dispatcher.NodeID, after dispatcher.SlotKey, limit int) (
	left dispatcher.LeftSlots, err error,
) {
	_, err = collect(ctx, s.read, func(row scanner) (struct{}, error) {
		var key dispatcher.SlotKey
		var token dispatcher.Token
		var gone bool
		var place int
		err := row.Scan(&key.JobID, instantColumn(&key.ScheduledAt), &key.TriggerID, kindColumn(&key.RunKey), &key.Endpoint, &token,
			&gone, &place)
		if gone {
			left.Runs = append(left.Runs, dispatcher.HeldRun{RunKey: key.RunKey, JobID: key.JobID, Token: token})
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
