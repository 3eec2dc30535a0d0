package schedule

// OnExcluded is a rule for fires that the calendar excludes.
type OnExcluded string

// The rules for excluded fires.
const (
	OnExcludedSkip         OnExcluded = "skip"          // the fire does not happen
	OnExcludedNextIncluded OnExcluded = "next_included" // it happens at the next included instant
)

// excluding applies a calendar to a source.
type excluding struct {
	source   source
	calendar *Calendar
	move     bool  // next_included rather than skip
	start    int64 // fires before start do not move past it
}

// maxSpans bounds the search for an included instant. It exceeds the number of days in the 230
// years in which cron expressions fire. If a schedule and its calendar share no instant within
// so many stretches, the schedule never fires.
const maxSpans = 100_000

func (x excluding) next(after int64) (int64, bool) {
	if x.move {
		return x.nextMoved(after)
	}
	for range maxSpans {
		t, ok := x.source.next(after)
		if !ok {
			return 0, false
		}
		included, _, until := x.calendar.span(t)
		if included {
			return t, true
		}
		after = until - 1
	}
	return 0, false
}

// nextMoved is next with each excluded fire moved to the end of its excluded stretch. If after
// lies in an excluded stretch, an earlier fire of that stretch is still to come.
func (x excluding) nextMoved(after int64) (int64, bool) {
	if included, from, _ := x.calendar.span(after); !included {
		for range maxSpans {
			earlier, before, _ := x.calendar.span(from - 1)
			if earlier || from <= x.start {
				break
			}
			from = before
		}
		if t, ok := x.source.next(max(from, x.start) - 1); ok && t <= after {
			return x.included(after)
		}
	}
	t, ok := x.source.next(after)
	if !ok {
		return 0, false
	}
	return x.included(t)
}

// included returns the first included instant at or after t.
func (x excluding) included(t int64) (int64, bool) {
	for range maxSpans {
		included, _, until := x.calendar.span(t)
		if included {
			return t, true
		}
		if until > lastInstant {
			break
		}
		t = until
	}
	return 0, false
}
