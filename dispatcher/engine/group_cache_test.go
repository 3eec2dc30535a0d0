package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupReads counts the reads of groups, and calls a function after each.
type groupReads struct {
	Store
	count atomic.Int32
	after func() error
}

func (g *groupReads) GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error) {
	version, err := g.Store.GroupVersion(ctx, app, name, now)
	g.count.Add(1)
	if g.after != nil {
		err = errors.Join(err, g.after())
	}
	return version, err
}

// newGroupRig returns a rig with a group of one endpoint, and the reads of it.
func newGroupRig(t *testing.T) (*rig, *groupReads) {
	t.Helper()
	reads := &groupReads{}
	r := newRig(t, func(s Store) Store { reads.Store = s; return reads })
	r.putGroup("http://127.0.0.1:1")
	return r, reads
}

// putGroup stores the group workers with one endpoint.
func (r *rig) putGroup(url string) {
	r.t.Helper()
	group := target.EndpointGroup{App: "app", Name: "workers",
		EndpointGroupSpec: target.EndpointGroupSpec{Endpoints: map[string]target.StaticEndpoint{"one": {URL: url}}}}
	group.SetDefaults()
	if _, _, err := r.store.PutGroup(r.t.Context(), group, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

// declareGrouped stores a job whose target is the group.
func (r *rig) declareGrouped(name, expression string) {
	r.t.Helper()
	trigger := dispatcher.Trigger{}
	trigger.SetDefaults()
	trigger.Expression = expression
	job := dispatcher.Job{App: "app", Name: name,
		JobSpec: dispatcher.JobSpec{Enabled: true, Triggers: map[string]dispatcher.Trigger{"only": trigger}}}
	job.Target.Group = &target.GroupTarget{Name: "workers", Path: "/run"}
	job.Target.Group.SetDefaults()
	if _, _, err := r.store.PutJob(r.t.Context(), job, input.Change{Actor: "test", Now: r.now}); err != nil {
		r.t.Fatal(err)
	}
}

// workers returns the URL of the endpoint that a fire would call now.
func (r *rig) workers() string {
	r.t.Helper()
	version, err := r.plan.Groups.Get(r.t.Context(), "app", "workers", r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	return version.Live[0].URL
}

func TestManyFiresReadTheirGroupOnce(t *testing.T) {
	t.Parallel()
	r, reads := newGroupRig(t)
	for n := range 10 {
		r.declareGrouped(fmt.Sprint("grouped", n), "rate(1s)")
	}
	r.declare("plain", "rate(1s)", nil)
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	for _, one := range r.settled() {
		if one.State != run.Succeeded {
			t.Errorf("run = %+v", one)
		}
	}
	grouped := 0
	for _, call := range r.calls {
		switch {
		case call.Job == "plain" && call.Group == nil:
		case call.Group != nil && call.Group.Live[0].ID == "one" && call.Group.Live[0].URL == "http://127.0.0.1:1":
			grouped++
		default:
			t.Errorf("call = %+v", call)
		}
	}
	if n := reads.count.Load(); grouped != 10 || n != 1 {
		t.Errorf("%d calls of the group, %d reads, want 10 and 1", grouped, n)
	}
	r.plan.Groups.Change("app", "workers")
	reads.after = func() error {
		for range 10_000 { // the other fires arrive meanwhile
			runtime.Gosched()
		}
		return nil
	}
	var fires sync.WaitGroup
	for range 50 {
		fires.Go(func() { r.workers() })
	}
	fires.Wait()
	if n := reads.count.Load(); n != 2 {
		t.Errorf("after 15 s there were %d reads, want one more", n)
	}
}

func TestChangedGroupIsReadAgain(t *testing.T) {
	t.Parallel()
	r, reads := newGroupRig(t)
	r.workers()
	for n, notification := range []dispatcher.Notification{{App: "app", Group: "workers"}, {App: "app"}, {}} {
		url := "http://127.0.0.1:" + string(rune('2'+n))
		r.putGroup(url)
		r.hear(notification)
		if got := r.workers(); got != url {
			t.Errorf("after %+v, the endpoint is %s, want %s", notification, got, url)
		}
	}
	r.hear(dispatcher.Notification{App: "app", Group: "others"})
	r.hear(dispatcher.Notification{App: "other"})
	if r.workers(); reads.count.Load() != 4 {
		t.Errorf("%d reads, want none for a notification of another group or app", reads.count.Load())
	}
}

// A change that is announced while the group is read reaches the next fire.
func TestGroupThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	t.Parallel()
	r, reads := newGroupRig(t)
	reads.after = func() error {
		reads.after = nil
		r.putGroup("http://127.0.0.1:2")
		r.hear(dispatcher.Notification{App: "app", Group: "workers"})
		return nil
	}
	if got := r.workers(); got != "http://127.0.0.1:1" {
		t.Errorf("the first fire calls %s, want what was there when it began", got)
	}
	if got := r.workers(); got != "http://127.0.0.1:2" {
		t.Errorf("the next fire calls %s, want what is there now", got)
	}
}

func TestReadThatIsCutOffCutsOffNoOtherFire(t *testing.T) {
	t.Parallel()
	r, reads := newGroupRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan string)
	reads.after = func() error {
		reads.after = nil
		called := make(chan struct{})
		go func() { close(called); waiting <- r.workers() }()
		<-called
		for range 1000 { // it waits for this read by then, most likely
			runtime.Gosched()
		}
		cancel()
		return ctx.Err()
	}
	if _, err := r.plan.Groups.Get(ctx, "app", "workers", r.now); !errors.Is(err, context.Canceled) {
		t.Errorf("the read ended with %v, want cancelled", err)
	}
	if got := <-waiting; got != "http://127.0.0.1:1" {
		t.Errorf("the other fire calls %q", got)
	}
}

func TestRunOfADeletedGroupFailsWithTheReason(t *testing.T) {
	t.Parallel()
	r, reads := newGroupRig(t)
	r.declareGrouped("grouped", "rate(1s)")
	reads.after = func() error { return dispatcher.ErrNotFound } // the store refuses to delete a group that a job uses
	r.poll(time.Second)
	r.claimOnce(t.Context(), r.now.Add(time.Second))
	found := r.settled()
	if diff := cmp.Diff([]string{"1s schedule failed #1"}, offsets(r, found)); diff != "" || len(r.calls) != 0 {
		t.Fatalf("%d calls; runs (-want +got):\n%s", len(r.calls), diff)
	}
	if found[0].Class != run.ClassNoEndpoint || !strings.HasSuffix(found[0].Error, "group workers of app app") {
		t.Errorf("run = %+v", found[0])
	}
}
