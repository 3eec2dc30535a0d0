package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// poisoned is what is known of the app with bad rows. The other checks see nothing of it: its jobs may stop, and all others may not.
type poisoned struct {
	times []history.Poisoning
	hits  []history.Hit
	// left is what its jobs, which are deleted at the end, still hold.
	left int
}

// loadPoisoned reads what the jobs of the poisoned app have left, and takes all else of them out of the record.
func (h *record) loadPoisoned(ctx context.Context, conn *pgx.Conn, dir string) (err error) {
	if h.poisoned.times, err = history.Read[history.Poisoning](dir, history.Poisonings); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	const left = `SELECT count(*) FROM jobs AS j JOIN apps AS a ON a.id = j.app_id
		CROSS JOIN LATERAL (SELECT 1 FROM live_runs AS r WHERE r.job_id = j.id UNION ALL SELECT 1 FROM slots AS s WHERE s.job_id = j.id
			UNION ALL SELECT 1 FROM set_aside AS x WHERE x.job_id = j.id) AS held
		WHERE a.name = $1`
	if err := conn.QueryRow(ctx, left, history.Poisoned).Scan(&h.poisoned.left); err != nil {
		return err
	}
	ids := map[int64]bool{}
	h.triggers = slices.DeleteFunc(h.triggers, func(t trigger) bool {
		ids[t.id] = t.app == history.Poisoned
		return ids[t.id]
	})
	h.runs = slices.DeleteFunc(h.runs, func(r run) bool { return ids[r.trigger] })
	h.claims = slices.DeleteFunc(h.claims, func(c claim) bool { return ids[c.trigger] })
	h.attempts = slices.DeleteFunc(h.attempts, func(a attempt) bool { return ids[a.trigger] })
	h.misfires = slices.DeleteFunc(h.misfires, func(m misfire) bool { return ids[m.trigger] })
	h.slots = slices.DeleteFunc(h.slots, func(f fire) bool { return ids[f.trigger] })
	h.doubles = slices.DeleteFunc(h.doubles, func(d double) bool { return ids[d.trigger] })
	h.advances = slices.DeleteFunc(h.advances, func(a advance) bool { return ids[a.trigger] })
	h.changes = slices.DeleteFunc(h.changes, func(c change) bool { return c.app == history.Poisoned })
	h.later = slices.DeleteFunc(h.later, func(r laterRun) bool { return r.app == history.Poisoned })
	h.declared = slices.DeleteFunc(h.declared, func(d history.Declaration) bool { return d.App == history.Poisoned })
	requests := map[int64]bool{}
	h.hits = slices.DeleteFunc(h.hits, func(hit history.Hit) bool { // responses are of the app of their request
		if hit.App == history.Poisoned {
			requests[hit.Request] = true
			h.poisoned.hits = append(h.poisoned.hits, hit)
		}
		return requests[hit.Request]
	})
	return nil
}

// checkPoisoned requires that people were shown why a job stopped, that each job goes on once its row is good again, and that
// nothing is left of it when it is deleted.
func (j *judge) checkPoisoned() {
	for _, p := range j.poisoned.times {
		if p.Kind == history.AllMended {
			j.checkMended(p.Mended)
			continue
		}
		j.poisonings++
		j.checkBystanders(p)
		switch {
		case p.Reason != "":
			j.poisonShown++
			if p.Work != "" && !p.Counted && p.Certain && !p.Curtailed && !j.anyFault(p.From.UnixMilli(), p.Mended.UnixMilli()) {
				j.add(unexplained, "the poisoned row of job %s was set aside by %s at %s, and no metric counted it", p.Kind, p.Work,
					instant(p.From.UnixMilli()))
			}
		case p.Certain && !p.Curtailed && !j.anyFault(p.From.UnixMilli(), p.Mended.UnixMilli()):
			j.add(unexplained, "a poisoned row of job %s from %s to %s was not shown", p.Kind, instant(p.From.UnixMilli()),
				instant(p.Mended.UnixMilli()))
		}
	}
	if j.poisoned.left > 0 {
		j.add(unrecovered, "%d runs, slots and rows set aside of deleted jobs with poisoned rows are left", j.poisoned.left)
	}
}

// What was due while a row of another app was bad is late by at most maxBystanderDelay, unless there was another fault.
const maxBystanderDelay = 3 * time.Second

// checkBystanders requires that other jobs went on while a row was bad. Some late requests may come of a busy machine.
func (j *judge) checkBystanders(p history.Poisoning) {
	if j.anyFault(p.From.UnixMilli(), p.Mended.UnixMilli()) {
		return
	}
	due, late := 0, 0
	for _, q := range j.sent {
		if q.Attempt != 1 || !q.kindIs(scheduled) || q.ScheduledAt.Before(p.From) || q.ScheduledAt.After(p.Mended) ||
			j.bound(q.trigger).policy != "" || j.noisy(q.trigger) {
			continue
		}
		if due++; q.At.Sub(q.ScheduledAt) > maxBystanderDelay {
			late++
		}
	}
	if late > due/4 {
		j.add(unrecovered, "%d of %d fires of other jobs were late by more than %s while a row of job %s was bad from %s to %s", late, due,
			maxBystanderDelay, p.Kind, instant(p.From.UnixMilli()), instant(p.Mended.UnixMilli()))
	}
}

// checkMended requires a request of each job after all rows were good again.
func (j *judge) checkMended(at time.Time) {
	went := map[string]bool{}
	for _, h := range j.poisoned.hits {
		if h.ScheduledAt.After(at) {
			went[h.Job] = true
		}
	}
	seen := map[string]bool{}
	for _, p := range j.poisoned.times {
		if p.Kind != history.AllMended && !seen[p.Kind] && !went[p.Kind] {
			j.add(unrecovered, "job %s of app %s did not fire again after its row was mended at %s", p.Kind, history.Poisoned,
				instant(at.UnixMilli()))
		}
		seen[p.Kind] = true
	}
}

// describePoisoned is what the report says of bad rows.
func (v *verdict) describePoisoned(h *record) string {
	if v.poisonings == 0 {
		return ""
	}
	return fmt.Sprintf("\nbad rows\t\ntimes\t%d\nof these, shown with a reason while they lasted\t%d\nrequests of their jobs\t%d\n",
		v.poisonings, v.poisonShown, len(h.poisoned.hits))
}
