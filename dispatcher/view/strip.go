package view

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// StripQuery names a trigger and how many of its scheduled times are wanted.
type StripQuery struct {
	App, Job, Trigger string
	Past, Next        int
	Now               time.Time
}

// Strip is a row of the latest and the next scheduled times of one trigger, each with what became of it.
type Strip struct {
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// Now is the time of the strip by the database's clock. Cells after it are planned.
	Now time.Time `json:"now"`
	// Timezone is that of the trigger's latest revision; empty: it has none, as a fixed delay.
	Timezone string `json:"timezone,omitempty"`
	// Cells are in the order of their scheduled times.
	Cells []StripCell `json:"cells" schema:"max=300"`
	// Incomplete says why there are fewer cells than were asked for, although the trigger may have more scheduled times; empty:
	// it has none.
	Incomplete string `json:"incomplete,omitempty"`
}

// StripCell is one scheduled time of a trigger, or several in a row at which nothing was to run for the same reason.
type StripCell struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	// Until is the last of several times, of a cell in state excluded or none; nil: the cell is one time.
	Until *time.Time `json:"until,omitempty"`
	// What became of it, and Why in words: the reason that explain gives.
	What CellKind `json:"what"`
	// The reason that explain gives.
	Why string `json:"why"`
	// Run is the run of the fire. Of a misfire, it is the catch-up run that stands for it. State, Class, Late and Took are its
	// own: how late its latest attempt began after the scheduled time, and how long that took. They are left out until they
	// are known.
	Run string `json:"run,omitempty" schema:"RunID"`
	// State of the run.
	State run.State `json:"state,omitempty"`
	// How its latest attempt failed.
	Class run.Class `json:"class,omitempty"`
	// How late its latest attempt began after its scheduled time.
	Late input.Duration `json:"late,omitempty"`
	// How long that took.
	Took input.Duration `json:"took,omitempty"`
	// Decision is that about a misfire.
	Decision dispatcher.Decision `json:"decision,omitempty" schema:"enum=fire_once|skip"`
	// Revision is that of the job in force at the time, 0 if there was none.
	Revision int64 `json:"revision,omitempty"`
}

// CellKind says what became of a scheduled time.
type CellKind string

// The kinds of cell.
const (
	CellRun      CellKind = "run"      // it has a run, which may be under way
	CellSkipped  CellKind = "skipped"  // its run got no slot and was not attempted
	CellMisfire  CellKind = "misfire"  // a misfire decision covers it
	CellWaiting  CellKind = "waiting"  // it is due, and not yet claimed or settled
	CellPlanned  CellKind = "planned"  // it is in the future
	CellExcluded CellKind = "excluded" // the calendar of the trigger excludes it
	CellNone     CellKind = "none"     // nothing was to run: the trigger was disabled, or daylight saving skips the time
	CellMissing  CellKind = "missing"  // it was scheduled, but the ledger has nothing about it
	CellUnknown  CellKind = "unknown"  // its schedule cannot be evaluated
)

// CellKinds are all kinds of cell.
var CellKinds = []CellKind{
	CellRun, CellSkipped, CellMisfire, CellWaiting, CellPlanned, CellExcluded, CellNone, CellMissing, CellUnknown,
}

// Bounds of a strip.
const (
	DefaultStripPast = 60
	MostStripPast    = 200
	DefaultStripNext = 20
	MostStripNext    = 100
)
