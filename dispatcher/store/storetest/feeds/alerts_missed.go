package feeds

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// missedTests are the tests of alerts for missed fires.
func missedTests() tests {
	return tests{
		"missed fires and their end are notified":                            testAlertMissed,
		"fires that no node serves are notified as late and missed":          testAlertUnserved,
		"a fire that no node serves and that is caught up is never missed":   testAlertUnservedFireAll,
		"missed fires of a schedule that has ended are resolved after a day": testAlertMissedLast,
		"a success after the last fire was missed resolves it":               testAlertMissedLastRepeated,
		"missed fires of a job that is disabled are resolved":                testAlertMissedDisabled,
		"missed fires of a job that has no triggers any more are resolved":   testAlertMissedWithoutTriggers,
		"missed fires of a job that fires again later are not resolved":      testAlertMissedLater,
		"fires that a pause has held are not notified as missed":             testAlertMissedByPause,
	}
}

// missedAlert puts an alert for missed fires.
func (f *wing) missedAlert(change func(*alert.Alert)) {
	f.Helper()
	a := fixture.Pager("night")
	a.AlertConditionsOf = alert.AlertConditionsOf{Missed: true}
	if change != nil {
		change(&a)
	}
	f.DeclareAlert(a, fixture.T0)
}

// settle settles the due fire of a job's trigger, and those after it each minute up to the last, as missed.
func (f *wing) settle(name string, until time.Time, last int) {
	f.Helper()
	f.settleOf(fixture.NodeA, run.JobID("shop", name), until, last)
}

// settleOf does so on a node for a job of any app.
func (f *wing) settleOf(node run.NodeID, job int64, until time.Time, last int) {
	f.Helper()
	for _, due := range f.DueAll(until) {
		advance := f.Advance(due)
		if advance.JobID != job {
			continue
		}
		if !advance.Then.IsZero() {
			advance.Then = fixture.Minutes(last + 1)
			advance.ThenDue = advance.Then
		}
		won, err := f.Settle(f.Context(), dispatcher.SettleBatch{Node: node, Token: f.NextToken(), Now: until,
			Settlements: []dispatcher.Settlement{{Advance: advance, To: fixture.Minutes(last), Count: last,
				Decision: dispatcher.DecisionSkip, Reason: "no node"}}})
		f.Must(won, err)
		f.FollowAll(until)
		return
	}
	f.Fatalf("no trigger of job %d is due", job)
}

func testAlertMissed(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.missedAlert(nil)
	f.settle("sync", fixture.Minutes(10), 10)
	f.Expect("what is told", f.told("night"), "sync missed firing")
	n := f.notifications("night")[0]
	f.Expect("which trigger missed them", n.Trigger, "tick")
	f.Expect("what is told in words", n.Title(), "Job shop/sync missed 10 fires: no node")
	f.Ends("sync", run.Failed)
	f.Expect("what is told once fires run", f.told("night"), "sync missed firing, sync missed resolved")
	ended := f.notifications("night")[1]
	f.Expect("what the end says, which overtakes the beginning", ended.Title(), "Job shop/sync missed 10 fires, and misses no more")
	f.Expect("since when they were missed", ended.Since, n.Since)
}

// unserved puts jobs that fire each minute and require a label that no node has; one of them is paused.
func (f *wing) unserved(policy dispatcher.MisfirePolicy) {
	f.Helper()
	for _, name := range []string{"sync", "paused"} {
		trigger := fixture.Every(time.Minute, fixture.Minutes(1))
		trigger.MisfirePolicy = policy
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": trigger})
		j.NodeLabels = input.Labels{"disk": "ssd"}
		f.Put(j, fixture.T0)
	}
	f.Must(f.PauseJob(f.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
}

func testAlertUnserved(_ *testing.T, f *wing) {
	f.unserved(dispatcher.Skip)
	f.missedAlert(func(a *alert.Alert) { a.LateAfter = input.Duration(10 * time.Second) })
	due := fixture.Minutes(1)
	f.Expect("notifications in time", f.watch(due.Add(10*time.Second)), 0)
	f.Expect("notifications once the fire is late", f.watch(due.Add(11*time.Second)), 1)
	f.Expect("notifications until it counts as missed", f.watch(due.Add(time.Minute)), 0)
	f.Expect("notifications then", f.watch(due.Add(time.Minute+time.Second)), 1)
	f.Expect("notifications later", f.watch(due.Add(time.Hour)), 0)
	f.Expect("what is told", f.told("night"), "sync late firing, sync missed firing")
	var titles []string
	for _, n := range f.notifications("night") {
		titles = append(titles, n.Title())
	}
	const why = "no live node has the labels that its job requires"
	f.Expect("why", titles, []string{"Job shop/sync is late by 11s: " + why, "Job shop/sync missed a fire: " + why})

	back := fixture.Minutes(70)
	f.Must(f.Register(f.Context(), dispatcher.Node{ID: fixture.NodeB, Labels: input.Labels{"disk": "ssd"}}, back))
	f.settleOf(fixture.NodeB, run.JobID("shop", "sync"), back, 70)
	states, err := f.AlertStates(f.Context(), alert.StateQuery{App: "shop", Firing: true, Now: back, Page: input.Page{Limit: 9}})
	f.Must(err)
	for _, s := range states {
		if s.Condition == "missed" {
			f.Expect("how many were missed", s.Count, 70)
		}
	}
	f.watch(back)
	f.Expect("what holds once they are settled", f.firing(), "sync missed")
}

func testAlertUnservedFireAll(_ *testing.T, f *wing) {
	f.unserved(dispatcher.FireAll)
	f.missedAlert(nil)
	f.Expect("notifications", f.watch(fixture.Minutes(60)), 0)
}

// putLast stores the job "sync" with one fire, a minute after T0, which is missed.
func (f *wing) putLast() {
	f.Helper()
	j := fixture.Job("sync", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Hour, fixture.Minutes(1))})
	trigger := j.Triggers["tick"]
	trigger.EndAt = new(fixture.Minutes(2))
	j.Triggers["tick"] = trigger
	f.Put(j, fixture.T0)
	f.missedAlert(nil)
	f.settle("sync", fixture.Minutes(10), 1)
	f.Expect("what holds", f.firing(), "sync missed")
}

func testAlertMissedLast(_ *testing.T, f *wing) {
	f.putLast()
	f.Expect("notifications within a day", f.watch(fixture.Minutes(24*60)), 0)
	f.Expect("notifications after it", f.watch(fixture.Minutes(25*60)), 1)
	f.Expect("what is told", f.told("night"), "sync missed firing, sync missed resolved")
	all := f.notifications("night")
	f.Expect("why it ended", all[len(all)-1].Reason, "no fire of the job is to come")
	f.Expect("what holds", f.firing(), "")
}

func testAlertMissedLastRepeated(_ *testing.T, f *wing) {
	f.putLast()
	key := f.Requested("sync")
	for _, held := range f.AdoptIdle(fixture.NodeA, fixture.Minutes(30)) {
		if held.Key == key {
			f.RecordFollowed(held, fixture.Ended(run.Succeeded, fixture.Minutes(30)))
		}
	}
	f.FollowAll(fixture.Minutes(31))
	f.Expect("notifications after a success", f.watch(fixture.Minutes(45)), 1)
	f.Expect("what holds", f.firing(), "")
}

func testAlertMissedDisabled(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.missedAlert(nil)
	f.settle("sync", fixture.Minutes(10), 10)
	j := fixture.Job("sync", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1))})
	j.Enabled = false
	f.Put(j, fixture.Minutes(11))
	f.Expect("notifications once it is disabled", f.watch(fixture.Minutes(25)), 1)
	f.Expect("what holds", f.firing(), "")
}

func testAlertMissedWithoutTriggers(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.missedAlert(nil)
	f.settle("sync", fixture.Minutes(10), 10)
	f.Put(fixture.Job("sync", nil), fixture.Minutes(11))
	f.Expect("notifications once it has no triggers", f.watch(fixture.Minutes(25)), 1)
	f.Expect("what holds", f.firing(), "")
}

func testAlertMissedLater(_ *testing.T, f *wing) {
	f.Watched("sync", nil)
	f.missedAlert(nil)
	f.settle("sync", fixture.Minutes(10), 10)
	f.Expect("notifications two days later", f.watch(fixture.Minutes(2*24*60)), 0)
	f.Expect("what holds", f.firing(), "sync missed")
}

// pause is what holds the fires of the job "sync" of an app for some minutes.
type pause struct {
	trigger  string // of a pause of the job or a trigger
	app      bool
	labels   input.Labels
	off      *access.AppSpec // the app is switched to it, and no pause
	from, to int             // minutes after T0
	id       string          // of the pause of the app
}

// hold begins or ends p.
func (f *wing) hold(p *pause, app string, begins bool, at input.Change) {
	f.Helper()
	switch {
	case p.off != nil && begins:
		f.Must(f.PutApp(f.Context(), access.App{Name: app, AppSpec: *p.off}, fixture.Operator(at.Now)))
	case p.off != nil:
		on := access.AppSpec{Enabled: true, Bounds: &target.Bounds{}}
		f.Must(f.PutApp(f.Context(), access.App{Name: app, AppSpec: on}, fixture.Operator(at.Now)))
	case p.app && begins:
		stored, err := f.PauseApp(f.Context(), app, dispatcher.AppPauseRequest{Labels: p.labels}, at)
		f.Must(err)
		p.id = stored.ID
	case p.app:
		f.Must(f.EndAppPause(f.Context(), app, p.id, at))
	default:
		f.Must(f.PauseJob(f.Context(), app, "sync", p.trigger, begins, at))
	}
}

// testAlertMissedByPause: operators who hold fires know that they do not run. They are told of fires that were missed
// before the pause, or too long after it.
func testAlertMissedByPause(_ *testing.T, f *wing) {
	ofJob, held := pause{from: 0, to: 10}, input.Labels{"team": "x"}
	disabled, suspended := &access.AppSpec{}, &access.AppSpec{Enabled: true, Bounds: &target.Bounds{Suspended: true}}
	for name, tt := range map[string]struct {
		pauses []pause
		edited int
		last   int // missed fire, in minutes after T0
		want   string
	}{
		"none":                     {last: 10, want: "missed"},
		"job":                      {pauses: []pause{ofJob}, last: 10},
		"job-changed":              {pauses: []pause{ofJob}, edited: 5, last: 10},
		"trigger":                  {pauses: []pause{{trigger: "tick", to: 10}}, last: 10},
		"app":                      {pauses: []pause{{app: true, to: 10}}, last: 10},
		"app-labels":               {pauses: []pause{{app: true, labels: held, to: 10}}, last: 10},
		"app-other-labels":         {pauses: []pause{{app: true, labels: input.Labels{"team": "y"}, to: 10}}, last: 10, want: "missed"},
		"job-then-app":             {pauses: []pause{{to: 5}, {app: true, from: 3, to: 10}}, last: 10},
		"job-then-nothing":         {pauses: []pause{{to: 3}, {app: true, from: 6, to: 10}}, last: 10, want: "missed"},
		"within-misfire-after":     {pauses: []pause{ofJob}, last: 11},
		"outage-after":             {pauses: []pause{ofJob}, last: 12, want: "missed"},
		"outage-before":            {pauses: []pause{{from: 2, to: 10}}, last: 10, want: "missed"},
		"an-earlier-one":           {pauses: []pause{{from: 0, to: 0}}, last: 10, want: "missed"},
		"outage-before-and-of-app": {pauses: []pause{{app: true, from: 2, to: 10}}, last: 10, want: "missed"},
		"disabled":                 {pauses: []pause{{off: disabled, to: 10}}, last: 10},
		"suspended":                {pauses: []pause{{off: suspended, to: 10}}, last: 10},
		"disabled-then-job":        {pauses: []pause{{off: disabled, to: 5}, {from: 3, to: 10}}, last: 10},
		"job-then-disabled":        {pauses: []pause{{to: 5}, {off: disabled, from: 3, to: 10}}, last: 10},
		"disabled-twice":           {pauses: []pause{{off: disabled, to: 3}, {off: disabled, from: 6, to: 10}}, last: 10, want: "missed"},
		"outage-after-disabled":    {pauses: []pause{{off: disabled, to: 10}}, last: 12, want: "missed"},
		"outage-before-disabled":   {pauses: []pause{{off: disabled, from: 2, to: 10}}, last: 10, want: "missed"},
	} {
		app := "of-" + name
		f.DeclareApp(app)
		j := fixture.Job("sync", map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1))})
		j.App, j.Labels = app, held
		f.Must(f.PutJob(f.Context(), j, fixture.At(fixture.T0)))
		a := fixture.Pager("night")
		a.App, a.AlertConditionsOf = app, alert.AlertConditionsOf{Missed: true}
		f.Must(f.PutAlert(f.Context(), a, fixture.At(fixture.T0)))
		for minute := range 15 {
			at := fixture.At(fixture.Minutes(minute))
			for i := range tt.pauses {
				if p := &tt.pauses[i]; p.from == minute {
					f.hold(p, app, true, at)
				}
				if p := &tt.pauses[i]; p.to == minute {
					f.hold(p, app, false, at)
				}
			}
			if tt.edited == minute && minute > 0 {
				j.Description = "changed"
				f.Must(f.PutJob(f.Context(), j, at))
			}
		}
		f.settleOf(fixture.NodeA, run.JobID(app, "sync"), fixture.Minutes(15), tt.last)
		states, err := f.AlertStates(f.Context(), alert.StateQuery{App: app, Firing: true, Now: fixture.T0, Page: input.Page{Limit: 9}})
		f.Must(err)
		got := ""
		for _, s := range states {
			got = string(s.Condition)
		}
		f.Expect(name+": what holds", got, tt.want)
		misfires, err := f.Misfires(f.Context(), dispatcher.RunQuery{App: app, Page: input.Page{Limit: 9}})
		f.Must(err)
		f.Expect(name+": misfires in the ledger", len(misfires) > 0, true)
	}
}
