package console

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// jobHealth says in words whether a job does what it should: it is the top of its page. It is told by the latest runs.
type jobHealth struct {
	// Alerts are conditions that hold for the job.
	Alerts kit.Part[client.List[alert.State]]
	// Wait is the host that runs of the job wait for, nil if they wait for none.
	Wait *hostWait
	// Latest is the run that was scheduled last of those that have a result: they are over, or an attempt failed.
	Latest *run.Run
	// Failure is the latest failure, and Success the latest run that succeeded, nil if the latest runs have none.
	Failure, Success *run.Run
	// FailingSince is when the first run was scheduled that failed after the latest success; zero: the latest result is a success.
	FailingSince time.Time
	// Examined is how many runs this is told by.
	Examined int
}

// hostWait is what runs of the job wait for, because the circuit of the host is open.
type hostWait struct {
	Host string
	// Runs is how many of the latest runs wait, and Since when the first of them was scheduled.
	Runs  int
	Since time.Time
	// ProbeAt is when the next of them goes there as a probe, nil if the host responds again.
	ProbeAt *time.Time
}

// alertsOfJob is how many conditions the top of a job's page has.
const alertsOfJob = 10

// addHealth adds what the latest runs, and the alerts, say of the job.
func (p *jobPage) addHealth(v *visit) {
	p.Health = healthOf(p.Runs.Value.Items)
	p.Health.Alerts = kit.ReadPart(v.client.AlertStates(v.Context(), alert.StateQuery{
		App: p.App, Job: p.Name, Firing: true, Page: input.Page{Limit: alertsOfJob},
	}))
	if f := p.Health.Failure; f != nil && f.Class == run.ClassCircuitOpen {
		p.Health.Failure = attempted(v, *f)
	}
}

// attempted returns a run as its latest real attempt left it: a run that is deferred says so in place of how that failed.
func attempted(v *visit, r run.Run) *run.Run {
	found, err := v.client.Run(v.Context(), r.ID)
	if err != nil {
		return &r // what is known says enough
	}
	for _, a := range slices.Backward(found.Attempts) {
		if a.Class != "" && a.Class != run.ClassCircuitOpen {
			found.Class, found.Error, found.StartedAt, found.EndedAt = a.Class, a.Error, &a.StartedAt, &a.EndedAt
			break
		}
	}
	return &found
}

// healthOf returns what runs say, of which the first was scheduled last.
func healthOf(runs []run.Run) jobHealth {
	h := jobHealth{Examined: len(runs)}
	for i := range runs {
		r := &runs[i]
		if r.WaitsFor != "" {
			h.wait(r)
		}
		switch {
		case r.State == run.Succeeded:
			if h.Success == nil {
				h.Success = r
			}
		case hasFailed(r):
			if h.Failure == nil || h.Failure.Attempt == 0 && r.Attempt > 0 && h.Success == nil {
				h.Failure = r // one that was attempted says more than one that waits
			}
			if h.Success == nil {
				h.FailingSince = r.ScheduledAt
			}
		default:
			continue
		}
		if h.Latest == nil {
			h.Latest = r
		}
	}
	return h
}

// hasFailed tells whether a run failed, or whether it goes on because an attempt failed or could not be made.
func hasFailed(r *run.Run) bool {
	return kit.ShapeOfRun(r.State) == kit.ShapeFailed || r.State == run.Retrying && r.Class != ""
}

// wait adds a run that waits for a host.
func (h *jobHealth) wait(run *run.Run) {
	if h.Wait == nil {
		h.Wait = &hostWait{Host: run.WaitsFor, ProbeAt: run.ProbeAt}
	}
	if h.Wait.Host == run.WaitsFor {
		h.Wait.Runs++
		h.Wait.Since = run.ScheduledAt
	}
}

// Wrong tells whether there is anything to look at.
func (h jobHealth) Wrong() bool {
	return !h.FailingSince.IsZero() || h.Wait != nil || len(h.Alerts.Value.Items) > 0 || h.Alerts.Problem != ""
}
