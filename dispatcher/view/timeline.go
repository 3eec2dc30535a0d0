package view

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Timeline is a page of the jobs of an app, each with what happened and what is planned between two times.
type Timeline struct {
	// From and To bound the scheduled times, both inclusive. Now is the time of the page by the database's clock.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Now  time.Time `json:"now"`
	// Step is the width of the stretches into which marks of a crowded row are grouped. They begin at Now, in both
	// directions, so none holds both what happened and what is planned.
	Step  input.Duration `json:"step"`
	Items []TimelineRow  `json:"items"`
	// Next is the cursor of the page after this one, empty for the last.
	Next string `json:"next,omitempty"`
}

// TimelineRow is one job of a timeline.
type TimelineRow struct {
	Job string `json:"job"`
	// Marks are in the order of their times, at most MostTimelineMarks.
	Marks []TimelineMark `json:"marks"`
	// More says that the row does not show everything: of what has run, it has the latest, and those that failed.
	More bool `json:"more,omitempty"`
}

// TimelineMark is a run, a misfire or a planned fire; or several of the same kind and state in one stretch.
type TimelineMark struct {
	What TimelineKind `json:"what"`
	// ScheduledAt is the scheduled time, the first one of several; Last is the last of several, and Count is how many there are.
	// Of one, Count is 1 and Last is nil. A misfire counts its missed fires.
	ScheduledAt time.Time  `json:"scheduled_at"`
	Last        *time.Time `json:"last,omitempty"`
	Count       int        `json:"count"`
	// AtLeast says that there are Count or more: planned fires that are dense are not counted one by one.
	AtLeast bool `json:"at_least,omitempty"`
	// Trigger is empty for several of different triggers, and for a run that belongs to none.
	Trigger string `json:"trigger,omitempty"`
	// Run, Class and Error are of a single run; StartedAt is the first start of several, EndedAt the last end. They are nil until
	// they happen.
	Run       string     `json:"run,omitempty"`
	State     run.State  `json:"state,omitempty"`
	Class     run.Class  `json:"class,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Decision is that about a misfire.
	Decision dispatcher.Decision `json:"decision,omitempty"`
}

// TimelineKind says what a mark of a timeline is.
type TimelineKind string

// The kinds of mark.
const (
	MarkRun     TimelineKind = "run"
	MarkMisfire TimelineKind = "misfire"
	MarkPlanned TimelineKind = "planned"
)

// TimelineKinds are all kinds of mark.
var TimelineKinds = []TimelineKind{MarkRun, MarkMisfire, MarkPlanned}

// TimelineQuery selects jobs of an app and a time.
type TimelineQuery struct {
	App string
	// Job is the only one that is wanted; empty: all.
	Job      string
	From, To time.Time
	Page     input.Page // by name, at most MostTimelineRows
	Now      time.Time
}

// Timelines show what happened to the jobs of an app and what is planned.
type Timelines interface {
	// Timeline returns ErrNotFound if there is no such app, or no such job of a query that names one.
	Timeline(ctx context.Context, query TimelineQuery) (Timeline, error)
}

// Bounds of a timeline.
const (
	MostTimeline      = 48 * time.Hour
	MostTimelineRows  = 50
	MostTimelineMarks = 200
)
