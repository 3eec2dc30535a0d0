package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// rolledBack is a rollback, with the ledger that it took away and the requests of the time that the new one knows nothing of: those
// from the dump until an operator chose.
type rolledBack struct {
	history.Rollback
	ledger
	sent []*request
}

// loadRolledBack reads the rollbacks of a run, and the ledgers that were lost.
func (h *record) loadRolledBack(ctx context.Context, database, dir string) error {
	done, err := history.Read[history.Rollback](dir, history.Rollbacks)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	at, err := url.Parse(database)
	if err != nil {
		return err
	}
	for _, one := range done {
		at.Path = "/" + one.Lost
		conn, err := pgx.Connect(ctx, at.String())
		if err != nil {
			return err
		}
		b := rolledBack{Rollback: one}
		if err := errors.Join(b.load(ctx, conn), conn.Close(ctx)); err != nil {
			return err
		}
		h.rolledBack = append(h.rolledBack, b)
	}
	return nil
}

// splitRequests keeps the requests that the ledger must explain, and gives the others to the rollbacks that lost them.
func (j *judge) splitRequests() {
	for _, r := range j.runs {
		j.runByFire[r.fire] = r
	}
	j.arrived = j.sent
	j.sent = slices.DeleteFunc(slices.Clone(j.sent), func(q *request) bool {
		at := slices.IndexFunc(j.rolledBack, func(b rolledBack) bool { return q.At.After(b.Dumped) && !q.At.After(b.Chosen) })
		if at >= 0 {
			j.rolledBack[at].sent = append(j.rolledBack[at].sent, q)
		}
		return at >= 0
	})
}

// touched returns the latest rollback that came over the run of a fire: the run was due by the choice, and had not ended by the dump.
// Of its attempts the ledger may know something else than the receiver. It returns nil if there is none.
func (j *judge) touched(f fire) *rolledBack {
	r, known := j.runByFire[f]
	for i := len(j.rolledBack) - 1; i >= 0 && known; i-- {
		b := &j.rolledBack[i]
		if r.at <= b.Chosen.UnixMilli() && (r.live || orZero(r.ended) >= b.Dumped.UnixMilli()-slack) {
			return b
		}
	}
	return nil
}

// outlived reports whether a request left before a rollback that came over its run.
func (j *judge) outlived(q *request) bool {
	b := j.touched(q.fire)
	return b != nil && !q.At.After(b.Chosen)
}

// rolledBackBetween reports whether an operator chose between two instants.
func (j *judge) rolledBackBetween(from, to time.Time) bool {
	return slices.ContainsFunc(j.rolledBack, func(b rolledBack) bool { return b.Chosen.After(from) && b.Chosen.Before(to) })
}

// skipped reports whether a run ended as lost because an operator chose to skip what was under way.
func (j *judge) skipped(r run) bool {
	b := j.touched(r.fire)
	return b != nil && b.Choice == history.Skip && strings.Contains(r.message, "the database lost commits")
}

// checkRolledBack requires that rollbacks took no more than what they must take: each request of a lost time is in the lost
// ledger, a fire keeps its event id, nodes send nothing until the choice, nothing skipped is sent afterwards, and each job goes on.
func (j *judge) checkRolledBack() {
	of := map[string]fire{}
	eventOf := map[fire]string{}
	for _, q := range j.arrived {
		if before, known := of[q.Event]; known && before != q.fire {
			j.add(unexplained, "%s: came under the event id of %s, before or after a rollback", j.name(q.fire), j.name(before))
		}
		if before := eventOf[q.fire]; before != "" && before != q.Event {
			j.add(unexplained, "%s: came under another event id before a rollback", j.name(q.fire))
		}
		of[q.Event], eventOf[q.fire] = q.fire, q.Event
	}
	for i := range j.rolledBack {
		b := &j.rolledBack[i]
		j.checkLostRequests(b)
		j.checkChoice(b)
		j.checkGoesOn(b)
	}
}

// checkLostRequests requires that the lost ledger explains the requests of its time.
func (j *judge) checkLostRequests(b *rolledBack) {
	attempts := map[fire]int{}
	for _, c := range b.claims {
		attempts[c.fire] = 1
	}
	for _, r := range b.runs {
		attempts[r.fire] = max(attempts[r.fire], r.attempt)
		if !r.live && orZero(r.ended) > b.Dumped.UnixMilli() {
			j.lostEnds++
		}
	}
	for _, q := range b.sent {
		j.lostRequests++
		if ahead := q.ScheduledAt.Sub(q.At); ahead > 0 {
			j.add(early, "%s: came %s early", j.name(q.fire), ahead)
		}
		switch {
		case q.At.After(b.Quiet):
			j.add(unexplained, "%s: attempt %d came at %s, while the nodes waited for the choice after a rollback", j.name(q.fire), q.Attempt,
				instant(q.At.UnixMilli()))
		case q.Attempt < 1 || q.Attempt > attempts[q.fire]:
			j.add(unexplained, "%s: a request of attempt %d at %s, which is not in the ledger that a rollback took", j.name(q.fire), q.Attempt,
				instant(q.At.UnixMilli()))
		}
	}
}

// checkChoice requires that nothing that was due by the choice to skip is sent afterwards. It counts what became of the requests that
// were lost.
func (j *judge) checkChoice(b *rolledBack) {
	lost, again := map[fire]bool{}, map[fire]bool{}
	for _, q := range b.sent {
		lost[q.fire] = true
	}
	for _, q := range j.sent {
		if !q.At.After(b.Chosen) || q.ScheduledAt.After(b.Chosen) {
			continue
		}
		again[q.fire] = true
		if b.Choice == history.Skip {
			j.add(unexplained, "%s: attempt %d came at %s, after an operator chose at %s to skip it", j.name(q.fire), q.Attempt,
				instant(q.At.UnixMilli()), instant(b.Chosen.UnixMilli()))
		}
	}
	for f := range maps.Keys(lost) {
		if again[f] {
			j.sentAgain++
		} else {
			j.leftOut++
		}
	}
}

// checkGoesOn requires that each job sends a request after the rollback, of a fire that was due since, or much later than what was
// under way: no slot is taken for ever.
func (j *judge) checkGoesOn(b *rolledBack) {
	goes := map[string]bool{}
	for _, q := range j.arrived {
		late := q.At.Sub(b.Settled) > maxAttempt*time.Millisecond
		if q.At.After(b.Settled) && q.At.Before(b.Until) && (late || q.ScheduledAt.After(b.Chosen)) {
			goes[q.App+"/"+q.Job] = true
		}
	}
	wanted := map[string]bool{}
	for _, d := range j.declared {
		rare := slices.ContainsFunc(slices.Collect(maps.Values(d.Triggers)), func(t history.Trigger) bool {
			o, err := newOracle(t)
			return err != nil || o.delay == 0 && len(o.instants(b.Settled.UnixMilli(), b.Until.UnixMilli()-maxAttempt)) == 0
		})
		if d.Begun.Before(b.Dumped) {
			wanted[d.App+"/"+d.Job] = d.Enabled && !rare
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[name] && !goes[name] {
			j.add(unrecovered, "%s (%s): no request of a new fire between %s and %s, after an operator chose to %s", name,
				j.bounds[name].policy, instant(b.Settled.UnixMilli()), instant(b.Until.UnixMilli()), b.Choice)
		}
	}
}

// describeRolledBack is what the report says of rollbacks.
func (v *verdict) describeRolledBack(h *record) string {
	if len(h.rolledBack) == 0 {
		return ""
	}
	kinds := map[string]int{}
	for _, b := range h.rolledBack {
		kinds[b.Choice]++
	}
	return fmt.Sprintf("\nrollbacks\t\nskipped\t%d\nreplayed\t%d\nends of runs that were lost\t%d\nrequests whose record was lost\t%d\n"+
		"their fires, sent again\t%d\ntheir fires, left out or not due again\t%d\n", kinds[history.Skip], kinds[history.Replay], v.lostEnds,
		v.lostRequests, v.sentAgain, v.leftOut)
}
