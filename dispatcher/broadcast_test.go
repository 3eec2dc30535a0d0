package dispatcher_test

import (
	"slices"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestShardsHaveIDsAndNumbersOfTheirOwn(t *testing.T) {
	t.Parallel()
	parent := run.Key{TriggerID: 7, ScheduledAt: monday, Kind: run.KindCatchUp}
	seen := map[int]bool{parent.Code(): true}
	for index := range 2 * target.MaxEndpoints {
		shard := parent.OfIndex(index)
		read, err := run.ParseKey(shard.String())
		if err != nil || read != shard {
			t.Fatalf("id %s is read as %+v, %v, want %+v", shard, read, err, shard)
		}
		var of run.Key
		if of.SetCode(shard.Code()); of.Kind != shard.Kind || of.Shard != shard.Shard || seen[shard.Code()] || shard.Code() > 1<<15-1 {
			t.Fatalf("shard %d has the number %d, which is of %+v", index, shard.Code(), of)
		}
		seen[shard.Code()] = true
		if shard.Parent() != parent {
			t.Fatalf("the parent of shard %d is %+v", index, shard.Parent())
		}
	}
	if got, want := parent.OfIndex(12).String(), parent.String()+"-12"; got != want {
		t.Errorf("id = %s, want %s", got, want)
	}
	if parent.EventOf("evt_1") != "evt_1" || parent.OfIndex(0).EventOf("evt_1") != "evt_1-0" {
		t.Errorf("event ids are %s and %s", parent.EventOf("evt_1"), parent.OfIndex(0).EventOf("evt_1"))
	}
	for _, suffix := range []string{"-", "--1", "-01", "-1000", "-x", "-1-1", "-+1"} {
		if key, err := run.ParseKey(parent.String() + suffix); err == nil {
			t.Errorf("id with %s is read as %+v", suffix, key)
		}
	}
}

func TestBroadcastSkipsDrainingEndpoints(t *testing.T) {
	t.Parallel()
	endpoint := func(id string, backup, draining bool) target.Endpoint {
		return target.Endpoint{ID: id, StaticEndpoint: target.StaticEndpoint{URL: "http://h", Backup: backup}, Draining: draining}
	}
	for name, tt := range map[string]struct {
		live []target.Endpoint
		want []string
	}{
		"in the order of their ids": {[]target.Endpoint{endpoint("c", false, false), endpoint("a", false, false)}, []string{"a", "c"}},
		"no draining ones":          {[]target.Endpoint{endpoint("a", false, true), endpoint("b", false, false)}, []string{"b"}},
		"no backups":                {[]target.Endpoint{endpoint("a", true, false), endpoint("b", false, false)}, []string{"b"}},
		"backups if they are all":   {[]target.Endpoint{endpoint("a", true, false), endpoint("b", false, true)}, []string{"a"}},
		"none":                      {[]target.Endpoint{endpoint("a", false, true)}, nil},
	} {
		if got := (target.GroupVersion{Live: tt.live}).BroadcastEndpoints(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: endpoints = %v, want %v", name, got, tt.want)
		}
	}
}

func TestBodyAndFenceOfAShard(t *testing.T) {
	t.Parallel()
	call := target.Call{
		App: "a", Job: "j", Attempt: 1, Shard: &run.Shard{Total: 3, Endpoint: "e"},
		Key: run.Key{TriggerID: 7, ScheduledAt: monday, Kind: run.KindSchedule, Shard: 1},
	}
	want := `{"app":"a","job":"j","trigger":"","run":"` + call.Key.String() + `","kind":"schedule","scheduled_at":"` +
		input.FormatInstant(monday) + `","shard_index":0,"shard_total":3}`
	if got := string(call.Body()); got != want {
		t.Errorf("body\n%s\nwant\n%s", got, want)
	}
	parent := call
	parent.Key, parent.Shard = call.Key.Parent(), nil
	if call.Fence() != parent.Fence() {
		t.Errorf("fence %d, want %d, as of any shard of the fire", call.Fence(), parent.Fence())
	}
}
