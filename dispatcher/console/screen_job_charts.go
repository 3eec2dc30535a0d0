package console

import (
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// addCharts draws how long the latest runs took and how late they began, the oldest first. A run that is not over is drawn as far
// as it has come.
func (p *jobPage) addCharts(v *visit) {
	var took, late []kit.Bar
	for _, r := range slices.Backward(p.Runs.Value.Items) {
		p.Ended = p.Ended || r.EndedAt != nil
		mark := kit.Bar{Class: kit.ShapeOfRun(r.State), At: v.Zone.In(r.ScheduledAt, p.Zone(r.Trigger))}
		title := mark.At.Format(kit.TitleTime) + ": " + v.Texts.Text("state."+string(r.State))
		draw := func(all []kit.Bar, key string, d time.Duration) []kit.Bar {
			mark.Value, mark.Title = float64(max(d, 1)), title+", "+v.Texts.Text(key, "duration", v.Texts.Duration(d))
			return append(all, mark)
		}
		switch began := beginning(r); {
		case began != nil && r.EndedAt != nil:
			took = draw(took, "strip.took", r.EndedAt.Sub(*began))
		case began != nil && mark.Class == kit.ShapeLive:
			took = draw(took, "strip.so_far", v.Now.Sub(*began))
		}
		if r.Kind != run.KindSchedule {
			continue
		}
		switch first := firstStart(r); {
		case first != nil:
			late = draw(late, "strip.late", first.Sub(r.ScheduledAt))
		case r.EndedAt == nil && v.Now.After(r.ScheduledAt):
			late = draw(late, "strip.not_begun", v.Now.Sub(r.ScheduledAt))
		}
	}
	format := func(d time.Duration) string { return v.Texts.Duration(d) }
	p.Durations, p.Lateness = kit.NewDurationBars(took, format), kit.NewDurationBars(late, format)
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
