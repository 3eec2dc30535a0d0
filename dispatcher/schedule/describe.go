package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Describe returns a description of the schedule in plain English. It shows the UTC offset
// that the zone has at the given time.
func (s *Schedule) Describe(at time.Time) string {
	text := s.spec.Expression
	switch source := s.source.(type) {
	case seconds:
		text = source.zoned.wall.fields.describe()
	case interval:
		text = fmt.Sprintf("every %s of elapsed time", time.Duration(source.period)*time.Millisecond)
	case single:
		text = "once at " + time.UnixMilli(int64(source)).UTC().Format(time.RFC3339Nano)
		if s.delay > 0 {
			text = fmt.Sprintf("%s after the previous run ends", s.delay)
		}
	case *calendarInterval:
		text = fmt.Sprintf("every %s on the calendar, counted from %s",
			input.Count(int(source.step.n), source.step.unit), source.begin.Format("2006-01-02 15:04:05"))
	}
	if !s.spec.StartAt.IsZero() {
		text += ", from " + s.spec.StartAt.Format(time.RFC3339Nano)
	}
	if !s.spec.EndAt.IsZero() {
		text += ", until " + s.spec.EndAt.Format(time.RFC3339Nano)
	}
	if s.spec.RepeatCount > 0 {
		text += ", at most " + input.Count(s.spec.RepeatCount, "time")
	}
	return fmt.Sprintf("%s; %s (UTC%s)", text, s.spec.Timezone, s.In(at).Format("-07:00"))
}

// describe describes the times, days, months and years of a cron expression.
func (f *fields) describe() string {
	parts := []string{f.describeTimes(), f.days.describe()}
	if months := f.month.list(); len(months) < 12 {
		parts = append(parts, "in "+runs(months, func(m int) string { return time.Month(m).String() }))
	}
	if years := f.year.list(); len(years) <= 2099-firstYear {
		parts = append(parts, "in "+runs(years, func(y int) string { return strconv.Itoa(y + firstYear) }))
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// describeTimes lists up to six times as 09:00. It describes more than that field by field.
func (f *fields) describeTimes() string {
	const most = 6
	if n := f.second.len() * f.minute.len() * f.hour.len(); n <= most {
		var times []string
		for _, h := range f.hour.list() {
			for _, m := range f.minute.list() {
				for _, s := range f.second.list() {
					clock := fmt.Sprintf("%02d:%02d:%02d", h, m, s)
					times = append(times, strings.TrimSuffix(clock, ":00"))
				}
			}
		}
		return "at " + join(times)
	}
	var parts []string
	if f.second != all(0, 0) {
		parts = append(parts, every(f.second.list(), 60, fieldSecond))
	}
	if f.second != all(0, 59) || f.minute != all(0, 59) {
		parts = append(parts, every(f.minute.list(), 60, fieldMinute))
	}
	if !f.everyHour() {
		parts = append(parts, every(f.hour.list(), 24, fieldHour))
	}
	return strings.Join(parts, " of ")
}

func (r *dayRule) describeMonthDays() (dom []string) {
	if days := bitList(r.dom); r.dom != everyDay && r.dom != 0 {
		dom = append(dom, "day "+runs(days, strconv.Itoa))
	}
	for _, n := range bitList(r.domLast) {
		dom = append(dom, before(n, "the last day"))
	}
	for _, n := range bitList(r.domLastW) {
		dom = append(dom, "the weekday nearest to "+before(n, "the last day"))
	}
	for _, d := range bitList(r.domNear) {
		dom = append(dom, "the weekday nearest to day "+strconv.Itoa(d))
	}
	return dom
}

func (r *dayRule) describeWeekdays() (dow []string) {
	weekday := func(w int) string { return time.Weekday(w).String() }
	if r.dow != everyWeekday && r.dow != 0 {
		dow = append(dow, runs(bitList(uint32(r.dow)), weekday))
	}
	for _, w := range bitList(uint32(r.dowLast)) {
		dow = append(dow, "the last "+weekday(w)+" of the month")
	}
	for k, ordinal := range []string{"", "first", "second", "third", "fourth", "fifth"} {
		for _, w := range bitList(uint32(r.dowNth[k])) {
			dow = append(dow, "the "+ordinal+" "+weekday(w)+" of the month")
		}
	}
	return dow
}

func (r *dayRule) describe() string {
	dom, dow, link := r.describeMonthDays(), r.describeWeekdays(), " and on "
	if r.either {
		link = " or on "
	}
	switch {
	case dom == nil && dow == nil:
		return "every day"
	case dom == nil:
		return "on " + join(dow)
	case dow == nil:
		return "on " + join(dom) + " of the month"
	}
	return "on " + join(dom) + " of the month" + link + join(dow)
}

func before(n int, what string) string {
	if n == 0 {
		return what
	}
	return input.Count(n, "day") + " before " + what
}

// every describes the values of a time field: all of them, a regular step, or a list.
func every(values []int, size int, name string) string {
	if len(values) == size {
		return "every " + name
	}
	if n := len(values); n > 2 && size%n == 0 && values[n-1]-values[0] == size/n*(n-1) {
		even := true
		for i := range n {
			even = even && values[i] == values[0]+i*(size/n)
		}
		if even && values[0] == 0 {
			return "every " + input.Count(size/n, name)
		}
		if even {
			return fmt.Sprintf("every %s from %s %d", input.Count(size/n, name), name, values[0])
		}
	}
	return name + " " + runs(values, strconv.Itoa)
}

// runs writes a sorted list with three or more neighbours as a range.
func runs(values []int, name func(int) string) string {
	var parts []string
	for i := 0; i < len(values); {
		j := i
		for j+1 < len(values) && values[j+1] == values[j]+1 {
			j++
		}
		if j-i >= 2 {
			parts = append(parts, name(values[i])+" to "+name(values[j]))
			i = j + 1
			continue
		}
		parts = append(parts, name(values[i]))
		i++
	}
	return join(parts)
}

func join(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

func bitList(mask uint32) []int {
	var out []int
	for ; mask != 0; mask &= mask - 1 {
		out = append(out, bits.TrailingZeros32(mask))
	}
	return out
}
