package kit

import (
	"math"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// RowsChart is a picture of past and planned events over time: a row for each job.
type RowsChart struct {
	Width, Height int
	Ticks         []tick
	// Now is the position of the line of the present, below 0 if it is outside of the picture.
	Now  float64
	Rows []chartRow
}

type chartRow struct {
	Y           float64
	Label, Link string
	Marks       []rowMark
	// More means that the row has more marks than are drawn.
	More bool
}

// rowMark is one run, misfire or planned fire. Shape is the name of its mark, as in the strip of a trigger.
type rowMark struct {
	X                  float64 // of the left edge of the mark, whose middle is at its time
	From, Width        float64 // of an event with a length; Width is 0 if the mark covers it
	Shape, Title, Link string
}

// RowEvent is something to draw in a row; To is zero for an event without a length.
type RowEvent struct {
	From, To           time.Time
	Shape, Title, Link string
}

// The size of rows: a mark is a target of at least 24 units.
const (
	RowsWidth = 960
	rowHeight = 28
	markWidth = 24
)

// NewRows draws rows over a span of time. Add adds the rows.
func NewRows(axis Span, zone *time.Location, now time.Time) RowsChart {
	c := RowsChart{Width: RowsWidth, Ticks: axis.ticks(zone, 12, RowsWidth), Now: -1}
	if !now.Before(axis.From) && !now.After(axis.To) {
		c.Now = axis.X(now, RowsWidth)
	}
	return c
}

// Add draws a row under the others.
func (c *RowsChart) Add(axis Span, label, link string, events []RowEvent, more bool) {
	row := chartRow{Y: float64(len(c.Rows) * rowHeight), Label: label, Link: link, More: more}
	for _, e := range events {
		from := axis.X(e.From, RowsWidth)
		mark := rowMark{X: c.place(from, e.Shape == ShapePlanned), From: from, Shape: e.Shape, Title: e.Title, Link: e.Link}
		if !e.To.IsZero() {
			if width := round(axis.X(e.To, RowsWidth) - from); width > markWidth/2 {
				mark.Width = width
			}
		}
		row.Marks = append(row.Marks, mark)
	}
	c.Rows = append(c.Rows, row)
	c.Height = len(c.Rows) * rowHeight
}

// Legend returns the shapes in the chart.
func (c *RowsChart) Legend() []string {
	seen := map[string]bool{}
	for _, row := range c.Rows {
		for _, mark := range row.Marks {
			seen[mark.Shape] = true
		}
	}
	return occurring(seen)
}

// place returns the left edge of a mark whose middle is at a time. Past events end at the line of the present at the
// latest, and planned ones begin there at the earliest.
func (c *RowsChart) place(middle float64, planned bool) float64 {
	x := middle - markWidth/2
	if c.Now >= 0 && planned {
		x = max(x, c.Now)
	} else if c.Now >= 0 {
		x = min(x, c.Now-markWidth)
	}
	return round(min(max(x, 0), RowsWidth-markWidth))
}

// StripChart is the row of the latest and next scheduled times of a trigger.
type StripChart struct {
	Trigger  string
	Timezone string
	Cells    []stripMark
	// From and To are the first and the last time.
	From, To time.Time
	// Incomplete is the reason why there are fewer cells than usual.
	Incomplete string
	// Problem is the reason why there is no strip.
	Problem string
	// Legend are the shapes in the strip, in the order of view.CellKinds.
	Legend []string
}

// stripMark is one cell: a shape, a word and a link to its explanation.
type stripMark struct {
	Shape, Title, Link string
	// Now means that the present is just before the cell.
	Now bool
}

// Shapes of the results of a scheduled time. Each has a word, a form and a color of its own.
const (
	ShapeOK       = "ok"
	ShapeFailed   = "failed"
	ShapeLive     = "live"     // a run that is under way
	ShapeRetrying = "retrying" // a run that is attempted again later, or waits for its host
	ShapeMisfire  = "misfire"
	ShapeSkipped  = "skipped"
	shapeExcluded = "excluded"
	ShapePlanned  = "planned"
	shapeWaiting  = "waiting"
	shapeNone     = "none"
	shapeMissing  = "missing"
)

// Shapes returns all of them, in the order of legends.
func Shapes() []string {
	return []string{
		ShapeOK, ShapeFailed, ShapeRetrying, ShapeLive, ShapeMisfire, ShapeSkipped, shapeExcluded, shapeWaiting, ShapePlanned, shapeNone,
		shapeMissing,
	}
}

// ShapeOfRun returns the shape of a run in a state.
func ShapeOfRun(state run.State) string {
	switch state {
	case run.Succeeded:
		return ShapeOK
	case run.Failed, run.TimedOut, run.Lost:
		return ShapeFailed
	case run.Skipped, run.Cancelled, run.Superseded:
		return ShapeSkipped
	case run.Retrying:
		return ShapeRetrying
	}
	return ShapeLive
}

func shapeOfCell(cell view.StripCell) string {
	switch cell.What {
	case view.CellRun:
		return ShapeOfRun(cell.State)
	case view.CellSkipped:
		return ShapeSkipped
	case view.CellMisfire:
		return ShapeMisfire
	case view.CellExcluded:
		return shapeExcluded
	case view.CellPlanned:
		return ShapePlanned
	case view.CellWaiting:
		return shapeWaiting
	case view.CellNone:
		return shapeNone
	}
	return shapeMissing
}

// NewStrip draws a strip. link returns the page that explains a scheduled time.
func NewStrip(r Reader, strip view.Strip, link func(at time.Time) string) StripChart {
	chart := StripChart{Trigger: strip.Trigger, Timezone: strip.Timezone, Incomplete: strip.Incomplete}
	zone := r.Zone.In(r.Now, strip.Timezone).Location()
	seen := map[string]bool{}
	after := false
	for _, cell := range strip.Cells {
		shape := shapeOfCell(cell)
		seen[shape] = true
		mark := stripMark{
			Shape: shape, Title: titleOfCell(r, cell, shape, zone),
			Link: link(cell.ScheduledAt),
		}
		if future := cell.ScheduledAt.After(strip.Now); future && !after {
			mark.Now, after = true, true
		}
		chart.Cells = append(chart.Cells, mark)
	}
	if n := len(strip.Cells); n > 0 {
		chart.From, chart.To = strip.Cells[0].ScheduledAt, strip.Cells[n-1].ScheduledAt
	}
	chart.Legend = occurring(seen)
	return chart
}

// occurring returns the shapes that occur, in the order of legends.
func occurring(seen map[string]bool) []string {
	return slices.DeleteFunc(Shapes(), func(shape string) bool { return !seen[shape] })
}

// titleOfCell describes a cell in words: when, what, and how late and how long it was.
func titleOfCell(r Reader, cell view.StripCell, shape string, zone *time.Location) string {
	title := cell.ScheduledAt.In(zone).Format(TitleTime)
	if cell.Until != nil {
		title = r.Texts.Text("strip.range", "from", title, "to", cell.Until.In(zone).Format(TitleTime))
	}
	word := r.Texts.Text("strip." + shape)
	if cell.What == view.CellRun && cell.State != "" {
		word = r.Texts.Text("state." + string(cell.State))
	}
	title += ": " + word
	if cell.Class != "" {
		title += ", " + r.Texts.Word("class.", string(cell.Class))
	}
	if cell.Decision != "" {
		title += ", " + r.Texts.Word("state.", string(cell.Decision))
	}
	if cell.Late > 0 {
		title += ", " + r.Texts.Text("strip.late", "duration", r.Texts.Duration(cell.Late))
	}
	if cell.Took > 0 {
		title += ", " + r.Texts.Text("strip.took", "duration", r.Texts.Duration(cell.Took))
	}
	return title
}

// TitleTime is the format of times in marks of charts: in the zone of the page, with its offset.
const TitleTime = "2006-01-02 15:04:05 Z07:00"

// tick is a mark on an axis.
type tick struct {
	At    float64 // in units of the picture
	Label string
	// Offset is that of the zone, on the first mark of an axis and at changes; empty: as on the mark before.
	Offset string
}

// Percent returns the position of the mark on an axis under bars, which CSS scales.
func (t tick) Percent() float64 { return round(100 * t.At / barsWidth) }

// Anchor returns the end of the label that is at the mark, so that the labels at the ends of an axis under bars stay
// within it; empty: its middle.
func (t tick) Anchor() string {
	switch p := t.Percent(); {
	case p < 5:
		return "start"
	case p > 92:
		return "end"
	}
	return ""
}

// Span is the range of a horizontal axis.
type Span struct {
	From, To time.Time
}

// X returns the position of a time on an axis of a width; times outside the span are at its ends.
func (s Span) X(at time.Time, width float64) float64 {
	whole := s.To.Sub(s.From)
	if whole <= 0 {
		return 0
	}
	return round(width * min(max(float64(at.Sub(s.From))/float64(whole), 0), 1))
}

// quarter divides each offset of a zone that is in use, so each possible local time of a tick is a multiple of it.
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
	shown := ""
	for at := s.From.Truncate(unit); !at.After(s.To); at = at.Add(unit) {
		local := at.In(zone)
		sinceMidnight := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute
		onStep := sinceMidnight%step == 0
		if step >= 24*time.Hour { // days count from the first of the year
			onStep = sinceMidnight == 0 && (local.YearDay()-1)%int(step/(24*time.Hour)) == 0
		}
		if at.Before(s.From) || !onStep {
			continue
		}
		label := local.Format(form)
		if sinceMidnight == 0 && step < 24*time.Hour {
			label = local.Format("01-02")
		}
		mark := tick{At: s.X(at, width), Label: label}
		if o := offset(local); o != shown {
			mark.Offset, shown = o, o
		}
		found = append(found, mark)
	}
	return found
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
