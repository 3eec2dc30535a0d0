package kit

import (
	"slices"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/view"
)

// Bars are a picture of values in their order, such as the durations of the latest runs.
type Bars struct {
	Width, Height int
	// Top is the label of the upper edge.
	Top   string
	Marks []barMark
	Ticks []tick
}

// barMark is one value.
type barMark struct {
	X, Y, Width, Height float64
	Class, Title        string
}

// Bar is a value to draw: Class is that of its state, and Title describes it in words.
type Bar struct {
	Value        float64
	Class, Title string
	// At is its time in the zone of the page, for the axis; zero: the axis has no times.
	At time.Time
}

// The size of pictures of bars, in units that CSS scales.
const (
	barsWidth  = 720
	barsHeight = 120
	leastBar   = 2 // a value that is not zero is visible
)

// newBars draws values up to a top. Zero has no mark.
func newBars(values []Bar, top float64, label string) Bars {
	b := Bars{Width: barsWidth, Height: barsHeight, Top: label}
	if len(values) == 0 || top <= 0 {
		return b
	}
	step := float64(barsWidth) / float64(len(values))
	for i, v := range values {
		if v.Value <= 0 {
			continue
		}
		height := round(max(leastBar, min(v.Value/top, 1)*barsHeight))
		b.Marks = append(b.Marks, barMark{
			X: round(float64(i) * step), Y: round(barsHeight - height), Width: round(max(step*0.8, 1)), Height: height,
			Class: v.Class, Title: v.Title,
		})
	}
	return b
}

// NewDurationBars draws durations from zero to the next even duration above the longest; format writes that one.
func NewDurationBars(values []Bar, format func(time.Duration) string) Bars {
	longest := 0.0
	for _, v := range values {
		longest = max(longest, v.Value)
	}
	top := ceilDuration(max(time.Duration(longest), time.Millisecond))
	b := newBars(values, float64(top), format(top))
	if len(values) > 0 && !values[0].At.IsZero() { // they have times at any distance
		const form = "2006-01-02 15:04"
		first, last := values[0].At, values[len(values)-1].At
		b.Ticks = []tick{{At: 0, Label: first.Format(form), Offset: offset(first)}}
		if !last.Equal(first) {
			b.Ticks = append(b.Ticks, tick{At: barsWidth, Label: last.Format(form), Offset: offset(last)})
		}
	}
	return b
}

// GroupDigits writes a count with a narrow space between thousands, as in 12 345, which is a decimal point nowhere.
func GroupDigits(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "−", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return sign + text
}

// DayChart is a drawing with a column for each day.
type DayChart struct {
	Width, Height int
	// Most is the value of the highest column.
	Most    int64
	Columns []dayColumn
}

// dayColumn is a day. Its parts are stacked, those that did not succeed on top.
type dayColumn struct {
	Day      string
	X, Width float64
	Total    int64
	Bad      int64
	Parts    []columnPart
}

// First and Last are the days at the ends of the drawing.
func (c DayChart) First() string { return c.Columns[0].Day }

// Last is the last day; see First.
func (c DayChart) Last() string { return c.Columns[len(c.Columns)-1].Day }

type columnPart struct {
	Tone      string // see tone
	Y, Height float64
}

// The size of a chart in units of its drawing.
const (
	chartWidth  = 720
	chartHeight = 160
)

// ChartOfDays returns the chart of the days up to now. A day without runs has an empty column.
func ChartOfDays(rows []DayRow, now time.Time, days int) DayChart {
	chart := DayChart{Width: chartWidth, Height: chartHeight}
	of := map[string]DayRow{}
	for _, row := range rows {
		of[row.Day] = row
		chart.Most = max(chart.Most, row.Total)
	}
	step := float64(chartWidth) / float64(days)
	for i := range days {
		name := now.UTC().AddDate(0, 0, i+1-days).Format(time.DateOnly)
		row := of[name]
		column := dayColumn{Day: name, X: float64(i) * step, Width: step * 0.8, Total: row.Total}
		good, off := row.counts()
		column.Bad = row.Total - good - off
		at := float64(chartHeight)
		for _, one := range []struct {
			tone  string
			count int64
		}{{"good", good}, {"off", off}, {"bad", column.Bad}} {
			if one.count > 0 {
				height := float64(one.count) * chartHeight / float64(chart.Most)
				at -= height
				column.Parts = append(column.Parts, columnPart{one.tone, at, height})
			}
		}
		chart.Columns = append(chart.Columns, column)
	}
	return chart
}

// DayRow is one day of the table.
type DayRow struct {
	view.DayStatistics
	Total int64
}

// counts returns how many runs succeeded, and how many neither succeeded nor failed.
func (r DayRow) counts() (good, off int64) {
	return r.Runs["succeeded"], r.Runs["cancelled"] + r.Runs["skipped"] + r.Runs["superseded"]
}

// Rate is the share of runs that succeeded, of those that succeeded or failed. It is rounded down, so that 100 % means all.
func (r DayRow) Rate() string {
	good, off := r.counts()
	if r.Total == off {
		return "–"
	}
	return strconv.FormatFloat(float64(1000*good/(r.Total-off))/10, 'f', 1, 64) + " %"
}

// Progress is a bar of several parts, as a drawing. A table shows the same values.
type Progress struct {
	Width int
	Parts []progressPart
}

// progressPart is one part of a bar, in units of the drawing.
type progressPart struct {
	Key      string
	Tone     string // see tone
	X, Width float64
	Count    int
}

// Portion is a number that a bar shows; Key is that of its text.
type Portion struct {
	Key   string
	Count int
}

// progressWidth is the width of a bar in units of its drawing.
const progressWidth = 600

// ProgressBar returns the bar of parts of a total.
func ProgressBar(total int, parts ...Portion) Progress {
	b := Progress{Width: progressWidth}
	sum := 0
	for _, p := range parts {
		sum += p.Count
	}
	total = max(total, sum, 1)
	at := 0.0
	for _, p := range parts {
		width := float64(p.Count) * progressWidth / float64(total)
		if p.Count > 0 {
			b.Parts = append(b.Parts, progressPart{p.Key, Tone(p.Key), at, width, p.Count})
		}
		at += width
	}
	return b
}

// UpcomingChart is a picture of the number of fires in each step of the next day.
type UpcomingChart struct {
	Bars  Bars
	Total int
	// Peaks are the steps with the most fires, the largest first; herds are marked.
	Peaks []peak
	// Hours are the fires of each hour, for the table of the picture's values.
	Hours []hourOfFires
}

// peak is a step with many fires.
type peak struct {
	At    time.Time
	To    time.Time
	Count int
	// Times is how many times the mean of all steps the peak has.
	Times int
	Herd  bool
}

// hourOfFires is the number of fires in the hour that begins at At.
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

// NewUpcoming draws counts of fires by steps from a time on. title describes a step in words.
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

// HeatMap is a calendar of the runs of a job: a row for each day, the latest first, and a column for each hour of it.
type HeatMap []heatDay

type heatDay struct {
	Day   string
	Hours [24]HeatHour
}

// HeatHour are the runs that were scheduled in an hour, and the missed fires. In the night in which clocks go back, it
// is two hours. From is zero if there are none.
type HeatHour struct {
	From, To                       time.Time
	Total, Failed, Skipped, Missed int64
}

// NewHeatMap returns the calendar of hours, which are in order, in the zone of a time.
func NewHeatMap(hours []view.HourStatistics, until time.Time, days int) HeatMap {
	rows := make(HeatMap, days)
	at := map[string]*heatDay{}
	for i := range rows {
		rows[i].Day = until.AddDate(0, 0, -i).Format(time.DateOnly)
		at[rows[i].Day] = &rows[i]
	}
	for _, one := range hours {
		local := one.At.In(until.Location())
		if day := at[local.Format(time.DateOnly)]; day != nil {
			day.Hours[local.Hour()].add(one)
		}
	}
	return rows
}

func (h *HeatHour) add(one view.HourStatistics) {
	if h.From.IsZero() {
		h.From = one.At
	}
	h.To = one.At.Add(time.Hour - time.Millisecond)
	total := int64(0)
	for _, n := range one.Runs {
		total += n
	}
	good, off := DayRow{DayStatistics: view.DayStatistics{Runs: one.Runs}}.counts()
	h.Total, h.Failed, h.Skipped, h.Missed = h.Total+total, h.Failed+total-good-off, h.Skipped+one.Runs["skipped"], h.Missed+one.Misfires
}

// Tone is the look of the worst that happened in the hour.
func (h HeatHour) Tone() string {
	switch {
	case h.Failed > 0:
		return "bad"
	case h.Missed > 0:
		return "warn"
	case h.Skipped > 0:
		return "off"
	}
	return "good"
}

// Sum returns the counts of all hours.
func (m HeatMap) Sum() (all HeatHour) {
	for _, day := range m {
		for _, h := range day.Hours {
			all.Total, all.Failed, all.Skipped, all.Missed = all.Total+h.Total, all.Failed+h.Failed, all.Skipped+h.Skipped, all.Missed+h.Missed
		}
	}
	return all
}
