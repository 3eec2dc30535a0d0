package kit

import (
	"math"
	"time"
)

// tick is a mark on an axis.
type tick struct {
	At    float64 // in units of the picture
	Label string
	// Offset is that of the zone, on the first mark of an axis and where it changes; empty: as on the mark before.
	Offset string
}

// Percent returns where the mark is on an axis under bars, which CSS scales.
func (t tick) Percent() float64 { return round(100 * t.At / barsWidth) }

// Anchor returns which end of the label is at the mark, so that the labels at the ends of an axis under bars stay within it; empty: its
// middle.
func (t tick) Anchor() string {
	switch p := t.Percent(); {
	case p < 5:
		return "start"
	case p > 92:
		return "end"
	}
	return ""
}

// withOffsets sets the offsets of marks from their times.
func withOffsets(ticks []tick, times []time.Time) []tick {
	shown := ""
	for i, at := range times {
		if o := offset(at); o != shown {
			ticks[i].Offset, shown = o, o
		}
	}
	return ticks
}

// Span is what a horizontal axis shows.
type Span struct {
	From, To time.Time
}

// X returns where a time is on an axis of a width; times outside the span are at its ends.
func (s Span) X(at time.Time, width float64) float64 {
	whole := s.To.Sub(s.From)
	if whole <= 0 {
		return 0
	}
	return round(width * min(max(float64(at.Sub(s.From))/float64(whole), 0), 1))
}

// quarter divides each offset of a zone that is in use, so a local time that a tick may have is a multiple of it.
const quarter = 15 * time.Minute

// ticks returns at most a number of ticks, at even local times of a zone.
func (s Span) ticks(zone *time.Location, most int, width float64) []tick {
	if !s.To.After(s.From) {
		return nil
	}
	step := s.step(most)
	unit := min(step, quarter)
	form := "15:04"
	if step >= 24*time.Hour {
		form = "01-02"
	}
	var found []tick
	var times []time.Time
	for at := s.From.Truncate(unit); !at.After(s.To); at = at.Add(unit) {
		local := at.In(zone)
		sinceMidnight := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
		if at.Before(s.From) || !onStep(local, sinceMidnight, step) {
			continue
		}
		label := local.Format(form)
		if sinceMidnight == 0 && step < 24*time.Hour {
			label = local.Format("01-02")
		}
		found, times = append(found, tick{At: s.X(at, width), Label: label}), append(times, local)
	}
	return withOffsets(found, times)
}

// endTicks returns marks with a date at the ends of an axis of a width, for values that follow one another at any times.
func endTicks(first, last time.Time, width float64) []tick {
	const form = "2006-01-02 15:04"
	ticks := []tick{{At: 0, Label: first.Format(form), Offset: offset(first)}}
	if !last.Equal(first) {
		ticks = append(ticks, tick{At: width, Label: last.Format(form), Offset: offset(last)})
	}
	return ticks
}

// onStep tells whether a local time is on a step from midnight, or from the first of its year for steps of days.
func onStep(local time.Time, sinceMidnight, step time.Duration) bool {
	if step < 24*time.Hour {
		return sinceMidnight%step == 0
	}
	days := int(step / (24 * time.Hour))
	return sinceMidnight == 0 && (local.YearDay()-1)%days == 0
}

// step returns the shortest even step that gives at most a number of ticks.
func (s Span) step(most int) time.Duration {
	steps := []time.Duration{
		time.Minute, 5 * time.Minute, quarter, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour,
		12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour,
	}
	for _, step := range steps {
		if int(s.To.Sub(s.From)/step) < most {
			return step
		}
	}
	return 14 * 24 * time.Hour
}

// ceilCount returns the smallest 1, 2 or 5 times a power of ten that is not below a count.
func ceilCount(count int) int {
	for unit := 1; ; unit *= 10 {
		for _, factor := range []int{1, 2, 5} {
			if count <= factor*unit {
				return factor * unit
			}
		}
	}
}

// ceilDuration returns the shortest even duration that is not below d, for the top of an axis.
func ceilDuration(d time.Duration) time.Duration {
	const day = 24 * time.Hour
	for _, top := range []time.Duration{
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, day,
	} {
		if d > 50*time.Second && d <= top {
			return top
		}
	}
	if d > day {
		return time.Duration(math.Ceil(float64(d)/float64(day))) * day
	}
	return time.Duration(ceilCount(int((d+time.Millisecond-1)/time.Millisecond))) * time.Millisecond
}

// round keeps a tenth of a unit, so that pictures are small.
func round(v float64) float64 { return math.Round(v*10) / 10 }
