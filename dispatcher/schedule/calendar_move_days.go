package schedule

import "slices"

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

// never is later than all instants.
const never = lastInstant + 1

// next moves fires one by one if the source has few. Else it walks over the days that may have fires: a fire moves to a time of a
// day only if the calendar allows that time on this day and not on the day before it (the day after, if fires move back).
func (x *moveDays) next(after int64, steps int) (at int64, left int, ok bool) {
	day := min(x.dayOf(after), x.dayOf(x.jump(after))) // the clock may be about to go back over midnight
	at, steps, few := x.ofOpenDays(day, after, steps)
	if at == never {
		at, steps, few = x.ofFew(day, after, steps)
	}
	for !few && at == never && steps >= 0 {
		if at, steps = x.onDay(day, after, steps); at != never {
			break
		}
		var more bool
		if day, steps, more = x.nextDay(day, steps); !more {
			at, steps, few = x.ofFew(day, after, steps)
		}
	}
	return min(at, lastInstant), steps, at != never && steps >= 0
}

// ofOpenDays returns the next fire of the source, if the calendar excludes nothing until then that could move a fire before it, or never.
func (x *moveDays) ofOpenDays(day, after int64, steps int) (at int64, left int, found bool) {
	at, steps, found = x.source.next(after, steps)
	if !found || at > x.end {
		return never, steps, false
	}
	from, until := after, at
	if x.forward {
		from, _, steps = x.bounds(day-1, steps)
	} else {
		_, until, steps = x.bounds(x.dayOf(at)+1, steps)
	}
	closes, steps := x.calendar.nextExcluded(from, until+1, steps)
	if steps < 0 || min(closes, x.jump(from)) <= until {
		return never, steps, false
	}
	return at, steps, true
}

// fewFires is up to how many fires of the source in a hundred days are moved one by one.
const fewFires = 8

// ofFew returns the first fire after an instant, or never, if the source has few fires that may arrive on a day and next to it.
func (x *moveDays) ofFew(day, after int64, steps int) (best int64, left int, few bool) {
	low := after
	if x.forward {
		low, _, steps = x.bounds(day-maxMoveDays, steps)
	}
	low = max(low, x.start-1)
	if few, steps = x.few(low, steps); !few {
		return never, steps, false
	}
	best, end := never, x.end // of the fires that may arrive before the best
	for t := low; steps >= 0; {
		f, left, ok := x.source.next(t, steps)
		if steps, t = left, f; !ok || f > end {
			break
		}
		to, left := x.move(f, steps)
		if steps = left; to <= after || to >= best {
			continue
		}
		if best, end = to, min(x.end, to); !x.forward {
			end = min(x.end, to+(maxMoveDays+1)*daySeconds*1000)
		}
	}
	return best, steps, true
}

// few reports whether the source has few fires in a hundred days from an instant on.
func (x *moveDays) few(t int64, steps int) (few bool, left int) {
	end, _, steps := x.bounds(x.dayOf(t)+maxMoveDays+1, steps)
	for range fewFires {
		f, left, ok := x.source.next(t, steps)
		if t, steps = f, left; !ok || f > min(end, x.end) {
			return true, steps
		}
	}
	return steps < 0, steps
}

// onDay returns the first fire of a day after an instant, or never.
func (x *moveDays) onDay(day, after int64, steps int) (best int64, left int) {
	from, until, steps := x.bounds(day, steps)
	best, steps = x.first(max(after, from-1), min(until-1, x.end), false, steps)
	// The times of the day at which a fire may arrive.
	open := stretch{day * daySeconds, (day + 1) * daySeconds}
	if x.jump(from) >= until {
		open.from = max(open.from, floorDiv(after, 1000)+x.offset(from))
		open.until = min(open.until, floorDiv(best, 1000)+1+x.offset(from))
	}
	parts, steps := x.allowed(open, steps)
	most, way := x.dayOf(x.end)-day, int64(daySeconds)
	if x.forward {
		most, way = day-x.dayOf(max(x.start, 0)), -daySeconds // no source has instants before 1970
	}
	for days := int64(1); days <= min(maxMoveDays, most) && len(parts) > 0 && steps >= 0; days++ {
		for i := range parts {
			parts[i].from, parts[i].until = parts[i].from+way, parts[i].until+way
		}
		var at int64
		if at, parts, steps = x.arrival(parts, after, min(best, until+1), steps); at <= until {
			best = min(best, at)
			last := &parts[len(parts)-1] // later times of the day arrive later
			last.until = min(last.until, floorDiv(at, 1000)+x.offset(at)+days*way+1)
		}
		parts, steps = x.excludedIn(parts, steps)
	}
	return best, steps
}

// first returns the first fire of the source after an instant, and at last at a limit, that the calendar excludes or allows; or never.
func (x *moveDays) first(after, limit int64, excluded bool, steps int) (fire int64, left int) {
	for t := max(after, x.start-1); t < limit && steps >= 0; {
		f, left, ok := x.source.next(t, steps)
		if steps = left; !ok || f > limit {
			break
		}
		until, is, left := x.calendar.excludedUntil(f, steps)
		if steps = left; is == excluded {
			return f, steps
		}
		if !is {
			until, steps = x.calendar.nextExcluded(f+1, limit+1, steps)
		}
		t = max(f, until-1)
	}
	return never, steps
}

// arrival returns the first instant after a time, and before best, to which an excluded fire of some local times of a day moves, or
// best; and the parts up to the one with that fire.
func (x *moveDays) arrival(parts []stretch, after, best int64, steps int) (at int64, some []stretch, left int) {
	for i, part := range parts {
		from, until := x.zoned.momentOf(part.from).first*1000, x.zoned.momentOf(part.until-1).last*1000+999
		at, steps = best, steps-2*zoneSteps
		for t := from - 1; steps >= 0; {
			if t, steps = x.first(t, min(until, x.end), true, steps); t == never {
				break
			}
			to, left := x.move(t, steps)
			if steps = left; to > after && to < at {
				if at = to; x.jump(from) >= until {
					break // the others arrive later
				}
			}
		}
		if at < best {
			return at, parts[:i+1], steps
		}
	}
	return best, parts, steps
}

// nextDay returns the next day that may have fires. more is false if the source has none any more, although some may move to later.
func (x *moveDays) nextDay(day int64, steps int) (next int64, left int, more bool) {
	from, until, steps := x.bounds(day, steps)
	f, steps, more := x.source.next(max(until, x.start)-1, steps)
	if !more || f > x.end {
		return day + 1, steps, false
	}
	// Fires arrive next to days on which the calendar excludes something, or on which the clock jumps.
	if next = x.dayOf(f); x.forward {
		closes, left := x.calendar.nextExcluded(from, f+1, steps)
		next, steps = min(next, x.dayOf(min(closes, x.jump(from)))+1), left
	} else {
		_, until, steps = x.bounds(day+1, steps)
		closes, left := x.calendar.nextExcluded(until, f+2*daySeconds*1000, steps)
		next, steps = max(day+1, next-maxMoveDays, min(next, x.dayOf(min(closes, x.jump(until)))-1)), left
	}
	from, _, steps = x.bounds(next, steps)
	if opens, excluded, left := x.calendar.excludedUntil(from, steps); excluded {
		return max(next, x.dayOf(opens)), left, true
	}
	return next, steps, true
}

// allowed returns the local times of a stretch, on one day, at which the calendar allows a fire that moves there.
func (x *moveDays) allowed(in stretch, steps int) (parts []stretch, left int) {
	for _, piece := range x.withoutJumps(in) {
		m := x.zoned.momentOf(piece.from)
		at, end := m.pick(x.zoned.overlap)*1000, int64(0)
		if end = at + (piece.until-piece.from)*1000; m.gap { // all its times happen when it ends, or none
			end = at + 1
		}
		steps -= zoneSteps
		for t := at; t < end && steps >= 0 && (!m.gap || x.zoned.gap == GapNext); {
			until, excluded, left := x.calendar.excludedUntil(t, steps)
			if steps = left; !excluded {
				until, steps = x.calendar.nextExcluded(t, end, steps)
				part := stretch{piece.from + (t-at)/1000, piece.from + (min(until, end)-at+999)/1000}
				if m.gap {
					part = piece
				}
				parts = append(parts, part)
			}
			t = until
		}
	}
	return parts, steps
}

// withoutJumps cuts local times where the clock jumps.
func (x *moveDays) withoutJumps(in stretch) (pieces []stretch) {
	cuts := []int64{in.from, in.until}
	for p := x.zoned.periodAt(in.from - reach); ; p = x.zoned.periodAt(p.end) {
		for _, cut := range []int64{p.start + p.offset, p.end + p.offset} {
			if in.from < cut && cut < in.until {
				cuts = append(cuts, cut)
			}
		}
		if p.end > in.until+reach {
			break
		}
	}
	slices.Sort(cuts)
	for i := range cuts[1:] {
		pieces = append(pieces, stretch{cuts[i], cuts[i+1]})
	}
	return pieces
}

// excludedIn returns those local times of a day, in order, at which the calendar does not allow a fire that moves there.
func (x *moveDays) excludedIn(parts []stretch, steps int) (closed []stretch, left int) {
	allowed, steps := x.allowed(stretch{parts[0].from, parts[len(parts)-1].until}, steps)
	for _, part := range parts {
		for _, open := range allowed {
			if open.until <= part.from || open.from >= part.until {
				continue
			}
			if open.from > part.from {
				closed = append(closed, stretch{part.from, open.from})
			}
			part.from = open.until
		}
		if part.from < part.until {
			closed = append(closed, part)
		}
	}
	return closed, steps
}

// move returns the new time of a fire: its own, if the calendar allows that, or never, if no day allows its time of day.
func (x *moveDays) move(f int64, steps int) (to int64, left int) {
	second := floorDiv(f, 1000)
	local := second + x.zoned.periodAt(second).offset
	until, excluded, steps := x.calendar.excludedUntil(f, steps)
	if !excluded {
		return f, steps
	}
	at, days := f, int64(0)
	for steps >= 0 {
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
			break
		}
		moment := x.zoned.momentOf(local + days*daySeconds)
		if !x.forward {
			moment = x.zoned.momentOf(local - days*daySeconds)
		}
		steps -= zoneSteps
		at = moment.pick(x.zoned.overlap)*1000 + (f - second*1000)
		if moment.gap {
			if at = moment.first * 1000; x.zoned.gap != GapNext {
				until, excluded = at, false
				continue
			}
		}
		if until, excluded, steps = x.calendar.excludedUntil(at, steps); !excluded {
			return at, steps
		}
	}
	return never, steps
}

func (x *moveDays) offset(at int64) int64 { return x.zoned.periodAt(floorDiv(at, 1000)).offset }

// dayOf returns the number of an instant's local day.
func (x *moveDays) dayOf(at int64) int64 {
	return floorDiv(floorDiv(at, 1000)+x.offset(at), daySeconds)
}

// bounds returns the beginning and the end of a day, in Unix milliseconds.
func (x *moveDays) bounds(day int64, steps int) (from, until int64, left int) {
	midnight := day * daySeconds
	return x.zoned.momentOf(midnight).first * 1000, x.zoned.momentOf(midnight+daySeconds).first * 1000, steps - 2*zoneSteps
}

// jump returns when the clock jumps next.
func (x *moveDays) jump(after int64) int64 {
	return min(x.zoned.periodAt(floorDiv(after, 1000)).end, lastSecond) * 1000
}
