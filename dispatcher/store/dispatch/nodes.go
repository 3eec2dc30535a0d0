package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// nodeFields are the columns of nodes.
var nodeFields = db.Fields[nodeRow]{
	{Name: "id", Ref: func(n *nodeRow) any { return &n.ID }},
	{Name: "name", Ref: func(n *nodeRow) any { return &n.Name }},
	{Name: "version", Ref: func(n *nodeRow) any { return &n.Version }},
	{Name: "state", Ref: func(n *nodeRow) any { return &n.State }},
	{Name: "apps", Ref: func(n *nodeRow) any { return db.ListColumn(&n.Apps) }},
	{Name: "labels", Ref: func(n *nodeRow) any { return db.LabelsColumn(&n.Labels) }},
	{Name: "started_at", Ref: func(n *nodeRow) any { return db.InstantColumn(&n.StartedAt) }},
	{Name: "heartbeat_at", Ref: func(n *nodeRow) any { return db.InstantColumn(&n.HeartbeatAt) }},
	{Name: "heartbeat_interval", Ref: func(n *nodeRow) any { return db.DurationColumn(&n.HeartbeatInterval) }},
	{Name: "in_flight", Ref: func(n *nodeRow) any { return &n.InFlight }},
	{Name: "fires", Ref: func(n *nodeRow) any { return &n.Fires }},
	{Name: "lag", Ref: func(n *nodeRow) any { return db.DurationColumn(&n.Lag) }},
	{Name: "saturated", Ref: func(n *nodeRow) any { return &n.Saturated }},
	{Name: "clock_offset", Ref: func(n *nodeRow) any { return db.DurationColumn(&n.ClockOffset) }},
	{Name: "certificate_ends_at", Ref: func(n *nodeRow) any { return db.OptionalColumn(&n.CertificateEndsAt) }},
	{Name: "long_since", Ref: func(n *nodeRow) any { return db.OptionalColumn(&n.LongSince) }},
	{Name: "api_addresses", Ref: func(n *nodeRow) any { return db.ListColumn(&n.APIAddresses) }},
	{Name: "deregistered", Ref: func(n *nodeRow) any { return &n.Deregistered }},
	{Name: "zones", Ref: func(n *nodeRow) any { return &n.Zones }},
	{Name: "reach", Ref: func(n *nodeRow) any { return db.JSONColumn(&n.Reach) }, Use: db.OnlyNew}, // heartbeats need not read it
	{Name: "paused_by_rollback", Ref: func(n *nodeRow) any { return &n.pausedByRollback }, Use: db.OnlyNew},
}

// nodeRead are the fields of a node, and NodeColumns selects them.
var (
	nodeRead    = nodeFields.Read()
	NodeColumns = nodeRead.Selected("")
)

type nodeRow struct {
	dispatcher.Node
	pausedByRollback bool
}

// ScanNode reads the row of a node.
func ScanNode(row db.Scanner) (dispatcher.Node, error) {
	var n nodeRow
	err := row.Scan(nodeRead.Refs(&n)...)
	return n.Node, err
}

// Installation returns the random id of this database.
func (s *Store) Installation(ctx context.Context) (string, error) {
	id, found, err := db.First(ctx, s.db.Read, db.ScanText, `SELECT id FROM installation`)
	if err == nil && !found {
		err = fmt.Errorf("installation: %w", dispatcher.ErrNotFound)
	}
	return id, err
}

// Clock reads the database's clock.
func (s *Store) Clock(ctx context.Context) (time.Time, error) {
	ctx, cancel := db.Bound(ctx, db.HeartbeatTimeout)
	defer cancel()
	return s.db.Now(ctx, s.db.Heartbeats)
}

// Register adds a node to the fleet, paused if the database lost commits.
func (s *Store) Register(ctx context.Context, node dispatcher.Node, now time.Time) error {
	if node.State != dispatcher.NodePaused {
		node.State = dispatcher.NodeActive
	}
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	var r registration
	var err error
	if r.identity, err = s.db.Identity(ctx); err != nil {
		return err
	}
	err = s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) error {
		rolledBack, err := s.Rollbacks.check(ctx, t, &r)
		if err != nil {
			return err
		}
		if t.Single() {
			// SQLite has only one node, which holds the lock file, so all others are gone and their runs are free.
			if err := t.Exec(ctx, `UPDATE nodes SET state = 'dead'`); err != nil {
				return err
			}
		}
		row := nodeRow{Node: dispatcher.Node{
			ID: node.ID, Name: node.Name, Version: node.Version, Zones: schedule.ZonesVersion(),
			State: node.State, Apps: node.Apps, Labels: node.Labels,
			StartedAt: t.At, NodeHeartbeat: dispatcher.NodeHeartbeat{HeartbeatAt: t.At, HeartbeatInterval: node.HeartbeatInterval},
			APIAddresses: node.APIAddresses, Reach: node.Reach,
		}}
		if rolledBack && row.State == dispatcher.NodeActive {
			row.State, row.pausedByRollback = dispatcher.NodePaused, true
		}
		err = t.Exec(ctx, nodeFields.Insert("nodes"), nodeFields.Values(&row)...)
		t.Notify(dispatcher.Notification{Nodes: true})
		return err
	})
	if err != nil {
		return err
	}
	s.Rollbacks.registered(node.ID, r)
	s.db.Mark(node.ID, 0)
	return s.noteServed(ctx)
}

// SwitchActions are the actions of the audit log that switch an app. Its deletion ends the time in which it was disabled.
const SwitchActions = `'enable', 'disable', 'delete'`

// OutageSubject is the subject of the entries of RecordOutage in the audit log.
const OutageSubject = "database"

// sameOutage is how much later than others a node may reach the database again after an outage of all.
const sameOutage = time.Minute

// RecordOutage notes that a node could not reach the database for some time, for explanations of fires that were due then.
// Only the first of the nodes that lost it together does.
func (s *Store) RecordOutage(ctx context.Context, outage dispatcher.Outage) error {
	ctx, cancel := db.Bound(ctx, db.HeartbeatTimeout)
	defer cancel()
	return s.Change(ctx, input.Change{Actor: "system", Now: outage.To}, func(ctx context.Context, t *Tx) error {
		if err := lockInstallation(ctx, t); err != nil { // another node may be about to record it
			return err
		}
		// $1 since when it was lost, $2 since when an entry may be about the same outage
		const known = `SELECT 1 FROM audit_log WHERE subject = '` + OutageSubject + `' AND at > $1 AND at >= $2 LIMIT 1`
		_, recorded, err := db.First(ctx, t, db.ScanInt, known, outage.From.UnixMilli(), outage.To.Add(-sameOutage).UnixMilli())
		if err != nil || recorded {
			return err
		}
		// $1 id
		outage.Name, _, err = db.First(ctx, t, db.ScanText, `SELECT name FROM nodes WHERE id = $1`, int64(outage.Node))
		if err != nil {
			return err
		}
		return t.AuditChange(ctx, AuditEntry{Action: "reconnect", Subject: OutageSubject, After: outage})
	})
}

// The statements of a heartbeat. Their rows are nodes, each with values for the node itself: how many heartbeats
// it has sent, whether a rollback paused it, whether one awaits a decision, and when the latest was settled.
// $1 id, $2 in flight, $3 fires, $4 lag and $5 clock offset in milliseconds, $6 long since, $7 now, 0 for the
// database's clock, $8 when the certificate ends, $9 saturated
func renewHeartbeat(now string) string {
	return `UPDATE nodes SET heartbeat_at = CASE WHEN CAST($7 AS bigint) = 0 THEN ` + now + ` ELSE $7 END, in_flight = $2, fires = $3,
	lag = $4, clock_offset = $5, long_since = $6, certificate_ends_at = $8, saturated = $9, heartbeats = heartbeats + 1
	WHERE id = $1 AND state <> 'dead' RETURNING ` + NodeColumns + `, heartbeats, paused_by_rollback,
	EXISTS (SELECT 1 FROM installation WHERE rolled_back_at IS NOT NULL) AS rolled_back,
	(SELECT rollback_settled_at FROM installation) AS settled`
}

// $1 id
var otherNodes = `SELECT ` + NodeColumns + `, 0, FALSE, FALSE, 0 FROM nodes WHERE state <> 'dead' AND id <> $1`

// renewedNode is a row of these statements.
type renewedNode struct {
	dispatcher.Node
	heartbeats, settled          int64
	pausedByRollback, rolledBack bool
}

// Heartbeat renews the row of a node, and returns its state and the live nodes.
func (s *Store) Heartbeat(ctx context.Context, id run.NodeID, report dispatcher.NodeReport,
	now time.Time) (dispatcher.HeartbeatReply, error) {
	ctx, cancel := db.Bound(ctx, db.HeartbeatTimeout)
	defer cancel()
	all, err := s.renew(ctx, id, report, now)
	if err != nil {
		return dispatcher.HeartbeatReply{}, err
	}
	mine := slices.IndexFunc(all, func(n renewedNode) bool { return n.ID == id })
	if mine < 0 {
		if err := s.Rollbacks.unknownNode(ctx, s, id, now); err != nil {
			return dispatcher.HeartbeatReply{}, err
		}
		return dispatcher.HeartbeatReply{}, fmt.Errorf("node %s: %w", id, dispatcher.ErrNodeDead)
	}
	node := all[mine]
	lost, err := s.Rollbacks.heartbeat(ctx, s, node, now)
	if err != nil {
		return dispatcher.HeartbeatReply{}, err
	}
	if lost { // so all nodes are now paused
		node.pausedByRollback, node.rolledBack = node.pausedByRollback || node.State == dispatcher.NodeActive, true
		node.State = dispatcher.NodePaused
		for i := range all {
			all[i].State = dispatcher.NodePaused
		}
	}
	reply := dispatcher.HeartbeatReply{
		State: node.State, OperatorState: node.State, At: node.HeartbeatAt, RolledBack: node.rolledBack,
	}
	if node.pausedByRollback {
		reply.OperatorState = dispatcher.NodeActive
	}
	slices.SortFunc(all, func(a, b renewedNode) int { return cmp.Compare(a.ID, b.ID) })
	for _, one := range all {
		if one.State == dispatcher.NodeActive {
			reply.Live = append(reply.Live, one.Node)
		}
		if one.ID != id { // a paused node serves its API, too
			reply.APIs = append(reply.APIs, one.APIAddresses...)
		}
	}
	return reply, nil
}

// renew renews the row of a node, and returns it with the rows of the other live nodes; none if the node is dead.
func (s *Store) renew(ctx context.Context, id run.NodeID, report dispatcher.NodeReport, now time.Time) (
	all []renewedNode, err error,
) {
	if now.IsZero() && s.Hot.Heartbeat.Now != 0 {
		if now, err = s.db.Now(ctx, s.db.Heartbeats); err != nil {
			return nil, err
		}
	}
	args := []any{id, report.InFlight, report.Fires, report.Lag.Std().Milliseconds(), report.ClockOffset.Std().Milliseconds(),
		db.OrNullAt(report.LongSince), db.OrZero(now), db.OrNullAt(report.CertificateEndsAt), report.Saturated}
	for _, part := range s.Hot.Heartbeat.Parts {
		some, err := db.Collect(ctx, s.db.Heartbeats, func(row db.Scanner) (n renewedNode, err error) {
			n.Node, err = ScanNode(db.WiderRow{Scanner: row, After: []any{&n.heartbeats, &n.pausedByRollback, &n.rolledBack, &n.settled}})
			return n, err
		}, part, args...)
		if err != nil || len(some) == 0 && len(all) == 0 {
			return nil, err
		}
		all, args = append(all, some...), args[:1]
	}
	return all, nil
}

// Deregister removes a node from the fleet.
func (s *Store) Deregister(ctx context.Context, id run.NodeID) error {
	err := s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
		// $1 id
		err := t.Exec(ctx, `UPDATE nodes SET state = 'dead', in_flight = 0, deregistered = TRUE WHERE id = $1`, id)
		t.Notify(dispatcher.Notification{Nodes: true})
		return err
	})
	if err != nil {
		return err
	}
	return s.noteServed(ctx)
}

// purgeNodeAfter is how long a dead node is listed after its last heartbeat.
const purgeNodeAfter = 24 * time.Hour

// The statements of MarkDead. All read the clock themselves: a delayed one would take
// the heartbeats of a healthy fleet for old ones, or set them back.
// $1 now, $2 milliseconds, from $3 on: the id of the node that asks, and its heartbeat
const (
	// A heartbeat from the future, left by a wrong clock, would keep its node alive until then; now it starts to age.
	clampHeartbeats = ` UPDATE nodes AS o SET heartbeat_at = b.now FROM b WHERE o.heartbeat_at > b.now + $2 AND o.state <> 'dead'`

	// A node with claims or live runs stays, because they are found through it. A limit of 100 keeps the transaction
	// short.
	purgeNodes = ` DELETE FROM nodes WHERE id IN (SELECT o.id FROM b JOIN nodes AS o ON o.heartbeat_at < b.now - $2
		WHERE CASE WHEN o.state = 'dead' AND o.heartbeat_at < b.now - $2 THEN ` + hasNothing + ` ELSE b.no END
		ORDER BY o.heartbeat_at LIMIT 100)`

	markDeadNodes = ` UPDATE nodes AS o SET state = 'dead' FROM b JOIN nodes AS me ON me.id = b.id
		WHERE me.state <> 'dead' AND me.heartbeat_at = b.heartbeat AND (b.now - me.heartbeat_at) * 2 < $2
		AND o.heartbeat_at < b.now - $2 AND o.state <> 'dead'`
)

// unwellNodes checks whether the statements of MarkDead have work, which is rare.
// $1 now, in milliseconds $2 the margin of clocks, $3 when a dead node is purged, $4 when a node is dead
const unwellNodes = ` SELECT 1 FROM b CROSS JOIN nodes AS o
	WHERE o.state <> 'dead' AND (o.heartbeat_at > b.now + $2 OR o.heartbeat_at < b.now - $4)
		OR o.state = 'dead' AND o.heartbeat_at < b.now - $3 LIMIT 1`

// MarkDead marks dead the nodes without a recent heartbeat, and purges those long dead.
func (s *Store) MarkDead(ctx context.Context, id run.NodeID, heartbeat time.Time, after time.Duration,
	now time.Time) (dead int, err error) {
	args := append([]any{db.OrZero(now), s.db.Margin.Milliseconds(), purgeNodeAfter.Milliseconds(), after.Milliseconds()},
		s.db.Batch([]int64{0})...)
	_, found, err := db.First(ctx, s.db.Read, db.ScanInt, s.db.Rows(1, 5, "", db.IDColumns...)+unwellNodes, args...)
	if err != nil || !found {
		return 0, err
	}
	err = s.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *Tx) error {
		var affected int64
		// Purging comes first: a node that dies now may have a claim in progress, with runs that must still find their
		// node.
		for i, age := range []time.Duration{s.db.Margin, purgeNodeAfter, after} {
			args := append([]any{db.OrZero(now), age.Milliseconds()}, t.Batch([]int64{int64(id)}, []int64{heartbeat.UnixMilli()})...)
			var err error
			if affected, err = t.Affect(ctx, s.Hot.MarkDead[i], args...); err != nil {
				return err
			}
		}
		if dead = int(affected); dead > 0 {
			t.Notify(dispatcher.Notification{Nodes: true})
		}
		return nil
	})
	if err != nil || dead == 0 {
		return dead, err
	}
	return dead, s.noteServed(ctx)
}

// Nodes returns all nodes, including dead ones until they are purged.
func (s *Store) Nodes(ctx context.Context) ([]dispatcher.Node, error) {
	nodes, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (dispatcher.Node, error) {
		var reach target.Reach
		node, err := ScanNode(db.WiderRow{Scanner: row, After: []any{db.JSONColumn(&reach)}})
		node.Reach = reach
		return node, err
	}, `SELECT `+NodeColumns+`, reach FROM nodes ORDER BY name, started_at, id`)
	if err != nil {
		return nil, err
	}
	now, err := s.db.Now(ctx, s.db.Read)
	dispatcher.CompleteNodes(nodes, now)
	return nodes, err
}

// SetNodeState pauses, resumes or drains a node.
func (s *Store) SetNodeState(ctx context.Context, id run.NodeID, state dispatcher.NodeState,
	change input.Change) (node dispatcher.Node, err error) {
	err = s.Change(ctx, change, func(ctx context.Context, t *Tx) error {
		if state == dispatcher.NodeActive {
			if _, rolledBack, err := Unsettled(ctx, t); err != nil {
				return err
			} else if rolledBack {
				return fmt.Errorf("node %s stays paused: %w", id, dispatcher.ErrRolledBack)
			}
		}
		// $1 id
		before, _, err := db.First(ctx, t, db.ScanText, `SELECT state FROM nodes WHERE id = $1`+t.ForUpdate(), id)
		if err != nil {
			return err
		}
		// $1 id, $2 state
		set := `UPDATE nodes SET state = $2, paused_by_rollback = FALSE WHERE id = $1 AND state <> 'dead' RETURNING ` + NodeColumns
		var found bool
		if node, found, err = db.First(ctx, t, ScanNode, set, id, state); err != nil {
			return err
		}
		if !found {
			// $1 id
			if _, found, err = db.First(ctx, t, db.ScanInt, `SELECT 1 FROM nodes WHERE id = $1`, id); err != nil {
				return err
			}
			if !found {
				return dispatcher.NotFound("node", id.String())
			}
			return fmt.Errorf("node %s is dead: %w", id, dispatcher.ErrConflict)
		}
		t.Notify(dispatcher.Notification{Nodes: true})
		verbs := map[dispatcher.NodeState]string{
			dispatcher.NodePaused: "pause", dispatcher.NodeActive: "resume", dispatcher.NodeDraining: "drain"}
		return t.AuditChange(ctx, AuditEntry{Action: verbs[state], Subject: "node " + id.String(),
			Before: map[string]any{"name": node.Name, "state": before}, After: map[string]any{"name": node.Name, "state": state}})
	})
	return node, err
}
