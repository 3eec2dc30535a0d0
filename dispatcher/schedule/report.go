package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Matches tells whether the schedule fires at t exactly.
func (s *Schedule) Matches(t time.Time) bool {
	ms := floorMilli(t)
	next, ok := s.nextMilli(ms - 1)
	return ok && next == ms && time.UnixMilli(ms).Equal(t)
}

// Effect is what a jump of the local clock does to fires of a schedule.
type Effect string

// The effects.
const (
	EffectSkipped Effect = "skipped" // local times vanish with the gap and do not fire
	EffectMoved   Effect = "moved"   // they fire together when the gap ends
	EffectDoubled Effect = "doubled" // local times come twice and fire twice
)

// Shift is one jump of the local clock that touches a schedule.
type Shift struct {
	// At is the instant of the jump, in UTC.
	At time.Time
	// Effect is what becomes of the local times concerned.
	Effect Effect
	// Local is the first of them, as the wall clock shows it.
	Local string
}

// Shifts returns the jumps of the local clock in (from, to] that skip, move or double fires
// of a cron expression. It is empty for expressions whose hour field covers all 24 hours,
// which follow the clock through both, and for the other dialects.
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
		local, ok := z.wall.next(low - 1)
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

// Warning is something that is allowed but may not be meant.
type Warning struct {
	Code    string // one of the Warn constants
	Message string
}

// Codes of warnings.
const (
	WarnDST         = "dst"          // fires skipped, moved or doubled within a year
	WarnStep        = "step_uneven"  // a step that does not divide its field
	WarnDay         = "day_missing"  // day of month 29 to 31 only
	WarnStarStep    = "star_step"    // crontab's */n day field, AND-ed with the other
	WarnNoFire      = "no_fire"      // nothing fires in the window
	WarnShortMonths = "short_months" // a calendar interval from a day that some months lack
	WarnJitter      = "jitter_long"  // jitter as long as the time between two fires, or longer
)

// Warnings returns what may surprise in the schedule: the year after from is examined for
// daylight saving.
func (s *Schedule) Warnings(from time.Time) []Warning {
	var out []Warning
	if cron, ok := s.source.(seconds); ok {
		out = append(out, cron.zoned.wall.fields.warnings()...)
	}
	if interval, ok := s.source.(*calendarInterval); ok && interval.begin.Day() > 28 && (interval.step.unit == "month" || interval.step.unit == "year") {
		out = append(out, Warning{WarnShortMonths, fmt.Sprintf(
			"counted from day %d: months without it fire on their last day instead", interval.begin.Day())})
	}
	for _, shift := range s.Shifts(from, from.AddDate(1, 0, 0)) {
		out = append(out, Warning{WarnDST, shift.message(s.spec.Timezone)})
	}
	switch first, ok := s.nextMilli(firstInstant); {
	case !ok && s.spec.Calendar != nil:
		out = append(out, Warning{WarnNoFire, "nothing fires between start_at and end_at that the calendar allows"})
	case !ok:
		out = append(out, Warning{WarnNoFire, "nothing fires between start_at and end_at"})
	default:
		gap := time.Duration(0)
		if second, ok := s.nextMilli(first); ok {
			gap = time.Duration(second-first) * time.Millisecond
		}
		if gap > 0 && gap <= s.spec.Jitter {
			out = append(out, Warning{WarnJitter, fmt.Sprintf(
				"jitter %s is not less than the %s between two fires, so some will run close together", s.spec.Jitter, gap)})
		}
	}
	return out
}

func (s Shift) message(zone string) string {
	switch s.Effect {
	case EffectDoubled:
		return fmt.Sprintf("%s comes twice in %s and fires twice (overlap both)", s.Local, zone)
	case EffectMoved:
		return fmt.Sprintf("%s does not exist in %s; it fires at %s instead (gap next)", s.Local, zone, s.At.Format(time.RFC3339))
	}
	return fmt.Sprintf("%s does not exist in %s and does not fire; set gap to next, or choose another hour", s.Local, zone)
}

// warnings examines a cron expression by itself.
func (f *fields) warnings() []Warning {
	out := slices.Clone(f.notes)
	if dom := f.days.dom; dom != 0 && dom&(1<<29-1) == 0 && f.days.domLast|f.days.domLastW|f.days.domNear == 0 && !f.days.either {
		out = append(out, Warning{WarnDay, "days 29 to 31 are missing in some months, which then do not fire; L is the last day of any month (quartz)"})
	}
	return out
}

// unevenSteps warns of steps over a whole field after which the next round starts early.
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
			out = append(out, Warning{WarnStep, fmt.Sprintf(
				"%s in the %s field: %d does not divide %d, so the last gap of each round is shorter; rate(...) is even",
				part, f.name, step, size)})
		}
	}
	return out
}
