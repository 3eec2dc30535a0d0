package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

func judged(t *testing.T, s *story) *verdict {
	t.Helper()
	v, err := check(&s.record)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestGoodHistoryPasses(t *testing.T) {
	t.Parallel()
	v := judged(t, newStory())
	for kind, found := range v.found {
		t.Errorf("%s: %s", kind, strings.Join(found, "; "))
	}
	// 30 dense, 15 payouts, 28 delays, 1 one-shot, 30 brief, 6 each of three policies, of which one is skipped, 3 flaky.
	if v.expected != 125 || v.misfired != 3 || v.repeats != 3 || v.requested != 125 {
		t.Errorf("expected %d instants, %d of them in misfires, %d requests, %d repeated; want 125, 3, 125, 3",
			v.expected, v.misfired, v.requested, v.repeats)
	}
	var out strings.Builder
	v.print(&out, &newStory().record)
	const last = "\nchaos: faults=2 expected=125 runs=122 misfires=3 lost=0 unexplained=0 early=0 overlaps=0 unrecovered=0\n"
	if !strings.HasSuffix(out.String(), last) {
		t.Errorf("the output ends in %q, want %q", out.String()[max(0, out.Len()-len(last)):], last)
	}
}

// spoiled is what is wrong with a history, and as what that is to be found.
type spoiled struct {
	spoil func(s *story)
	want  fault
}

// Each of these histories is the good one with one thing wrong, as a scheduler with a certain
// fault would leave it.
func TestBadHistoryIsFound(t *testing.T) {
	t.Parallel()
	const second = time.Second
	bad := map[string]spoiled{
		"a fire is gone without a trace":       {func(s *story) { s.drop(dense, 5*second) }, lost},
		"the last fire before the end is gone": {func(s *story) { s.drop(dense, 30*second) }, lost},
		"a one-shot never fired":               {func(s *story) { s.drop(once, 7250*time.Millisecond) }, lost},
		"a fixed delay stopped": {func(s *story) {
			s.runs = slices.DeleteFunc(s.runs, func(r run) bool { return r.trigger == delayed && r.at > ms(9*second) })
		}, lost},
		"a catch-up run is missing": {func(s *story) {
			s.runs = slices.DeleteFunc(s.runs,
				func(r run) bool { return r.kind == catchUp })
		}, lost},
		"missed fires without a decision":       {func(s *story) { s.misfires = nil }, lost},
		"a request that never came":             {func(s *story) { s.run(dense, 5*second).state = "failed"; s.forget(dense, 5*second) }, lost},
		"a run given up that is to be repeated": {func(s *story) { s.run(dense, 5*second).state = "lost" }, lost},

		"a run that no schedule asked for":    {func(s *story) { s.fired(dense, 5500*time.Millisecond, scheduled) }, unexplained},
		"a run and a misfire for one instant": {func(s *story) { s.fired(brief, 12*second, scheduled) }, unexplained},
		"a misfire that miscounts":            {func(s *story) { s.misfires[0].count = 4 }, unexplained},
		"a catch-up run without a misfire":    {func(s *story) { s.fired(dense, 5*second, catchUp) }, unexplained},
		"an attempt sent twice": {func(s *story) {
			s.requested(dense, 5*second, scheduled, 1,
				5008*time.Millisecond, 204)
		}, unexplained},
		"a request of no attempt": {func(s *story) {
			s.requested(dense, 5*second, scheduled, 2,
				5030*time.Millisecond, 204)
		}, unexplained},
		"a payout repeated": {func(s *story) {
			s.takenOver(payout, 33*second)
			s.drop(payout, 33*second)
			s.takenOver(payout, 12*second)
		}, unexplained},
		"another event id on the second attempt": {func(s *story) { s.hit(dense, 10*second, 2).Event = "evt_other" }, unexplained},
		"one event id for two fires": {func(s *story) {
			s.hit(dense, 5*second, 1).Event = s.hit(dense,
				6*second, 1).Event
		}, unexplained},
		"an attempt lost for no reason":          {func(s *story) { s.faults = nil }, unexplained},
		"a hole in the attempts":                 {func(s *story) { s.run(dense, 5*second).attempt = 3 }, unexplained},
		"a success that was an error":            {func(s *story) { s.response(dense, 5*second, 503) }, unexplained},
		"a failure that was a success":           {func(s *story) { s.run(dense, 5*second).state = "failed" }, unexplained},
		"an outcome overwritten by an older one": {func(s *story) { s.run(dense, 10*second).started = at(10 * second) }, unexplained},
		"a payload replaced long before":         {func(s *story) { s.replace(dense, 2*second) }, unexplained},
		"a fixed delay that did not wait": {func(s *story) {
			s.run(delayed,
				2010*time.Millisecond).ended = at(2100 * time.Millisecond)
		}, unexplained},

		"a request before its instant":         {func(s *story) { s.hit(dense, 5*second, 1).At = base.Add(4999 * time.Millisecond) }, early},
		"a request sent when the lease was up": {func(s *story) { s.hit(dense, 10*second, 1).At = base.Add(13 * second) }, overlaps},
		"a run claimed while another held it":  {func(s *story) { s.run(dense, 10*second).claimed = at(11 * second) }, overlaps},
		"fires claimed out of order":           {func(s *story) { s.run(dense, 5*second).claimed = at(6100 * time.Millisecond) }, overlaps},
		"a run that its node forgot":           {func(s *story) { s.attempts[0].began = ms(-12 * second) }, unrecovered},
		"a run that ended and is live": {func(s *story) {
			r := *s.run(dense, 5*second)
			r.live, r.state, r.ended = true, "retrying", nil
			s.runs = append(s.runs, r)
		}, unexplained},
		"a run in two tables for a moment": {func(s *story) {
			s.doubles = append(s.doubles, double{fire{dense, ms(5 * second), scheduled}, ms(6 * second)})
		}, unexplained},
		"a claim that is left": {func(s *story) {
			s.claims = append(s.claims, claim{fire{dense, ms(5 * second), scheduled}, 7, n2})
		}, unrecovered},
		"deleted jobs that are left":  {func(s *story) { s.deleted = history.DeletedJobs }, unrecovered},
		"a run that never ended":      {func(s *story) { r := s.run(dense, 5*second); r.live, r.state = true, "claimed" }, unrecovered},
		"a trigger that stands still": {func(s *story) { s.triggers[0].firing, s.triggers[0].due = true, at(20*second) }, unrecovered},
		"a trigger in error":          {func(s *story) { s.triggers[0].state = "error" }, unrecovered},
	}
	maps.Copy(bad, badBounded())
	maps.Copy(bad, badWatched())
	for name, tt := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			tt.spoil(s)
			if v := judged(t, s); len(v.found[tt.want]) == 0 {
				t.Errorf("found %v, want it among %s", slices.Collect(maps.Keys(v.found)), tt.want)
			}
		})
	}
}

// forget removes the requests of a fire.
func (s *story) forget(id int64, due time.Duration) {
	kept := s.run(id, due)
	r := *kept
	s.drop(id, due)
	s.runs = append(s.runs, r)
	slices.SortFunc(s.runs, func(a, b run) int { return int(a.at - b.at) })
}

// answer changes the response to the first request of a fire.
func (s *story) response(id int64, due time.Duration, status int) {
	number := s.hit(id, due, 1).Request
	for i := range s.hits {
		if s.hits[i].Request == number && s.hits[i].Status != 0 {
			s.hits[i].Status = status
		}
	}
}

// replace declares a job again, with a payload that nobody then sends.
func (s *story) replace(id int64, when time.Duration) {
	d := s.declared[slices.IndexFunc(s.declared, func(d history.Declaration) bool { return d.Put == int(id) })]
	d.Put, d.Begun, d.Answered = 99, base.Add(when-10*time.Millisecond), base.Add(when+10*time.Millisecond)
	s.declared = append(s.declared, d)
	slices.SortFunc(s.declared, func(a, b history.Declaration) int { return a.Begun.Compare(b.Begun) })
}

func TestAttemptIsHeldForLongerOnAMachineThatStalls(t *testing.T) {
	t.Parallel()
	for stall, want := range map[time.Duration]bool{time.Second: true, 10 * time.Second: false} {
		s := newStory()
		s.attempts[0].began = ms(-12 * time.Second)
		from := base.Add(-11 * time.Second)
		s.faults = append(s.faults, history.Fault{Kind: history.MachineStalled, From: from, To: from.Add(stall)})
		if found := judged(t, s).found[unrecovered]; len(found) > 0 != want {
			t.Errorf("after a stall of %s, found %v", stall, found)
		}
	}
}

func TestOracleReadsTheFormsOfChaosRuns(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"*/20 * * * * ?":               "0 20 40 60 80",
		"7,22,40 * * * * ?":            "7 22 40 67 82",
		"1/25 0/2 * * * ?":             "1 26 51",
		"rate(45s)":                    "0 45 90",
		"at(2026-11-21T10:00:07.250Z)": "7.25",
	} {
		o, err := newOracle(history.Trigger{Expression: expression, StartAt: base.Add(-90 * time.Second), Timezone: "America/New_York"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, instant := range o.instants(ms(0)-1, ms(95*time.Second)) {
			got = append(got, strconv.FormatFloat(float64(instant-ms(0))/1000, 'f', -1, 64))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s fires at %s, want %s", expression, text, want)
		}
	}
	if _, err := newOracle(history.Trigger{Expression: "0 0 12 1 * ?"}); err == nil {
		t.Error("a form with a day was read, want it refused: the oracle would be wrong about it")
	}
}

// The bad neighbour's own circuits open. Its runs may wait for a probe that is to come, and for nothing else.
func TestOnlyTheBadNeighborMayWaitForItsHost(t *testing.T) {
	t.Parallel()
	const end = 60_000
	j := &judge{record: &record{recovery: 2 * time.Second}, end: end, triggersByID: map[int64]trigger{
		1: {id: 1, app: history.Noisy}, 2: {id: 2, app: "north"},
	}}
	soon, overdue := int64(end+90_000), int64(end-20_000)
	for name, tt := range map[string]struct {
		run  run
		want bool
	}{
		"it waits for a probe":           {run{fire: fire{trigger: 1}, live: true, state: "retrying", probe: &soon}, true},
		"its probe is overdue":           {run{fire: fire{trigger: 1}, live: true, state: "retrying", probe: &overdue}, false},
		"it waits for its next attempt":  {run{fire: fire{trigger: 1}, live: true, state: "retrying"}, false},
		"it is claimed":                  {run{fire: fire{trigger: 1}, live: true, state: "claimed", probe: &soon}, false},
		"another app waits for the host": {run{fire: fire{trigger: 2}, live: true, state: "retrying", probe: &soon}, false},
	} {
		if got := j.waitsForHost(tt.run); got != tt.want {
			t.Errorf("%s: allowed %v, want %v", name, got, tt.want)
		}
	}
}

// A run that waits for its host is claimed again later, and its request was sent by the definition of its first claim.
func TestRequestIsComparedWithTheDefinitionOfItsOwnClaim(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(1000+second, 0) }
	replaced := history.Declaration{Put: 2, App: "a", Job: "j", Answered: at(30)}
	j := &judge{record: &record{declared: []history.Declaration{replaced}}}
	claimed := at(40).UnixMilli()
	of := run{fire: fire{trigger: 1, at: at(10).UnixMilli()}, attempt: 1, claimed: &claimed}
	for name, tt := range map[string]struct {
		sent int64
		want bool
	}{
		"sent before that claim": {11, false},
		"sent by that claim":     {41, true},
	} {
		if got := j.outdated(trigger{app: "a", job: "j"}, history.Declaration{Put: 1}, of, at(tt.sent).UnixMilli()); got != tt.want {
			t.Errorf("%s: outdated %v, want %v", name, got, tt.want)
		}
	}
}

// What a live run says of an attempt that is over is when its host deferred the next one.
func TestDeferralIsNoBeginOfAnAttempt(t *testing.T) {
	t.Parallel()
	f := fire{trigger: 1, at: 1000}
	deferred := int64(9000)
	j := &judge{record: &record{
		ledger: ledger{
			attempts: []attempt{{fire: f, attempt: 1, began: 2000, ended: 3000, state: "failed"}},
			runs:     []run{{fire: f, attempt: 1, started: &deferred, claimed: &deferred, live: true, state: "retrying"}},
		},
	}}
	if tries := j.tries()[f]; len(tries) != 1 || tries[0].began != 2000 || tries[0].started != 0 {
		t.Errorf("tries = %+v, want the one that began at 2000", tries)
	}
}

// A fire that was pending when its definition changed is a run of its own since, which a node adopts after newer fires.
func TestFireThatSurvivedAnEditMayComeLater(t *testing.T) {
	t.Parallel()
	j := &judge{segments: map[int64][]segment{1: {{from: 1000}, {from: 52_200}}}}
	for name, tt := range map[string]struct {
		at, began int64
		want      bool
	}{
		"due before the edit, claimed after it": {50_000, 52_900, true},
		"claimed before the edit":               {50_000, 50_100, false},
		"due after the edit":                    {53_000, 53_100, false},
	} {
		if got := j.survivedEdit(try{fire: fire{1, tt.at, scheduled}, began: tt.began}); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}
