package schedule

// Two specs may be written differently and mean the same: another spelling or dialect, an alias of the zone, a default
// written out. Schedules are compared by their meaning, so that a new spelling neither restarts a count nor moves a fire.

// meaning is a checked expression with its defaults filled in. Meanings are compared with ==, and their zones apart.
type meaning struct {
	// times is one of the types below.
	times any
	// gap and overlap are empty where they make no difference; so is zoned, if the zone makes none.
	gap     Gap
	overlap Overlap
	zoned   bool
}

type (
	cronTimes struct {
		second, minute, hour, month, year set
		days                              dayRule
	}
	elapsedTimes  struct{ milliseconds int64 }
	delayTimes    struct{ milliseconds int64 }
	calendarTimes struct{ days, months int64 }
	dailyTimes    struct {
		period, from, to int64
		days             uint8
	}
)

// meaningOf returns the meaning of the fields of a cron expression; gap and overlap are those in effect.
func meaningOf(f fields, gap Gap, overlap Overlap) meaning {
	days := f.days
	if days.either && (days.dom == everyDay || days.dow == everyWeekday) {
		days = dayRule{dom: everyDay, dow: everyWeekday}
	}
	if gap == "" {
		gap = GapSkip
	}
	return meaning{times: cronTimes{f.second, f.minute, f.hour, f.month, f.year, days}, gap: gap, overlap: overlap, zoned: true}
}

// SameGrid reports whether two schedules of one trigger count the same instants from the same start: they differ in
// nothing but the rules for daylight saving, the end, the repeat count, the calendar and the jitter.
func (s *Schedule) SameGrid(other *Schedule) bool {
	a, b := s.program.meaning, other.program.meaning
	return a.times == b.times && s.spec.StartAt.Equal(other.spec.StartAt) && (!a.zoned || s.sameZone(other))
}

// SameInstants reports whether two schedules of one trigger that name the same calendar have the same instants between
// the same bounds: they differ in nothing but the spelling, the end, the repeat count and the jitter.
func (s *Schedule) SameInstants(other *Schedule) bool {
	if !s.SameGrid(other) || s.program.meaning != other.program.meaning {
		return false
	}
	_, stepsOfDays := s.program.meaning.times.(calendarTimes)
	if stepsOfDays && s.spec.DriftHour != other.spec.DriftHour || s.spec.OnExcluded.orSkip() != other.spec.OnExcluded.orSkip() {
		return false
	}
	return !s.spec.OnExcluded.MovesByDays() ||
		s.sameZone(other) && s.spec.Gap.orSkip() == other.spec.Gap.orSkip() && s.movesTo() == other.movesTo()
}

// SameFires is SameInstants, and reports whether end, repeat count and jitter are the same, too.
func (s *Schedule) SameFires(other *Schedule) bool {
	return s.SameInstants(other) && s.spec.EndAt.Equal(other.spec.EndAt) && s.spec.RepeatCount == other.spec.RepeatCount &&
		s.spec.Jitter == other.spec.Jitter
}

// movesTo is the pass of a repeated time of day to which an excluded fire moves.
func (s *Schedule) movesTo() Overlap {
	if s.spec.Overlap == OverlapFirst {
		return OverlapFirst
	}
	return OverlapLast
}

func (o OnExcluded) orSkip() OnExcluded {
	if o == "" {
		return OnExcludedSkip
	}
	return o
}

func (g Gap) orSkip() Gap {
	if g == "" {
		return GapSkip
	}
	return g
}

// sameZone reports whether the zones of two schedules have the same rules, as an alias and its target have.
func (s *Schedule) sameZone(other *Schedule) bool {
	if s.spec.Timezone == other.spec.Timezone {
		return true
	}
	a, wrong := zone(s.spec.Timezone)
	b, wrongToo := zone(other.spec.Timezone)
	if wrong != nil || wrongToo != nil {
		return false // impossible: Parse has checked both
	}
	for at := yearStart(firstYear); at < yearStart(horizon+1); {
		p, q := a.at(at), b.at(at)
		if p.offset != q.offset {
			return false
		}
		at = min(p.end, q.end)
	}
	return true
}
