package schedule

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Spec is a schedule as a user writes it. For each field except Expression, the zero value
// means the default. Times are truncated to the millisecond. Specs can be compared with ==,
// but the same instant in two locations is not equal.
type Spec struct {
	// Expression is the schedule in its dialect, such as "0 0 2 * * ?" or "rate(5 minutes)".
	Expression string
	// Dialect is the language of Expression; empty means that Parse recognises it.
	Dialect Dialect
	// Timezone is the IANA name of the zone of the wall clock that cron expressions describe; empty means UTC.
	Timezone string
	// StartAt and EndAt bound the fires, both inclusive; the zero time means no bound.
	StartAt, EndAt time.Time
	// RepeatCount is how many times the schedule fires in total; 0 means no limit. Fires are
	// counted from StartAt (inclusive) or, without it, from Anchor (exclusive).
	RepeatCount int
	// Used is how many of RepeatCount were used up by CountFrom. The others are counted from the first instant after
	// CountFrom. The zero time means that all are counted as RepeatCount says.
	Used      int
	CountFrom time.Time
	// Anchor is when the schedule was made or last changed. Without StartAt, intervals and repeat counts are counted
	// from it. The zero time means the Unix epoch, which is enough for validation.
	Anchor time.Time
	// Gap is the rule for local times that daylight saving skips. Empty means GapSkip for cron
	// expressions; a single instant (dialect at) fires when the gap ends, and a calendar
	// interval fires later by the length of the jump, as in Quartz.
	Gap Gap
	// Overlap is the rule for local times that come twice. Empty means OverlapLast, but
	// OverlapBoth for expressions whose hour field covers all 24 hours, and OverlapFirst for
	// calendar intervals, as in Quartz. Dialects that fire once treat OverlapBoth as OverlapLast.
	Overlap Overlap
	// DriftHour makes a calendar interval of days or longer units keep the UTC offset of its
	// origin instead of the local hour, so that daylight saving moves its local time.
	DriftHour bool
	// Identity names the trigger, for example app/job/trigger. H in cron fields and Jitter
	// hash it. H without an identity is a problem.
	Identity string
	// Calendar excludes fires, unless it is nil. OnExcluded is the rule for excluded fires; empty
	// means OnExcludedSkip. Repeat counts do not count excluded fires.
	Calendar   *Calendar
	OnExcluded OnExcluded
	// Jitter is the upper bound of Schedule.Delay, 0 to 24h.
	Jitter time.Duration
}

// Dialect is a language for schedules.
type Dialect string

// The dialects.
const (
	DialectQuartz   Dialect = "quartz"   // sec min hour dom month dow [year], as Quartz 2.5 documents
	DialectUnix     Dialect = "unix"     // min hour dom month dow and @macros, as crontab(5)
	DialectInterval Dialect = "interval" // rate(5 minutes), rate(1h30m), @every 2s: elapsed time
	DialectAt       Dialect = "at"       // at(2026-05-01T10:00:00+02:00): one instant
	// DialectAWS is cron(m h dom mon dow year), rate(n unit) and at(local time), exactly as
	// documented by Amazon EventBridge Scheduler.
	DialectAWS Dialect = "aws"
	// DialectCalendarInterval is Quartz's CalendarIntervalTrigger: "every 3 months" counted
	// on the calendar from StartAt or Anchor.
	DialectCalendarInterval Dialect = "calendar_interval"
	// DialectDailyInterval is Quartz's DailyTimeIntervalTrigger: "every 45 minutes from 9:00
	// to 17:00 on MON-FRI".
	DialectDailyInterval Dialect = "daily_interval"
)

// Gap is a rule for local times that do not exist because the clock is set forward.
type Gap string

// The gap rules.
const (
	GapSkip Gap = "skip" // they do not fire, as in Quartz, EventBridge and Kubernetes
	GapNext Gap = "next" // they fire together, at the first instant after the gap
)

// Overlap is a rule for local times that come twice because the clock is set back.
type Overlap string

// The overlap rules.
const (
	OverlapLast  Overlap = "last"  // the last pass fires, as in Quartz
	OverlapFirst Overlap = "first" // the first pass fires, as in Vixie cron
	OverlapBoth  Overlap = "both"  // every pass fires
)

const (
	// maxRepeat bounds RepeatCount where a walk has to find the last instant.
	maxRepeat = 5000
	// maxRepeatInterval bounds it for intervals, where it is arithmetic.
	maxRepeatInterval = 1_000_000_000
	// maxJitter bounds Jitter: a longer spread must be a mistake.
	maxJitter = 24 * time.Hour
)

// checkBounds checks all fields of s except expression, dialect, zone and DST rules.
func (s *Spec) checkBounds(errs *input.Problems, dialect Dialect) {
	for _, bound := range []struct {
		field string
		t     time.Time
	}{{"start_at", s.StartAt}, {"end_at", s.EndAt}} {
		if !bound.t.IsZero() && input.OutOfRange(bound.t) {
			report(errs, bound.field, bound.t.Format(time.RFC3339),
				problemf(input.CodeTimeRange, "the year is not in %d-%d", input.FirstYear, input.LastYear))
		}
	}
	if !s.StartAt.IsZero() && !s.EndAt.IsZero() && s.StartAt.After(s.EndAt) {
		report(errs, "start_at", s.StartAt.Format(time.RFC3339), problemf(input.CodeWindowOrder,
			"it is after end_at %s, so the schedule never fires; swap the two", s.EndAt.Format(time.RFC3339)))
	}
	if s.Jitter < 0 || s.Jitter > maxJitter {
		report(errs, "jitter", s.Jitter.String(), problemf(input.CodeJitterRange, "not in 0s-%s", maxJitter))
	}
	most := maxRepeat
	if dialect == DialectInterval && s.Calendar == nil {
		most = maxRepeatInterval
	}
	if s.RepeatCount < 0 || s.RepeatCount > most {
		reportInt(errs, "repeat_count", s.RepeatCount, problemf(input.CodeRepeatRange, "not in 1-%d; omit it for no limit", most))
	}
}

func checkEnum[E ~string](errs *input.Problems, field string, value E, allowed ...E) {
	if value != "" && !slices.Contains(allowed, value) {
		report(errs, field, string(value), problemf(input.CodeEnum, "%s", input.NotOneOf(value, allowed)))
	}
}

// normalised returns s with its times in UTC and whole milliseconds, so that == compares specs.
func (s Spec) normalised() Spec {
	for _, t := range []*time.Time{&s.StartAt, &s.EndAt, &s.CountFrom, &s.Anchor} {
		if !t.IsZero() {
			*t = time.UnixMilli(t.UnixMilli()).UTC()
		}
	}
	return s
}

// Two specs may be written differently and mean the same: another spelling or dialect, an alias of the zone, a default
// written out. Schedules are compared by their meaning, so that a new spelling neither restarts a count nor moves a fire.

// meaning is a checked expression with its defaults filled in. Meanings are compared with ==, and their zones apart.
type meaning struct {
	// times is one of the types below.
	times any
	// gap and overlap are empty where they make no difference; so is zoned, if the zone makes no difference.
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

// SameGrid reports whether two schedules of one trigger count the same instants from the same start: they differ only
// in the rules for daylight saving, the end, the repeat count, the calendar and the jitter.
func (s *Schedule) SameGrid(other *Schedule) bool {
	a, b := s.program.meaning, other.program.meaning
	return a.times == b.times && s.spec.StartAt.Equal(other.spec.StartAt) && (!a.zoned || s.sameZone(other))
}

// SameInstants reports whether two schedules of one trigger with the same calendar have the same instants between the
// same bounds: they differ only in the spelling, the end, the repeat count and the jitter.
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
