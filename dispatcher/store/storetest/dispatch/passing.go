package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func testClaimAsTimePasses(t *testing.T, f *wing) {
	f.asTimePasses(func(advances []dispatcher.Advance) ([]run.HeldRun, error) {
		return f.Claim(t.Context(), dispatcher.ClaimBatch{Node: fixture.NodeA, Token: f.NextToken(), Advances: advances})
	})
}

func testSettleAsTimePasses(t *testing.T, f *wing) {
	f.asTimePasses(func(advances []dispatcher.Advance) ([]run.HeldRun, error) {
		batch := dispatcher.SettleBatch{Node: fixture.NodeA, Token: f.NextToken()}
		for _, a := range advances {
			batch.Settlements = append(batch.Settlements, dispatcher.Settlement{
				Advance: a, To: a.Next, Count: 1, Decision: dispatcher.DecisionFireOnce, CatchUp: a.Next,
			})
		}
		return f.Settle(t.Context(), batch)
	})
	misfires, err := f.Misfires(t.Context(), dispatcher.RunQuery{App: "shop", Page: input.Page{Limit: 1000}})
	f.Must(err)
	if len(misfires) != passing {
		t.Errorf("%d misfires, want %d", len(misfires), passing)
	}
}

// passing is how many fires asTimePasses has, one per millisecond.
const passing = 400

// asTimePasses calls advance with fires that become due while it runs, by the database's own clock, until all have
// been: in the end each must have its run.
func (f *wing) asTimePasses(advance func([]dispatcher.Advance) ([]run.HeldRun, error)) {
	ctx := f.Context()
	now, err := f.Clock(ctx)
	f.Must(err)
	begin := now.Truncate(time.Millisecond).Add(500 * time.Millisecond)
	jobs := map[int64]int64{} // by trigger
	for i := range passing / 100 {
		name := fmt.Sprint("job", i)
		triggers := map[string]dispatcher.Trigger{}
		for k := range 100 {
			jobs[run.TriggerID("shop", name, fmt.Sprint("t", k))] = run.JobID("shop", name)
			triggers[fmt.Sprint("t", k)] = fixture.Every(time.Hour, begin.Add(time.Duration(100*i+k)*time.Millisecond))
		}
		f.Put(fixture.Job(name, triggers), now)
	}
	end := begin.Add(passing * time.Millisecond)
	runs := map[run.Key]bool{}
	for now.Before(end) {
		now, err = f.Clock(ctx)
		f.Must(err)
		due, err := f.Due(ctx, dispatcher.DueQuery{Until: end, Limit: 1000})
		f.Must(err)
		var advances []dispatcher.Advance
		for _, d := range due {
			advances = append(advances, dispatcher.Advance{TriggerID: d.ID, JobID: jobs[d.ID], Revision: d.Revision, Next: d.NextFireTime,
				Then: d.NextFireTime.Add(time.Hour)})
		}
		won, err := advance(advances)
		f.Must(err)
		for _, run := range won {
			runs[run.Key] = true
		}
	}
	if due, err := f.Due(ctx, dispatcher.DueQuery{Until: end, Limit: 1000}); err != nil || len(due) != 0 {
		f.Errorf("at the end: %d triggers still wait, %v", len(due), err)
	}
	if len(runs) != passing {
		f.Errorf("%d runs for %d fires that were accounted for", len(runs), passing)
	}
}
