package store

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

const nodeColumns = `id, name, version, state, started_at, heartbeat_at, in_flight`

func scanNode(row scanner) (dispatcher.Node, error) {
	var node dispatcher.Node
	var started, beat int64
	err := row.Scan(&node.ID, &node.Name, &node.Version, &node.State, &started, &beat, &node.InFlight)
	node.StartedAt, node.HeartbeatAt = instant(started), instant(beat)
	return node, err
}

func scanNodeID(row scanner) (id dispatcher.NodeID, err error) {
	err = row.Scan(&id)
	return id, err
}

func (s *store) Installation(ctx context.Context) (string, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	id, found, err := first(ctx, s.read, func(row scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT id FROM installation`)
	if err == nil && !found {
		err = fmt.Errorf("installation: %w", dispatcher.ErrNotFound)
	}
	return id, err
}

func (s *store) Clock(ctx context.Context) (time.Time, error) {
	ctx, cancel := bound(ctx, beatTimeout)
	defer cancel()
	return s.clock(ctx, s.beat)
}

func (s *store) Register(ctx context.Context, node dispatcher.Node, now time.Time) error {
	if node.State == "" {
		node.State = dispatcher.NodeActive
	}
	return s.change(ctx, dispatcher.Change{Now: now}, func(ctx context.Context, t *tx) error {
		if t.single() {
			// Who holds the lock file is alone: whoever is in the table is gone.
			if _, err := t.ExecContext(ctx, `UPDATE nodes SET state = 'dead'`); err != nil {
				return err
			}
		}
		// $1 id, $2 name, $3 version, $4 state, $5 now
		const insert = `INSERT INTO nodes (id, name, version, state, started_at, heartbeat_at, in_flight)
			VALUES ($1, $2, $3, $4, $5, $5, 0)`
		_, err := t.ExecContext(ctx, insert, node.ID, node.Name, node.Version, node.State, t.now.UnixMilli())
		t.tell("")
		return err
	})
}

func (s *store) Heartbeat(ctx context.Context, id dispatcher.NodeID, inFlight int, now time.Time) (dispatcher.Beat, error) {
	ctx, cancel := bound(ctx, beatTimeout)
	defer cancel()
	if now.IsZero() {
		var err error
		if now, err = s.clock(ctx, s.beat); err != nil {
			return dispatcher.Beat{}, err
		}
	}
	// $1 id, $2 in flight, $3 now
	const beat = `UPDATE nodes SET heartbeat_at = $3, in_flight = $2 WHERE id = $1 AND state <> 'dead' RETURNING ` + nodeColumns
	node, found, err := first(ctx, s.beat, scanNode, beat, id, inFlight, now.UnixMilli())
	if err != nil {
		return dispatcher.Beat{}, err
	}
	if !found {
		return dispatcher.Beat{}, fmt.Errorf("node %s: %w", id, dispatcher.ErrNodeDead)
	}
	live, err := collect(ctx, s.beat, scanNodeID, `SELECT id FROM nodes WHERE state = 'active' ORDER BY id`)
	return dispatcher.Beat{State: node.State, Live: live}, err
}

func (s *store) Resign(ctx context.Context, id dispatcher.NodeID) error {
	return s.change(ctx, dispatcher.Change{}, func(ctx context.Context, t *tx) error {
		// $1 id
		_, err := t.ExecContext(ctx, `UPDATE nodes SET state = 'dead', in_flight = 0 WHERE id = $1`, id)
		t.tell("")
		return err
	})
}

func (s *store) Bury(ctx context.Context, after time.Duration, now time.Time) (dead int, err error) {
	err = s.change(ctx, dispatcher.Change{Now: now}, func(ctx context.Context, t *tx) error {
		// $1 now. A heartbeat from the future, left by a clock that was wrong, would keep its
		// node alive until then; from now on it ages.
		const clamp = `UPDATE nodes SET heartbeat_at = $1 WHERE heartbeat_at > $1 AND state <> 'dead'`
		if _, err := t.ExecContext(ctx, clamp, t.now.UnixMilli()); err != nil {
			return err
		}
		// $1 the oldest heartbeat of the living
		const bury = `UPDATE nodes SET state = 'dead' WHERE heartbeat_at < $1 AND state <> 'dead'`
		result, err := t.ExecContext(ctx, bury, t.now.Add(-after).UnixMilli())
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if dead = int(n); dead > 0 {
			t.tell("")
		}
		return err
	})
	return dead, err
}

func (s *store) Nodes(ctx context.Context) ([]dispatcher.Node, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	return collect(ctx, s.read, scanNode, `SELECT `+nodeColumns+` FROM nodes ORDER BY name, started_at, id`)
}

func (s *store) SetNodeState(ctx context.Context, id dispatcher.NodeID, state dispatcher.NodeState, change dispatcher.Change) (node dispatcher.Node, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// $1 id, $2 state
		const set = `UPDATE nodes SET state = $2 WHERE id = $1 AND state <> 'dead' RETURNING ` + nodeColumns
		var found bool
		if node, found, err = first(ctx, t, scanNode, set, id, state); err != nil {
			return err
		}
		if !found {
			// $1 id
			if _, found, err = first(ctx, t, scanNodeID, `SELECT id FROM nodes WHERE id = $1`, id); err != nil {
				return err
			}
			if !found {
				return dispatcher.NotFound("node", id.String())
			}
			return fmt.Errorf("node %s is dead: %w", id, dispatcher.ErrConflict)
		}
		return t.audit(ctx, string(state), "", "node "+id.String(), 0)
	})
	return node, err
}
