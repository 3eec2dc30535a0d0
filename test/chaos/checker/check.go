package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// judge holds the records of a run, indexed for the checks.
type judge struct {
	*record
	*verdict
	faults       []history.Fault // but for those between nodes and targets
	triggersByID map[int64]trigger
	triggerOf    map[string]int64 // by app/job/name
	nodesByID    map[int64]node
	segments     map[int64][]segment // by trigger
	runsOf       map[int64][]run
	misfiresOf   map[int64][]misfire
	bounds       map[string]boundOf       // by app/job
	cuts         []history.Fault          // those between nodes and targets; the others are faults
	far          map[int64]bool           // triggers whose target is one that nodes may be cut off from
	grouped      map[int64]bool           // triggers whose target has an endpoint that nodes may be cut off from
	retries      map[int64]*history.Retry // by trigger
	heartbeatsOf map[int64][]int64        // by node, in order
	triesOf      map[fire][]try
	sent         []*request                     // in the order of their arrival
	latest       map[string]history.Declaration // of each job of history.After
	arrived      []*request                     // the same, with those that a rollback lost
	runByFire    map[fire]run
	end          int64 // the last instant that anything is known of
}

// check judges a run of chaos.
func check(h *record) (*verdict, error) {
	j := &judge{
		record: h, verdict: &verdict{found: map[fault][]string{}},
		triggersByID: map[int64]trigger{}, triggerOf: map[string]int64{}, nodesByID: map[int64]node{},
		segments: map[int64][]segment{}, runsOf: map[int64][]run{}, misfiresOf: map[int64][]misfire{},
		bounds: map[string]boundOf{}, retries: map[int64]*history.Retry{}, far: map[int64]bool{}, grouped: map[int64]bool{},
		heartbeatsOf: map[int64][]int64{},
		latest:       map[string]history.Declaration{},
		runByFire:    map[fire]run{},
	}
	for _, d := range h.declared {
		if d.App == history.After {
			j.latest[d.Job] = d
		}
	}
	for _, t := range h.triggers {
		j.triggersByID[t.id], j.triggerOf[t.app+"/"+t.job+"/"+t.name] = t, t.id
	}
	for _, n := range h.nodes {
		j.nodesByID[n.id] = n
	}
	for _, r := range h.runs {
		j.runsOf[r.trigger] = append(j.runsOf[r.trigger], r)
		j.end = max(j.end, r.at, orZero(r.ended))
	}
	for _, m := range h.misfires {
		j.misfiresOf[m.trigger] = append(j.misfiresOf[m.trigger], m)
	}
	j.cuts, j.faults = h.faultsOf(true), h.faultsOf(false)
	j.readBounds()
	j.readWatched()
	j.triesOf, j.sent = j.tries(), j.requests()
	j.splitRequests()
	if err := j.reconstruct(); err != nil {
		return nil, err
	}
	for _, t := range h.triggers {
		if err := j.checkInstants(t); err != nil {
			return nil, err
		}
	}
	for id := range j.runsOf {
		if _, known := j.triggersByID[id]; !known {
			j.add(unexplained, "%d runs of trigger %d, which was not declared", len(j.runsOf[id]), id)
		}
	}
	j.checkEnd()
	j.checkTables()
	j.checkAttempts()
	j.checkRequests()
	j.checkBounded()
	j.checkDrains()
	j.checkAfterwards()
	j.checkRolledBack()
	j.checkPoisoned()
	for _, why := range j.rollbacks {
		j.add(unexplained, "a rollback of the database that nobody made, or that is not settled: %s", why)
	}
	j.checkAdvances()
	j.checkGrants()
	for _, a := range j.verifications {
		if a.Failed {
			j.add(lost, "carillon verify found problems in app %s: %s", a.App, a.Output)
		}
	}
	return j.verdict, nil
}

func orZero(at *int64) int64 {
	if at == nil {
		return 0
	}
	return *at
}

// instant formats an instant for people.
func instant(at int64) string { return time.UnixMilli(at).UTC().Format("15:04:05.000") }

// name names a fire by its job and its time.
func (h *record) name(f fire) string {
	var of trigger
	for _, t := range h.triggers {
		if t.id == f.trigger {
			of = t
		}
	}
	kind := ""
	if f.kind == catchUp {
		kind = " (catch-up)"
	}
	return fmt.Sprintf("%s/%s at %s%s", of.app, of.job, instant(f.at), kind)
}

// segment is a time in which one schedule of a trigger was in force.
type segment struct {
	history.Trigger
	oracle
	on       bool
	from, to int64
	// Between sureFrom and sureTo the schedule was in force without doubt. A change is decided at one
	// instant, but runs claimed a little ahead of it stay claimed, and so do runs claimed while the
	// change waited for its locks.
	sureFrom, sureTo int64
}

// slack is how far ahead of its scheduled time a fire may be claimed, and how far the clocks of the
// recorders may differ.
const slack = 300

// reconstruct derives from audit log and declarations which schedule was in force when.
func (j *judge) reconstruct() error {
	type key struct{ app, job string }
	declared := map[key][]history.Declaration{}
	for _, d := range j.declared {
		k := key{d.App, d.Job}
		if n := len(declared[k]); n > 0 && declared[k][n-1].Put == d.Put {
			declared[k][n-1] = d // the same, answered
			continue
		}
		declared[k] = append(declared[k], d)
	}
	for _, c := range j.changes {
		k := key{c.app, c.subject[len("job "):]}
		at := slices.IndexFunc(declared[k], func(d history.Declaration) bool { return d.Begun.UnixMilli() > c.at })
		if at < 0 {
			at = len(declared[k])
		}
		if at == 0 {
			return fmt.Errorf("the audit log has a change of job %s/%s at %s that was not declared", c.app, k.job, instant(c.at))
		}
		d := declared[k][at-1]
		known := d.Answered.UnixMilli()
		if d.Answered.IsZero() {
			known = c.at + 5000
		}
		for _, t := range j.triggers {
			if t.app != c.app || t.job != k.job {
				continue
			}
			if err := j.changed(t.id, c, d.Triggers[t.name], c.action == "put" && d.Enabled, max(known, c.at)+slack); err != nil {
				return err
			}
		}
	}
	return nil
}

// changed ends the latest segment of a trigger and begins another, unless nothing is different.
func (j *judge) changed(id int64, c change, t history.Trigger, on bool, sure int64) error {
	all := j.segments[id]
	next := segment{Trigger: t, on: on, from: c.at, to: math.MaxInt64, sureFrom: sure, sureTo: math.MaxInt64}
	if n := len(all); n > 0 {
		last := &all[n-1]
		if last.on == on && (!on || last.Trigger == t) {
			return nil
		}
		last.to, last.sureTo = c.at, c.at-slack
		next.sureFrom = max(next.sureFrom, last.sureFrom)
	}
	if on {
		var err error
		if next.oracle, err = newOracle(t); err != nil {
			return err
		}
	}
	j.segments[id] = append(all, next)
	return nil
}

// checkInstants compares the ledger of a trigger with its schedule: each scheduled time must have exactly
// one run or one misfire, and the ledger must hold nothing else.
func (j *judge) checkInstants(t trigger) error {
	found := map[int64]int{}
	for _, r := range j.runsOf[t.id] {
		if r.kind == scheduled {
			found[r.at]++
		}
	}
	delayed := false
	sure, possible := map[int64]bool{}, map[int64]bool{}
	for i, s := range j.segments[t.id] {
		if !s.on {
			continue
		}
		if s.delay > 0 {
			delayed = true
			continue
		}
		until := min(s.to, j.end)
		late := until // how long its instants may have been claimed
		if i+1 < len(j.segments[t.id]) {
			late = j.segments[t.id][i+1].sureFrom
		}
		for _, at := range s.instants(s.from-slack, late) {
			possible[at] = true
			if at > s.sureFrom && at <= min(s.sureTo, until) || !s.once.IsZero() && at > s.sureFrom && at <= s.sureTo {
				sure[at] = true
			}
		}
	}
	if delayed {
		j.checkFixedDelay(t)
		return nil
	}
	j.checkMisfires(t, possible, found)
	for at := range sure {
		j.expected++
		switch n := found[at]; {
		case n == 0:
			j.add(lost, "%s: neither run nor misfire", j.name(fire{t.id, at, scheduled}))
		case n > 1:
			j.add(unexplained, "%s: %d entries in the ledger", j.name(fire{t.id, at, scheduled}), n)
		}
	}
	for at, n := range found {
		if !possible[at] {
			j.add(unexplained, "%s: in the ledger, but not in the schedule", j.name(fire{t.id, at, scheduled}))
		} else if !sure[at] {
			if j.expected++; n > 1 {
				j.add(unexplained, "%s: %d entries in the ledger", j.name(fire{t.id, at, scheduled}), n)
			}
		}
	}
	return nil
}

// checkMisfires adds the scheduled times of misfires to the found ones, and checks the misfires.
func (j *judge) checkMisfires(t trigger, possible map[int64]bool, found map[int64]int) {
	caughtUp := map[int64]bool{}
	for _, m := range j.misfiresOf[t.id] {
		covered := 0
		for at := range possible {
			if at >= m.from && at <= m.to {
				found[at]++
				covered++
			}
		}
		j.misfired += covered
		if int64(covered) != m.count || !possible[m.from] || !possible[m.to] {
			j.add(unexplained, "%s: a misfire until %s of %d fires, where the schedule has %d",
				j.name(fire{t.id, m.from, scheduled}), instant(m.to), m.count, covered)
		}
		j.checkCatchUp(m, caughtUp)
	}
	for _, r := range j.runsOf[t.id] {
		if r.kind != scheduled && !caughtUp[r.at] {
			j.add(unexplained, "%s: a run of kind %d without a misfire", j.name(r.fire), r.kind)
		}
	}
}

// checkCatchUp requires the catch-up run of a misfire.
func (j *judge) checkCatchUp(m misfire, caughtUp map[int64]bool) {
	wanted := m.decision == "fire_once"
	switch {
	case wanted != (m.catchUp != nil):
		j.add(unexplained, "%s: a misfire with decision %s and catch-up run %v",
			j.name(fire{m.trigger, m.from, scheduled}), m.decision, m.catchUp != nil)
	case wanted:
		caughtUp[*m.catchUp] = true
		if !slices.ContainsFunc(j.runsOf[m.trigger], func(r run) bool { return r.kind == catchUp && r.at == *m.catchUp }) {
			j.add(lost, "%s: the catch-up run of a misfire is missing", j.name(fire{m.trigger, *m.catchUp, catchUp}))
		}
	}
}

// patience is how many milliseconds later than it should, besides a recovery, something may go on without a fault: the next fire of
// a fixed delay, the next attempt of a run, a fire that is due. The machine may be busy.
const patience = 5300

// checkFixedDelay requires that each fire of a fixed delay follows the end of the run before.
func (j *judge) checkFixedDelay(t trigger) {
	segments := j.segments[t.id]
	s := segments[0]
	if len(segments) > 2 || len(segments) == 2 && segments[1].delay > 0 {
		j.add(unexplained, "%s/%s: a fixed delay was changed, which the checker cannot follow", t.app, t.job)
		return
	}
	entries := slices.Clone(j.runsOf[t.id])
	caughtUp := map[int64]bool{}
	for _, m := range j.misfiresOf[t.id] {
		j.misfired += int(m.count)
		j.checkCatchUp(m, caughtUp)
		if m.catchUp == nil {
			entries = append(entries, run{fire: fire{t.id, m.from, scheduled}})
		}
	}
	slices.SortFunc(entries, func(a, b run) int { return cmp.Compare(a.at, b.at) })
	due := int64(0) // when the next is
	for _, e := range entries {
		j.expected++
		if due != 0 && e.at != due {
			j.add(unexplained, "%s: a fixed delay fired, but by the end of the run before it was due at %s", j.name(e.fire), instant(due))
		}
		if due = 0; e.ended != nil {
			due = *e.ended + s.delay.Milliseconds()
		}
	}
	if len(entries) == 0 || due != 0 && due+patience+j.recovery.Milliseconds() < min(s.to, j.end) {
		j.add(lost, "%s/%s: a fixed delay did not go on at %s", t.app, t.job, instant(due))
	}
}

// checkEnd requires that no run is live, no trigger overdue, and that the clean-up has begun: a node that dies over it
// keeps others from it for a minute.
func (j *judge) checkEnd() {
	if j.deleted >= history.DeletedJobs {
		j.add(unrecovered, "all %d jobs that were deleted long ago are still there", j.deleted)
	}
	for _, r := range j.runs {
		if r.live && !j.waitsForHost(r) {
			j.add(unrecovered, "%s: still %s, attempt %d (%s), node %s; next attempt %s, next probe of its host %s, end %s", j.name(r.fire),
				r.state, r.attempt, r.class, j.nodesByID[r.node].name, instant(orZero(r.next)), instant(orZero(r.probe)), instant(j.end))
		}
	}
	for _, t := range j.triggers {
		switch {
		case t.state == "error":
			j.add(unrecovered, "%s/%s: its trigger cannot be evaluated", t.app, t.job)
		case t.firing && t.state == "waiting" && t.due != nil && *t.due+patience+j.recovery.Milliseconds() < j.end:
			j.add(unrecovered, "%s/%s: overdue since %s", t.app, t.job, instant(*t.due))
		}
	}
}

// waitsForHost reports whether a run of the bad neighbour waits for its host, as it may: its next probe is not overdue.
func (j *judge) waitsForHost(r run) bool {
	return j.noisy(r.trigger) && r.state == "retrying" && r.probe != nil && *r.probe+patience+j.recovery.Milliseconds() >= j.end
}

// checkTables requires that a run is in one table at a time: first in a claim, then among the live runs
// or at once in the history. At the end no claim is left.
func (j *judge) checkTables() {
	live := map[fire]bool{}
	for _, r := range j.runs {
		if r.live {
			live[r.fire] = true
		}
	}
	for _, r := range j.runs {
		if !r.live && live[r.fire] {
			j.add(unexplained, "%s: ended as %s, and still live", j.name(r.fire), r.state)
		}
	}
	for _, d := range j.doubles {
		j.add(unexplained, "%s: at %s both ended and live", j.name(d.fire), instant(d.at))
	}
	for _, c := range j.claims {
		if live[c.fire] {
			j.add(unexplained, "%s: live, and still in claim %d", j.name(c.fire), c.token)
		}
		j.add(unrecovered, "%s: still in claim %d of node %s", j.name(c.fire), c.token, j.nodesByID[c.node].name)
	}
}
