package access

import (
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Breaks are the jobs that are outside the bounds of their app, or whose endpoint groups are, and the alerts that are. Their
// attempts fail with class bounds, or pass over the endpoints that are outside; the others go on.
type Breaks struct {
	// Count is how many jobs there are, and Jobs are the first of them by name, at most MaxBreaks.
	Count int        `json:"count"`
	Jobs  []BreakJob `json:"jobs"`
	// Alerts are all alerts that are outside, by name: an app has MaxAlerts at most.
	Alerts []BreakAlert `json:"alerts,omitempty"`
}

// MaxBreaks bounds Breaks.Jobs.
const MaxBreaks = 100

// BreakJob is a job and what of it is outside the bounds, with JSON pointers in the job.
type BreakJob struct {
	Job      string          `json:"job"`
	Problems []input.Problem `json:"problems"`
}

// BreakAlert is an alert and what of it is outside the bounds, with JSON pointers in the alert.
type BreakAlert struct {
	Alert    string          `json:"alert"`
	Problems []input.Problem `json:"problems"`
}

// AddAlert notes an alert if its destination is outside the bounds of its app.
func (b *Breaks) AddAlert(alert alert.Alert, bounds target.Bounds) {
	var problems input.Problems
	problems.AddError(target.DestinationAt, bounds.CheckDestination(alert.App, alert.Destination))
	if len(problems) > 0 {
		b.Alerts = append(b.Alerts, BreakAlert{Alert: alert.Name, Problems: problems})
	}
}

// None tells whether nothing is outside.
func (b *Breaks) None() bool { return b == nil || b.Count == 0 && len(b.Alerts) == 0 }

// Add notes a job if it has problems with bounds.
func (b *Breaks) Add(job string, problems input.Problems) {
	if len(problems) == 0 {
		return
	}
	if b.Count++; b.Count <= MaxBreaks {
		b.Jobs = append(b.Jobs, BreakJob{Job: job, Problems: problems})
	}
}
