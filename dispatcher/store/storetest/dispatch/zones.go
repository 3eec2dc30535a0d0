package dispatch

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// All nodes find the data of the latest change, and the change is in the audit log.
func testZoneSetting(t *testing.T, f *wing) {
	ctx, change := t.Context(), input.Change{Actor: "ann", Now: fixture.T0}
	setting := func() dispatcher.ZoneSetting {
		t.Helper()
		found, err := f.ZoneSetting(ctx)
		f.Must(err)
		return found
	}
	if got := setting(); got != (dispatcher.ZoneSetting{}) {
		t.Errorf("at first, the setting is %+v, want that each node computes with its own", got)
	}
	first, err := f.SetZones(ctx, "2026e", []byte("first"), change)
	f.Must(err)
	second, err := f.SetZones(ctx, "2026f", []byte("second"), input.Change{Actor: "bob", Now: fixture.Minutes(1)})
	f.Must(err)
	if diff := cmp.Diff(second, setting()); diff != "" || second.Release != "2026f" || second.SetBy != "bob" ||
		!second.SetAt.Equal(fixture.Minutes(1)) || len(second.Sum) != 64 || second.Sum == first.Sum {
		t.Errorf("the setting is %+v (-want +got):\n%s", second, diff)
	}
	if archive, err := f.ZoneArchive(ctx, second.Sum); err != nil || string(archive) != "second" {
		t.Errorf("the data are %q, %v", archive, err)
	}
	if _, err := f.ZoneArchive(ctx, first.Sum); !errors.Is(err, dispatcher.ErrNotFound) {
		t.Errorf("the data of before: %v, want that they are gone", err)
	}
	reset, err := f.SetZones(ctx, "", nil, input.Change{Actor: "ann", Now: fixture.Minutes(2)})
	f.Must(err)
	if got := setting(); got != reset || got != (dispatcher.ZoneSetting{}) {
		t.Errorf("after the reset, the setting is %+v", got)
	}
	entries := f.AuditLog(access.AuditQuery{Subject: "zones", OldestFirst: true})
	if len(entries) != 3 || entries[1].Actor != "bob" || entries[1].Action != "use" || entries[2].Action != "reset" {
		t.Errorf("audited %+v, want three changes", entries)
	}
}

// A fire moves once all nodes use the data, and not before.
func testZonesOfNodes(t *testing.T, f *wing) {
	ctx, ours := t.Context(), schedule.ZonesVersion()
	if !f.both() {
		return // a file serves one node
	}
	changed := func() bool {
		t.Helper()
		is, err := f.ZonesChanged(ctx)
		f.Must(err)
		return is
	}
	_, err := f.RescheduleForZones(ctx, 0, 10, fixture.T0) // notes this program's
	f.Must(err)
	f.Must(f.NoteZones(ctx, fixture.NodeA, "1999a"))
	nodes, err := f.Nodes(ctx)
	f.Must(err)
	for _, node := range nodes {
		if want := map[bool]string{true: "1999a", false: ours}[node.ID == fixture.NodeA]; node.Zones != want {
			t.Errorf("node %s computes with %q, want %q", node.ID, node.Zones, want)
		}
	}
	if changed() {
		t.Error("fires are to move while a node computes with other data")
	}
	found, err := f.Attention(ctx, nil, fixture.T0)
	f.Must(err)
	differ := 0
	for _, node := range found.Nodes {
		for _, reason := range node.Reasons {
			if reason == dispatcher.NodeReasonZones {
				differ++
			}
		}
	}
	if differ != 1 {
		t.Errorf("nodes that ask for attention: %+v, want those that compute with different data", found.Nodes)
	}
	f.Must(f.NoteZones(ctx, fixture.NodeA, ours))
	if !changed() {
		t.Error("the node that computed with other data may have written fires, and they are not looked at again")
	}
}
