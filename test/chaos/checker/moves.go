package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// loadMoved adds what the other installation has of the app that moved: its history stays where it was made. Together they must
// explain each of its fires once, as those of an app that never moved.
func (h *record) loadMoved(ctx context.Context, database, dir string) (err error) {
	if h.moves, err = history.Read[history.Move](dir, history.Moves); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at, err := url.Parse(database)
	if err != nil {
		return err
	}
	at.Path = "/" + history.Elsewhere
	conn, err := pgx.Connect(ctx, at.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var there record
	if err = there.ledger.load(ctx, conn); err == nil {
		err = there.loadNodes(ctx, conn)
	}
	if err == nil {
		err = there.watched(ctx, conn)
	}
	if err != nil {
		return err
	}
	h.claims, h.nodes = append(h.claims, there.claims...), append(h.nodes, there.nodes...)
	h.heartbeats, h.doubles = append(h.heartbeats, there.heartbeats...), append(h.doubles, there.doubles...)
	h.advances = append(h.advances, there.advances...)
	h.misfires = append(h.ofMoves(h.misfires, "chaos"), h.ofMoves(there.misfires, history.Elsewhere)...)
	h.attempts = append(h.attempts, there.attempts...)
	h.joinRuns(there.runs)
	slices.SortFunc(h.attempts, func(a, b attempt) int {
		return cmp.Or(cmp.Compare(a.trigger, b.trigger), cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.attempt, b.attempt))
	})
	h.changes = slices.DeleteFunc(h.changes, func(c change) bool { return c.app == history.Moved && c.action == "delete" })
	return nil
}

// ofMoves leaves out the misfires that an installation noted as it deleted the app which had gone: the other one has these fires.
func (h *record) ofMoves(all []misfire, from string) []misfire {
	moved := map[int64]bool{}
	for _, t := range h.triggers {
		moved[t.id] = t.app == history.Moved
	}
	return slices.DeleteFunc(all, func(m misfire) bool {
		return moved[m.trigger] && slices.ContainsFunc(h.moves, func(way history.Move) bool {
			return way.From == from && m.decided >= way.Exported.UnixMilli() && m.decided <= way.Removed.UnixMilli()
		})
	})
}

// joinRuns adds runs. One that moved while it waited ends where it came from with the jobs that are deleted there; what it had begun
// there is an attempt that was lost with its node.
func (h *record) joinRuns(there []run) {
	moved := map[fire]bool{}
	for _, list := range [][]run{h.runs, there} {
		for _, r := range list {
			if !leftBehind(r) {
				moved[r.fire] = true
			}
		}
	}
	known := map[fire]map[int]bool{}
	note := func(f fire, number int) {
		if known[f] == nil {
			known[f] = map[int]bool{}
		}
		known[f][number] = true
	}
	for _, a := range h.attempts {
		note(a.fire, a.attempt)
	}
	for _, r := range append(slices.Clone(h.runs), there...) {
		if !leftBehind(r) {
			note(r.fire, r.attempt)
		}
	}
	h.runs = slices.DeleteFunc(append(h.runs, there...), func(r run) bool {
		gone := leftBehind(r) && moved[r.fire]
		if gone && r.attempt > 0 && !known[r.fire][r.attempt] {
			note(r.fire, r.attempt)
			began := cmp.Or(orZero(r.started), orZero(r.claimed))
			h.attempts = append(h.attempts, attempt{fire: r.fire, attempt: r.attempt, node: r.node, began: began,
				ended: max(began, h.exportedBy(orZero(r.ended))), state: "lost"})
		}
		return gone
	})
}

// exportedBy returns when the app was exported that was deleted at an instant.
func (h *record) exportedBy(deleted int64) int64 {
	exported := deleted
	for _, m := range h.moves {
		if at := m.Exported.UnixMilli(); at <= deleted && deleted <= m.Removed.UnixMilli()+slack {
			exported = at
		}
	}
	return exported
}

// leftBehind reports whether a run ended because its job was deleted.
func leftBehind(r run) bool { return r.state == "cancelled" && r.class == "job_deleted" }
