package console

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// addCharts draws how long the latest runs took and how late they began, the oldest first. A run that is not over is drawn as far
// as it has come.
func (p *jobPage) addCharts(v *visit) {
	var took, late []bar
	for _, r := range slices.Backward(p.Runs.Value.Items) {
		p.Ended = p.Ended || r.EndedAt != nil
		mark := bar{Class: shapeOfRun(r.State), At: v.zone.in(r.ScheduledAt, p.Zone(r.Trigger))}
		title := mark.At.Format(titleTime) + ": " + v.texts.text("state."+string(r.State))
		draw := func(all []bar, key string, d time.Duration) []bar {
			mark.Value, mark.Title = float64(max(d, 1)), title+", "+v.texts.text(key, "duration", v.texts.duration(d))
			return append(all, mark)
		}
		switch began := beginning(r); {
		case began != nil && r.EndedAt != nil:
			took = draw(took, "strip.took", r.EndedAt.Sub(*began))
		case began != nil && mark.Class == shapeLive:
			took = draw(took, "strip.so_far", v.now.Sub(*began))
		}
		if r.Kind != run.KindSchedule {
			continue
		}
		switch first := firstStart(r); {
		case first != nil:
			late = draw(late, "strip.late", first.Sub(r.ScheduledAt))
		case r.EndedAt == nil && v.now.After(r.ScheduledAt):
			late = draw(late, "strip.not_begun", v.now.Sub(r.ScheduledAt))
		}
	}
	format := func(d time.Duration) string { return v.texts.duration(d) }
	p.Durations, p.Lateness = newDurationBars(took, format), newDurationBars(late, format)
}

// beginning returns when the latest attempt of a run began, nil if none has: one that waits has the time at which it was deferred.
func beginning(run run.Run) *time.Time {
	if run.Attempt == 0 {
		return nil
	}
	return run.StartedAt
}

// firstStart returns when the first attempt of a run began, nil if none has.
func firstStart(run run.Run) *time.Time {
	if run.FirstStartedAt == nil && run.Attempt == 1 {
		return run.StartedAt
	}
	return run.FirstStartedAt
}
