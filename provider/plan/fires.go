package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/provider/binding"
)

// Bounds of a comparison of fires. A minutely schedule has 1,440 fires a day and one every ten
// minutes 2,016 in two weeks, so these are compared completely. Faster ones are compared in part.
const (
	mostFires   = 2500                         // of a trigger, before and after each
	firesBudget = 40 * schedule.StepsPerSearch // a job's searches together take some milliseconds
	nearby      = 12 * time.Hour               // a fire that moves further counts as removed and added
	firstFires  = 5                            // how many are shown
)

// windows are the spans of time, starting at the plan, for which changes are counted. The last is
// the longest.
var windows = []struct {
	name string
	span time.Duration
}{
	{"next 24 hours", 24 * time.Hour},
	{"next 14 days", 14 * 24 * time.Hour},
}

// fire is a scheduled time, and the start of its run, which jitter delays.
type fire struct{ at, due time.Time }

// fires are the fires of a schedule after a time, complete until the time until.
type fires struct {
	list  []fire
	until time.Time
}

// firesOf returns the fires in (from, to], within the limits of budget and mostFires. A nil schedule has none.
func firesOf(budget *schedule.Budget, s *schedule.Schedule, from, to time.Time) fires {
	found := fires{until: to}
	for at := from; s != nil; {
		next, ok, err := s.FindWithin(budget, at)
		if err != nil || ok && len(found.list) == mostFires {
			found.until = at
			return found
		}
		if !ok || next.After(to) {
			return found
		}
		found.list = append(found.list, fire{next, next.Add(s.Delay(next))})
		at = next
	}
	return found
}

// fireChange is a fire that is removed (after is nil), added (before is nil) or moved.
type fireChange struct{ before, after *fire }

// compare returns the changes between two lists of fires. A fire moves if the other list has a
// nearby one next to it, with all differing fires in order.
func compare(before, after []fire) []fireChange {
	var changes []fireChange
	var removed, added []fire
	for len(before) > 0 && len(after) > 0 {
		b, a := &before[0], &after[0]
		switch order := b.at.Compare(a.at); {
		case order < 0:
			removed, before = append(removed, *b), before[1:]
		case order > 0:
			added, after = append(added, *a), after[1:]
		default:
			if !b.due.Equal(a.due) { // only its jitter differs
				changes = append(changes, fireChange{b, a})
			}
			before, after = before[1:], after[1:]
		}
	}
	return append(changes, pairUp(append(removed, before...), append(added, after...))...)
}

// pairUp finds the moves among removed and added fires.
func pairUp(removed, added []fire) []fireChange {
	var changes []fireChange
	// alone reports whether the earlier fire has no partner: its successor is closer, or the other is too far off.
	alone := func(earlier []fire, later []fire) bool {
		return len(later) == 0 || later[0].at.Sub(earlier[0].at) > nearby || len(earlier) > 1 && earlier[1].at.Before(later[0].at)
	}
	for len(removed) > 0 || len(added) > 0 {
		removedFirst := len(added) == 0 || len(removed) > 0 && removed[0].at.Before(added[0].at)
		switch {
		case removedFirst && alone(removed, added):
			changes, removed = append(changes, fireChange{before: &removed[0]}), removed[1:]
		case !removedFirst && alone(added, removed):
			changes, added = append(changes, fireChange{after: &added[0]}), added[1:]
		default:
			changes = append(changes, fireChange{&removed[0], &added[0]})
			removed, added = removed[1:], added[1:]
		}
	}
	return changes
}

// windowCount counts changes within a window.
type windowCount struct {
	added, removed, moved int
	// least and most are how much later the moved fires run; negative values mean earlier.
	least, most time.Duration
	// incomplete means that only a part of the fires was compared.
	incomplete bool
}

func countWithin(changes []fireChange, until time.Time) windowCount {
	var c windowCount
	within := func(f *fire) bool { return f != nil && !f.at.After(until) }
	for _, change := range changes {
		switch {
		case !within(change.before) && !within(change.after):
		case change.after == nil:
			c.removed++
		case change.before == nil:
			c.added++
		default:
			c.move(change.after.due.Sub(change.before.due))
		}
	}
	return c
}

// move counts a fire that runs so much later.
func (c *windowCount) move(by time.Duration) {
	if c.moved++; c.moved == 1 {
		c.least, c.most = by, by
	}
	c.least, c.most = min(c.least, by), max(c.most, by)
}

// comparison describes the changed fires of one trigger.
type comparison struct {
	counts        []windowCount // one for each of windows
	before, after []time.Time   // start times of the first runs
}

// compareFires compares the fires of two schedules after now. A nil schedule never fires.
func compareFires(budget *schedule.Budget, before, after *schedule.Schedule, now time.Time) comparison {
	last := now.Add(windows[len(windows)-1].span)
	was, is := firesOf(budget, before, now, last.Add(nearby)), firesOf(budget, after, now, last.Add(nearby))
	// After the end of one list, later fires of the other are not compared.
	known := was.until
	if is.until.Before(known) {
		known = is.until
	}
	changes := compare(was.upTo(known), is.upTo(known))
	result := comparison{before: was.first(budget, before, last), after: is.first(budget, after, last)}
	for _, w := range windows {
		until := now.Add(w.span)
		if known.Before(until) {
			until = known
		}
		count := countWithin(changes, until)
		count.incomplete = known.Before(now.Add(w.span))
		result.counts = append(result.counts, count)
	}
	return result
}

// upTo returns the fires up to a time.
func (f fires) upTo(t time.Time) []fire {
	n := slices.IndexFunc(f.list, func(one fire) bool { return one.at.After(t) })
	if n < 0 {
		return f.list
	}
	return f.list[:n]
}

// first returns when the first fires run. For a rare schedule, it searches beyond last.
func (f fires) first(budget *schedule.Budget, s *schedule.Schedule, last time.Time) []time.Time {
	var due []time.Time
	for _, one := range f.list[:min(firstFires, len(f.list))] {
		due = append(due, one.due)
	}
	if s == nil || f.until.Before(last) {
		return due
	}
	for at := f.until; len(due) < firstFires; {
		next, ok, err := s.FindWithin(budget, at)
		if !ok || err != nil {
			break
		}
		due, at = append(due, next.Add(s.Delay(next))), next
	}
	return due
}

// effect describes a comparison in few words, so that jobs with the same effect can be told together.
func (c comparison) effect() string {
	within := c.counts[len(c.counts)-1]
	if within.added+within.removed+within.moved == 0 && len(c.before) > 0 && len(c.before) == len(c.after) { // rare fires, beyond the windows
		for i, due := range c.before {
			within.move(c.after[i].Sub(due))
		}
	}
	moved := within.added+within.removed == 0 && within.moved > 0
	switch {
	case within.incomplete:
		return "fires too many to compare"
	case moved && within.least == within.most:
		return "each fire " + within.by()
	case moved:
		return "fires " + within.by()
	case within.removed+within.moved == 0:
		return "fires added"
	case within.added+within.moved == 0:
		return "fires removed"
	}
	return "other fires"
}

// text describes a comparison in local time of a zone. Terraform wraps the lines of a message
// except those that begin with a space, so the table stays intact.
func (c comparison) text(zone *time.Location) string {
	var b strings.Builder
	for i, w := range windows {
		fmt.Fprintf(&b, "  %-13s  %s\n", w.name, c.counts[i].text())
	}
	all := slices.Concat(c.before, c.after)
	layout := "Mon 2006-01-02 15:04 -07:00"
	if slices.ContainsFunc(all, func(t time.Time) bool { return t.Second() != 0 || t.Nanosecond() != 0 }) {
		layout = "Mon 2006-01-02 15:04:05 -07:00"
	}
	column := func(due []time.Time, row int) string {
		switch {
		case row < len(due):
			return due[row].In(zone).Format(layout)
		case row == 0:
			return "no fire"
		}
		return ""
	}
	fmt.Fprintf(&b, "\n  %-*s  %s\n", len(layout), "before", "after")
	for row := range max(len(c.before), len(c.after), 1) {
		line := fmt.Sprintf("  %-*s  %s", len(layout), column(c.before, row), column(c.after, row))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// text returns text such as "1 added, 14 moved 1h later".
func (c windowCount) text() string {
	var parts []string
	if c.removed > 0 {
		parts = append(parts, fmt.Sprintf("%d removed", c.removed))
	}
	if c.added > 0 {
		parts = append(parts, fmt.Sprintf("%d added", c.added))
	}
	if c.moved > 0 {
		parts = append(parts, fmt.Sprintf("%d moved %s", c.moved, c.by()))
	}
	switch {
	case c.incomplete && len(parts) > 0:
		return "at least " + strings.Join(parts, ", ")
	case c.incomplete:
		return "too many fires to compare"
	case len(parts) == 0:
		return "no change"
	}
	return strings.Join(parts, ", ")
}

// by describes how far fires move.
func (c windowCount) by() string {
	span := func(d time.Duration) string {
		if whole := d.Truncate(time.Second); whole > 0 {
			d = whole // jitter moves by milliseconds
		}
		return binding.FormatDuration(input.Duration(d))
	}
	switch {
	case c.least == c.most && c.least > 0:
		return span(c.least) + " later"
	case c.least == c.most:
		return span(-c.least) + " earlier"
	case c.least >= 0:
		return fmt.Sprintf("up to %s later", span(c.most))
	case c.most <= 0:
		return fmt.Sprintf("up to %s earlier", span(-c.least))
	}
	return fmt.Sprintf("between %s earlier and %s later", span(-c.least), span(c.most))
}
