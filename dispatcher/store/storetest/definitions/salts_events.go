package definitions

import (
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

// eventTests are those of the event ids that receivers drop duplicates by.
func eventTests() tests {
	return tests{
		"event ids cannot be computed from names":          testEventIDsNeedTheSalt,
		"an app with a salt of an older version keeps ids": testEventIDsOfOlderSalts,
	}
}

// wantEvent expects that people read the event id of a run as nodes send it, and that it follows from names, or does not.
func (f *wing) wantEvent(key run.Key, job, trigger string, fromNames bool) {
	f.Helper()
	installation, err := f.Installation(f.Context())
	f.Must(err)
	version := f.Prepared(run.JobID("shop", job))
	read, sent := f.RunOf(key).EventID, key.EventOf(version.EventID(installation, trigger, key.ScheduledAt, key.Kind))
	f.Expect("the event id of a run of kind "+string(key.Kind)+" as it is sent", sent, read)
	names := key.EventOf(run.Salt(nil).EventID(installation, "shop", job, trigger, key.ScheduledAt, key.Kind))
	if (read == names) != fromNames {
		f.Errorf("a run of kind %s has event id %s; names lead to %s, want equal: %t", key.Kind, read, names, fromNames)
	}
}

func testEventIDsNeedTheSalt(t *testing.T, f *wing) {
	parent := f.failedParent()
	f.wantEvent(parent.Key, "parent", "tick", false)
	export := f.exportOf("shop")
	follower, err := run.ParseKey(export.Waiting[0].Run)
	f.Must(err)
	f.wantEvent(follower, "child", "", false)
	export.App.Enabled = true
	f.Must(f.PutApp(t.Context(), export.App, fixture.At(fixture.T0)))
	manual, err := f.RequestRun(t.Context(), "shop", "child", nil, fixture.At(fixture.T0.Add(time.Minute)))
	f.Must(err)
	f.wantEvent(run.Key{TriggerID: run.JobID("shop", "child"), ScheduledAt: manual.ScheduledAt, Kind: run.KindManual}, "child", "", false)
}

// Receivers know the waiting run of an export, and retries of its fires, by ids without the salt.
func testEventIDsOfOlderSalts(t *testing.T, f *wing) {
	parent := f.failedParent()
	export := f.exportOf("shop")
	f.deleteShop()
	export.Salt, export.App.Enabled = export.Salt[:16], true
	key := dispatcher.FollowerKey(export.Salt, parent.Key, run.OnFailure, run.JobID("shop", "child"), run.KindChain)
	export.Waiting[0].Run = key.String()
	f.Must(f.ImportApp(t.Context(), export, fixture.Operator(fixture.T0)))
	f.wantEvent(key, "child", "", true)
	later := f.FireOf("parent")
	f.wantEvent(later.Key, "parent", "tick", true)
}
