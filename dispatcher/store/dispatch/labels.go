package dispatch

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// The sets of labels that jobs require are few, however many jobs there are. The row of each notes whether a
// live node has them: the triggers of a set that no node has are off, and no node searches for their runs.
//
// A set's served is written under the lock of the installation's row, after reading the nodes: of two
// simultaneous transactions, the later sees the same nodes as the earlier. Only the first job of a set writes it
// without the lock; that is provisional, and FollowLabels checks again.

// RequireLabels notes that a job requires labels, and returns whether a live node has them, which stays locked until
// the transaction ends.
func RequireLabels(ctx context.Context, t *Tx, labels input.Labels) (served bool, err error) {
	if len(labels) == 0 {
		return true, nil
	}
	// $1 labels
	const known = `SELECT served FROM label_sets WHERE node_labels = $1`
	// $1 labels, $2 served
	const add = `INSERT INTO label_sets (node_labels, served, switched_to) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING`
	scan := func(row db.Scanner) (served bool, err error) {
		err = row.Scan(&served)
		return served, err
	}
	for range 5 {
		served, found, err := db.First(ctx, t, scan, known+t.ForShare(), labels.String())
		if err != nil || found {
			return served, err
		}
		// The set may be dropped in between, if no job required it until now.
		nodes, err := liveLabels(ctx, t)
		if err == nil {
			err = t.Exec(ctx, add, labels.String(), has(nodes, labels.String()))
		}
		if err != nil {
			return false, fmt.Errorf("note labels %s: %w", labels, err)
		}
	}
	return false, fmt.Errorf("note labels %s: %w", labels, dispatcher.ErrConflict)
}

// liveLabels returns the different sets of labels of all nodes that are not dead. Paused nodes count because they may
// resume at any time.
func liveLabels(ctx context.Context, t *Tx) ([]input.Labels, error) {
	const live = `SELECT DISTINCT labels FROM nodes WHERE state <> 'dead'`
	return db.ReadRows(ctx, t, func(l *input.Labels) []any { return []any{db.LabelsColumn(l)} }, live)
}

// has reports whether one of the nodes has all labels of a set.
func has(nodes []input.Labels, set string) bool {
	required := input.ParseLabels(set)
	return slices.ContainsFunc(nodes, func(node input.Labels) bool { return node.Have(required) })
}

// lockInstallation makes other writers of served, and of outages, wait.
func lockInstallation(ctx context.Context, t *Tx) error {
	_, _, err := db.First(ctx, t, db.ScanText, `SELECT id FROM installation`+t.ForUpdate())
	return err
}

// labelSet is a row of label_sets.
type labelSet struct {
	labels string
	served bool
}

// noteServed notes which sets of labels the live nodes have, after nodes came or went, and updates the clocks: some at
// once, the others in the handler. It also removes the sets that no job requires.
func (s *Store) noteServed(ctx context.Context) error {
	err := s.Change(ctx, input.Change{}, func(ctx context.Context, t *Tx) error {
		if err := lockInstallation(ctx, t); err != nil {
			return err
		}
		nodes, err := liveLabels(ctx, t)
		if err != nil {
			return err
		}
		sets, err := db.ReadRows(ctx, t, func(l *labelSet) []any { return []any{&l.labels, &l.served} },
			`SELECT node_labels, served FROM label_sets ORDER BY node_labels`)
		if err != nil {
			return err
		}
		changed := slices.DeleteFunc(sets, func(set labelSet) bool { return set.served == has(nodes, set.labels) })
		if len(changed) > 0 {
			if err := switchSets(ctx, t, changed); err != nil {
				return err
			}
			t.Notify(dispatcher.Notification{})
		}
		return dropUnused(ctx, t)
	})
	if err != nil {
		return fmt.Errorf("note which labels live nodes have: %w", err)
	}
	return nil
}

func switchSets(ctx context.Context, t *Tx, sets []labelSet) error {
	var labels []string
	var served []bool
	for _, set := range sets {
		labels, served = append(labels, set.labels), append(served, !set.served)
	}
	note := t.Rows(0, 1, "", db.Col("labels", db.Text), db.Col("served", db.Boolean)) + ` UPDATE label_sets AS s
		SET served = b.served, switched_to = 0 FROM b WHERE s.node_labels = b.labels`
	if err := t.Exec(ctx, note, t.Batch(labels, served)...); err != nil {
		return err
	}
	for left := FollowAtOnce; left > 0 && len(labels) > 0; labels = labels[1:] {
		n, err := FollowLabels(ctx, t, labels[0], left)
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// dropUnused removes the sets that no job requires. A job that is about to require one locks its row, so the deleting
// statement checks again once it has the lock.
func dropUnused(ctx context.Context, t *Tx) error {
	const unused = ` NOT EXISTS (SELECT 1 FROM jobs AS j WHERE j.node_labels = s.node_labels AND j.node_labels <> '')`
	find := `SELECT s.node_labels FROM label_sets AS s WHERE` + unused + ` ORDER BY s.node_labels` + db.LockOf(t.ForUpdate(), "s")
	sets, err := db.Collect(ctx, t, db.ScanText, find)
	if err != nil || len(sets) == 0 {
		return err
	}
	drop := t.Rows(0, 1, "", db.Col("labels", db.Text)) + ` DELETE FROM label_sets AS s
		WHERE s.node_labels IN (SELECT labels FROM b) AND` + unused
	return t.Exec(ctx, drop, t.Batch(sets)...)
}

// SwitchedSets returns some sets of labels with triggers that do not all follow them yet.
func (s *Store) SwitchedSets(ctx context.Context) ([]string, error) {
	// $1 limit
	const pending = `SELECT node_labels FROM label_sets WHERE switched_to IS NOT NULL ORDER BY node_labels LIMIT $1`
	sets, err := db.Collect(ctx, s.db.Read, db.ScanText, pending, PendingMost)
	if err != nil {
		return nil, fmt.Errorf("look for switched labels: %w", err)
	}
	return sets, nil
}

// FollowLabels updates the clocks of the next triggers that require a set of labels, according to whether a live node
// has them, and returns how many. It first reads the nodes, unless noteServed has just done so.
func FollowLabels(ctx context.Context, t *Tx, labels string, limit int) (followed int, err error) {
	if err := lockInstallation(ctx, t); err != nil {
		return 0, err
	}
	// $1 labels
	const pending = `SELECT served, switched_to FROM label_sets WHERE node_labels = $1 AND switched_to IS NOT NULL`
	var served bool
	var from int64
	found, err := db.ReadRow(ctx, t, []any{&served, &from}, pending+t.ForUpdate(), labels)
	if err != nil || !found {
		return 0, err
	}
	if from == 0 {
		nodes, err := liveLabels(ctx, t)
		if err != nil {
			return 0, err
		}
		served = has(nodes, labels)
	}
	// $1 labels, $2 id of the last trigger of the portion before, $3 limit
	const next = `SELECT id FROM triggers WHERE node_labels = $1 AND node_labels <> '' AND id > $2 ORDER BY id LIMIT $3`
	ids, err := db.Collect(ctx, t, db.ScanInt, next, labels, from, limit)
	if err == nil {
		err = SwitchClocks(ctx, t, ids, OffLabels, !served)
	}
	if err != nil {
		return 0, err
	}
	// $1 labels, $2 served, $3 cursor
	const move = `UPDATE label_sets SET served = $2, switched_to = $3 WHERE node_labels = $1`
	err = t.Exec(ctx, move, labels, served, FollowedTo(ids, limit))
	return len(ids), err
}

// LabelSets returns the required sets of labels that a live node has.
func (s *Store) LabelSets(ctx context.Context) ([]input.Labels, error) {
	sets, err := s.servedSets(ctx)
	if err != nil {
		return nil, fmt.Errorf("read sets of labels: %w", err)
	}
	all := make([]input.Labels, len(sets))
	for i, set := range sets {
		all[i] = input.ParseLabels(set)
	}
	return all, nil
}

// servedSets returns the required sets of labels that a live node has, as texts.
func (s *Store) servedSets(ctx context.Context) ([]string, error) {
	return db.Collect(ctx, s.db.Read, db.ScanText, `SELECT node_labels FROM label_sets WHERE served ORDER BY node_labels`)
}

// servedLabels returns the required sets of labels that a node with these labels has.
func (s *Store) servedLabels(ctx context.Context, have input.Labels) ([]string, error) {
	if len(have) == 0 {
		return nil, nil
	}
	sets, err := s.servedSets(ctx)
	return slices.DeleteFunc(sets, func(labels string) bool { return !have.Have(input.ParseLabels(labels)) }), err
}

// The reasons why a trigger does not fire. trigger_clock.off is their sum.
const (
	OffApp    = 1 << iota // its app is disabled
	OffPaused             // it is paused
	OffJob                // its job is paused
	OffLabels             // no live node has the labels that its job requires
	OffError              // it is in state error
	OffPauses             // a pause of its app holds its job
)

// FollowAtOnce is how many clocks follow a switch in the transaction that changes it. This delays their fires by some
// 50 ms.
const FollowAtOnce = 2000

// FollowedTo is the cursor after a portion; nil: all are done.
func FollowedTo(ids []int64, limit int) *int64 {
	if len(ids) < limit {
		return nil
	}
	return &ids[len(ids)-1]
}

// SwitchClocks adds a reason to the clocks of triggers, or removes it. Ids are in the order in which claims lock them.
func SwitchClocks(ctx context.Context, t *Tx, ids []int64, reason int, off bool) error {
	if len(ids) == 0 {
		return nil
	}
	set := 0
	if off {
		set = reason
	}
	// $1 reason, $2 the same or 0, from $3 on: ids
	write := t.Rows(0, 3, "", db.IDColumns...) + ` UPDATE trigger_clock AS c SET off = (c.off & ~CAST($1 AS integer)) | CAST($2 AS integer)
		FROM b WHERE c.id = b.id AND (c.off & CAST($1 AS integer)) <> CAST($2 AS integer)`
	return t.Exec(ctx, write, append([]any{reason, set}, t.Batch(ids)...)...)
}

// PendingMost bounds how many switches one call continues.
const PendingMost = 100
