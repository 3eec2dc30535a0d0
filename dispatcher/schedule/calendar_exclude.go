package schedule

// OnExcluded is a rule for fires that the calendar excludes.
type OnExcluded string

// The rules for excluded fires.
const (
	OnExcludedSkip         OnExcluded = "skip"          // the fire does not happen
	OnExcludedNextIncluded OnExcluded = "next_included" // it happens at the next included instant
	// It happens at its own time of day, on the next or the previous day of which the calendar allows that time.
	OnExcludedNextDay     OnExcluded = "next_day"
	OnExcludedPreviousDay OnExcluded = "previous_day"
)

// MovesByDays tells whether excluded fires move to another day and keep their time of day.
func (o OnExcluded) MovesByDays() bool { return o == OnExcludedNextDay || o == OnExcludedPreviousDay }

// excluding applies a calendar to a source.
type excluding struct {
	source   source
	calendar *Calendar
	move     bool  // next_included rather than skip
	start    int64 // fires before start do not move past it
}

func (x excluding) next(after int64, steps int) (at int64, left int, ok bool) {
	if x.move {
		return x.nextMoved(after, steps)
	}
	for after <= lastInstant {
		if at, steps, ok = x.source.next(after, steps); !ok || steps < 0 {
			return at, steps, false
		}
		var until int64
		if until, ok, steps = x.calendar.excludedUntil(at, steps); steps < 0 {
			return at, steps, false
		} else if !ok {
			return at, steps, true
		}
		after = until - 1
	}
	return after, steps, false
}

// nextMoved is next with each excluded fire moved to the end of its excluded stretch. If after
// lies in an excluded stretch, an earlier fire of that stretch is still to come.
func (x excluding) nextMoved(after int64, steps int) (at int64, left int, ok bool) {
	from, excluded, left := x.calendar.excludedFrom(after, steps)
	if excluded {
		start := max(x.start, 0) // no source has instants before 1970
		for from > start && left >= 0 {
			var earlier int64
			if earlier, ok, left = x.calendar.excludedFrom(from-1, left); !ok {
				break
			}
			from = earlier
		}
		if left < 0 {
			return after, left, false
		}
		at, left, ok = x.source.next(max(from, x.start)-1, left)
		if ok && at <= after {
			return x.included(after, left)
		}
	}
	if left < 0 {
		return after, left, false
	}
	if at, left, ok = x.source.next(after, left); !ok || left < 0 {
		return at, left, false
	}
	return x.included(at, left)
}

// included returns the first included instant at or after t.
func (x excluding) included(t int64, steps int) (at int64, left int, ok bool) {
	for t <= lastInstant && steps >= 0 {
		until, excluded, left := x.calendar.excludedUntil(t, steps)
		if steps = left; !excluded {
			break
		}
		t = until
	}
	return t, steps, t <= lastInstant && steps >= 0
}
