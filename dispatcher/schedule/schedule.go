package schedule

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Schedule is a checked schedule. It is immutable and safe for concurrent use.
type Schedule struct {
	spec    Spec
	program *program
	loc     *timeZone
	// source produces the instants of the expression; fires also applies the calendar.
	source, fires source
	// start and end are the inclusive bounds, in Unix milliseconds.
	start, end int64
	// last returns the last instant that the repeat count allows, false if finding it takes too many
	// steps; nil means no such limit. It is computed at first use, because a cron expression has to be
	// walked for it.
	last func() (int64, bool)
	// repeatCost is how many steps last has taken.
	repeatCost int
	// delay is the pause of a fixed delay, else 0.
	delay time.Duration
}

func newSchedule(spec Spec, p *program) *Schedule {
	spec = spec.normalised()
	spec.Dialect, spec.Timezone = p.dialect, p.zone
	s := &Schedule{spec: spec, program: p, loc: p.loc, delay: p.delay, source: p.source, start: firstInstant, end: lastInstant}
	if !spec.EndAt.IsZero() {
		s.end = min(s.end, spec.EndAt.UnixMilli())
	}
	var from origin
	if !spec.Anchor.IsZero() {
		from.at = spec.Anchor.UnixMilli()
	}
	from.anchor = from.at
	if !spec.StartAt.IsZero() {
		s.start = spec.StartAt.UnixMilli()
		from.at, from.inclusive = s.start, true
	}
	if p.bind != nil {
		s.source = p.bind(from)
	}
	s.fires = s.source
	switch {
	case spec.Calendar == nil:
	case spec.OnExcluded.MovesByDays():
		calendar := spec.Calendar
		if cron, is := s.source.(seconds); is && cron.zoned.wall.fields.second == (set{1}) {
			calendar = calendar.atMinutes()
		}
		s.fires = &moveDays{source: s.source, calendar: calendar, forward: spec.OnExcluded == OnExcludedNextDay,
			zoned: &zoned{zone: p.loc, gap: spec.Gap, overlap: spec.Overlap}, start: s.start, end: s.end}
	default:
		move := spec.OnExcluded == OnExcludedNextIncluded
		s.fires = excluding{source: s.source, calendar: spec.Calendar, move: move, start: s.start}
	}
	s.limit(from)
	return s
}

// limit ends the schedule at its last counted instant.
func (s *Schedule) limit(from origin) {
	counted, repeats := from.at+from.first()-1, int64(s.spec.RepeatCount-s.spec.Used)
	if !s.spec.CountFrom.IsZero() {
		counted = max(counted, s.spec.CountFrom.UnixMilli())
	}
	switch iv, ok := s.fires.(interval); {
	case s.spec.RepeatCount == 0:
	case repeats <= 0:
		s.end = min(s.end, counted)
	case ok:
		s.end = min(s.end, iv.nth(counted, repeats))
	default:
		s.last = sync.OnceValues(func() (int64, bool) { return s.nth(counted, repeats) })
	}
}

// The years that RFC 3339 can express, 1 to 9999, in Unix milliseconds.
const (
	firstInstant = -62_135_596_800_000
	lastInstant  = 253_402_300_799_999
)

// nth walks to the n-th instant strictly after a time. Parse bounds n, and repeatSteps the walk.
func (s *Schedule) nth(after, n int64) (at int64, found bool) {
	steps := repeatSteps
	for range n {
		next, left, ok := s.fires.next(after, steps)
		if s.repeatCost = repeatSteps - left; left < 0 {
			return after, false
		}
		if steps = left; !ok || next > s.end {
			break
		}
		after = next
	}
	return after, true
}

// Spec returns the spec of the schedule, with dialect and timezone filled in.
func (s *Schedule) Spec() Spec { return s.spec }

// In returns t on the wall clock of the schedule's zone.
func (s *Schedule) In(t time.Time) time.Time {
	return t.In(s.loc.loc)
}

// Next returns the first instant strictly after t, in UTC, to the millisecond. ok is false when the schedule never
// fires again, or when its next fire cannot be found within bounds; Find distinguishes the two. The result depends
// only on the spec and t.
func (s *Schedule) Next(t time.Time) (next time.Time, ok bool) {
	ms, ok := s.nextMilli(floorMilli(t))
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// Previous returns the last instant strictly before t, but none before 1970 or StartAt. The time
// at which the schedule was made matters only if its instants are counted from that time.
// A fixed delay has no previous instant, because its instants depend on when runs end.
func (s *Schedule) Previous(t time.Time) (previous time.Time, ok bool) {
	if s.delay > 0 {
		return time.Time{}, false
	}
	at, least := floorMilli(t.Add(time.Millisecond-1)), max(s.start, 0)-1
	steps := previousSteps
	search := func(after int64) (next int64, ok bool) {
		next, steps, ok = s.find(after, steps)
		return next, ok && next < at && steps >= 0
	}
	found, ok := someBefore(at, least, search)
	if !ok {
		return time.Time{}, false
	}
	// The last instant is in [found, high]. Halving finds it among any number of instants.
	// Stepping forward from each instant found is quick where there are few.
	for high := at - 1; ; {
		next, ok := search(found)
		if !ok {
			return time.UnixMilli(found).UTC(), steps >= 0
		}
		found = next
		middle := found + (high-found)/2
		if next, ok := search(middle); ok {
			found = next
		} else {
			high = middle
		}
	}
}

// someBefore returns an instant in (least, at). search returns the first instant after a time. It searches further
// and further back.
func someBefore(at, least int64, search func(after int64) (int64, bool)) (int64, bool) {
	for back := int64(1000); ; back *= 4 {
		low := max(at-back, least)
		if next, ok := search(low); ok {
			return next, true
		}
		if low == least {
			return 0, false
		}
	}
}

// Delay returns the jitter of the fire at an instant: how much later than scheduled it
// should run, in [0, Spec.Jitter). It depends only on the identity and the instant. The
// instant itself, which identifies the fire, does not move, so jitter changes neither the
// order of fires nor Next.
func (s *Schedule) Delay(at time.Time) time.Duration {
	spread := s.spec.Jitter.Milliseconds()
	if spread <= 0 {
		return 0
	}
	stamp := time.UnixMilli(floorMilli(at)).UTC().Format(time.RFC3339Nano)
	return time.Duration(hasher(s.spec.Identity).sum(stamp)%uint64(spread)) * time.Millisecond
}

// FixedDelay returns the pause of a delay(...) expression. Such a schedule has one instant:
// StartAt, or Anchor plus the pause. The caller moves Anchor to the end of each run, and
// counts the runs if RepeatCount bounds them.
func (s *Schedule) FixedDelay() (pause time.Duration, ok bool) { return s.delay, s.delay > 0 }

// nextMilli is Next in Unix milliseconds.
func (s *Schedule) nextMilli(after int64) (int64, bool) {
	next, _, ok := s.find(after, stepBudget)
	return next, ok
}

// find is Next in Unix milliseconds, within the given steps. left is negative if they did not suffice; next is then
// how far the search came.
func (s *Schedule) find(after int64, steps int) (next int64, left int, ok bool) {
	if after >= s.end {
		return 0, steps, false
	}
	next, left, ok = s.fires.next(max(after, s.start-1), steps)
	if next > s.end {
		return 0, max(left, 0), false
	}
	if ok && s.last != nil {
		last, found := s.last()
		if !found {
			return next, -1, false
		}
		ok = next <= last
	}
	return next, left, ok
}

// Between returns the instants in (a, b], in order: strictly after a, up to and including
// b. It returns at most limit of them, the earliest; none when limit is not positive. The error is that of Find.
func (s *Schedule) Between(a, b time.Time, limit int) (out []time.Time, err error) {
	for at := a; len(out) < limit; at = out[len(out)-1] {
		next, ok, err := s.Find(at)
		if err != nil || !ok || next.After(b) {
			return out, err
		}
		out = append(out, next)
	}
	return out, nil
}

// Count returns the number of instants in (a, b], but at most limit. For intervals it is
// arithmetic; for other dialects it takes one step per instant.
func (s *Schedule) Count(a, b time.Time, limit int) int {
	from, to := floorMilli(a), floorMilli(b)
	if iv, ok := s.fires.(interval); ok {
		return int(min(iv.count(max(from, s.start-1), min(to, s.end)), int64(max(limit, 0))))
	}
	n := 0
	for n < limit {
		next, ok := s.nextMilli(from)
		if !ok || next > to {
			break
		}
		from = next
		n++
	}
	return n
}

// floorMilli returns t in Unix milliseconds, rounded down and clamped to the years 1 to 9999.
func floorMilli(t time.Time) int64 {
	switch {
	case t.Year() < 1:
		return firstInstant
	case t.Year() > 9999:
		return lastInstant
	}
	return t.UnixMilli()
}

// instantPattern is RFC 3339 with an optional offset. Only the shape is checked here.
var instantPattern = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?$`)

// localInstant is a date and time as written: local, or an instant if it has an offset.
type localInstant struct {
	wall   time.Time // the digits, as if they were UTC; whole milliseconds
	offset *time.Duration
}

// parseInstant reads an RFC 3339 date and time; the offset may be missing.
func parseInstant(text string) (localInstant, *input.Problem) {
	m := instantPattern.FindStringSubmatch(text)
	if m == nil {
		return localInstant{}, problemf(input.CodeTimeInvalid,
			"not a date and time; write 2026-05-01T10:00:00Z, or 2026-05-01T10:00:00+02:00")
	}
	var n [6]int
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // digits by the pattern
	}
	if n[5] == 60 {
		return localInstant{}, problemf(input.CodeTimeInvalid, "leap seconds cannot be scheduled; seconds go up to 59")
	}
	millis, _ := strconv.Atoi((m[7] + "000")[:3])
	wall := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], millis*int(time.Millisecond), time.UTC)
	// time.Date normalises, so a date or time that does not exist comes back as another one.
	if wall.Format("2006-01-02T15:04:05") != text[:19] {
		return localInstant{}, problemf(input.CodeTimeInvalid, "no such date or time; check month, day, hour, minute and second")
	}
	out := localInstant{wall: wall}
	switch zone := m[8]; {
	case zone == "":
	case zone == "Z":
		out.offset = new(time.Duration)
	default:
		hours, _ := strconv.Atoi(zone[1:3])
		minutes, _ := strconv.Atoi(zone[4:])
		if hours > 23 || minutes > 59 {
			return localInstant{}, problemf(input.CodeTimeInvalid, "no such offset: %s", zone)
		}
		offset := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
		if zone[0] == '-' {
			offset = -offset
		}
		out.offset = &offset
	}
	return out, nil
}

// unwrapAt returns the text inside at(...), or the text itself.
func unwrapAt(text string) (string, *input.Problem) {
	inner, ok := strings.CutPrefix(text, "at(")
	if !ok {
		return text, nil
	}
	inner, ok = strings.CutSuffix(inner, ")")
	if !ok {
		return "", problemf(input.CodeTimeInvalid, "the closing parenthesis is missing")
	}
	return inner, nil
}

// single is one instant in Unix milliseconds.
type single int64

func (s single) next(after int64, steps int) (at int64, left int, ok bool) {
	return int64(s), steps - 1, int64(s) > after
}

func (l localInstant) instant(loc *timeZone, gap Gap, overlap Overlap) (single, *input.Problem) {
	if l.offset != nil {
		return single(l.wall.Add(-*l.offset).UnixMilli()), nil
	}
	m := (&zoned{zone: loc}).momentOf(l.wall.Unix())
	switch {
	case m.gap && gap == GapSkip:
		return 0, problemf(input.CodeCronNever,
			"this local time does not exist in %s because the clock skips it; omit gap to fire when the gap ends", loc.loc)
	case m.gap:
		return single(m.first * 1000), nil
	}
	return single(m.pick(overlap)*1000 + l.wall.UnixMilli()%1000), nil
}

// Cache parses specs and keeps the results, so that a million triggers with a thousand
// different expressions cost a thousand parses. It is safe for concurrent use.
//
// It keeps the checked expression, which all specs that differ only in their bounds share; the
// Schedule around it is small. It keeps schedules with a repeat count whole, because finding
// their end takes a walk. It keeps problems too.
type Cache struct {
	programs *cache.Cache[cacheKey, *compiled]
	repeated *cache.Cache[cacheKey, *Schedule]
}

// cacheKey includes the time zone data, because a process may switch to others.
type cacheKey struct {
	Spec
	zones *Zones
}

type compiled struct {
	program *program
	errs    input.Problems
}

// NewCache returns a cache of the limit expressions and the limit schedules with a repeat count that were used last,
// and at most as many others. A limit below 1 means 1.
func NewCache(limit int) *Cache {
	return &Cache{programs: cache.New[cacheKey, *compiled](2 * limit), repeated: cache.New[cacheKey, *Schedule](2 * limit)}
}

// Parse is the function Parse, with this cache.
func (c *Cache) Parse(spec Spec) (*Schedule, error) {
	zones := CurrentZones()
	whole := cacheKey{spec.normalised(), zones}
	text := cacheKey{Spec{
		Expression: spec.Expression, Dialect: spec.Dialect, Timezone: spec.Timezone,
		Gap: spec.Gap, Overlap: spec.Overlap, OnExcluded: spec.OnExcluded, DriftHour: spec.DriftHour,
	}, zones}
	if UsesHash(spec.Expression) {
		text.Identity = spec.Identity
	}

	if spec.RepeatCount > 0 {
		if s, ok := c.repeated.Get(whole); ok {
			return s, nil
		}
	}
	found, ok := c.programs.Get(text)
	if !ok {
		found = &compiled{}
		found.program, found.errs = compile(text.Spec)
	}
	s, err := finish(spec, found.program, found.errs)
	if CurrentZones() != zones {
		return s, err // it is unknown which data it was parsed with
	}
	// A text that is too long is a problem of any length, which would take unbounded memory.
	if !ok && len(text.Expression) <= maxText && len(text.Timezone) <= maxText {
		c.programs.Put(text, found)
	}
	if err == nil && s.last != nil {
		c.repeated.Put(whole, s)
	}
	return s, err
}
