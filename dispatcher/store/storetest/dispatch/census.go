package dispatch

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

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
		return dispatcher.Census{Jobs: map[dispatcher.JobState]int{}, Runs: map[run.State]int{}, Nodes: map[dispatcher.NodeState]int{}}
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
