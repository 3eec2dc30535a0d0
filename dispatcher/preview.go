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

// Preview is the answer to a PreviewRequest: the schedule with everything that its text
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
	var faults Faults
	p.Schedule.check(&faults, p.Identity)
	switch {
	case p.App != "":
		CheckName(&faults, "/app", p.App)
	case p.Calendar != "":
		faults.Add("/app", CodeRequired, "app is missing; it says whose calendar %s is", Echo(p.Calendar))
	}
	if p.Jitter > 0 && p.Identity == "" {
		faults.Add("/identity", CodeRequired, "identity is missing; jitter hashes it: write app/job/trigger")
	}
	checkText(&faults, "/identity", p.Identity)
	checkRange(&faults, "/count", p.Count, 1, MaxPreview)
	return faults.Err()
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
		var faults Faults
		faults.AddError("", err)
		return Preview{}, faults
	}
	answer := Preview{Schedule: p.Schedule, From: from, FireTimes: []time.Time{}}
	answer.resolve(s)
	for at, ok := s.Next(from); ok && len(answer.FireTimes) < p.Count; at, ok = s.Next(at) {
		answer.FireTimes = append(answer.FireTimes, at)
		if p.Jitter > 0 {
			answer.DueTimes = append(answer.DueTimes, at.Add(s.Delay(at)))
		}
	}
	return answer, nil
}
