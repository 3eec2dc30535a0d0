package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// The poll looks up only the first of many fires, and the others are looked up before they are due.
func TestManyFiresAreLookedUpSoonBeforeTheyAreDue(t *testing.T) {
	t.Parallel()
	r, s := readingRig(t)
	triggers := map[string]dispatcher.Trigger{}
	for i := range 50 {
		one := dispatcher.Trigger{}
		one.SetDefaults()
		one.Expression = "rate(1h)"
		start := r.now.Add(3*time.Second + time.Duration(i)*time.Millisecond)
		one.StartAt = &start
		triggers[fmt.Sprint("t", i)] = one
	}
	for i := range 14 {
		job := dispatcher.Job{App: "app", Name: fmt.Sprint("job", i), JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: triggers}}
		job.Target.Webhook = &target.Webhook{URL: "http://127.0.0.1/", Method: "POST", Timeout: target.DefaultTimeout}
		if _, _, err := r.store.PutJob(t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := r.plan.Poll(t.Context(), r.now, r.now.Add(5*time.Second)); err != nil || n != 700 {
		t.Fatalf("%d fires were planned, error %v; want 700", n, err)
	}
	if early, err := r.plan.PlanAhead(t.Context(), r.now.Add(time.Second)); early || err != nil {
		t.Errorf("two seconds before they are due, more fires were looked up: %v, %v", early, err)
	}
	const mostAtOnce = 500
	if r.plan.Timeline.Len() != mostAtOnce || r.plan.Ahead.Len() != 700-mostAtOnce || s.triggers != 1 {
		t.Errorf("%d fires are looked up by %d reads, and %d are not; want %d by one", r.plan.Timeline.Len(), s.triggers,
			r.plan.Ahead.Len(), mostAtOnce)
	}
	if more, err := r.plan.PlanAhead(t.Context(), r.now.Add(2100*time.Millisecond)); !more || err != nil || r.plan.Timeline.Len() != 700 {
		t.Errorf("soon before they are due, %d fires are looked up, error %v; want all 700", r.plan.Timeline.Len(), err)
	}
}

// unknown is a store that cannot return definitions.
type unknown struct {
	Store
	err error
}

func (u *unknown) TriggersByID(ctx context.Context, ids []int64) ([]dispatcher.TriggerVersion, error) {
	if u.err != nil {
		return nil, u.err
	}
	return u.Store.TriggersByID(ctx, ids)
}

func TestFiresAheadSurviveAnOutage(t *testing.T) {
	t.Parallel()
	u := &unknown{}
	r := newRig(t, func(s Store) Store { u.Store = s; return u })
	r.declare("kept", "rate(5s)", nil)
	due := r.due(10 * time.Second)
	r.plan.Triggers.Clear()
	r.plan.Ahead.Add(due.DueTrigger)
	u.err = errors.New("connection refused")
	if _, err := r.plan.PlanAhead(t.Context(), r.now.Add(5*time.Second)); err == nil || r.plan.Ahead.Len() != 1 {
		t.Errorf("while the database is unreachable, error %v, and %d fires are ahead; want it kept", err, r.plan.Ahead.Len())
	}
	r.wantOverdue(time.Minute, 55*time.Second, "while nobody can look it up")
	u.err = nil
	if _, err := r.plan.PlanAhead(t.Context(), r.now.Add(5*time.Second)); err != nil || r.plan.Timeline.Len() != 1 {
		t.Errorf("afterwards, error %v, and %d fires are planned; want one", err, r.plan.Timeline.Len())
	}
}

func TestFireOfAMovedShareIsNotLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.declare("moved", "rate(5s)", nil)
	r.plan.Ahead.Add(r.due(10 * time.Second).DueTrigger)
	others := []dispatcher.Node{{ID: 1}, {ID: 2}}
	r.fleet.Heartbeat(dispatcher.HeartbeatReply{State: dispatcher.NodeActive, Live: others}, time.Now())
	if _, err := r.plan.PlanAhead(t.Context(), r.now.Add(5*time.Second)); err != nil || r.plan.Timeline.Len() != 0 {
		t.Errorf("error %v, and %d fires are planned; want none", err, r.plan.Timeline.Len())
	}
}
