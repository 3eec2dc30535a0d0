package plan

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// pageSize bounds one read of the poll and of the handler.
const pageSize = 5000

// Poll plans the fires of the node's share that are due by until. It returns how many.
func (p *Planner) Poll(ctx context.Context, now, until time.Time) (int, error) {
	failpoint.Hit(failpoint.BeforePoll)
	if err := p.readLabelSets(ctx, now); err != nil {
		return 0, err
	}
	shares, version := p.Fleet.Shares(p.Options.Apps, p.LabelSets.get())
	look := p.Floors.Window.Begin(now, version, p.Floors.Left())
	query := dispatcher.DueQuery{From: look.From, Until: until, Now: now}
	seen, err := p.plan(ctx, query, shares, p.Fleet.fires)
	if err != nil {
		return seen.planned, err
	}
	p.Overdue.window.Store(&sighting{seen.oldest, now})
	if seen.complete {
		p.Floors.Window.End(look, seen.least, now.Add(-p.Options.Window))
	}
	return seen.planned, nil
}

const (
	// nearSweep is how many nodes before this one a sweep covers if the nodes differ, and turnSweep how many if they
	// take turns.
	nearSweep = 3
	turnSweep = 10
	// farSweep is the number of sweeps after which one covers all nodes.
	farSweep = 10
)

// Sweep plans, after the grace, the fires that the nodes before this one left alone. A large fleet should not repeat
// the same queries a hundred times a second, so nodes that are alike take turns: each second, one node that does not
// own the trigger sweeps it. Otherwise the next in rank goes first, and so on, because nodes that contend lose most of
// what they try. A node that is late with its own fires takes none: if the whole fleet is late, helping would make it
// later. One loop calls it.
func (p *Planner) Sweep(ctx context.Context, now time.Time) error {
	if p.Fleet.Alone() || p.Timeline.overdue(now.Add(-p.Options.Lead)) {
		p.Overdue.others.Store(&sighting{at: now})
		return nil
	}
	p.sweeps++
	if p.sweeps%farSweep == 0 {
		others := p.Overdue.others.Load() // these count as waiting until the next sweep of all nodes finds none
		mine, _ := p.Fleet.Turn(now, farSweep*p.Options.Grace, 0, turnSweep)
		if mine || others != nil && !others.due.IsZero() {
			return p.SweepAll(ctx, now)
		}
	}
	mine, reach := p.Fleet.Turn(now, p.Options.Grace, nearSweep, turnSweep)
	if !mine {
		return nil
	}
	near := area{floor: &p.Floors.near}
	near.shares, near.version = p.Fleet.neighbours(p.Options.Apps, p.LabelSets.get(), reach)
	ranked := !p.Fleet.alike() // if they are alike, no other node covers them now
	_, err := p.sweep(ctx, now, near, func(d dispatcher.DueTrigger) bool {
		return !ranked || p.ranked(d, now)
	})
	return err
}

// SweepAll plans fires that any nodes left alone. It also finds fires of jobs whose set of required labels the nodes
// did not know yet.
func (p *Planner) SweepAll(ctx context.Context, now time.Time) error {
	found, err := p.sweep(ctx, now, area{floor: &p.Floors.far, shares: everything(p.Options.Apps)}, func(d dispatcher.DueTrigger) bool {
		return p.ranked(d, now)
	})
	if err == nil {
		p.Overdue.others.Store(&sighting{found.oldest, now})
	}
	return err
}

// ranked reports whether all nodes that come before this one have had time for a fire.
func (p *Planner) ranked(d dispatcher.DueTrigger, now time.Time) bool {
	return now.Sub(d.DueAt) >= time.Duration(p.Fleet.rank(d))*p.Options.Grace
}

// area is the area of a sweep: some shares, from their floor on.
type area struct {
	floor   *floor
	shares  []Share
	version int // of the shares
}

// sweep plans the fires in an area that are wanted and due for longer than the grace.
func (p *Planner) sweep(ctx context.Context, now time.Time, in area, wanted func(dispatcher.DueTrigger) bool) (seen, error) {
	// Older fires are left to the sweeps of all, and to the nodes that own these shares.
	look := in.floor.Begin(now, in.version, cmp.Or(p.Floors.Left(), now.Add(-lookBack)))
	query := dispatcher.DueQuery{From: look.From, Until: now.Add(-p.Options.Grace), Now: now}
	found, err := p.plan(ctx, query, in.shares, wanted)
	if err == nil && found.complete {
		in.floor.End(look, found.least, query.Until.Add(-p.Options.Grace))
	}
	return found, err
}

// seen is the result of a reading of due triggers.
type seen struct {
	planned  int
	least    time.Time // when the earliest of them was due, in whichever share; zero: none
	oldest   time.Time // the same of those whose labels this node has
	complete bool      // nothing was left out
}

func (s *seen) page(page []dispatcher.DueTrigger, labels input.Labels) {
	for i := range page {
		due := page[i].DueAt
		if s.least.IsZero() || due.Before(s.least) {
			s.least = due
		}
		if labels.Have(page[i].NodeLabels) {
			if s.oldest.IsZero() || due.Before(s.oldest) {
				s.oldest = due
			}
			return // the page is in order
		}
	}
}

// plan plans the fires that query selects in shares, of wanted triggers and of jobs that require no label which the
// node lacks.
func (p *Planner) plan(
	ctx context.Context, query dispatcher.DueQuery, shares []Share, wanted func(dispatcher.DueTrigger) bool,
) (found seen, err error) {
	defer p.Timeline.reading()()
	for _, one := range shares {
		query.Apps, query.LabelSets, query.IDFrom, query.IDTo = one.apps, one.labels, one.from, one.to
		if more, err := p.planShare(ctx, query, wanted, &found); err != nil || !more {
			return found, err
		}
	}
	found.complete = true
	return found, nil
}

// planPage plans a page of fires: those that are due soon, and some more, in the timeline, and the others ahead of it.
// It returns false if there is no room.
func (p *Planner) planPage(ctx context.Context, page []dispatcher.DueTrigger, now time.Time, found *seen) (bool, error) {
	later := page[min(len(page), max(mostAtOnce-found.planned, 0)):]
	for len(later) > 0 && !later[0].DueAt.After(now.Add(Soon)) && !p.Timeline.IsFull() {
		later = later[1:]
	}
	due, err := p.Evaluate(ctx, page[:len(page)-len(later)])
	if err != nil {
		return false, err
	}
	for _, d := range due {
		if !p.Timeline.add(d) && !p.Ahead.Add(d.DueTrigger) {
			return false, nil
		}
		found.planned++
	}
	for _, d := range later {
		if !p.Ahead.Add(d) {
			return false, nil
		}
		found.planned++
	}
	return true, nil
}

// planShare plans one share. It returns false if the node may not fire, or there is no room.
func (p *Planner) planShare(
	ctx context.Context, query dispatcher.DueQuery, wanted func(dispatcher.DueTrigger) bool, found *seen,
) (bool, error) {
	query.Limit = pageSize
	for p.Fleet.Active() {
		loop.Turned(ctx)
		page, err := p.store.Due(ctx, query)
		if err != nil {
			return false, err
		}
		if len(page) == 0 {
			return true, nil
		}
		found.page(page, p.Options.Labels)
		last, more := page[len(page)-1], len(page) == query.Limit
		page = slices.DeleteFunc(page, func(d dispatcher.DueTrigger) bool {
			return !p.Options.Labels.Have(d.NodeLabels) || !wanted(d) || p.Timeline.has(&d) || p.Ahead.has(&d)
		})
		if complete, err := p.planPage(ctx, page, query.Now, found); err != nil || !complete {
			return false, err
		}
		if !more {
			return true, nil
		}
		query.AfterTime, query.AfterID = last.DueAt, last.ID
	}
	return false, nil
}

// PlanChanged plans the fires of jobs that changed, as far as they are due before the next poll. If it fails,
// a poll finds them.
func (p *Planner) PlanChanged(ctx context.Context, jobs []int64, now time.Time) error {
	query := dispatcher.DueQuery{JobIDs: jobs, Until: now.Add(p.Options.Window + p.Options.Window/5), Now: now}
	seen, err := p.plan(ctx, query, everything(p.Options.Apps), p.Fleet.fires)
	if err != nil || !seen.complete {
		p.Floors.Reset()
		p.wakePoll.Notify()
		return err
	}
	for _, f := range []*floor{&p.Floors.Window, &p.Floors.near, &p.Floors.far} {
		f.lower(seen.least)
	}
	p.Floors.Misses.Reset() // some may be overdue
	return nil
}

// labelSets are the sets of labels that jobs require and this node has. They affect the shares of nodes with different
// labels; other nodes don't read them.
type labelSets struct {
	mu     sync.Mutex
	all    []input.Labels
	readAt time.Time // by the database's clock; zero: a job may require a new one
}

// get returns the sets that the node knows. The far sweep finds the fires of jobs with another set.
func (l *labelSets) get() []input.Labels {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all
}

// Changed notes that a job changed, perhaps in its labels.
func (l *labelSets) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readAt = time.Time{}
}

// due reports whether the sets must be read, and notes that they are.
func (l *labelSets) due(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !Passed(l.readAt, now, lookBackInterval) {
		return false
	}
	l.readAt = now
	return true
}

func (l *labelSets) set(all []input.Labels) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = !slices.EqualFunc(all, l.all, maps.Equal[input.Labels, input.Labels])
	l.all = all
	return changed
}

// readLabelSets reads the sets of labels that jobs require if they affect the node's share.
func (p *Planner) readLabelSets(ctx context.Context, now time.Time) error {
	if !p.Fleet.differInLabels() || !p.LabelSets.due(now) {
		return nil
	}
	sets, err := p.store.LabelSets(ctx)
	if err != nil {
		p.LabelSets.Changed()
		return err
	}
	mine := slices.DeleteFunc(sets, func(set input.Labels) bool { return !p.Options.Labels.Have(set) })
	slices.SortFunc(mine, func(a, b input.Labels) int { return cmp.Compare(a.String(), b.String()) })
	if p.LabelSets.set(mine) {
		p.Floors.Window.Reset()
		p.Floors.near.Reset()
	}
	return nil
}

// PlanNext plans the fire after one that was claimed or lost. It leaves a trigger to its preferred node, even if this
// node has just fired it: the shares have moved. After a lost fire of its own, the node reads the trigger from the
// database again; see sweepLoop.
func (p *Planner) PlanNext(d Entry, claimed dispatcher.Advance, now time.Time, won bool) {
	switch {
	case !p.Fleet.Prefers(d.DueTrigger):
	case !won:
		p.LostFires.Store(true)
	case !claimed.Then.IsZero() && claimed.ThenDue.Before(now.Add(p.Options.Window)):
		d.PrevFireTime, d.NextFireTime, d.DueAt = d.NextFireTime, claimed.Then, claimed.ThenDue
		p.Timeline.add(d)
	}
}

// ScheduleNext gives fixed delays whose latest run has ended their next fire: those among ids or, without ids, any, a
// page at most.
func (p *Planner) ScheduleNext(ctx context.Context, ids []int64, now time.Time) error {
	ended, err := p.store.EndedDelays(ctx, ids, pageSize)
	if err != nil || len(ended) == 0 {
		return err
	}
	byID := make(map[int64]dispatcher.EndedDelay, len(ended))
	all := make([]candidate, len(ended))
	for i, trigger := range ended {
		byID[trigger.DueTrigger.ID] = trigger
		all[i] = candidate{DueTrigger: trigger.DueTrigger, version: trigger.TriggerVersion}
	}
	entries, err := p.prepare(ctx, all, false) // their schedules are anchored at the ends of these runs
	if err != nil {
		return err
	}
	delayed := make([]dispatcher.DelayedFire, 0, len(entries))
	for i := range entries {
		next := &entries[i]
		if err := dispatcher.WithoutPanic(func() error { return next.scheduleAfter(byID[next.ID]) }); err != nil {
			p.Quarantine(ctx, next.DueTrigger, err)
			continue
		}
		delayed = append(delayed, dispatcher.DelayedFire{
			TriggerID: next.ID, Revision: next.Revision, CalendarRevision: next.CalendarRevision,
			Prev: next.PrevFireTime, Anchor: byID[next.ID].EndedAt, Next: next.NextFireTime, Due: next.DueAt,
		})
	}
	if err := p.store.ScheduleNext(ctx, delayed); err != nil {
		return err
	}
	for _, next := range entries {
		// The node that is preferred for the trigger may poll too late for it.
		if !next.NextFireTime.IsZero() && next.DueAt.Before(now.Add(p.Options.Window)) {
			p.Timeline.add(next)
		}
	}
	return nil
}
