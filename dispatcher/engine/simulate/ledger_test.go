package simulate

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// auditor compares the ledger of the triggers with their schedules, from the last checked time on.
type auditor struct {
	*world
	from  map[string]time.Time // the first instant that is not checked yet, by job
	fires int
}

func newAuditor(w *world) *auditor { return &auditor{world: w, from: map[string]time.Time{}} }

// account requires of each trigger that every instant before its next one is in the ledger
// exactly once, and nothing else. It returns how far behind the most overdue trigger is.
func (a *auditor) account() (behind time.Duration) {
	a.t.Helper()
	planned := map[int64]dispatcher.DueTrigger{}
	for _, overdue := range []bool{false, true} {
		all := dispatcher.DueQuery{Until: a.clock().AddDate(100, 0, 0), Overdue: overdue, Now: a.clock(), Limit: 10_000}
		due, err := a.store.Due(a.t.Context(), all)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, d := range due {
			planned[d.ID] = d
		}
	}
	for name, compared := range a.declared {
		if !compared {
			continue
		}
		if d, ok := planned[run.TriggerID("app", name, "t")]; ok {
			behind = max(behind, a.clock().Sub(d.DueAt))
			a.accountTrigger(name, d)
		}
	}
	return behind
}

func (a *auditor) accountTrigger(job string, d dispatcher.DueTrigger) {
	a.t.Helper()
	version := a.version(d.ID)
	next, from, known := d.NextFireTime, version.Spec.Anchor.Add(time.Millisecond), false
	if last, ok := a.from[job]; ok {
		from, known = last, true
	}
	if known && !next.After(from) {
		return
	}
	a.from[job] = next
	version.Spec.Identity = dispatcher.Identity("app", job, "t")
	s, err := schedule.Parse(version.Spec)
	if err != nil {
		a.t.Fatal(err)
	}
	found := a.ledger(job, from, next)
	missed := a.ranges(job, from, next)
	for at, ok := s.Next(from.Add(-time.Millisecond)); ok && at.Before(next); at, ok = s.Next(at) {
		a.fires++
		n := found[at]
		for _, r := range missed {
			if !at.Before(r.From) && !at.After(r.To) {
				n++
			}
		}
		if n != 1 {
			a.t.Errorf("%s at %s: %d entries in the ledger, want 1", job, input.FormatInstant(at), n)
		}
		delete(found, at)
	}
	for at := range found {
		a.t.Errorf("%s at %s: in the ledger, but no instant of %s", job, input.FormatInstant(at), version.Spec.Expression)
	}
}

// version returns the declared version of a trigger.
func (a *auditor) version(trigger int64) dispatcher.TriggerVersion {
	a.t.Helper()
	all, err := a.store.TriggersByID(a.t.Context(), []int64{trigger})
	if err != nil || len(all) != 1 {
		a.t.Fatalf("%d triggers of id %d, %v, want one", len(all), trigger, err)
	}
	return all[0]
}

// ledger returns the number of scheduled runs of each instant in [from, to).
func (a *auditor) ledger(job string, from, to time.Time) map[time.Time]int {
	a.t.Helper()
	found := map[time.Time]int{}
	query := dispatcher.RunQuery{App: "app", Job: job, From: from, To: to.Add(-time.Millisecond), Page: input.Page{Limit: 1000}}
	for {
		page, err := a.store.Runs(a.t.Context(), query)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, r := range page {
			if r.Kind == run.KindSchedule {
				found[r.ScheduledAt]++
			}
		}
		if len(page) < query.Page.Limit {
			return found
		}
		query.Page.Cursor = page[len(page)-1].ID
	}
}

// ranges returns the misfires of a job that touch [from, to).
func (a *auditor) ranges(job string, from, to time.Time) []dispatcher.Misfire {
	a.t.Helper()
	query := dispatcher.RunQuery{App: "app", Job: job, From: from, To: to.Add(-time.Millisecond), Page: input.Page{Limit: 1000}}
	all, err := a.store.Misfires(a.t.Context(), query)
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}

// ended requires that every run of at least that age comes to its end, given time.
func (a *auditor) ended(age time.Duration) {
	a.t.Helper()
	var left []run.Run
	for wait := time.Second; wait < 24*time.Hour; wait *= 2 {
		if left = a.live(age); len(left) == 0 {
			return
		}
		time.Sleep(wait)
	}
	for _, r := range left {
		a.t.Errorf("%s at %s: still %s, attempt %d", r.Job, input.FormatInstant(r.ScheduledAt), r.State, r.Attempt)
	}
}

// live returns some runs of that age that have not ended.
func (a *auditor) live(age time.Duration) (left []run.Run) {
	a.t.Helper()
	for _, state := range []run.State{run.Queued, run.Claimed, run.Running, run.Retrying} {
		query := dispatcher.RunQuery{App: "app", State: state, To: a.clock().Add(-age), Page: input.Page{Limit: 10}}
		page, err := a.store.Runs(a.t.Context(), query)
		if err != nil {
			a.t.Fatal(err)
		}
		left = append(left, page...)
	}
	return left
}

// tables requires that no run is in two tables: one that has ended is no longer among the live runs.
func (a *auditor) tables() {
	a.t.Helper()
	const doubled = `SELECT count(*) FROM live_runs AS l JOIN runs AS r
		ON r.scheduled_at = l.scheduled_at AND r.trigger_id = l.trigger_id AND r.kind = l.kind`
	if n := a.count(doubled); n != 0 {
		a.t.Errorf("%d runs have ended and are live", n)
	}
}

// unclaimed requires that no claim is left once all nodes have drained, except those of attempts that the end of a
// drain cut off.
func (a *auditor) unclaimed() {
	a.t.Helper()
	const recorded = `SELECT count(*) FROM claims AS c WHERE NOT EXISTS (SELECT 1 FROM json_each(c.fires) AS f WHERE NOT EXISTS (
		SELECT 1 FROM runs AS r WHERE r.trigger_id = f.value ->> 0 AND r.scheduled_at = f.value ->> 1 AND r.kind = 1))`
	if n := a.count(recorded); n != 0 {
		a.t.Errorf("%d claims are left at the end though all of their runs have ended, want none", n)
	}
}

// count returns the number that a query of the store's tables selects.
func (a *auditor) count(query string) (n int) {
	a.t.Helper()
	if err := a.db.QueryRowContext(a.t.Context(), query).Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}
