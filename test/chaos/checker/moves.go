package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	h.join(there.ledger)
	slices.SortFunc(h.runs, func(a, b run) int { return a.compare(b.fire) })
	slices.SortFunc(h.attempts, func(a, b attempt) int { return cmp.Or(a.compare(b.fire), cmp.Compare(a.attempt, b.attempt)) })
	h.changes = slices.DeleteFunc(h.changes, func(c change) bool { return c.app == history.Moved && c.action == "delete" })
	return nil
}

// compare orders fires as the database does.
func (f fire) compare(to fire) int {
	return cmp.Or(cmp.Compare(f.trigger, to.trigger), cmp.Compare(f.at, to.at), cmp.Compare(f.kind, to.kind))
}

// here is the database of the installation with the three nodes.
const here = "chaos"

// away returns when the app had left an installation, if it was away at an instant: what is noted of it there since is about what has
// gone. It returns false if it was not away.
func (h *record) away(from string, at int64) (since int64, is bool) {
	for _, m := range h.moves {
		if m.From == from && m.Exported.UnixMilli() <= at {
			since, is = m.Exported.UnixMilli(), true
		}
		if m.To == from && m.Imported.UnixMilli()-slack <= at {
			is = false
		}
	}
	return since, is
}

// left returns when an app left an installation without a run that had ended there by the ledger, if it did: the run had gone with it.
// What is left behind ends when the app is deleted there, or in the import that brings it back, or, of a job with slots, as others
// of the job end. What ends between that import and the answer to it has come back, unless its job had been deleted.
func (h *record) left(from string, r run) (since int64, is bool) {
	ended := orZero(r.ended)
	for _, m := range h.moves {
		switch exported := m.Exported.UnixMilli(); {
		case exported > ended:
		case m.From == from:
			since, is = exported, slices.ContainsFunc(m.Waiting, func(w history.WaitingRun) bool { return h.fireOf(w) == r.fire })
		case m.To == from:
			is = is && r.state == "cancelled" && r.class == "job_deleted"
		}
	}
	return since, is
}

// fireOf returns the fire of a run in an export.
func (h *record) fireOf(w history.WaitingRun) fire {
	for _, t := range h.triggers {
		if t.app == history.Moved && t.job == w.Job && t.name == w.Trigger {
			return fire{t.id, w.ScheduledAt.UnixMilli(), kindNumbers[w.Kind]}
		}
	}
	return fire{}
}

// join adds the ledger of the other installation. What had begun in one and moved was lost there with its node.
func (h *record) join(there ledger) {
	moved := map[int64]bool{}
	for _, t := range h.triggers {
		moved[t.id] = t.app == history.Moved
	}
	var all ledger
	var left []attempt
	for from, l := range map[string]ledger{here: h.ledger, history.Elsewhere: there} {
		h.moved = append(h.moved, evidenceOf(from, l, moved)...)
		for _, m := range l.misfires {
			if _, gone := h.away(from, m.decided); !gone || !moved[m.trigger] {
				all.misfires = append(all.misfires, m)
			}
		}
		for _, a := range l.attempts {
			if since, gone := h.away(from, a.ended); gone && moved[a.trigger] {
				a.ended, a.state = max(a.began, since), "lost"
				left = append(left, a)
			} else {
				all.attempts = append(all.attempts, a)
			}
		}
		for _, r := range l.runs {
			since, gone := h.left(from, r)
			began := cmp.Or(orZero(r.started), orZero(r.claimed))
			switch {
			case !gone:
				all.runs = append(all.runs, r)
			case r.attempt > 0 && began <= since: // a node that adopts what was left behind only ends it
				left = append(left, attempt{fire: r.fire, attempt: r.attempt, node: r.node, began: began, ended: since, state: "lost"})
			}
		}
	}
	h.runs, h.misfires, h.attempts = all.runs, all.misfires, append(all.attempts, unknown(left, all)...)
}

// evidence is what the ledger of one installation says of a fire of the app that moved, for who has to find out why it is wrong.
type evidence struct {
	fire
	text string
}

func evidenceOf(from string, l ledger, moved map[int64]bool) (all []evidence) {
	for _, r := range l.runs {
		if moved[r.trigger] {
			all = append(all, evidence{r.fire, fmt.Sprintf("in %s: run of node %x, attempt %d, %s %s, claimed %s, started %s, ended %s, live %t",
				from, r.node, r.attempt, r.state, r.class, instant(orZero(r.claimed)), instant(orZero(r.started)), instant(orZero(r.ended)), r.live)})
		}
	}
	for _, a := range l.attempts {
		if moved[a.trigger] {
			all = append(all, evidence{a.fire, fmt.Sprintf("in %s: attempt %d of node %x, %s %s, from %s to %s, late %t", from, a.attempt, a.node,
				a.state, a.class, instant(a.began), instant(a.ended), a.late != nil)})
		}
	}
	return all
}

// unknown returns those of the attempts that were left behind which no ledger has: nobody made them again.
func unknown(left []attempt, in ledger) (all []attempt) {
	type numbered struct {
		fire
		number int
	}
	known := map[numbered]bool{}
	for _, a := range in.attempts {
		known[numbered{a.fire, a.attempt}] = true
	}
	for _, r := range in.runs {
		known[numbered{r.fire, r.attempt}] = true
	}
	for _, a := range left {
		if key := (numbered{a.fire, a.attempt}); !known[key] {
			known[key] = true
			all = append(all, a)
		}
	}
	return all
}

// describeMoved is what the report says of imports.
func (v *verdict) describeMoved(h *record) string {
	waiting := 0
	for _, m := range h.moves {
		waiting += len(m.Waiting)
	}
	if len(h.moves) == 0 {
		return ""
	}
	return fmt.Sprintf("\nimports\t\nmoves of an app to another installation or back\t%d\nruns that moved\t%d\n", len(h.moves), waiting)
}
