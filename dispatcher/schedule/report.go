package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Matches reports whether the schedule fires exactly at t.
func (s *Schedule) Matches(t time.Time) bool {
	ms := floorMilli(t)
	next, ok := s.nextMilli(ms - 1)
	return ok && next == ms && time.UnixMilli(ms).Equal(t)
}

// Effect is the effect of a jump of the local clock on the fires of a schedule.
type Effect string

// The effects.
const (
	EffectSkipped Effect = "skipped" // local times fall into the gap and do not fire
	EffectMoved   Effect = "moved"   // local times fall into the gap and fire together when it ends
	EffectDoubled Effect = "doubled" // local times come twice and fire twice
)

// Shift is one jump of the local clock that affects a schedule.
type Shift struct {
	// At is the instant of the jump, in UTC.
	At time.Time
	// Effect is the effect on the local times of the schedule.
	Effect Effect
	// Local is the first of these local times, as the wall clock shows it.
	Local string
}

// Shifts returns the jumps of the local clock in (from, to] that skip, move or double fires of a cron expression. It
// returns none for expressions whose hour field covers all 24 hours, because they follow the clock, and none for the
// other dialects.
func (s *Schedule) Shifts(from, to time.Time) []Shift {
	cron, ok := s.source.(seconds)
	if !ok || cron.zoned.wall.fields.everyHour() {
		return nil
	}
	z := cron.zoned
	var out []Shift
	end := floorMilli(to) / 1000
	for p := z.periodAt(floorMilli(from) / 1000); p.end <= end; {
		next := z.periodAt(p.end)
		low, high := p.end+min(p.offset, next.offset), p.end+max(p.offset, next.offset)
		effect := EffectSkipped
		switch {
		case next.offset < p.offset:
			effect = EffectDoubled
		case z.gap == GapNext:
			effect = EffectMoved
		}
		local, _, ok := z.wall.next(low-1, stepBudget)
		concerned := ok && local < high && (effect != EffectDoubled || z.overlap == OverlapBoth)
		if at := p.end * 1000; concerned && at >= s.start && at <= s.end {
			out = append(out, Shift{
				At: time.Unix(p.end, 0).UTC(), Effect: effect,
				Local: time.Unix(local, 0).UTC().Format("2006-01-02T15:04:05"),
			})
		}
		p = next
	}
	return out
}

// Warning is a property of a schedule that is allowed but may be unintended.
type Warning struct {
	Field   string // the field of Spec; empty means expression
	Code    string // one of WarningCodes
	Message string
}

// WarningCodes is the closed list of the values of Warning.Code.
var WarningCodes = []string{
	input.WarnDST, input.WarnStep, input.WarnDay, input.WarnStarStep, input.WarnNoFire, input.WarnShortMonths, input.WarnJitter,
	input.WarnZone, input.WarnMovedHour,
}

// Warnings returns properties of the schedule that may surprise its author. It examines a year for daylight saving
// and for moved fires: the year after from, or the first year of a schedule that starts later. It does not warn about
// daylight saving if the spec has a rule for the gap or overlap.
func (s *Schedule) Warnings(from time.Time) []Warning {
	out := abbreviation(s.spec.Timezone)
	if start := time.UnixMilli(s.start); start.After(from) {
		from = start.Add(-time.Millisecond)
	}
	if cron, ok := s.source.(seconds); ok {
		out = append(out, cron.zoned.wall.fields.warnings()...)
	}
	if c, ok := s.source.(*calendarInterval); ok {
		if _, months := c.step.length(); months > 0 && c.begin.Day() > 28 {
			out = append(out, Warning{Code: input.WarnShortMonths, Message: fmt.Sprintf(
				"the schedule counts from day %d; a month without that day fires on its last day instead", c.begin.Day())})
		}
	}
	for _, shift := range s.Shifts(from, from.AddDate(1, 0, 0)) {
		if shift.Effect == EffectSkipped && s.spec.Gap == "" {
			// The spec has no rule. Fires that move or come twice do so by a given rule.
			out = append(out, Warning{Code: input.WarnDST, Message: fmt.Sprintf("daylight saving skips %s in %s, and the schedule does not "+
				"fire; set gap to next, or to skip if that is meant, or choose another hour", shift.Local, s.spec.Timezone)})
		}
	}
	out = append(out, s.movedHour(from)...)
	return append(out, s.firesTooFew()...)
}

// firesTooFew warns if the schedule never fires, or if jitter moves a fire to the next.
func (s *Schedule) firesTooFew() (out []Warning) {
	switch first, left, ok := s.find(firstInstant, WarningSteps); {
	case left < 0: // a search for a fire reports it, if it takes too long as well
	case !ok && s.spec.Calendar != nil:
		out = append(out, Warning{Code: input.WarnNoFire, Message: "the calendar allows no fire between start_at and end_at"})
	case !ok:
		out = append(out, Warning{Code: input.WarnNoFire, Message: "the schedule never fires between start_at and end_at"})
	default:
		gap := time.Duration(0)
		if second, _, ok := s.find(first, WarningSteps); ok {
			gap = time.Duration(second-first) * time.Millisecond
		}
		if gap > 0 && gap <= s.spec.Jitter {
			out = append(out, Warning{Code: input.WarnJitter, Message: fmt.Sprintf(
				"jitter %s is not shorter than the %s between two fires, so some runs start close together", s.spec.Jitter, gap)})
		}
	}
	return out
}

// movedHour warns of a fire in the year after from that next_included moves to another hour, for example to midnight,
// when a calendar of whole days opens. It takes a bounded number of steps.
func (s *Schedule) movedHour(from time.Time) []Warning {
	x, ok := s.fires.(excluding)
	if !ok || !x.move || s.delay > 0 {
		return nil
	}
	end := min(s.end, floorMilli(from.AddDate(1, 0, 0)))
	for t, steps := max(floorMilli(from), s.start-1), WarningSteps; t < end; {
		// A fire may move from the next excluded time on.
		if t, steps = x.calendar.nextExcluded(t+1, end, steps); steps < 0 || t >= end {
			break
		}
		fire, left, ok := x.source.next(t-1, steps)
		if steps = left; !ok || steps < 0 || fire >= end {
			break
		}
		to, left, ok := x.included(fire, steps)
		if steps = left; !ok || steps < 0 {
			break
		}
		was, is := s.In(time.UnixMilli(fire)), s.In(time.UnixMilli(to))
		if was.Hour() != is.Hour() {
			const form = "2006-01-02T15:04:05"
			return []Warning{{Field: "on_excluded", Code: input.WarnMovedHour, Message: fmt.Sprintf(
				"next_included moves the fire of %s to %s, when the calendar allows it; write next_day to keep the time of day",
				was.Format(form), is.Format(form))}}
		}
		t = fire
	}
	return nil
}

// abbreviations are zones with an abbreviation as name, and a place that is probably meant.
var abbreviations = map[string]struct {
	fixed bool // without daylight saving
	place string
}{
	"EST": {true, "America/New_York"}, "MST": {true, "America/Denver"}, "HST": {true, "Pacific/Honolulu"},
	"CET": {false, "Europe/Berlin"}, "MET": {false, "Europe/Berlin"}, "EET": {false, "Europe/Athens"}, "WET": {false, "Europe/Lisbon"},
	"EST5EDT": {false, "America/New_York"}, "CST6CDT": {false, "America/Chicago"},
	"MST7MDT": {false, "America/Denver"}, "PST8PDT": {false, "America/Los_Angeles"},
}

func abbreviation(zone string) []Warning {
	a, ok := abbreviations[zone]
	if !ok {
		return nil
	}
	what := "an abbreviation, and as a zone it follows daylight saving"
	if a.fixed {
		what = "a fixed offset without daylight saving"
	}
	message := fmt.Sprintf("%s is %s; name a place, such as %s", zone, what, a.place)
	return []Warning{{Field: "timezone", Code: input.WarnZone, Message: message}}
}

// warnings returns the warnings about the cron expression alone.
func (f *fields) warnings() []Warning {
	out := slices.Clone(f.notes)
	d := &f.days
	if d.dom != 0 && d.dom&(1<<29-1) == 0 && d.domLast|d.domLastW|d.domNear == 0 && !d.either {
		out = append(out, Warning{Code: input.WarnDay, Message: "some months lack days 29 to 31, and the schedule does not fire in them; " +
			"L is the last day of any month (quartz)"})
	}
	return out
}

// unevenSteps warns of steps over a whole field that do not divide its length.
func (f *field) unevenSteps(tok token) []Warning {
	if strings.IndexByte(tok.text, '/') < 0 {
		return nil
	}
	var out []Warning
	size := f.high - f.low + 1
	if f.name == fieldWeekday {
		size = 7 // crontab's 0 and 7 are one day
	}
	for part := range strings.SplitSeq(tok.text, ",") {
		base, stepText, stepped := strings.Cut(part, "/")
		whole := base == "*" || base == "" || isNumber(base) && number(base) == f.low
		if step := number(stepText); stepped && whole && step > 0 && size%step != 0 && f.name != fieldYear {
			out = append(out, Warning{Code: input.WarnStep, Message: fmt.Sprintf(
				"%s in the %s field: %d does not divide %d, so the last interval of each round is shorter; rate(...) fires evenly",
				part, f.name, step, size)})
		}
	}
	return out
}
