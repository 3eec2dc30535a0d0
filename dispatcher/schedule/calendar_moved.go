package schedule

import "time"

// MovedTo returns when the fire of an instant that the calendar excludes happens instead. Without ok, the calendar does not exclude
// the instant, the schedule would not fire then anyway, or OnExcluded does not let the fire happen.
func (s *Schedule) MovedTo(t time.Time) (to time.Time, ok bool) {
	at := floorMilli(t)
	if !s.hasFire(at) {
		return time.Time{}, false
	}
	moved, _, ok := s.moved(at, stepBudget)
	to = time.UnixMilli(moved).UTC()
	return to, ok && s.Matches(to)
}

// hasFire reports whether the schedule fires at an instant if its calendar is left out.
func (s *Schedule) hasFire(at int64) bool {
	fire, _, ok := s.source.next(at-1, stepBudget)
	return ok && fire == at
}

// moved returns the new time of a fire of the source that is excluded.
func (s *Schedule) moved(fire int64, steps int) (to int64, left int, ok bool) {
	switch x := s.fires.(type) {
	case excluding:
		to, left, ok = x.included(fire, steps)
		return to, left, ok && x.move && to > fire
	case *moveDays:
		to, left = x.move(fire, steps)
		return to, left, to != never && to != fire
	}
	return 0, steps, false
}

// MovedFrom returns an excluded instant that moves to t. Without ok, the schedule has none, would fire at t without its calendar,
// too, or finding the instant takes too many steps.
func (s *Schedule) MovedFrom(t time.Time) (from time.Time, ok bool) {
	at := floorMilli(t)
	if s.hasFire(at) || !s.Matches(t) {
		return time.Time{}, false
	}
	fire, steps := int64(never), previousSteps
	switch x := s.fires.(type) {
	case excluding:
		if from, excluded, left := x.stretch(at-1, steps); excluded {
			fire, _ = s.firstMoved(stretch{from, at}, at, left)
		}
	case *moveDays:
		for days := int64(1); days <= maxMoveDays && fire == never; days++ {
			fire, steps = s.firstMoved(x.sameTime(at, days), at, steps)
		}
	}
	return time.UnixMilli(fire).UTC(), fire != never
}

// firstMoved returns the first fire of the source in a stretch that moves to an instant, or never.
func (s *Schedule) firstMoved(in stretch, to int64, steps int) (fire int64, left int) {
	for after := max(in.from, s.start) - 1; steps >= 0; {
		fire, left, ok := s.source.next(after, steps)
		if steps = left; !ok || fire >= in.until || fire > s.end {
			break
		}
		moved, left, ok := s.moved(fire, steps)
		if steps = left; ok && moved == to {
			return fire, steps
		}
		after = fire
	}
	return never, steps
}

// sameTime returns the stretch of the instants that have the local time of t some days before it, or after it if fires move
// back. At the end of a gap these are all the times of the gap, too.
func (x *moveDays) sameTime(t, days int64) stretch {
	if !x.forward {
		days = -days
	}
	second := floorDiv(t, 1000)
	in := x.zoned.periodAt(second)
	local, skipped := second+in.offset-days*daySeconds, int64(0)
	if second == in.start {
		skipped = max(0, in.offset-x.zoned.periodAt(second-1).offset)
	}
	milli := t - second*1000
	return stretch{x.zoned.momentOf(local-skipped).first*1000 + milli, x.zoned.momentOf(local).last*1000 + milli + 1}
}
