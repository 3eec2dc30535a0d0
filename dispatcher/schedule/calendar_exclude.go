package schedule

// OnExcluded says what becomes of a fire that the calendar excludes.
type OnExcluded string

// The rules for excluded fires.
const (
	OnExcludedSkip         OnExcluded = "skip"          // it does not happen
	OnExcludedNextIncluded OnExcluded = "next_included" // it happens when the calendar next allows
)

// excluding applies a calendar to a source.
type excluding struct {
	source   source
	calendar *Calendar
	move     bool  // next_included rather than skip
	start    int64 // fires before it do not move into the window
}

// maxSpans bounds the search for an included instant: more than the days of the 230 years
// in which cron expressions fire. A schedule and a calendar that agree on no instant in so
// many stretches never fire.
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

// nextMoved answers as if each excluded fire happened at the end of its stretch. If after
// lies in an excluded stretch, a fire earlier in that stretch is still to come.
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
