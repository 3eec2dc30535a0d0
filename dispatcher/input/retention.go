package input

import "time"

// Bounds and default of App.Retention. History is removed by whole days, so
// less than a day could not be kept.
const (
	MinRetention     = 24 * time.Hour
	MaxRetention     = 10 * 365 * 24 * time.Hour
	DefaultRetention = Duration(30 * 24 * time.Hour)
)
