package view

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// StripQuery names a trigger and the number of its scheduled times to return.
type StripQuery struct {
	App, Job, Trigger string
	Past, Next        int
	Now               time.Time
}

// Strip is a row of the latest and the next scheduled times of one trigger, each with its outcome.
type Strip struct {
	App     string `json:"app"`
	Job     string `json:"job"`
	Trigger string `json:"trigger"`
	// Now is the time of the strip by the database's clock. Cells after it are planned.
	Now time.Time `json:"now"`
	// Timezone is the time zone of the trigger's latest revision; empty if it has none, like a fixed delay.
	Timezone string `json:"timezone,omitempty"`
	// Cells are in the order of their scheduled times.
	Cells []StripCell `json:"cells" schema:"max=300"`
	// Incomplete is why there are fewer cells than requested, although the trigger may have more scheduled times;
	// empty if it has no more.
	Incomplete string `json:"incomplete,omitempty"`
}

// StripCell is one scheduled time of a trigger, or several in a row without a run for the same reason.
type StripCell struct {
	ScheduledAt time.Time `json:"scheduled_at"`
	// Until is the last of several times, for a cell in state excluded or none; nil if the cell is one time.
	Until *time.Time `json:"until,omitempty"`
	// What is its outcome, and Why explains it in the words of explain.
	What CellKind `json:"what"`
	// The reason, in the words of explain.
	Why string `json:"why"`
	// Run is the run of the fire; for a misfire, it is the catch-up run. State, Class, Late and Took belong to that
	// run: Late is how long after the time of the cell its first attempt began, and Took is how long the latest took. They
	// are left out until they are known.
	Run string `json:"run,omitempty" schema:"RunID"`
	// State of the run.
	State run.State `json:"state,omitempty"`
	// How its latest attempt failed.
	Class run.Class `json:"class,omitempty"`
	// How late its first attempt began after the time of the cell.
	Late input.Duration `json:"late,omitempty"`
	// How long its latest attempt took.
	Took input.Duration `json:"took,omitempty"`
	// Decision is the decision about a misfire.
	Decision dispatcher.Decision `json:"decision,omitempty" schema:"enum=fire_once|skip"`
	// Revision is the job's revision in force at the time, 0 if there was none.
	Revision int64 `json:"revision,omitempty"`
}

// CellKind is the outcome of a scheduled time.
type CellKind string

// The kinds of cell.
const (
	CellRun      CellKind = "run"      // it has a run, which may be under way
	CellSkipped  CellKind = "skipped"  // its run got no slot and was not attempted
	CellMisfire  CellKind = "misfire"  // a misfire decision covers it
	CellWaiting  CellKind = "waiting"  // it is due, and not yet claimed or settled
	CellPlanned  CellKind = "planned"  // it is in the future
	CellExcluded CellKind = "excluded" // the calendar of the trigger excludes it
	CellNone     CellKind = "none"     // no fire: the trigger was disabled, or daylight saving skips the time
	CellMissing  CellKind = "missing"  // it was scheduled, but is missing in the ledger
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
