package schedule

import (
	"math/bits"
	"time"
)

// dayRule holds the days of a month that match. It is resolved month by month, because L, W and
// # mean different days in different months.
type dayRule struct {
	dom      uint32 // bit d: day d
	domLast  uint32 // bit n: L-n, the n-th day before the last; L is bit 0
	domLastW uint32 // bit n: L-nW, the weekday nearest to L-n; LW is bit 0
	domNear  uint32 // bit d: dW, the weekday nearest to day d
	dow      uint8  // bit w: every weekday w, Sunday is 0
	dowLast  uint8  // bit w: the last weekday w of the month
	dowNth   [6]uint8
	// either is crontab's rule for two restricted day fields: one match is enough.
	either bool
}

const (
	everyDay     = uint32(1<<32 - 2) // days 1 to 31
	everyWeekday = uint8(1<<7 - 1)
)

// mask returns the matching days of a month as bits 1 to 31.
func (r *dayRule) mask(year int, month time.Month) uint32 {
	length := monthLength(year, month)
	inMonth := everyDay & (1<<(length+1) - 1)
	if r.dom == everyDay && r.dow == everyWeekday {
		return inMonth
	}
	first := firstWeekday(year, month)
	dom := r.dom
	for left := r.domLast; left != 0; left &= left - 1 {
		if day := length - bits.TrailingZeros32(left); day >= 1 {
			dom |= 1 << day
		}
	}
	for left := r.domLastW; left != 0; left &= left - 1 {
		if day := length - bits.TrailingZeros32(left); day >= 1 {
			dom |= 1 << nearestWorkday(day, length, first)
		}
	}
	for left := r.domNear; left != 0; left &= left - 1 {
		if day := bits.TrailingZeros32(left); day <= length {
			dom |= 1 << nearestWorkday(day, length, first)
		}
	}
	dow := r.weekdays(length, first)
	if r.either {
		return (dom | dow) & inMonth
	}
	return dom & dow & inMonth
}

// weekdays returns the days that the day-of-week field matches. Bits past the end of the month
// may be set.
func (r *dayRule) weekdays(length int, first time.Weekday) uint32 {
	if r.dow == everyWeekday {
		return everyDay
	}
	var days uint32
	for w := range 7 {
		bit := uint8(1) << w
		day := 1 + (w-int(first)+7)%7 // the first w of the month
		if r.dow&bit != 0 {
			days |= 0b10000001000000100000010000001 << day
		}
		for k := 1; k <= 5; k++ {
			if r.dowNth[k]&bit != 0 && day+7*(k-1) <= length {
				days |= 1 << (day + 7*(k-1))
			}
		}
		if r.dowLast&bit != 0 {
			days |= 1 << (day + (length-day)/7*7)
		}
	}
	return days
}

// nearestWorkday returns the Monday to Friday nearest to day without leaving the month, as
// Quartz documents W: a Saturday moves to Friday, a Sunday to Monday, except at the ends.
func nearestWorkday(day, length int, first time.Weekday) int {
	switch time.Weekday((int(first) + day - 1) % 7) {
	case time.Saturday:
		if day == 1 {
			return 3
		}
		return day - 1
	case time.Sunday:
		if day == length {
			return day - 2
		}
		return day + 1
	}
	return day
}

func monthLength(year int, month time.Month) int {
	if month == time.February {
		if leapYear(year) {
			return 29
		}
		return 28
	}
	return 30 + int(month+month>>3)&1
}

func leapYear(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

// firstWeekday is Sakamoto's formula for day 1 of the month.
func firstWeekday(year int, month time.Month) time.Weekday {
	if month < time.March {
		year--
	}
	shift := [...]int{0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4}
	return time.Weekday((year + year/4 - year/100 + year/400 + shift[month-1] + 1) % 7)
}
