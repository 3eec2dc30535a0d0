package schedule

import (
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

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
		if g.quartz && it.special() {
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

// special reports whether the item uses L or #. A name such as JUL may contain an L.
func (it item) special() bool {
	return strings.HasSuffix(it.text, "L") || strings.ContainsRune(it.text, '#')
}

// relativeWeekday reads L, 6L, FRIL, 6#3 and FRI#3 into r, whose weekdays count from 0.
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
