package kit

import "time"

// Bars are a picture of values in their order, such as how long the latest runs took.
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

// Bar is a value to draw: Class is that of its state, and Title says in words what it shows.
type Bar struct {
	Value        float64
	Class, Title string
	// At is its time in the zone of the page, for the axis; zero: the axis is made otherwise.
	At time.Time
}

// The size of pictures of bars, in units that CSS scales.
const (
	barsWidth  = 720
	barsHeight = 120
	leastBar   = 2 // a value that is not zero can be seen
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
	if len(values) > 0 && !values[0].At.IsZero() {
		b.Ticks = endTicks(values[0].At, values[len(values)-1].At, barsWidth)
	}
	return b
}
