package schedule

import "time"

// MovedTo returns when the fire of an instant that the calendar excludes happens instead. Without ok, the calendar does not exclude
// the instant, the schedule would not fire then anyway, or OnExcluded does not let the fire happen.
func (s *Schedule) MovedTo(t time.Time) (to time.Time, ok bool) {
	at := floorMilli(t)
	if !s.hasFire(at) {
		return time.Time{}, false
	}
	moved, ok := s.moved(at)
	to = time.UnixMilli(moved).UTC()
	return to, ok && s.Matches(to)
}

// hasFire reports whether the schedule fires at an instant if its calendar is left out.
func (s *Schedule) hasFire(at int64) bool {
	fire, _, ok := s.source.next(at-1, stepBudget)
	return ok && fire == at
}

// moved returns the new time of a fire of the source that is excluded.
func (s *Schedule) moved(fire int64) (to int64, ok bool) {
	switch x := s.fires.(type) {
	case excluding:
		to, _, ok = x.included(fire, stepBudget)
		return to, ok && x.move && to > fire
	case *moveDays:
		to, _ = x.move(fire, stepBudget)
		return to, to != never && to != fire
	}
	return 0, false
}

// MovedFrom returns an excluded instant whose fire happens at t instead; ok is false if the schedule has none, or fires at t anyway.
func (s *Schedule) MovedFrom(t time.Time) (from time.Time, ok bool) {
	at := floorMilli(t)
	if s.hasFire(at) || !s.Matches(t) {
		return time.Time{}, false
	}
	var fire int64
	switch x := s.fires.(type) {
	case excluding:
		if from, excluded, _ := x.stretch(at-1, stepBudget); excluded {
			fire, ok = s.firstMoved(from, at-1, at)
		}
	case *moveDays:
		for days := int64(1); days <= maxMoveDays && !ok; days++ {
			first, last := x.sameTime(at, days)
			fire, ok = s.firstMoved(first, last, at)
		}
	}
	return time.UnixMilli(fire).UTC(), ok
}

// firstMoved returns the first fire of the source in a stretch, both ends inclusive, that moves to an instant.
func (s *Schedule) firstMoved(first, last, to int64) (int64, bool) {
	for steps, after := stepBudget, max(first, s.start)-1; steps >= 0; {
		fire, left, ok := s.source.next(after, steps)
		if !ok || fire > min(last, s.end) {
			break
		}
		if moved, ok := s.moved(fire); ok && moved == to {
			return fire, true
		}
		steps, after = left, fire
	}
	return 0, false
}

// sameTime returns the instants that have the local time of t some days before it, or after it if fires move back. At the end of a
// gap these are all the times of the gap, too.
func (x *moveDays) sameTime(t, days int64) (first, last int64) {
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
	return x.zoned.momentOf(local-skipped).first*1000 + milli, x.zoned.momentOf(local).last*1000 + milli
}
