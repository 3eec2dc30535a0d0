package schedule

import (
	"math/bits"
	"slices"
	"sort"
	"time"
)

// layer has all exclusions of calendars on the wall clock of one zone. Rules of the same kind are merged as far as
// possible, so that a calendar of many rules costs hardly more than one of a few.
type layer struct {
	zone *timeZone
	// days are the excluded days. Each set of only excludes all other days.
	days daySet
	only []daySet
	// times are the excluded times of day.
	times []stretch
	crons []cronRule

	// everyDay and everyTime are set if days and times exclude everything.
	everyDay, everyTime bool
	// first and last bound the days that only allows.
	first, last int64
}

// stretch is from (inclusive) to until (exclusive).
type stretch struct{ from, until int64 }

const (
	// firstSecond and lastSecond are the bounds of all instants, in Unix seconds.
	firstSecond, lastSecond = firstInstant / 1000, lastInstant/1000 + 1
	// runMonths bounds the months that one search takes in a run of excluded days.
	runMonths = 12
	// cronSteps is the cost, in steps, of finding the next time of a cron expression within a day.
	cronSteps = 5
)

// mergeLayers returns the rules of calendars, one layer for each zone.
func mergeLayers(parts []*Calendar) []layer {
	byZone := map[string]int{}
	var layers []layer
	for _, part := range parts {
		if part.rules == 0 {
			continue
		}
		name := part.own.zone.loc.String()
		i, known := byZone[name]
		if !known {
			i = len(layers)
			byZone[name] = i
			layers = append(layers, layer{zone: part.own.zone})
		}
		layers[i].add(&part.own)
	}
	for i := range layers {
		layers[i].seal()
	}
	return layers
}

// add adds the rules of another layer, which keeps its own.
func (l *layer) add(other *layer) {
	l.days.add(&other.days)
	l.only = append(l.only, other.only...)
	l.times = append(l.times, other.times...)
	l.crons = append(l.crons, other.crons...)
}

// seal merges what add has collected.
func (l *layer) seal() {
	l.days.spans = mergeStretches(l.days.spans)
	l.times = mergeStretches(l.times)
	l.everyDay = l.days.weekdays == everyWeekday || l.days.monthDays == everyDay
	l.everyTime = len(l.times) > 0 && l.times[0] == stretch{0, daySeconds}
	l.first, l.last = firstSecond/daySeconds, lastSecond/daySeconds
	for i := range l.only {
		set := &l.only[i]
		set.spans = mergeStretches(set.spans)
		if n := len(set.spans); n > 0 && set.yearly == [13]uint32{} {
			l.first, l.last = max(l.first, set.spans[0].from), min(l.last, set.spans[n-1].until-1)
		}
	}
}

// mergeStretches returns stretches in order, without overlaps.
func mergeStretches(all []stretch) []stretch {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b stretch) int { return int(a.from - b.from) })
	merged := sorted[:0]
	for _, s := range sorted {
		if n := len(merged); n > 0 && s.from <= merged[n-1].until {
			merged[n-1].until = max(merged[n-1].until, s.until)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// excludedUntil is Calendar.excludedUntil in Unix seconds.
func (l *layer) excludedUntil(second int64, steps int) (until int64, excluded bool, left int) {
	p := l.zone.at(second)
	local := second + p.offset
	steps--
	if until, excluded, steps = l.localUntil(local, steps); !excluded || until == lastSecond {
		return until, excluded, steps
	}
	return min(until-p.offset, p.end), true, steps
}

// excludedFrom is Calendar.excludedFrom in Unix seconds.
func (l *layer) excludedFrom(second int64, steps int) (from int64, excluded bool, left int) {
	p := l.zone.at(second)
	local := second + p.offset
	steps--
	if from, excluded, steps = l.localFrom(local, steps); !excluded || from == firstSecond {
		return from, excluded, steps
	}
	return max(from-p.offset, p.start), true, steps
}

// localUntil is excludedUntil on the local clock. It returns lastSecond for a stretch that never ends.
func (l *layer) localUntil(local int64, steps int) (until int64, excluded bool, left int) {
	day := floorDiv(local, daySeconds)
	if l.hasDays() {
		if until, excluded, steps = l.daysUntil(day, steps); excluded {
			return until, true, steps
		}
	}
	if s, ok := l.timesAt(local - day*daySeconds); ok {
		if l.everyTime {
			return lastSecond, true, steps
		}
		return day*daySeconds + s.until, true, steps
	}
	for i := range l.crons {
		if until, excluded, steps = l.crons[i].excludedUntil(local, steps); excluded || steps < 0 {
			return until, excluded, steps
		}
	}
	return 0, false, steps
}

// localFrom is excludedFrom on the local clock. It returns firstSecond for a stretch without a beginning.
func (l *layer) localFrom(local int64, steps int) (from int64, excluded bool, left int) {
	day := floorDiv(local, daySeconds)
	if l.hasDays() {
		if from, excluded, steps = l.daysFrom(day, steps); excluded {
			return from, true, steps
		}
	}
	if s, ok := l.timesAt(local - day*daySeconds); ok {
		if l.everyTime {
			return firstSecond, true, steps
		}
		return day*daySeconds + s.from, true, steps
	}
	for i := range l.crons {
		if from, excluded, steps = l.crons[i].excludedFrom(local, steps); excluded || steps < 0 {
			return from, excluded, steps
		}
	}
	return 0, false, steps
}

// includedUntil returns an instant up to which the layer excludes none, from an included one on; both in Unix
// seconds.
func (l *layer) includedUntil(second int64, steps int) (until int64, left int) {
	p := l.zone.at(second)
	local := second + p.offset
	day := floorDiv(local, daySeconds)
	steps--
	local, until = local+1, lastSecond
	if l.hasDays() {
		until, steps = l.openDaysUntil(day, steps)
	}
	if n := len(l.times); n > 0 {
		i := sort.Search(n, func(i int) bool { return l.times[i].from >= local-day*daySeconds })
		if i == n {
			i, day = 0, day+1
		}
		until = min(until, day*daySeconds+l.times[i].from)
	}
	for _, rule := range l.crons {
		rule.only = !rule.only
		if end, open, left := rule.excludedUntil(local-1, steps); open {
			until, steps = min(until, end), left
		} else {
			until, steps = local, left // its steps are used up
		}
	}
	if until == lastSecond && p.end > lastSecond {
		return until, steps
	}
	return min(until-p.offset, p.end), steps
}

// openDaysUntil returns the local time at which a run of included days ends, or one within the run.
func (l *layer) openDaysUntil(day int64, steps int) (until int64, left int) {
	m, dom := monthOf(day)
	for range runMonths {
		steps -= 1 + len(l.only)
		if closed := l.excludedDays(&m) >> dom; closed != 0 {
			return (m.first + int64(dom+bits.TrailingZeros32(closed)-1)) * daySeconds, steps
		}
		m, dom = m.next(), 1
	}
	return m.first * daySeconds, steps
}

func (l *layer) timesAt(at int64) (stretch, bool) {
	i := sort.Search(len(l.times), func(i int) bool { return at < l.times[i].until })
	if i < len(l.times) && l.times[i].from <= at {
		return l.times[i], true
	}
	return stretch{}, false
}

func (l *layer) hasDays() bool { return len(l.only) > 0 || !l.days.empty() }

// A jump of the local clock moves a local time by less than this many days.
const reachDays = reach/daySeconds + 1

// daysUntil returns the local time at which the run of excluded days around a day ends, or one within the run.
func (l *layer) daysUntil(day int64, steps int) (until int64, excluded bool, left int) {
	if l.everyDay || day > l.last+reachDays {
		return lastSecond, true, steps
	}
	if day < l.first-reachDays {
		return l.first * daySeconds, true, steps
	}
	m, dom := monthOf(day)
	for range runMonths {
		steps -= 1 + len(l.only)
		run := bits.TrailingZeros32(^(l.excludedDays(&m) >> dom))
		if excluded = excluded || run > 0; !excluded {
			return 0, false, steps
		}
		if dom+run <= m.length {
			return (m.first + int64(dom+run-1)) * daySeconds, true, steps
		}
		m, dom = m.next(), 1
	}
	return m.first * daySeconds, true, steps
}

// daysFrom returns the local time at which the run of excluded days around a day begins, or one within the run.
func (l *layer) daysFrom(day int64, steps int) (from int64, excluded bool, left int) {
	if l.everyDay || day < l.first-reachDays {
		return firstSecond, true, steps
	}
	if day > l.last+reachDays {
		return (l.last + 1) * daySeconds, true, steps
	}
	m, dom := monthOf(day)
	for range runMonths {
		steps -= 1 + len(l.only)
		run := bits.LeadingZeros32(^(l.excludedDays(&m) << (31 - dom)))
		if excluded = excluded || run > 0; !excluded {
			return 0, false, steps
		}
		if run < dom {
			return (m.first + int64(dom-run)) * daySeconds, true, steps
		}
		m = m.previous()
		dom = m.length
	}
	return (m.first + int64(m.length)) * daySeconds, true, steps
}

// excludedDays returns the excluded days of a month as bits 1 to 31.
func (l *layer) excludedDays(m *monthDays) uint32 {
	days := l.days.mask(m)
	for i := range l.only {
		days |= ^l.only[i].mask(m)
	}
	return days & (everyDay & (1<<(m.length+1) - 1))
}

// monthDays is a month as days counted from 1970-01-01.
type monthDays struct {
	year   int
	month  time.Month
	first  int64 // its first day
	length int
}

// monthOf returns the month of a day, and the day of the month.
func monthOf(day int64) (monthDays, int) {
	year, month, dom := time.Unix(day*daySeconds, 0).UTC().Date()
	return monthDays{year, month, day - int64(dom) + 1, monthLength(year, month)}, dom
}

func (m monthDays) next() monthDays {
	n := monthDays{year: m.year, month: m.month + 1, first: m.first + int64(m.length)}
	if n.month > time.December {
		n.year, n.month = m.year+1, time.January
	}
	n.length = monthLength(n.year, n.month)
	return n
}

func (m monthDays) previous() monthDays {
	n := monthDays{year: m.year, month: m.month - 1}
	if n.month < time.January {
		n.year, n.month = m.year-1, time.December
	}
	n.length = monthLength(n.year, n.month)
	n.first = m.first - int64(n.length)
	return n
}
