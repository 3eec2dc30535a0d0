package dispatcher

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// PreviewSchedule is the schedule of a trigger, alone. Its fields mean what those of Trigger do.
type PreviewSchedule struct {
	Expression  string           `json:"expression"`
	Dialect     schedule.Dialect `json:"dialect"`
	Timezone    string           `json:"timezone"`
	StartAt     *time.Time       `json:"start_at,omitempty"`
	EndAt       *time.Time       `json:"end_at,omitempty"`
	RepeatCount int              `json:"repeat_count,omitempty"`
	Gap         schedule.Gap     `json:"gap"`
	Overlap     schedule.Overlap `json:"overlap"`
}

// PreviewRequest asks when a schedule would fire if it were declared at From.
type PreviewRequest struct {
	PreviewSchedule
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
	PreviewSchedule
	From time.Time `json:"from"`
	// FireTimes are fewer than asked for where the schedule ends.
	FireTimes []time.Time `json:"fire_times"`
}

// Validate returns everything wrong with p, as Faults with JSON pointers, or nil.
func (p PreviewRequest) Validate() error {
	var faults Faults
	checkSchedule(&faults, p.spec(time.Time{}))
	if p.Count < 1 || p.Count > MaxPreview {
		faults.Add("/count", CodeCountRange, "count %d is not in 1 to %d", p.Count, MaxPreview)
	}
	return faults.Err()
}

// Preview answers a valid p; now stands in for a From that is not given.
func (p PreviewRequest) Preview(now time.Time) (Preview, error) {
	from := now.UTC().Truncate(time.Millisecond)
	if p.From != nil {
		from = *p.From
	}
	s, err := schedule.Parse(p.spec(from))
	if err != nil {
		return Preview{}, err
	}
	resolved := s.Spec()
	answer := Preview{PreviewSchedule: p.PreviewSchedule, From: from, FireTimes: []time.Time{}}
	answer.Dialect, answer.Timezone, answer.Gap, answer.Overlap = resolved.Dialect, resolved.Timezone, resolved.Gap, resolved.Overlap
	for at, ok := s.Next(from); ok && len(answer.FireTimes) < p.Count; at, ok = s.Next(at) {
		answer.FireTimes = append(answer.FireTimes, at)
	}
	return answer, nil
}

// spec is Trigger.Spec: a preview is a trigger declared at anchor.
func (p PreviewRequest) spec(anchor time.Time) schedule.Spec {
	return Trigger{
		Expression: p.Expression, Dialect: p.Dialect, Timezone: p.Timezone, StartAt: p.StartAt, EndAt: p.EndAt,
		RepeatCount: p.RepeatCount, Gap: p.Gap, Overlap: p.Overlap, AnchorAt: anchor,
	}.Spec()
}
