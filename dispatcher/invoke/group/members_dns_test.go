package group

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/dns"
	"github.com/carillon-dev/carillon/dispatcher/dns/dnstest"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestListsOfNamesAreKeptForAStatedTime(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_800_000_000, 0)
	good := dns.Answer{Records: []dns.Record{{Host: "10.0.0.1"}}, TTL: 30 * time.Second}
	missing, broken := &dns.NegativeError{Name: "a"}, errors.New("no response")
	for what, tt := range map[string]struct {
		err   error
		ttl   time.Duration
		after time.Duration // since the list was read
		kept  bool
		again time.Duration // until the name is resolved again
	}{
		"deleted just now":             {missing, 0, 89 * time.Second, true, 5 * time.Second},
		"deleted a minute ago":         {missing, 0, 90 * time.Second, false, 5 * time.Second},
		"deleted, with the zone's TTL": {missing, 12 * time.Second, time.Minute, true, 12 * time.Second},
		"deleted, with a long TTL":     {missing, time.Hour, time.Minute, true, 30 * time.Second},
		"no response":                  {broken, 0, 10*time.Minute + 29*time.Second, true, time.Second},
		"no response for too long":     {broken, 0, 10*time.Minute + 30*time.Second, false, time.Second},
	} {
		n := newNames(nil, nil)
		known := &knownName{}
		n.note(known, good, nil, begin)
		if known.askAt != begin.Add(30*time.Second) || len(known.records) != 1 {
			t.Fatalf("%s: %+v", what, known)
		}
		now := begin.Add(tt.after)
		n.note(known, dns.Answer{TTL: tt.ttl}, tt.err, now)
		if (len(known.records) == 1) != tt.kept || known.askAt != now.Add(tt.again) || known.err != tt.err.Error() ||
			known.resolvedAt != begin {
			t.Errorf("%s: %+v, want the list to be kept: %v", what, known, tt.kept)
		}
		n.note(known, good, nil, now)
		if len(known.records) != 1 || known.err != "" || known.failures != 0 {
			t.Errorf("%s: %+v after a good answer", what, known)
		}
	}
}

func TestTTLsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	for ttl, want := range map[time.Duration]time.Duration{0: time.Second, 30 * time.Second: 30 * time.Second, time.Hour: 5 * time.Minute} {
		known := &knownName{}
		newNames(nil, nil).note(known, dns.Answer{TTL: ttl}, nil, now)
		if got := known.askAt.Sub(now); got != want {
			t.Errorf("after a TTL of %s, the name is asked for after %s, want %s", ttl, got, want)
		}
	}
	known, pauses := &knownName{}, []time.Duration{}
	for range 7 {
		newNames(nil, nil).note(known, dns.Answer{}, errors.New("broken"), now)
		pauses = append(pauses, known.askAt.Sub(now)/time.Second)
	}
	if got := fmt.Sprint(pauses); got != "[1ns 2ns 4ns 8ns 16ns 30ns 30ns]" {
		t.Errorf("pauses after failures = %s seconds", got)
	}
}

// A fire soon after the TTL does not wait for the new answer; a later one does.
func TestOldAnswersServeForSomeSeconds(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]string{
		59 * time.Second: "10.0.0.1", 64 * time.Second: "10.0.0.1", 90 * time.Second: "10.0.0.2", time.Hour: "10.0.0.2",
	} {
		server := dnstest.Start(t)
		server.A("a.test", 60, "10.0.0.1")
		n := newNames(dns.New([]netip.AddrPort{server.Address}), nil)
		t.Cleanup(n.close)
		key := nameKey{"a.test", "A"}
		now := time.Now()
		if known := n.get(t.Context(), key, now, true); len(known.records) != 1 {
			t.Fatalf("%+v", known)
		}
		server.A("a.test", 60, "10.0.0.2")
		if known := n.get(t.Context(), key, now.Add(after), true); known.records[0].Host != want {
			t.Errorf("%s after the answer, a fire uses %s, want %s", after, known.records[0].Host, want)
		}
	}
}

// The same addresses in another order are no change, so that routers keep their counters.
func TestOrderOfRecordsIsNoChange(t *testing.T) {
	t.Parallel()
	n, known, now := newNames(nil, nil), &knownName{}, time.Unix(1_800_000_000, 0)
	a, b := dns.Record{Host: "10.0.0.1"}, dns.Record{Host: "10.0.0.2"}
	n.note(known, dns.Answer{Records: []dns.Record{a, b}}, nil, now)
	before := known.version
	n.note(known, dns.Answer{Records: []dns.Record{b, a}}, nil, now.Add(time.Minute))
	if known.version != before || known.since[a] != now {
		t.Errorf("%+v after the same addresses, want version %d", known, before)
	}
	n.note(known, dns.Answer{Records: []dns.Record{b}}, nil, now.Add(time.Minute))
	if known.version == before || known.since[b] != now {
		t.Errorf("%+v after one address left, want another version", known)
	}
}

func TestKnownNamesAreBounded(t *testing.T) {
	t.Parallel()
	n, now := newNames(nil, nil), time.Unix(1_800_000_000, 0)
	n.closed = true // sends no queries
	used := nameKey{"used.test", "A"}
	for i := range mostNames + 100 {
		now = now.Add(time.Second)
		n.get(t.Context(), nameKey{fmt.Sprint("n", i), "A"}, now, false)
		n.get(t.Context(), used, now, false)
	}
	if len(n.known) != mostNames || n.known[used] == nil {
		t.Errorf("%d names are known, want %d with the one in use", len(n.known), mostNames)
	}
}

func callOf(group *target.GroupVersion) target.Call {
	return target.Call{App: group.App, Group: group, Bounds: &target.Bounds{}}
}

// A group keeps its list of endpoints while no name changes, because routers count by it.
func TestGroupWithTheSameNamesIsTheSame(t *testing.T) {
	t.Parallel()
	hooks := web.New(web.Options{Egress: web.Egress{Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}, nil, nil)
	g := New(hooks, nil, nil, nil)
	group := groupOf("b", "10-0-0-1-80")
	group.DNS = map[string]target.DNSMembers{"all": {Hostname: "a.test", Type: "A", Port: 80}}
	known := &knownName{askAt: time.Unix(1<<40, 0)}
	g.names.known[nameKey{"a.test", "A"}] = known
	now, state := time.Unix(1_800_000_000, 0), newState()
	g.names.replace(known, []dns.Record{{Host: "10.0.0.2"}, {Host: "10.0.0.1"}}, now)
	first := g.withNames(t.Context(), state, callOf(group), now, true)
	var ids []string
	for _, e := range first.Live {
		ids = append(ids, e.ID+" "+string(e.Source))
	}
	if got := fmt.Sprint(ids); got != "[10-0-0-1-80  10-0-0-2-80 dns b ]" {
		t.Errorf("endpoints = %s, want those of the group first", got)
	}
	if g.withNames(t.Context(), state, callOf(group), now, true) != first {
		t.Error("the same group is made twice")
	}
	g.names.replace(known, []dns.Record{{Host: "10.0.0.3"}}, now)
	second := g.withNames(t.Context(), state, callOf(group), now, true)
	if second == first || len(second.Live) != 3 {
		t.Errorf("after a change, group = %+v", second)
	}
	// An address that may not be called any more is no longer an endpoint, and the other way round.
	bounded := callOf(group)
	bounded.Bounds.Egress.Networks = []string{"10.1.0.0/16"}
	if third := g.withNames(t.Context(), state, bounded, now, true); len(third.Live) != 2 {
		t.Errorf("under other bounds, group = %+v, want what it declares alone", third)
	}
	if again := g.withNames(t.Context(), state, callOf(group), now, true); len(again.Live) != 3 {
		t.Errorf("under the bounds of before, group = %+v", again)
	}
	hooks.DenyAPIs([]string{"10.0.0.3:80"})
	if fourth := g.withNames(t.Context(), state, callOf(group), now, true); len(fourth.Live) != 2 {
		t.Errorf("once a node serves its API there, group = %+v", fourth)
	}
	if other := groupOf("x"); g.withNames(t.Context(), state, callOf(other), now, true) != other {
		t.Error("a group without names is made again")
	}
}
