package reads

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// life is a job with a definition that changes at random between its fires.
type life struct {
	*wing
	r    *rapid.T
	now  time.Time
	job  dispatcher.Job
	gone bool
}

// testVerifyModel runs time, fires, misfires and changes of the definition in random order: verify always explains
// every instant.
func testVerifyModel(t *testing.T, f *wing) {
	f.DeclareCalendar(fixture.Closed("12-24"), fixture.T0)
	born := 0
	rapid.Check(t, func(r *rapid.T) {
		born++
		l := &life{wing: f, r: r, now: fixture.T0, job: fixture.Job(fmt.Sprintf("job-%d", born),
			map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.T0)})}
		l.put()
		steps := map[string]func(){
			"wait": func() {
				l.now = l.now.Add(time.Duration(rapid.Int64Range(1, 150_000).Draw(r, "ms")) * time.Millisecond)
			},
			"fire":  func() { l.fire(2 * time.Second) },
			"miss":  l.miss,
			"edit":  l.edit,
			"on":    func() { l.set(func(t *dispatcher.Trigger) { t.Enabled = !t.Enabled }) },
			"pause": func() { l.pause(rapid.Bool().Draw(r, "paused")) },
			"delete": func() {
				if !l.gone {
					l.gone = true
					f.Must(f.DeleteJob(f.Context(), "shop", l.job.Name, fixture.At(l.now)))
				}
			},
			"calendar": func() {
				f.DeclareCalendar(fixture.Closed(rapid.SampledFrom([]string{"12-24", "05-01"}).Draw(r, "closed")), l.now)
			},
		}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			steps[rapid.SampledFrom([]string{"wait", "wait", "wait", "fire", "fire", "fire", "miss", "edit", "on", "pause",
				"delete", "calendar"}).Draw(r, "step")]()
		}
		l.check()
		if !l.gone {
			f.Must(f.DeleteJob(f.Context(), "shop", l.job.Name, fixture.At(l.now)))
		}
	})
}

func (l *life) put() {
	l.Must(l.PutJob(l.Context(), l.job, fixture.At(l.now)))
	l.gone = false
}

func (l *life) set(change func(*dispatcher.Trigger)) {
	tick := l.job.Triggers["tick"]
	change(&tick)
	l.job.Triggers["tick"] = tick
	l.put()
}

// edit changes the schedule or something else.
func (l *life) edit() {
	l.job.Description = fmt.Sprint(l.now)
	l.set(func(t *dispatcher.Trigger) {
		t.Expression = rapid.SampledFrom([]string{
			"rate(1m)", " rate(60s)", "rate(45s)", "*/20 * * * * ?", "0,20,40 * * * * ?", "0 * * * * ?", "* * * * *",
		}).Draw(l.r, "expression")
		t.StartAt = nil
		if l.job.Objective == nil { // which would have to be longer
			t.Jitter = input.Duration(rapid.SampledFrom([]time.Duration{0, 0, 40 * time.Second}).Draw(l.r, "jitter"))
		}
		t.RepeatCount = rapid.SampledFrom([]int{0, 0, 0, 3, 8}).Draw(l.r, "repeat_count")
		t.MisfirePolicy = rapid.SampledFrom([]dispatcher.MisfirePolicy{
			dispatcher.FireOnce, dispatcher.FireAll, dispatcher.Skip,
		}).Draw(l.r, "policy")
		t.CatchUpWindow = input.Duration(rapid.SampledFrom([]time.Duration{0, 2 * time.Minute}).Draw(l.r, "catch_up_window"))
		t.Calendar = rapid.SampledFrom([]string{"", "freeze"}).Draw(l.r, "calendar")
	})
}

func (l *life) pause(paused bool) {
	if !l.gone {
		l.Must(l.PauseJob(l.Context(), "shop", l.job.Name, "", paused, fixture.At(l.now)))
	}
}

// next returns the claim of the next fire, if that is due within lead.
func (l *life) next(lead time.Duration) (a dispatcher.Advance, found bool) {
	for _, d := range l.DueAll(l.now.Add(lead)) {
		if d.ID != run.TriggerID("shop", l.job.Name, "tick") {
			continue
		}
		a = l.Advance(d)
		a.Then, _ = l.schedule(d.ID).Next(d.NextFireTime)
		return a, true
	}
	return a, false
}

// schedule returns the schedule of the trigger, as a node evaluates it.
func (l *life) schedule(trigger int64) *schedule.Schedule {
	v := l.Version(trigger)
	_, all, err := l.AppCalendars(l.Context(), "shop")
	l.Must(err)
	if v.Calendar != "" {
		v.Spec.Calendar, err = dispatcher.CompileCalendars(all).Find(v.Calendar)
		l.Must(err)
	}
	s, err := schedule.Parse(v.Spec)
	l.Must(err)
	return s
}

// fire claims the next fire, possibly a little ahead of its instant.
func (l *life) fire(lead time.Duration) {
	if a, found := l.next(lead); found {
		batch := dispatcher.ClaimBatch{Node: fixture.NodeA, Token: l.NextToken(), Lead: lead, Advances: []dispatcher.Advance{a}, Now: l.now}
		l.Must(l.Claim(l.Context(), batch))
	}
}

// miss settles the due fires as one.
func (l *life) miss() {
	a, found := l.next(0)
	if !found {
		return
	}
	s := l.schedule(a.TriggerID)
	last, count, next, err := dispatcher.Missed(s, a.Next, l.now)
	l.Must(err)
	a.Then = time.Time{}
	if next != nil {
		a.Then = *next
	}
	l.Must(l.Settle(l.Context(), dispatcher.SettleBatch{Node: fixture.NodeA, Token: fixture.Token1, Now: l.now,
		Settlements: []dispatcher.Settlement{
			{Advance: a, To: last, Count: count, Decision: dispatcher.DecisionSkip, Reason: "late"},
		}}))
}

func (l *life) check() {
	page, err := verify.Ledger(l.Context(), l.Store, verify.Query{
		App: "shop", Now: l.now.Add(10 * time.Second), Page: input.Page{Limit: 1, Cursor: l.job.Name + "@0"},
	})
	l.Must(err)
	if len(page.Items) == 0 || page.Items[0].Job != l.job.Name {
		l.r.Fatalf("the audit of %s holds %+v", l.job.Name, page.Items)
	}
	for _, item := range page.Items {
		if item.Unexplained > 0 || item.Unchecked != "" || item.Scheduled != item.Runs+item.Misfired+item.Open {
			l.r.Fatalf("at %s: %+v", l.now.Sub(fixture.T0), item)
		}
		if item.Job == l.job.Name {
			l.checkStrip(item)
		}
	}
}

// checkStrip requires that a strip has each scheduled time that verify counts, and agrees with explain.
func (l *life) checkStrip(verified verify.Trigger) {
	now := l.now.Add(10 * time.Second)
	found, err := verify.Strip(l.Context(), l.Store, view.StripQuery{
		App: "shop", Job: l.job.Name, Trigger: "tick", Past: view.MostStripPast, Next: 20, Now: now,
	})
	l.Must(err)
	l.agree(l.job.Name, found, now)
	runs, missed, open := 0, 0, 0
	for _, cell := range found.Cells {
		switch {
		case cell.ScheduledAt.After(now):
		case cell.What == view.CellRun:
			runs++
		case cell.What == view.CellMisfire:
			missed++
		case cell.What == view.CellWaiting:
			open++
		}
	}
	if len(found.Cells) < view.MostStripPast && (runs != verified.Runs || missed != verified.Misfired || open != verified.Open) {
		l.r.Fatalf("at %s: the strip has %d runs, %d missed and %d open fires, verify %+v: %+v", l.now.Sub(fixture.T0), runs, missed, open,
			verified, found.Cells)
	}
}
