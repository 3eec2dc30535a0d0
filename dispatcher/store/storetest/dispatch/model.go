package dispatch

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// model is what a trigger must be like: the instants that were claimed or settled, in order.
type model struct {
	revision  int64
	prev      time.Time
	next      time.Time
	accounted int
	paused    bool
}

// testClaimModel lets claims, settlements, pauses and stale claims follow each other at random,
// and compares the trigger with a model after each.
func testClaimModel(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	id := run.TriggerID("shop", "tick", "tick")
	m := model{revision: 1, next: fixture.T0.Add(time.Minute)}
	rapid.Check(t, func(r *rapid.T) {
		a := dispatcher.Advance{
			TriggerID: id, JobID: run.JobID("shop", "tick"), Revision: m.revision,
			Prev: m.prev, Next: m.next, Then: m.next.Add(time.Minute), Live: rapid.Bool().Draw(r, "live"),
		}
		valid := !m.paused
		switch rapid.IntRange(0, 5).Draw(r, "staleness") {
		case 0:
			a.Revision--
			valid = false
		case 1:
			a.Prev, a.Next = m.prev.Add(-time.Minute), m.prev
			valid = false
		}
		token := f.NextToken()
		var won []run.HeldRun
		var err error
		switch rapid.SampledFrom([]string{"claim", "claim", "settle", "pause", "resume"}).Draw(r, "step") {
		case "claim":
			won, err = f.Claim(ctx, dispatcher.ClaimBatch{Node: fixture.NodeA, Token: token, Advances: []dispatcher.Advance{a}, Now: a.Next})
		case "settle":
			won, err = f.Settle(ctx, dispatcher.SettleBatch{Node: fixture.NodeA, Token: token, Now: a.Next, Settlements: []dispatcher.Settlement{{
				Advance: a, To: a.Next, Count: 1, Decision: dispatcher.DecisionFireOnce, CatchUp: a.Next,
			}}})
		case "pause":
			_, err = f.PauseJob(ctx, "shop", "tick", "", true, fixture.At(fixture.T0))
			m.pause(true)
			valid = false
		case "resume":
			_, err = f.PauseJob(ctx, "shop", "tick", "", false, fixture.At(fixture.T0))
			m.pause(false)
			valid = false
		}
		if err != nil {
			r.Fatal(err)
		}
		if valid != (len(won) == 1) {
			r.Fatalf("%d runs were won, want a win: %t", len(won), valid)
		}
		if valid {
			m.prev, m.next, m.accounted = a.Next, a.Then, m.accounted+1
			if won[0].Token != token || !won[0].ScheduledAt.Equal(a.Next) {
				r.Fatalf("won %+v, want the fire of %s", won[0], a.Next)
			}
		}
		compare(r, f, m)
	})
}

// pause is a change unless the job is paused, or not, already.
func (m *model) pause(paused bool) {
	if m.paused != paused {
		m.paused, m.revision = paused, m.revision+1
	}
}

func compare(r *rapid.T, f *wing, m model) {
	j, err := f.Job(f.Context(), "shop", "tick")
	if err != nil {
		r.Fatal(err)
	}
	got := j.Triggers["tick"]
	prev := time.Time{}
	if got.PrevFireTime != nil {
		prev = *got.PrevFireTime
	}
	if j.Revision != m.revision || !prev.Equal(m.prev) || !got.NextFireTime.Equal(m.next) || j.Paused != m.paused {
		r.Fatalf("got revision %d, previous %s, next %s, paused %t, want %+v", j.Revision, prev, got.NextFireTime, j.Paused, m)
	}
	runs, err := f.Runs(f.Context(), dispatcher.RunQuery{App: "shop", Job: "tick", Page: input.Page{Limit: 1000}})
	if err != nil {
		r.Fatal(err)
	}
	if len(runs) != m.accounted {
		r.Fatalf("%d runs, want %d", len(runs), m.accounted)
	}
}
