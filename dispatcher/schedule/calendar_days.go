package schedule

import "sort"

// daySet is a set of days. spans are days from 1970-01-01 on.
type daySet struct {
	weekdays  uint8      // bit w: weekday w, Sunday is 0
	monthDays uint32     // bit d: day d of every month
	yearly    [13]uint32 // bit d: day d of that month in every year
	spans     []stretch
}

func (s *daySet) empty() bool {
	return s.weekdays == 0 && s.monthDays == 0 && len(s.spans) == 0 && s.yearly == [13]uint32{}
}

// add adds the days of another set. The spans have to be merged then.
func (s *daySet) add(other *daySet) {
	s.weekdays |= other.weekdays
	s.monthDays |= other.monthDays
	for m := range s.yearly {
		s.yearly[m] |= other.yearly[m]
	}
	s.spans = append(s.spans, other.spans...)
}

// addYearly adds the days from one to another of every year, both written as 1225. The span crosses
// the end of the year if it ends before it begins.
func (s *daySet) addYearly(from, to int) {
	if from > to {
		s.addYearly(from, 1231)
		s.addYearly(101, to)
		return
	}
	for m := from / 100; m <= to/100; m++ {
		low, high := 1, 31
		if m == from/100 {
			low = from % 100
		}
		if m == to/100 {
			high = to % 100
		}
		s.yearly[m] |= uint32(1<<(high+1) - 1<<low)
	}
}

// mask returns the days of a month that are in the set, as bits 1 to 31. Bits past its end may be set.
func (s *daySet) mask(m *monthDays) uint32 {
	days := s.monthDays | s.yearly[m.month]
	if s.weekdays != 0 {
		const thursday = 4 // 1970-01-01
		first := ((m.first+thursday)%7 + 7) % 7
		for w := range int64(7) {
			if s.weekdays>>w&1 == 1 {
				days |= 0b10000001000000100000010000001 << (1 + (w-first+7)%7)
			}
		}
	}
	if len(s.spans) == 0 {
		return days
	}
	end := m.first + int64(m.length)
	for i := sort.Search(len(s.spans), func(i int) bool { return m.first < s.spans[i].until }); i < len(s.spans); i++ {
		span := s.spans[i]
		if span.from >= end {
			break
		}
		low, high := max(span.from-m.first, 0)+1, min(span.until-m.first, int64(m.length))
		days |= uint32(1<<(high+1) - 1<<low)
	}
	return days
}
