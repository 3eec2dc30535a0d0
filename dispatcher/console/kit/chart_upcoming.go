package kit

import (
	"slices"
	"time"
)

// UpcomingChart is a picture of how many fires come in each step of the next day.
type UpcomingChart struct {
	Bars  Bars
	Total int
	// Peaks are the steps with the most fires, the largest first; those that are herds say so.
	Peaks []peak
	// Hours are the fires of each hour, for the table that says the same as the picture.
	Hours []hourOfFires
}

// peak is a step with many fires.
type peak struct {
	At    time.Time
	To    time.Time
	Count int
	// Times is how many times the mean of all steps that is.
	Times int
	Herd  bool
}

// hourOfFires is how many fires an hour has, which begins at At.
type hourOfFires struct {
	At    time.Time
	Count int
}

// A herd is a step with at least leastHerd fires and herdTimes the mean. Fewer do no harm, and an even load has no herd.
const (
	leastHerd = 20
	herdTimes = 4
	mostPeaks = 3
)

// NewUpcoming draws counts of fires by steps from a time on. title says in words what a step has.
func NewUpcoming(from time.Time, step time.Duration, counts []int, zone *time.Location, title func(at time.Time,
	count int) string) UpcomingChart {
	c := UpcomingChart{Peaks: peaks(from, step, counts)}
	most := 0
	values := make([]Bar, len(counts))
	for i, count := range counts {
		at := from.Add(time.Duration(i) * step)
		values[i] = Bar{Value: float64(count), Class: "planned", Title: title(at, count)}
		c.Total += count
		most = max(most, count)
		hour := from.Add(at.Sub(from).Truncate(time.Hour))
		if len(c.Hours) == 0 || !c.Hours[len(c.Hours)-1].At.Equal(hour) {
			c.Hours = append(c.Hours, hourOfFires{At: hour})
		}
		c.Hours[len(c.Hours)-1].Count += count
	}
	top := ceilCount(most)
	c.Bars = newBars(values, float64(top), GroupDigits(int64(top)))
	axis := Span{from, from.Add(time.Duration(len(counts)) * step)}
	c.Bars.Ticks = axis.ticks(zone, 9, barsWidth)
	return c
}

// peaks returns the steps with the most fires, the largest first.
func peaks(from time.Time, step time.Duration, counts []int) []peak {
	total := 0
	var all []peak
	for i, count := range counts {
		total += count
		if count > 0 {
			at := from.Add(time.Duration(i) * step)
			all = append(all, peak{At: at, To: at.Add(step), Count: count})
		}
	}
	slices.SortStableFunc(all, func(a, b peak) int { return b.Count - a.Count })
	all = all[:min(len(all), mostPeaks)]
	for i := range all {
		all[i].Times = all[i].Count * len(counts) / total
		all[i].Herd = all[i].Count >= leastHerd && all[i].Times >= herdTimes
	}
	return all
}
