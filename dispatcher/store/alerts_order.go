package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The notifications of one condition are runs of their own, and a receiver keeps what it is told last: an incident that opens
// after it was closed stays open for ever. So a node looks before each attempt. A notification waits while the one before it is
// under way, and one that a later one has overtaken is not sent any more. Whichever of two nodes looks last sees the other: a
// run is live before its node looks, and a transition is stored before its run is queued.

// orderNotifications adds to the inputs of notifications what they wait for, and why they are overtaken.
func (s *Store) orderNotifications(ctx context.Context, inputs map[run.Key]run.Input) error {
	k, told := db.NewKeys(len(inputs)), map[run.Key]target.AlertNotification{}
	ids := []int64(nil)
	for key, input := range inputs {
		var n target.AlertNotification
		if key.Kind != run.KindAlert || input.Err != nil || json.Unmarshal(input.Payload, &n) != nil ||
			n.Transition == target.AlertTest {
			continue
		}
		told[key], ids = n, append(ids, key.TriggerID)
		if !input.After.IsZero() {
			before := key
			before.ScheduledAt = input.After
			k.Add(before, 0, 0)
		}
	}
	if len(told) == 0 {
		return nil
	}
	under, err := s.underWay(ctx, &k)
	if err != nil {
		return fmt.Errorf("look for notifications under way: %w", err)
	}
	// From $1 on: ids
	read := s.db.Rows(0, 1, "", db.IDColumns...) + ` SELECT ` + trackColumns + ` FROM alert_states AS s WHERE s.id IN (SELECT b.id FROM b)`
	found, err := db.Collect(ctx, s.db.Read, scanTrack, read, s.db.Batch(ids)...)
	if err != nil {
		return fmt.Errorf("read states of alerts: %w", err)
	}
	tracks := make(map[int64]alert.Track, len(found))
	for _, one := range found {
		tracks[one.id] = one.Track
	}
	for key, n := range told {
		in := inputs[key]
		before := key
		before.ScheduledAt = in.After
		if under[before] {
			in.Held = before.String()
		}
		track, known := tracks[key.TriggerID]
		switch {
		case known && track.Overtakes(n):
			in.Overtaken = fmt.Sprintf("%s was overtaken: people were told %s at %s", n.Transition, track.Told,
				input.FormatInstant(track.ToldAt))
		case !known && n.Transition != target.AlertResolved:
			in.Overtaken = fmt.Sprintf("%s is not told any more: the condition has ended since", n.Transition)
		}
		inputs[key] = in
	}
	return nil
}

// underWay returns those of runs that have to end before the next of their condition begins: a node has them, or they have not
// been attempted, and so wait for one before them. One that waits for its next attempt looks again before it makes it.
func (s *Store) underWay(ctx context.Context, k *db.Keys) (map[run.Key]bool, error) {
	under := map[run.Key]bool{}
	if len(k.At) == 0 {
		return under, nil
	}
	// From $1 on: the keys
	read := s.db.Rows(0, 1, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind FROM b JOIN live_runs AS r ON` +
		db.OfBatch(s.db.Flavor) + ` WHERE r.attempt = 0 OR r.state IN ('claimed', 'running')`
	found, err := db.Collect(ctx, s.db.Read, scanRunKey, read, s.db.Batch(k.At, k.Trigger, k.Kind)...)
	for _, key := range found {
		under[key] = true
	}
	return under, err
}
