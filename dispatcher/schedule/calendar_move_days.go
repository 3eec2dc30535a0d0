package schedule

// moveDays applies a calendar to a source by moving excluded fires by whole days, on the wall clock of a zone, to the
// nearest day on which the calendar allows their time of day. Fires that move to the same instant happen once.
type moveDays struct {
	source   source
	calendar *Calendar
	zoned    *zoned // the zone, and the rules for its jumps
	forward  bool
	// start and end bound the fires of source, both inclusive.
	start, end int64
}

// maxMoveDays is how far a fire moves at most. If its time of day is excluded for longer, it does not happen.
const maxMoveDays = 100

// moved is a fire of the source and its new time.
type moved struct {
	to    int64
	found bool // else no day allows it
	stays bool
	// whole is true if every excluded stretch on the way lasts until the end of its day, so that a later fire of the
	// same day moves at least as far.
	whole bool
}

func (x *moveDays) next(after int64, steps int) (at int64, left int, ok bool) {
	const none = lastInstant + 1
	low, best, horizon := after, int64(none), int64(none)
	if x.forward {
		low, steps = x.reachBack(after, steps)
	}
	for t := max(low, x.start-1); steps >= 0; {
		f, left, more := x.source.next(t, steps)
		if steps = left; steps < 0 {
			return f, steps, false
		}
		if !more || f > x.end || f >= horizon {
			break
		}
		m, left := x.move(f, steps)
		steps, t = left, f
		switch {
		case m.found && m.to > after:
			if m.to < best {
				best = m.to
				// Fires from the horizon on move to a later time than best.
				if horizon = best; !x.forward {
					horizon, steps = x.openDay(best, steps)
				}
			}
			if m.whole && x.forward {
				t, steps = x.endOfDay(f, steps)
			} else if m.whole {
				t, steps = x.endOfOpening(f, m.to, steps)
			}
		case m.stays: // and is not after the requested time
			t, steps = x.calendar.nextExcluded(f+1000, after+1, steps)
			t = max(f, t-1)
		case m.found && m.whole:
			t, steps = x.catchUp(f, after, m, steps)
		case m.whole:
			t, steps = x.endOfDay(f, steps)
		}
	}
	if best == none || steps < 0 {
		return after, steps, false
	}
	return best, steps, true
}

// move returns the new time of a fire.
func (x *moveDays) move(f int64, steps int) (moved, int) {
	second := floorDiv(f, 1000)
	local := second + x.zoned.periodAt(second).offset
	m := moved{whole: true}
	until, excluded, steps := x.calendar.excludedUntil(f, steps)
	if !excluded {
		return moved{to: f, found: true, stays: true}, steps
	}
	at, days := f, int64(0)
	for steps >= 0 {
		toMidnight := daySeconds - (local - floorDiv(local, daySeconds)*daySeconds)
		m.whole = m.whole && until-at >= toMidnight*1000
		jump := int64(1)
		switch {
		case !excluded: // the local time does not exist
		case x.forward:
			jump = max(jump, (until-at)/1000/daySeconds)
		default:
			var from int64
			from, _, steps = x.calendar.excludedFrom(at, steps)
			jump = max(jump, (at-from)/1000/daySeconds)
		}
		if days += jump; days > maxMoveDays {
			return m, steps
		}
		to := local + days*daySeconds
		if !x.forward {
			to = local - days*daySeconds
		}
		moment := x.zoned.momentOf(to)
		steps -= zoneSteps
		at = moment.pick(x.zoned.overlap)*1000 + (f - second*1000)
		if moment.gap {
			if at = moment.first * 1000; x.zoned.gap != GapNext {
				until, excluded = at, false
				continue
			}
		}
		if until, excluded, steps = x.calendar.excludedUntil(at, steps); !excluded {
			m.to, m.found = at, true
			return m, steps
		}
	}
	return m, steps
}

// catchUp returns a time up to which fires of the day of f move to times before the requested one, as f itself does.
func (x *moveDays) catchUp(f, after int64, m moved, steps int) (int64, int) {
	if x.forward {
		closes, left := x.calendar.nextExcluded(m.to, after+1, steps)
		if steps = left; closes <= after { // some of them move on to later days
			return f, steps
		}
	}
	jump := after - m.to
	if x.offset(f) != x.offset(m.to) || x.offset(f+jump) != x.offset(f) || x.offset(m.to+jump) != x.offset(m.to) {
		jump -= 3 * 3600 * 1000 // no clock jumps farther in a night; the fires in between are checked
	}
	end, steps := x.endOfDay(f, steps)
	return max(f, min(f+jump, end)), steps
}

func (x *moveDays) offset(at int64) int64 { return x.zoned.periodAt(floorDiv(at, 1000)).offset }

// day returns the beginning and the end of the day that is days after an instant's, in Unix milliseconds.
func (x *moveDays) day(at, days int64, steps int) (from, until int64, left int) {
	local := floorDiv(at, 1000) + x.offset(at)
	midnight := (floorDiv(local, daySeconds) + days) * daySeconds
	return x.zoned.momentOf(midnight).first * 1000, x.zoned.momentOf(midnight+daySeconds).first * 1000, steps - 2*zoneSteps
}

// endOfDay returns the last millisecond of the day of a fire.
func (x *moveDays) endOfDay(f int64, steps int) (int64, int) {
	_, until, steps := x.day(f, 0, steps)
	return max(f, until-1), steps
}

// endOfOpening returns a time up to which later fires of the day of f move to later times of the day of to.
func (x *moveDays) endOfOpening(f, to int64, steps int) (int64, int) {
	_, until, steps := x.day(to, 0, steps)
	closes, steps := x.calendar.nextExcluded(to, until, steps)
	if closes < until || x.offset(to) != x.offset(until) {
		return f, steps
	}
	return x.endOfDay(f, steps)
}

// open reports whether the calendar allows all of a day without a jump of the clock: each excluded fire of the
// adjacent days moves to it, or stops before it.
func (x *moveDays) open(from, until int64, steps int) (bool, int) {
	steps--
	if x.zoned.periodAt(floorDiv(from, 1000)).end*1000 < until {
		return false, steps
	}
	closed, steps := x.calendar.nextExcluded(from, until, steps)
	return closed >= until, steps
}

// reachBack returns a time up to which no fire moves past an instant.
func (x *moveDays) reachBack(after int64, steps int) (int64, int) {
	low := after
	for days := int64(0); days <= maxMoveDays && steps >= 0; days++ {
		from, until, left := x.day(after, -days, steps)
		steps = left
		if low = from - 1; low < x.start || from <= 0 { // no source has instants before 1970
			break
		}
		if days == 0 {
			continue
		}
		var open bool
		if open, steps = x.open(from, until, steps); open {
			return until - 1, steps
		}
	}
	return low, steps
}

// openDay returns the beginning of the first open day after an instant's: no fire from there on moves to before it.
func (x *moveDays) openDay(after int64, steps int) (int64, int) {
	var until int64
	for days := int64(1); days <= maxMoveDays && steps >= 0; days++ {
		var from int64
		var open bool
		from, until, steps = x.day(after, days, steps)
		if open, steps = x.open(from, until, steps); open {
			return from, steps
		}
	}
	return until, steps
}
