package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
)

// A fire that is caught up by itself has a run of kind schedule, and else there is one of kind
// catch_up.
const settleExtra = `CASE WHEN decision = 'fire_all' THEN 1 ELSE 3 END AS kind, 'waiting' AS waiting`

const settledRow = claimedRow + `, b.next, b.to_at, b.missed, b.decision, b.reason`

// $1 node
const insertDecisions = ` INSERT INTO misfires (from_at, to_at, trigger_id, job_id, count, decision, reason, catch_up, node, decided_at)
	SELECT c.next, c.to_at, c.id, c.job_id, c.missed, c.decision, c.reason, c.run_at, $1, c.now FROM c
	WHERE c.decision <> 'fire_all' ON CONFLICT DO NOTHING`

// Settle records what is decided about missed fires, and returns the catch-up runs that were won.
func (s *store) Settle(ctx context.Context, batch dispatcher.SettleBatch) ([]dispatcher.HeldRun, error) {
	if len(batch.Settlements) == 0 {
		return nil, nil
	}
	sorted := slices.SortedFunc(slices.Values(batch.Settlements), func(a, b dispatcher.Settlement) int {
		return cmp.Compare(a.TriggerID, b.TriggerID)
	})
	var a advances
	var to, missed []int64
	var decision, reason []string
	var catchUp []*int64
	for _, one := range sorted {
		a.add(one.Advance)
		to, missed = append(to, one.To.UnixMilli()), append(missed, int64(one.Count))
		decision, reason = append(decision, string(one.Decision)), append(reason, one.Reason)
		catchUp = append(catchUp, orNull(one.CatchUp))
	}
	args := append([]any{int64(batch.Node), int64(batch.Token), orZero(batch.Now), int64(0)},
		s.batch(a.columns(to, missed, decision, reason, catchUp)...)...)
	held, err := s.heldRuns(ctx, otherTimeout, s.hot.settle, args)
	if err != nil {
		return nil, fmt.Errorf("settle %d triggers: %w", len(sorted), err)
	}
	return held, nil
}
