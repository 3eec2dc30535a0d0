package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/schedule/zonestest"
)

// A node follows the data of the installation within a round, and tells the others a round later. They do not claim
// fires that it planned by the old data. It is not parallel, because the process has one release.
func TestNodeFollowsTheZonesOfTheInstallation(t *testing.T) {
	t.Cleanup(func() { schedule.FollowZones(nil) })
	r, ours := newRig(t, nil), schedule.ZonesVersion()
	fire := r.now.Add(2 * time.Second)
	tokyo, _ := schedule.Location("Asia/Tokyo")
	local := fire.In(tokyo)
	expression := fmt.Sprintf("%d %d %d * * ?", local.Second(), local.Minute(), local.Hour())
	r.declare("daily", expression, func(t *dispatcher.Trigger) { t.Timezone = "Asia/Tokyo" })
	next := func() time.Time {
		t.Helper()
		job, err := r.store.Job(t.Context(), "app", "daily")
		if err != nil {
			t.Fatal(err)
		}
		return *job.Triggers["only"].NextFireTime
	}
	round := func() {
		t.Helper()
		r.exec(`DELETE FROM locks`) // as if the interval had passed
		if err := r.chores.Round(t.Context(), r.now); err != nil {
			t.Fatal(err)
		}
	}
	noted := func() string {
		t.Helper()
		nodes, err := r.store.Nodes(t.Context())
		if err != nil || len(nodes) != 1 {
			t.Fatalf("nodes %+v, %v", nodes, err)
		}
		return nodes[0].Zones
	}
	set := func(release string, archive []byte) {
		t.Helper()
		if _, err := r.store.SetZones(t.Context(), release, archive, input.Change{Actor: "test", Now: r.now}); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.poll(5 * time.Second); n != 1 {
		t.Fatalf("%d fires are planned", n)
	}
	set("2098b", zonestest.Archive(t, "2098b", r.now))
	round()
	if got := schedule.ZonesVersion(); got != "2098b" || noted() != ours {
		t.Fatalf("after a round, the node computes with %s, and others know %s, want 2098b and %s", got, noted(), ours)
	}
	r.claimOnce(t.Context(), r.now.Add(3*time.Second))
	if got := next(); !got.Equal(fire) {
		t.Fatalf("what was planned by the data of before was claimed: the next fire is at %s", got)
	}
	r.poll(5 * time.Second)
	r.claimOnce(t.Context(), r.now.Add(3*time.Second))
	parsed, err := schedule.Parse(schedule.Spec{Expression: expression, Timezone: "Asia/Tokyo"})
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := parsed.Next(fire); !next().Equal(want) || want.Sub(fire) != 9*time.Hour {
		t.Errorf("after the fire at %s, the next one is at %s, want %s by the data of the installation", fire, next(), want)
	}
	round()
	if changed, err := r.store.ZonesChanged(t.Context()); noted() != "2098b" || changed || err != nil {
		t.Errorf("after another round, others know %s, and fires are to be moved: %v, %v", noted(), changed, err)
	}
	set("", nil)
	round()
	round()
	if got := schedule.ZonesVersion(); got != ours || noted() != ours {
		t.Errorf("after the reset, the node computes with %s, and others know %s, want %s", got, noted(), ours)
	}
	if want := fire.Add(24 * time.Hour); !next().Equal(want) {
		t.Errorf("after the reset, the next fire is at %s, want %s as before", next(), want)
	}
}

// Unreadable data change nothing, and the node goes on.
func TestBrokenZonesOfTheInstallationAreNotFollowed(t *testing.T) {
	t.Cleanup(func() { schedule.FollowZones(nil) })
	r, ours := newRig(t, nil), schedule.ZonesVersion()
	if _, err := r.store.SetZones(t.Context(), "2098b", []byte("no zip"), input.Change{Actor: "test", Now: r.now}); err != nil {
		t.Fatal(err)
	}
	if err := r.chores.Round(t.Context(), r.now); err == nil {
		t.Error("the handler says nothing of data that cannot be read")
	}
	if got := schedule.ZonesVersion(); got != ours {
		t.Errorf("the node computes with %s, want %s", got, ours)
	}
}
