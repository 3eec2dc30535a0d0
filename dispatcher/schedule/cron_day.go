package schedule

import (
	"math/bits"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
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
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 30 + int(month+month>>3)&1
}

// firstWeekday is Sakamoto's formula for day 1 of the month.
func firstWeekday(year int, month time.Month) time.Weekday {
	if month < time.March {
		year--
	}
	shift := [...]int{0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4}
	return time.Weekday((year + year/4 - year/100 + year/400 + shift[month-1] + 1) % 7)
}

// parseDOM reads the day-of-month field, with L, L-n, W, LW and L-nW in the dialects that
// have them.
func (g *grammar) parseDOM(r *dayRule, spec *field, tok token) *input.Problem {
	if g.quartz && tok.text == "?" || tok.text == "*" {
		return nil
	}
	items, err := spec.items(tok)
	if err != nil {
		return err
	}
	r.dom = 0
	for _, it := range items {
		var days set
		switch {
		case g.quartz && strings.ContainsAny(it.text, "LW"):
			err = it.relativeDay(r, g.plainL)
		default:
			err = it.addTo(&days)
			r.dom |= uint32(days[0])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// relativeDay reads L, L-n, LW, L-nW and nW into r. With plain it reads only L and nW.
func (it item) relativeDay(r *dayRule, plain bool) *input.Problem {
	body, workday := strings.CutSuffix(it.text, "W")
	switch {
	case plain && it.text != "L" && !(workday && isNumber(body)):
		return it.malformed("EventBridge supports only L and 15W here; use dialect quartz for LW and L-3")
	case body == "L" && workday:
		r.domLastW |= 1
	case body == "L":
		r.domLast |= 1
	case strings.HasPrefix(body, "L-") && isNumber(body[2:]):
		n := number(body[2:])
		if n > 30 {
			return problemf(input.CodeCronRange, "offset %s in %q of the %s field is not in 0-30", body[2:], it.text, it.name)
		}
		if workday {
			r.domLastW |= 1 << n
		} else {
			r.domLast |= 1 << n
		}
	case workday && isNumber(body):
		day, err := it.value(body)
		if err != nil {
			return err
		}
		r.domNear |= 1 << day
	default:
		return it.malformed("write L, L-3, 15W, LW or L-3W")
	}
	return nil
}

// parseWeekday reads the day-of-week field. In dialects quartz and aws, weekdays count from
// 1 (SUN), and L, 6L and 6#3 cannot be combined with others.
func (g *grammar) parseWeekday(r *dayRule, spec *field, tok token) *input.Problem {
	if g.quartz && tok.text == "?" || tok.text == "*" {
		return nil
	}
	items, err := spec.items(tok)
	if err != nil {
		return err
	}
	r.dow = 0
	for _, it := range items {
		// A name such as JUL may contain an L.
		if g.quartz && (strings.HasSuffix(it.text, "L") || strings.ContainsRune(it.text, '#')) {
			if len(items) > 1 {
				return it.malformed("L and # cannot be combined with other weekdays; use two triggers")
			}
			return it.relativeWeekday(r)
		}
		var days set
		if !g.quartz {
			err = it.addUnixWeekdays(&days)
		} else {
			err = it.addTo(&days)
			days[0] >>= 1
		}
		if err != nil {
			return err
		}
		r.dow |= uint8(days[0])
	}
	return nil
}

// relativeWeekday reads L, 6L, FRIL, 6#3 and FRI#3 into r, which counts weekdays from 0.
func (it item) relativeWeekday(r *dayRule) *input.Problem {
	if it.text == "L" { // documented by Quartz: the last day of the week, every Saturday
		r.dow = 1 << 6
		return nil
	}
	if body, ok := strings.CutSuffix(it.text, "L"); ok {
		weekday, err := it.value(body)
		if err != nil {
			return err
		}
		r.dowLast = 1 << (weekday - 1)
		return nil
	}
	body, nth, _ := strings.Cut(it.text, "#")
	weekday, err := it.value(body)
	if err != nil {
		return err
	}
	if len(nth) != 1 || nth[0] < '1' || nth[0] > '5' {
		return problemf(input.CodeCronRange, "the number after # in %q of the %s field is not in 1-5", it.text, it.name)
	}
	r.dowNth[nth[0]-'0'] = 1 << (weekday - 1)
	return nil
}

// addUnixWeekdays adds the weekdays of a crontab item. 0 and 7 are both Sunday. A range may use
// 7 (5-7), but * and a/n end at 6, so that steps never reach the same day twice.
func (it item) addUnixWeekdays(s *set) *input.Problem {
	low, high, step, err := it.bounds()
	if err != nil {
		return err
	}
	if body, _, stepped := strings.Cut(it.text, "/"); stepped && !strings.Contains(body, "-") {
		high = max(low, 6)
	}
	for v := low; v <= high; v += step {
		s.add(v % 7)
	}
	return nil
}
