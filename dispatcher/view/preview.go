package view

import (
	"context"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// PreviewRequest asks when a schedule would fire if it were declared at From.
type PreviewRequest struct {
	dispatcher.Schedule
	// App is the app of the calendar that the schedule names; needed only for that.
	App string `json:"app,omitempty" schema:"Name"`
	// Identity is the name that H and jitter hash: app/job/trigger, as for the trigger of that name.
	Identity string `json:"identity,omitempty"`
	// From is exclusive, like the instant of a declaration; nil means now.
	From *time.Time `json:"from,omitempty"`
	// Count is the number of requested fire times, 1 to MaxPreview; 0 means DefaultPreview.
	Count int `json:"count,omitempty" schema:"max=100,min=1"`
}

// Bounds of a preview.
const (
	DefaultPreview = 10
	MaxPreview     = 100
	// previewSteps bounds the cost of a preview to a few milliseconds. A hundred fires of an hourly schedule on leap
	// days only take half of it.
	previewSteps = 8 * schedule.StepsPerSearch
)

// SetDefaults gives a decoded request the values of fields that its JSON leaves out.
func (p *PreviewRequest) SetDefaults() { p.Count = DefaultPreview }

// Preview is the response to a PreviewRequest: the schedule with everything that was recognised or
// defaulted written out, and its fire times.
type Preview struct {
	dispatcher.Schedule
	From time.Time `json:"from"`
	// FireTimes are fewer than Count if the schedule ends.
	FireTimes []time.Time `json:"fire_times" schema:"Instant"`
	// DueTimes are when each of them runs; given only if jitter moves them.
	DueTimes []time.Time `json:"due_times,omitempty" schema:"Instant"`
}

// Validate returns everything wrong with p, as Problems with JSON pointers, or nil. Preview
// checks whether its calendar exists.
func (p PreviewRequest) Validate() error {
	var problems input.Problems
	p.Schedule.Check(&problems, p.Identity)
	switch {
	case p.App != "":
		input.CheckName(&problems, "/app", p.App)
	case p.Calendar != "":
		problems.Add("/app", input.CodeRequired, "app is missing; it says whose calendar %s is", input.Echo(p.Calendar))
	}
	if p.Jitter > 0 && p.Identity == "" {
		problems.Add("/identity", input.CodeRequired, "identity is missing; jitter hashes it: write app/job/trigger")
	}
	input.CheckText(&problems, "/identity", p.Identity)
	input.CheckRange(&problems, "/count", p.Count, 1, MaxPreview)
	return problems.Err()
}

// Preview returns the preview of a valid p; now is the default of From. The error is a *Problem,
// Problems, or the cause why ctx has ended.
func (p PreviewRequest) Preview(ctx context.Context, calendars dispatcher.Calendars, now time.Time) (Preview, error) {
	from := now.UTC().Truncate(time.Millisecond)
	if p.From != nil {
		from = *p.From
	}
	s, err := p.Parse(p.Identity, from, calendars)
	if err != nil {
		var problems input.Problems
		problems.AddError("", err)
		return Preview{}, problems
	}
	response := Preview{Schedule: p.Schedule, From: from, FireTimes: []time.Time{}}
	response.Resolve(s)
	found, err := s.BetweenWithin(schedule.NewBudget(ctx, previewSteps), from, dispatcher.EndOfTime, p.Count)
	if ctx.Err() != nil {
		return Preview{}, context.Cause(ctx)
	}
	if err != nil {
		var problems input.Problems
		problems.AddError("", err)
		return Preview{}, problems
	}
	response.FireTimes = append(response.FireTimes, found...)
	for _, at := range found {
		if p.Jitter > 0 {
			response.DueTimes = append(response.DueTimes, at.Add(s.Delay(at)))
		}
	}
	return response, nil
}
