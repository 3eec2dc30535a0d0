package dispatcher_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillon-dev/carillon/dispatcher"
)

func runKeys() *rapid.Generator[dispatcher.RunKey] {
	return rapid.Custom(func(t *rapid.T) dispatcher.RunKey {
		return dispatcher.RunKey{
			TriggerID:   rapid.Int64Range(1, 1<<63-1).Draw(t, "trigger"),
			ScheduledAt: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "ms")).UTC(),
			Kind: rapid.SampledFrom([]dispatcher.RunKind{
				dispatcher.KindSchedule, dispatcher.KindManual, dispatcher.KindCatchUp,
			}).Draw(t, "kind"),
		}
	})
}

func TestRunIDsRoundTripAndSortByTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := runKeys().Draw(t, "a"), runKeys().Draw(t, "b")
		got, err := dispatcher.ParseRunKey(a.String())
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
	id := dispatcher.RunKey{TriggerID: 7, ScheduledAt: monday, Kind: dispatcher.KindManual}.String()
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
		if key, err := dispatcher.ParseRunKey(text); !errors.Is(err, dispatcher.ErrRunID) {
			t.Errorf("%s: ParseRunKey(%q) = %+v, %v, want ErrRunID", name, text, key, err)
		}
	}
}

func FuzzParseRunKey(f *testing.F) {
	f.Add(dispatcher.RunKey{TriggerID: 7, ScheduledAt: monday, Kind: dispatcher.KindManual}.String())
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := dispatcher.ParseRunKey(text); err == nil && key.String() != text {
			t.Errorf("ParseRunKey(%q) took the id of %q", text, key)
		}
	})
}

func TestNodeIDsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := dispatcher.NodeID(rapid.Int64Range(0, 1<<63-1).Draw(t, "id"))
		if got, err := dispatcher.ParseNodeID(id.String()); err != nil || got != id {
			t.Fatalf("ParseNodeID(%q) = %v, %v, want %v", id, got, err, id)
		}
	})
	for _, text := range []string{"", "1", "+000000000000001", "-000000000000001", "000000000000000A",
		"ffffffffffffffff", "zzzzzzzzzzzzzzzz"} {
		if id, err := dispatcher.ParseNodeID(text); err == nil {
			t.Errorf("ParseNodeID(%q) = %v, want an error", text, id)
		}
	}
}

// The values are what receivers have stored to drop duplicates by, and what databases hold as
// keys: they must never change.
func TestIDsNeverChange(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ got, want string }{
		"event": {dispatcher.EventID("inst", "crm", "sync", "t", monday, dispatcher.KindSchedule), "evt_9lf7u7k3aaobbf2i80k575ept4"},
		"run": {dispatcher.RunKey{
			TriggerID: dispatcher.TriggerID("crm", "sync", "t"), ScheduledAt: monday, Kind: dispatcher.KindSchedule,
		}.String(), "06earvc901burjafn85kkeo1"},
		"app":  {dispatcher.NodeID(dispatcher.AppID("crm")).String(), "555174a29098c197"},
		"job":  {dispatcher.NodeID(dispatcher.JobID("crm", "sync")).String(), "5c300d03e48f65cb"},
		"node": {dispatcher.NodeID(255).String(), "00000000000000ff"},
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
		"base":         dispatcher.EventID("i", "a", "j", "t", monday, dispatcher.KindSchedule),
		"installation": dispatcher.EventID("k", "a", "j", "t", monday, dispatcher.KindSchedule),
		"app":          dispatcher.EventID("i", "b", "j", "t", monday, dispatcher.KindSchedule),
		"job":          dispatcher.EventID("i", "a", "k", "t", monday, dispatcher.KindSchedule),
		"trigger":      dispatcher.EventID("i", "a", "j", "u", monday, dispatcher.KindSchedule),
		"instant":      dispatcher.EventID("i", "a", "j", "t", monday.Add(time.Millisecond), dispatcher.KindSchedule),
		"kind":         dispatcher.EventID("i", "a", "j", "t", monday, dispatcher.KindCatchUp),
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
	if a, b := dispatcher.EventID("i", "a", "j", "t", monday, "schedule"),
		dispatcher.EventID("i", "a", "j", "t", monday.In(zone), "schedule"); a != b {
		t.Errorf("event id depends on the zone the instant is written in: %s, %s", a, b)
	}
}
