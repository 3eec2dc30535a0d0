package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// record is everything known about a chaos run. Instants are Unix milliseconds.
type record struct {
	ledger
	doubles       []double
	triggers      []trigger
	nodes         []node
	slots         []fire // of runs that hold one
	deleted       int    // jobs that the clean-up should have removed
	changes       []change
	rollbacks     []string // rollbacks of the database that the product reports and that are not settled
	rolledBack    []rolledBack
	poisoned      poisoned
	moves         []history.Move
	moved         []evidence
	hits          []history.Hit
	faults        []history.Fault
	declared      []history.Declaration
	verifications []history.Verification
	advances      []advance
	grants        []grant
	heartbeats    []heartbeat
	afterwards
	// deadAfter is how long after its last heartbeat a node is marked dead.
	deadAfter time.Duration
	drain     time.Duration // how long a node that is told to end waits for what is in flight
	// recovery is the longest time, while any node lives, until the runs of a dead one go on.
	recovery time.Duration
}

// ledger is what a database has of fires.
type ledger struct {
	runs     []run
	claims   []claim
	attempts []attempt
	misfires []misfire
}

// noticeDelay is how many milliseconds after a fault of a node its consequences may still show.
func (h *record) noticeDelay() int64 { return h.deadAfter.Milliseconds() + 1000 }

// fire identifies a run.
type fire struct {
	trigger, at int64
	kind        int
}

// The kinds of run, as the database has them.
const (
	scheduled = 1
	catchUp   = 3
)

type run struct {
	fire
	revision, node          int64
	attempt                 int
	claimed, started, ended *int64
	next                    *int64 // its next attempt
	probe                   *int64 // of the host that it waits for: when the next run goes there
	live                    bool
	state, class, message   string
}

// claim is a fire that a row of claims holds.
type claim struct {
	fire
	token, node int64
}

// double is a fire that the database saw in two tables when a transaction was committed.
type double struct {
	fire
	at int64
}

type attempt struct {
	fire
	attempt            int
	node, began, ended int64
	state, class       string
	late               *string
}

type misfire struct {
	trigger, from, to, count int64
	decision                 string
	catchUp                  *int64
	decided                  int64
}

type trigger struct {
	id             int64
	app, job, name string
	state          string
	due            *int64
	firing         bool // enabled, not paused, not deleted
	once           bool // its job has delivery at most once
}

type node struct {
	id      int64
	name    string
	started int64
	process int // its number
}

// change is a change of a definition, from the audit log.
type change struct {
	at           int64
	action       string
	app, subject string
	revision     int64
}

// load reads the record of a run.
func load(ctx context.Context, database, dir string) (*record, error) {
	h := &record{}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	if err := h.ledger.load(ctx, conn); err != nil {
		return nil, err
	}
	if h.triggers, err = rows(ctx, conn, func(t *trigger, row pgx.Rows) error {
		return row.Scan(&t.id, &t.app, &t.job, &t.name, &t.state, &t.due, &t.firing, &t.once)
	}, `SELECT t.id, a.name, j.name, t.name, c.state, c.due_at,
			t.enabled AND j.enabled AND a.enabled AND NOT t.paused AND NOT t.job_paused AND t.deleted_at IS NULL, j.delivery = 'at_most_once'
		FROM triggers t JOIN trigger_clock c ON c.id = t.id JOIN jobs j ON j.id = t.job_id JOIN apps a ON a.id = t.app_id
		ORDER BY t.id`); err != nil {
		return nil, err
	}
	if err := h.loadNodes(ctx, conn); err != nil {
		return nil, err
	}
	if h.slots, err = rows(ctx, conn, func(f *fire, row pgx.Rows) error {
		return row.Scan(&f.trigger, &f.at, &f.kind)
	}, `SELECT trigger_id, scheduled_at, kind FROM slots`); err != nil {
		return nil, err
	}
	// Nobody deletes a job more than a day before the run.
	err = conn.QueryRow(ctx, `SELECT count(*) FROM jobs
		WHERE deleted_at < extract(epoch FROM now() - INTERVAL '1 day') * 1000`).Scan(&h.deleted)
	if err != nil {
		return nil, err
	}
	if h.changes, err = rows(ctx, conn, func(c *change, row pgx.Rows) error {
		return row.Scan(&c.at, &c.action, &c.app, &c.subject, &c.revision)
	}, `SELECT at, action, app, subject, revision FROM audit_log
		WHERE subject LIKE 'job %' AND action IN ('put', 'delete') ORDER BY at, revision`); err != nil {
		return nil, err
	}
	if h.rollbacks, err = rows(ctx, conn, func(why *string, row pgx.Rows) error {
		return row.Scan(why)
	}, `SELECT rollback_reason FROM installation WHERE rolled_back_at IS NOT NULL`); err != nil {
		return nil, err
	}
	if err := h.watched(ctx, conn); err != nil {
		return nil, err
	}
	if err := h.loadAfterwards(ctx, conn); err != nil {
		return nil, err
	}
	if err := h.loadRolledBack(ctx, database, dir); err != nil {
		return nil, err
	}
	if err := h.read(dir); err != nil {
		return nil, err
	}
	if err := h.loadMoved(ctx, database, dir); err != nil {
		return nil, err
	}
	return h, h.loadPoisoned(ctx, conn, dir)
}

// load reads a ledger.
func (l *ledger) load(ctx context.Context, conn *pgx.Conn) (err error) {
	// A run is over, or it is live: the history holds the one, a small table the other.
	if l.runs, err = rows(ctx, conn, func(r *run, row pgx.Rows) error {
		return row.Scan(&r.trigger, &r.at, &r.kind, &r.revision, &r.node, &r.attempt, &r.claimed, &r.started, &r.ended,
			&r.live, &r.state, &r.class, &r.message, &r.next, &r.probe)
	}, `SELECT trigger_id, scheduled_at, kind, revision, node, attempt, ended_at - claimed_ms, ended_at - started_ms, ended_at, FALSE,
			coalesce(state, 'succeeded'), coalesce(class, ''), coalesce(error, ''), NULL, NULL FROM runs WHERE kind <= 3
		UNION ALL SELECT trigger_id, scheduled_at, kind, revision, node, attempt, claimed_at, started_at, NULL, TRUE, state, class, error,
			next_attempt_at, (SELECT h.probe_at FROM host_waits AS h WHERE h.id = waits_for) FROM live_runs WHERE kind <= 3
		ORDER BY trigger_id, scheduled_at, kind`); err != nil {
		return err
	}
	if l.claims, err = rows(ctx, conn, func(c *claim, row pgx.Rows) error {
		c.kind = scheduled
		return row.Scan(&c.token, &c.node, &c.trigger, &c.at)
	}, `SELECT c.token, c.node, f.trigger_id, f.scheduled_at
		FROM claims AS c LEFT JOIN LATERAL unnest(c.trigger_ids, c.scheduled_at) AS f (trigger_id, scheduled_at) ON TRUE`); err != nil {
		return err
	}
	if l.attempts, err = rows(ctx, conn, func(a *attempt, row pgx.Rows) error {
		return row.Scan(&a.trigger, &a.at, &a.kind, &a.attempt, &a.node, &a.began, &a.ended, &a.state, &a.class, &a.late)
	}, `SELECT trigger_id, scheduled_at, kind, attempt, node, started_at, ended_at, state, class, late_result
		FROM attempts ORDER BY trigger_id, scheduled_at, kind, attempt`); err != nil {
		return err
	}
	if l.misfires, err = rows(ctx, conn, func(m *misfire, row pgx.Rows) error {
		return row.Scan(&m.trigger, &m.from, &m.to, &m.count, &m.decision, &m.catchUp, &m.decided)
	}, `SELECT trigger_id, from_at, to_at, count, decision, catch_up, decided_at FROM misfires ORDER BY trigger_id, from_at`); err != nil {
		return err
	}
	return nil
}

func (h *record) loadNodes(ctx context.Context, conn *pgx.Conn) (err error) {
	h.nodes, err = rows(ctx, conn, func(n *node, row pgx.Rows) error { return row.Scan(&n.id, &n.name, &n.started, &n.process) },
		`SELECT id, name, started_at, coalesce(CAST(substring(labels FROM '`+history.ProcessLabel+
			`=([0-9]+)') AS INTEGER), 0) FROM nodes`)
	return err
}

// watched reads the records of the database's own triggers.
func (h *record) watched(ctx context.Context, conn *pgx.Conn) (err error) {
	if h.advances, err = rows(ctx, conn, func(a *advance, row pgx.Rows) error { return row.Scan(&a.trigger, &a.same, &a.was, &a.next) },
		`SELECT trigger_id, same, was, next FROM watch.advances`); err != nil {
		return err
	}
	if h.grants, err = rows(ctx, conn, func(g *grant, row pgx.Rows) error {
		return row.Scan(&g.name, &g.wasFence, &g.fence, &g.wasUntil, &g.at)
	}, `SELECT name, was_fence, fence, was_until, at FROM watch.grants`); err != nil {
		return err
	}
	if h.doubles, err = rows(ctx, conn, func(d *double, row pgx.Rows) error { return row.Scan(&d.trigger, &d.fire.at, &d.kind, &d.at) },
		`SELECT trigger_id, scheduled_at, kind, at FROM watch.doubles`); err != nil {
		return err
	}
	h.heartbeats, err = rows(ctx, conn, func(b *heartbeat, row pgx.Rows) error { return row.Scan(&b.node, &b.at) },
		`SELECT node, at FROM watch.heartbeats`)
	return err
}

// read reads the records kept outside the database.
func (h *record) read(dir string) (err error) {
	if h.hits, err = history.Read[history.Hit](dir, history.Hits); err != nil {
		return err
	}
	if h.faults, err = history.Read[history.Fault](dir, history.Faults); err != nil {
		return err
	}
	if h.declared, err = history.Read[history.Declaration](dir, history.Declarations); err != nil {
		return err
	}
	if h.asked, err = history.Read[history.Backfill](dir, history.Backfills); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // an act may have none
	}
	if h.callbacks, err = history.Read[history.Callback](dir, history.Callbacks); err != nil {
		return err
	}
	h.verifications, err = history.Read[history.Verification](dir, history.Verifications)
	return err
}

func rows[T any](ctx context.Context, conn *pgx.Conn, scan func(*T, pgx.Rows) error, query string) ([]T, error) {
	found, err := conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (one T, err error) {
		return one, scan(&one, row.(pgx.Rows))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return all, nil
}
