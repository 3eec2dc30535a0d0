package dispatcher

import "time"

// PreviewRequest asks when a schedule would fire if it were declared at From.
type PreviewRequest struct {
	Schedule
	// App is whose calendars the schedule may name; it is needed for that only.
	App string `json:"app,omitempty"`
	// Identity is what H and jitter hash: app/job/trigger, as for the trigger of that name.
	Identity string `json:"identity,omitempty"`
	// From is exclusive, as the instant of a declaration is; nil means now.
	From *time.Time `json:"from,omitempty"`
	// Count is how many fire times are wanted, 1 to MaxPreview; 0 means DefaultPreview.
	Count int `json:"count,omitempty"`
}

// Bounds of a preview.
const (
	DefaultPreview = 10
	MaxPreview     = 100
)

// SetDefaults gives a decoded request the values of fields that its JSON leaves out.
func (p *PreviewRequest) SetDefaults() { p.Count = DefaultPreview }

// Preview is the response to a PreviewRequest: the schedule with everything that its text
// left to be recognised written out, and its fire times.
type Preview struct {
	Schedule
	From time.Time `json:"from"`
	// FireTimes are fewer than asked for where the schedule ends.
	FireTimes []time.Time `json:"fire_times"`
	// DueTimes say when each of them runs; they are given only where jitter moves them.
	DueTimes []time.Time `json:"due_times,omitempty"`
}

// Validate returns everything wrong with p, as Faults with JSON pointers, or nil. Whether
// its calendar exists is for Preview to judge.
func (p PreviewRequest) Validate() error {
	var problems Problems
	p.Schedule.check(&problems, p.Identity)
	switch {
	case p.App != "":
		CheckName(&problems, "/app", p.App)
	case p.Calendar != "":
		problems.Add("/app", CodeRequired, "app is missing; it says whose calendar %s is", Echo(p.Calendar))
	}
	if p.Jitter > 0 && p.Identity == "" {
		problems.Add("/identity", CodeRequired, "identity is missing; jitter hashes it: write app/job/trigger")
	}
	checkText(&problems, "/identity", p.Identity)
	checkRange(&problems, "/count", p.Count, 1, MaxPreview)
	return problems.Err()
}

// Preview answers a valid p; now stands in for a From that is not given. The error is a
// Fault or Faults.
func (p PreviewRequest) Preview(calendars Calendars, now time.Time) (Preview, error) {
	from := now.UTC().Truncate(time.Millisecond)
	if p.From != nil {
		from = *p.From
	}
	s, err := p.Parse(p.Identity, from, calendars)
	if err != nil {
		var problems Problems
		problems.AddError("", err)
		return Preview{}, problems
	}
	response := Preview{Schedule: p.Schedule, From: from, FireTimes: []time.Time{}}
	response.resolve(s)
	for at, ok := s.Next(from); ok && len(response.FireTimes) < p.Count; at, ok = s.Next(at) {
		response.FireTimes = append(response.FireTimes, at)
		if p.Jitter > 0 {
			response.DueTimes = append(response.DueTimes, at.Add(s.Delay(at)))
		}
	}
	return response, nil
}
