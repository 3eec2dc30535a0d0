package dispatcher_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

func runKeys() *rapid.Generator[run.Key] {
	return rapid.Custom(func(t *rapid.T) run.Key {
		return run.Key{
			TriggerID:   rapid.Int64Range(1, 1<<63-1).Draw(t, "trigger"),
			ScheduledAt: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "ms")).UTC(),
			Kind: rapid.SampledFrom([]run.Kind{
				run.KindSchedule, run.KindManual, run.KindCatchUp,
			}).Draw(t, "kind"),
		}
	})
}

func TestRunIDsRoundTripAndSortByTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := runKeys().Draw(t, "a"), runKeys().Draw(t, "b")
		got, err := run.ParseKey(a.String())
		if err != nil || got != a {
			t.Fatalf("ParseRunKey(%q) = %+v, %v, want %+v", a, got, err, a)
		}
		if a.ScheduledAt.Before(b.ScheduledAt) && a.String() >= b.String() {
			t.Fatalf("id %q of %v does not sort before %q of %v", a, a.ScheduledAt, b, b.ScheduledAt)
		}
	})
}

func TestOneRunHasOneID(t *testing.T) {
	t.Parallel()
	id := run.Key{TriggerID: 7, ScheduledAt: monday, Kind: run.KindManual}.String()
	for name, text := range map[string]string{
		"empty":            "",
		"a line break":     id[:5] + "\n" + id[5:],
		"capitals":         strings.ToUpper(id),
		"cut":              id[:23],
		"more":             id + "0",
		"an unknown kind":  id[:22] + "vv",
		"an SQL injection": "1 OR 1=1",
		"a NUL":            "\x00",
	} {
		if key, err := run.ParseKey(text); !errors.Is(err, run.ErrID) {
			t.Errorf("%s: ParseRunKey(%q) = %+v, %v, want ErrRunID", name, text, key, err)
		}
	}
}

func FuzzParseRunKey(f *testing.F) {
	f.Add(run.Key{TriggerID: 7, ScheduledAt: monday, Kind: run.KindManual}.String())
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := run.ParseKey(text); err == nil && key.String() != text {
			t.Errorf("ParseRunKey(%q) took the id of %q", text, key)
		}
	})
}

func TestNodeIDsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := run.NodeID(rapid.Int64Range(0, 1<<63-1).Draw(t, "id"))
		if got, err := run.ParseNodeID(id.String()); err != nil || got != id {
			t.Fatalf("ParseNodeID(%q) = %v, %v, want %v", id, got, err, id)
		}
	})
	for _, text := range []string{"", "1", "+000000000000001", "-000000000000001", "000000000000000A",
		"ffffffffffffffff", "zzzzzzzzzzzzzzzz"} {
		if id, err := run.ParseNodeID(text); err == nil {
			t.Errorf("ParseNodeID(%q) = %v, want an error", text, id)
		}
	}
}

// Receivers have stored these values to drop duplicates, and databases use them as keys: they must never change.
func TestIDsNeverChange(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ got, want string }{
		"event": {run.Salt(nil).EventID(run.Origin{Installation: "inst", App: "crm", Job: "sync", Trigger: "t"}, monday,
			run.KindSchedule), "evt_9lf7u7k3aaobbf2i80k575ept4"},
		"run": {run.Key{
			TriggerID: run.TriggerID("crm", "sync", "t"), ScheduledAt: monday, Kind: run.KindSchedule,
		}.String(), "06earvc901burjafn85kkeo1"},
		"app":  {run.NodeID(run.AppID("crm")).String(), "555174a29098c197"},
		"job":  {run.NodeID(run.JobID("crm", "sync")).String(), "5c300d03e48f65cb"},
		"node": {run.NodeID(255).String(), "00000000000000ff"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s id = %q, want %q", name, tt.got, tt.want)
		}
	}
}

func TestEventIDsDifferByEachOfTheirParts(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for name, id := range map[string]string{
		"base":         run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "j", Trigger: "t"}, monday, run.KindSchedule),
		"installation": run.Salt(nil).EventID(run.Origin{Installation: "k", App: "a", Job: "j", Trigger: "t"}, monday, run.KindSchedule),
		"app":          run.Salt(nil).EventID(run.Origin{Installation: "i", App: "b", Job: "j", Trigger: "t"}, monday, run.KindSchedule),
		"job":          run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "k", Trigger: "t"}, monday, run.KindSchedule),
		"trigger":      run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "j", Trigger: "u"}, monday, run.KindSchedule),
		"instant": run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "j", Trigger: "t"}, monday.Add(time.Millisecond),
			run.KindSchedule),
		"kind": run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "j", Trigger: "t"}, monday, run.KindCatchUp),
	} {
		if other, taken := seen[id]; taken {
			t.Errorf("event ids of %s and %s are both %s", name, other, id)
		}
		seen[id] = name
		if strings.Contains(id, ".") {
			t.Errorf("event id %s holds a dot, which the signature reserves", id)
		}
	}
	zone := time.FixedZone("", 3600)
	if a, b := run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "j", Trigger: "t"}, monday, "schedule"),
		run.Salt(nil).EventID(run.Origin{Installation: "i", App: "a", Job: "j", Trigger: "t"}, monday.In(zone), "schedule"); a != b {
		t.Errorf("event id depends on the zone the instant is written in: %s, %s", a, b)
	}
}
