package main

import (
	"encoding/json"
	"io"
	"math"
	"slices"
	"time"
)

// figure is one measurement of both databases. young is nil if the young database has nothing to compare.
type figure struct {
	Name  string   `json:"figure"`
	Unit  string   `json:"unit"`
	Old   float64  `json:"old"`
	Young *float64 `json:"young,omitempty"`
	// Ratio is old to young. For costs it is the median of the rounds' ratios.
	Ratio *float64 `json:"ratio,omitempty"`
}

// figures are all measurements, in order.
type figures []figure

// add adds a figure of the old database alone.
func (f *figures) add(name, unit string, old float64) {
	*f = append(*f, figure{Name: name, Unit: unit, Old: rounded(old)})
}

// compare adds a figure of both databases.
func (f *figures) compare(name, unit string, old, young float64) {
	one := figure{Name: name, Unit: unit, Old: rounded(old), Young: some(rounded(young))}
	if young > 0 {
		one.Ratio = some(rounded(old / young))
	}
	*f = append(*f, one)
}

// inTurns adds the medians of values that were measured in turns, and the median of their ratios.
func (f *figures) inTurns(name, unit string, old, young []float64) {
	ratios := make([]float64, 0, len(old))
	for i := range min(len(old), len(young)) {
		if young[i] > 0 {
			ratios = append(ratios, old[i]/young[i])
		}
	}
	f.compare(name, unit, median(old), median(young))
	if len(ratios) > 0 {
		(*f)[len(*f)-1].Ratio = some(rounded(median(ratios)))
	}
}

// find returns the figure with a name.
func (f figures) find(name string) (figure, bool) {
	i := slices.IndexFunc(f, func(one figure) bool { return one.Name == name })
	if i < 0 {
		return figure{}, false
	}
	return f[i], true
}

// write writes one figure per line.
func write(w io.Writer, all figures) error {
	encoder := json.NewEncoder(w)
	for _, one := range all {
		if err := encoder.Encode(one); err != nil {
			return err
		}
	}
	return nil
}

func some[T any](value T) *T { return &value }

// rounded keeps four digits, because more would have no meaning.
func rounded(value float64) float64 {
	if value == 0 || math.IsNaN(value) || math.IsInf(value, 0) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(value))))
	return math.Round(value*scale) / scale
}

// median returns the middle value, or 0 without values.
func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the value below which that share of all values lies, or 0 without values.
func quantile(values []float64, share float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
