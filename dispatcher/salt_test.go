package dispatcher

import (
	"bytes"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A salt leads only to ids of its own app: with the same salt, the same names in another app have other ids. So a
// tenant who chooses the salt of an app cannot compute ids of another one.
func TestSaltLeadsToIDsOfItsAppOnly(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	ids := func(salt run.Salt, app string) map[string]int64 {
		fire := run.Key{TriggerID: run.TriggerID(app, "load", "t"), ScheduledAt: at, Kind: run.KindSchedule}
		return map[string]int64{
			"follower":     FollowerKey(salt, fire, run.OnSuccess, run.JobID(app, "report"), run.KindChain).TriggerID,
			"delivery":     FollowerKey(salt, fire, run.OnSuccess, run.JobID(app, "load.on_success"), run.KindFollow).TriggerID,
			"notification": AlertStateID(salt, AlertID(app, "night"), run.JobID(app, "load"), target.AlertFailure),
			"test":         AlertStateID(salt, AlertID(app, "night"), 0, ""),
		}
	}
	chosen := run.Salt(bytes.Repeat([]byte{7}, run.SaltBytes))
	seen := map[int64]string{}
	for name, salt := range map[string]run.Salt{"none": nil, "chosen": chosen, "zero": make(run.Salt, run.SaltBytes), "drawn": run.NewSalt()} {
		for _, app := range []string{"shop", "evil"} {
			for kind, id := range ids(salt, app) {
				if of, taken := seen[id]; taken || id <= 0 {
					t.Errorf("%s of app %s with salt %s has the id %d of %s", kind, app, name, id, of)
				}
				seen[id] = kind + " of " + app + " with salt " + name
			}
		}
	}
	if a, b := ids(chosen, "shop"), ids(bytes.Clone(chosen), "shop"); a["follower"] != b["follower"] || a["test"] != b["test"] {
		t.Error("the same salt leads to other ids the second time")
	}
}

// Names, times and the installation are enough to compute event ids only in apps without a salt of the current
// length: a tenant learns the installation from its own exports.
func TestEventIDsNeedTheSalt(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	event := func(salt run.Salt, job, trigger string, kind run.Kind) string {
		v := JobVersion{Job: Job{App: "shop", Name: job}, Salt: salt}
		return v.EventID("i", trigger, at, kind)
	}
	named := func(job, trigger string, kind run.Kind) string {
		return run.Salt(nil).EventID(run.Origin{Installation: "i", App: "shop", Job: job, Trigger: trigger}, at, kind)
	}
	drawn := run.NewSalt()
	for _, of := range []struct {
		job, trigger string
		kind         run.Kind
	}{{"load", "t", run.KindSchedule}, {"load", "t", run.KindBackfill}, {"load", "", run.KindManual}, {"report", "", run.KindChain}} {
		got := event(drawn, of.job, of.trigger, of.kind)
		if got == named(of.job, of.trigger, of.kind) || got == event(run.NewSalt(), of.job, of.trigger, of.kind) {
			t.Errorf("the event of kind %s of job %s has the id %s without the salt", of.kind, of.job, got)
		}
		if again := event(bytes.Clone(drawn), of.job, of.trigger, of.kind); got != again || len(got) != len(named("a", "b", "")) {
			t.Errorf("the event of kind %s of job %s has the ids %s and %s", of.kind, of.job, got, again)
		}
		for _, older := range []run.Salt{nil, drawn[:16]} {
			if got, want := event(older, of.job, of.trigger, of.kind), named(of.job, of.trigger, of.kind); got != want {
				t.Errorf("with a salt of %d bytes, of an older version, the event of kind %s has the id %s, want %s as there", len(older),
					of.kind, got, want)
			}
		}
	}
}

// Ids of apps without a salt, from exports of older versions, stay the same.
func TestIDsWithoutSaltStay(t *testing.T) {
	t.Parallel()
	fire := run.Key{TriggerID: run.TriggerID("shop", "load", "t"), ScheduledAt: time.UnixMilli(1777629600000).UTC(), Kind: run.KindSchedule}
	follower := FollowerKey(run.Salt{}, fire, run.OnSuccess, run.JobID("shop", "report"), run.KindChain)
	if got, want := follower.String(), "06eu5uop018ef39t2qmoiko4"; got != want {
		t.Errorf("the run that follows has id %s, want %s", got, want)
	}
	if got, want := AlertStateID(nil, AlertID("shop", "night"), run.JobID("shop", "load"), target.AlertFailure),
		int64(223711971426880627); got != want {
		t.Errorf("the notification has key %d, want %d", got, want)
	}
}
