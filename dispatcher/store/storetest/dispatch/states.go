package dispatch

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// A state follows triggers and runs, and is written only when it changes.
func testStates(t *testing.T, f *wing) {
	ctx := t.Context()
	state := func(name string) dispatcher.JobState {
		t.Helper()
		j, err := f.Job(ctx, "shop", name)
		f.Must(err)
		return j.State
	}
	end := fixture.Minutes(2)
	tick := fixture.Every(time.Minute, fixture.Minutes(1))
	tick.EndAt = &end
	last := f.Put(fixture.Job("last", map[string]dispatcher.Trigger{"tick": tick}), fixture.T0)
	f.PutEvery("broken", time.Minute)
	f.Put(fixture.Job("bare", nil), fixture.T0)
	for i := range 5 {
		f.PutEvery(fmt.Sprintf("other-%d", i), time.Hour)
	}
	if n := f.RollUpAll(); n != 0 {
		t.Errorf("%d states changed right after the declarations, want none: they come with them", n)
	}
	// A change of the definition shows its state at once.
	paused, err := f.PauseJob(ctx, "shop", "last", "", true, fixture.At(fixture.T0))
	f.Must(err)
	resumed, err := f.PauseJob(ctx, "shop", "last", "", false, fixture.At(fixture.T0))
	if f.Must(err); paused.State != dispatcher.JobPaused || resumed.State != dispatcher.JobExecuting {
		t.Errorf("paused and resumed: %s, %s", paused.State, resumed.State)
	}
	f.Must(f.Quarantine(ctx, run.TriggerID("shop", "broken", "tick"), 1, "why"))
	f.Must(f.Quarantine(ctx, run.TriggerID("shop", "last", "tick"), last.Revision, "out of date"))
	if got := state("broken"); got != dispatcher.JobError || state("last") != dispatcher.JobExecuting {
		t.Errorf("in quarantine: %s, %s, want error and the other as it was", got, state("last"))
	}

	var held []run.HeldRun
	for _, d := range f.DueAll(fixture.Minutes(2)) {
		for d.ID == run.TriggerID("shop", "last", "tick") && !d.NextFireTime.IsZero() {
			a := f.Advance(d)
			held = append(held, f.ClaimAll(a)...)
			d.PrevFireTime, d.NextFireTime = a.Next, a.Then
		}
	}
	run, err := f.RequestRun(ctx, "shop", "bare", nil, fixture.At(fixture.Minutes(2)))
	f.Must(err)
	if n := f.RollUpAll(); n != 1 || len(held) != 2 || state("last") != dispatcher.JobExecuting || state("bare") != dispatcher.JobExecuting {
		t.Errorf("with live runs: %d changed, last %s, bare %s, want only that of the job that is run by hand", n, state("last"), state("bare"))
	}
	for _, one := range held {
		f.End(one, fixture.Minutes(3))
	}
	f.Must(f.CancelRun(ctx, run.ID, fixture.At(fixture.Minutes(3))))
	if n := f.RollUpAll(); n != 2 || state("last") != dispatcher.JobComplete || state("bare") != dispatcher.JobInit {
		t.Errorf("when they have ended: %d changed, last %s, bare %s", n, state("last"), state("bare"))
	}
	if n := f.RollUpAll(); n != 0 {
		t.Errorf("%d states changed though nothing had", n)
	}
	jobs, err := f.Jobs(ctx, "shop", input.Page{Limit: 4})
	f.Must(err)
	got := map[string]dispatcher.JobState{}
	for _, j := range jobs {
		got[j.Name] = j.State
	}
	want := map[string]dispatcher.JobState{
		"bare": dispatcher.JobInit, "broken": dispatcher.JobError, "last": dispatcher.JobComplete, "other-0": dispatcher.JobExecuting,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("list (-want +got):\n" + diff)
	}
}

func testCensus(t *testing.T, f *wing) {
	count := func(what string, overdue time.Time, limit int, want dispatcher.Census) {
		t.Helper()
		got, err := f.Census(t.Context(), overdue, limit)
		f.Must(err)
		if got.DaysAhead != nil && *got.DaysAhead < 2 {
			t.Errorf("%s: %d days have partitions after today, want two or more", what, *got.DaysAhead)
		}
		got.DaysAhead = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: census (-want +got):\n%s", what, diff)
		}
	}
	none := func() dispatcher.Census {
		return dispatcher.Census{Jobs: map[dispatcher.JobState]int{}, Runs: map[run.State]int{}, Nodes: map[dispatcher.NodeState]int{},
			Undelivered: map[run.State]int{}}
	}
	before, err := f.Census(t.Context(), fixture.T0, 10)
	f.Must(err)
	if len(before.Jobs)+len(before.Runs)+before.Overdue != 0 || !before.Oldest.IsZero() || !before.TokenExpiry.IsZero() {
		t.Errorf("an empty installation has %+v", before)
	}
	nodes := before.Nodes // of the fixture

	f.PutEvery("first", time.Minute)
	f.PutEvery("second", time.Minute)
	f.PutEvery("paused", time.Minute)
	f.Must(f.PauseJob(t.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	soon, late := time.Now().UTC().Add(time.Hour).Truncate(time.Second), time.Now().UTC().Add(48*time.Hour).Truncate(time.Second)
	long := time.Now().UTC().Add(-48 * time.Hour).Truncate(time.Second)
	for name, expires := range map[string]*time.Time{"soon": &soon, "late": &late, "long-ago": &long, "never": nil} {
		f.Must(f.CreateToken(t.Context(), access.APIToken{ID: name, Name: name, Hash: sha256.Sum256([]byte(name)),
			TokenSpec: access.TokenSpec{Scopes: []access.Scope{access.ScopeRead}, ExpiresAt: expires}}))
	}
	want := none()
	want.Nodes, want.TokenExpiry, want.Forgotten = nodes, soon, 1 // T0 is long ago
	want.Jobs = map[dispatcher.JobState]int{dispatcher.JobExecuting: 2, dispatcher.JobPaused: 1}
	count("nothing is overdue", fixture.T0, 10, want)
	first := fixture.Minutes(1)
	want.Overdue, want.Oldest = 2, first
	count("two triggers are due, and one is paused", first.Add(time.Millisecond), 10, want)
	count("when they are due", first, 10, func() dispatcher.Census {
		w := want
		w.Overdue, w.Oldest = 0, time.Time{}
		return w
	}())
}

func testUpcoming(t *testing.T, f *wing) {
	for _, app := range []string{"soon", "later", "off"} {
		f.DeclareApp(app)
		for _, name := range []string{"a", "b"} {
			j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(5))})
			if j.App = app; app == "later" {
				j.Triggers = map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(20))}
			}
			f.Put(j, fixture.T0)
		}
	}
	f.Must(f.PutApp(t.Context(), access.App{Name: "off"}, fixture.At(fixture.T0)))
	f.PutEvery("paused", time.Minute)
	f.Must(f.PauseJob(t.Context(), "shop", "paused", "", true, fixture.At(fixture.T0)))
	for _, tt := range []struct {
		what  string
		apps  []string
		until time.Time
		limit int
		want  int
	}{
		{"a moment too early", nil, fixture.Minutes(5).Add(-time.Millisecond), 10, 0},
		{"when they are due", nil, fixture.Minutes(5), 10, 2},
		{"long after, when the others are due, too", nil, fixture.Minutes(25), 10, 4},
		{"of apps that are served", []string{"soon", "off"}, fixture.Minutes(25), 10, 2},
		{"to a limit", nil, fixture.Minutes(25), 3, 3},
	} {
		if got, err := f.Upcoming(t.Context(), tt.apps, tt.until, tt.limit); err != nil || got != tt.want {
			t.Errorf("%s: counted %d, %v, want %d", tt.what, got, err, tt.want)
		}
	}
}

func testCallbacksCounted(t *testing.T, f *wing) {
	f.DeclareApp("other")
	count := func(what string, apps []string, limit, want int) {
		t.Helper()
		if got, err := f.AwaitedCallbacks(t.Context(), apps, limit); err != nil || got != want {
			t.Errorf("%s: counted %d, %v, want %d", what, got, err, want)
		}
	}
	count("none waits", nil, 10, 0)
	first, start, _ := f.accepted()
	second := f.ClaimOne("second")
	f.accept(second, start)
	f.Again(f.ClaimOne("retries"), fixture.Failure(start), fixture.FailedUntil(start.Add(time.Hour)))
	count("two wait, and one retries", nil, 10, 2)
	count("of an app that is served", []string{"shop"}, 10, 2)
	count("of another app", []string{"other"}, 10, 0)
	count("to a limit", nil, 1, 1)
	f.Must(f.complete(first.Key, 1, start.Add(time.Minute)))
	count("one has ended", nil, 10, 1)
}
