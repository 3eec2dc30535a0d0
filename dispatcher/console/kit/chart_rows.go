package kit

import "time"

// RowsChart is a picture of what happened, and what is planned, over time: a row for each job.
type RowsChart struct {
	Width, Height int
	Ticks         []tick
	// Now is where the line of the present is, below 0 if it is not in the picture.
	Now  float64
	Rows []chartRow
}

// chartRow is one job.
type chartRow struct {
	Y           float64
	Label, Link string
	Marks       []rowMark
	// More tells that the row has more marks than are drawn.
	More bool
}

// rowMark is one run, misfire or planned fire. Shape is the name of its mark, as in the strip of a trigger.
type rowMark struct {
	X                  float64 // of the left edge of the mark, whose middle is at its time
	From, Width        float64 // of what has a length; Width is 0 if the mark covers it
	Shape, Title, Link string
}

// RowEvent is something to draw in a row; To is zero for what has no length.
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

// NewRows draws rows over a span of time. Rows are added with add.
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

// Legend returns the shapes that occur.
func (c *RowsChart) Legend() []string {
	seen := map[string]bool{}
	for _, row := range c.Rows {
		for _, mark := range row.Marks {
			seen[mark.Shape] = true
		}
	}
	return occurring(seen)
}

// place returns the left edge of a mark whose middle is at a time. What has happened ends at the line of the present at the latest,
// and what is planned begins there at the earliest.
func (c *RowsChart) place(middle float64, planned bool) float64 {
	x := middle - markWidth/2
	if c.Now >= 0 && planned {
		x = max(x, c.Now)
	} else if c.Now >= 0 {
		x = min(x, c.Now-markWidth)
	}
	return round(min(max(x, 0), RowsWidth-markWidth))
}
