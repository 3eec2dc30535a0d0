package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// theHost is the host of most tests.
var theHost = hostOfApp{"app", "h"}

// sends asks for a request of a job, and reports its outcome if it may be made.
func (h *hosts) sends(job int64, o run.Outcome, now time.Time) (sent bool) {
	if h.admit(request{host: theHost, job: job, run: run.Key{TriggerID: job}}, now) != nil {
		return false
	}
	h.report(theHost, job, o, now)
	return true
}

func well() run.Outcome {
	return run.Outcome{State: run.Succeeded, HTTPStatus: 200}
}

func TestCircuitOpensClosesAndWaitsLonger(t *testing.T) {
	t.Parallel()
	h, now := newHosts(3, 0), time.Now()
	fails := func(class run.Class) run.Outcome {
		return run.Outcome{State: run.Failed, Class: class}
	}
	var got []string
	for _, step := range []struct {
		what  string
		after time.Duration
		ends  run.Outcome
	}{
		{"the first", 0, broken()},
		{"the second", 0, broken()},
		{"a response", 0, fails(run.ClassHTTP4xx)},
		{"one of three in a row", 0, broken()},
		{"two of three", 0, broken()},
		{"three of three", 0, broken()},
		{"one while the job is blocked", firstPause - 1, broken()},
		{"a probe that fails", 1, broken()},
		{"one before twice the pause", 2*firstPause - 1, broken()},
		{"a cancelled probe", 1, run.Outcome{State: run.Cancelled, Class: run.ClassCancelled}},
		{"a probe without its secret", probePause, fails(run.ClassSecret)},
		{"a probe without its template", probePause, fails(run.ClassTemplate)},
		{"a probe to a forbidden address", probePause, fails(run.ClassEgressDenied)},
		{"a probe that succeeds", probePause, well()},
		{"one right after", 0, well()},
	} {
		now = now.Add(step.after)
		got = append(got, fmt.Sprintf("%s: sent %v", step.what, h.sends(1, step.ends, now)))
	}
	want := []string{
		"the first: sent true", "the second: sent true", "a response: sent true",
		"one of three in a row: sent true", "two of three: sent true", "three of three: sent true",
		"one while the job is blocked: sent false", "a probe that fails: sent true", "one before twice the pause: sent false",
		"a cancelled probe: sent true", "a probe without its secret: sent true", "a probe without its template: sent true",
		"a probe to a forbidden address: sent true", "a probe that succeeds: sent true", "one right after: sent true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := h.openCircuits(now); n != 0 || len(h.circuits) != 0 {
		t.Errorf("%d circuits are open and %d kept, want none", n, len(h.circuits))
	}
}

func TestPauseOfAJobGrowsToItsMaximum(t *testing.T) {
	t.Parallel()
	h, begin := newHosts(1, 0), time.Now()
	sent := 0
	for s := range 3600 {
		if h.sends(1, broken(), begin.Add(time.Duration(s)*time.Second)) {
			sent++
		}
	}
	// 0, 5, 15, 35, 75 and 155 s, and then every 120 s.
	if want := 6 + (3599-155)/120; sent != want {
		t.Errorf("a job whose host is down sent %d requests in an hour, want %d", sent, want)
	}
}

// The job may fail for reasons of its own: its time-out, its certificates or its path.
func TestJobThatAlwaysFailsBlocksNoOther(t *testing.T) {
	t.Parallel()
	for _, class := range []run.Class{run.ClassTimeout, run.ClassTLS, run.ClassHTTP5xx} {
		h, begin := newHosts(20, 0), time.Now()
		fails := run.Outcome{State: run.Failed, Class: class}
		waits := map[int64]time.Duration{}
		for s := range 7200 {
			now := begin.Add(time.Duration(s) * time.Second)
			h.sends(1, fails, now)
			for job := int64(100); job < 120; job++ {
				first := time.Duration(s/3600) * time.Hour
				if _, done := waits[job]; s >= 3600 && !done && h.sends(job, well(), now) {
					waits[job] = now.Sub(begin) - first
				}
			}
		}
		for job, waited := range waits {
			if waited > 2*time.Second {
				t.Errorf("job %d waited %s for a host at which another job fails with %s, want seconds at most", job, waited, class)
			}
		}
		if len(waits) != 20 {
			t.Errorf("%d of 20 healthy jobs were sent, next to one that fails with %s", len(waits), class)
		}
	}
}

// T7: an app that fails, however often and in whatever way, opens no circuit of another app.
func TestCircuitsOfAppsAreIndependent(t *testing.T) {
	t.Parallel()
	h, now := newHosts(2, 0), time.Now()
	for job := range int64(5) {
		h.sends(job, broken(), now)
	}
	other := request{host: hostOfApp{"other", "h"}, job: 9}
	if d := h.admit(other, now); d != nil {
		t.Errorf("a job of another app has to wait for the same host: %v", d)
	}
}

// A host that is down gets one request a second at most, and each of its jobs has its turn.
func TestProbesOfADeadHostRotate(t *testing.T) {
	t.Parallel()
	h, begin := newHosts(20, 0), time.Now()
	sent, second := map[int64]int{}, map[int]int{}
	for s := range 600 {
		for tenth := range 10 {
			now := begin.Add(time.Duration(s)*time.Second + time.Duration(tenth)*100*time.Millisecond)
			for job := range int64(50) {
				if h.sends(job, broken(), now) {
					sent[job]++
					second[s]++
				}
			}
		}
	}
	for s, n := range second {
		if n > 1 && s > 0 {
			t.Errorf("%d requests went to a dead host in second %d, want 1 at most", n, s)
		}
	}
	for job := range int64(50) {
		if n := sent[job]; n < 3 || n > 12 {
			t.Errorf("job %d sent %d requests in ten minutes, want a share like the others'", job, n)
		}
	}
}

// With a rate, a probe that has to wait for its turn was not made, so the pause stays the same.
func TestProbeThatTheRateDefersDoesNotLengthenThePause(t *testing.T) {
	t.Parallel()
	h, now := newHosts(1, 1), time.Now()
	h.sends(1, broken(), now)
	now = now.Add(firstPause)
	another := hostOfApp{"other", theHost.host} // an app that uses the rate up
	for id := int64(50); h.turn(another, run.Key{TriggerID: id}, now) <= 0; id++ {
		continue
	}
	d := h.admit(request{host: theHost, job: 1, run: run.Key{TriggerID: 1}}, now)
	if d == nil || d.class != run.ClassHostRate {
		t.Fatalf("the probe has to wait for %+v, want for its turn", d)
	}
	if wait := h.takeProbe(dispatcher.HostWait{JobID: 1, Pause: firstPause}, theHost, now); wait <= 0 {
		t.Error("a run that waits for the host may go as a probe although the rate is used up")
	}
	if job := h.circuits[theHost].jobs[1]; job.pause != firstPause || job.until.After(now) {
		t.Errorf("the pause is %s until %s from now, want %s, over", job.pause, job.until.Sub(now), firstPause)
	}
	now = now.Add(10 * time.Second)
	if !h.sends(1, broken(), now) {
		t.Error("the probe was not sent when its turn had come")
	}
	if job := h.circuits[theHost].jobs[1]; job.pause != 2*firstPause {
		t.Errorf("after a probe that failed the pause is %s, want %s", job.pause, 2*firstPause)
	}
}

func TestCircuitsOfUnusedHostsAreRemoved(t *testing.T) {
	t.Parallel()
	h, now := newHosts(1, 0), time.Now()
	for i := range 1000 {
		host := hostOfApp{"app", fmt.Sprint(i)}
		h.report(host, int64(i), broken(), now)
	}
	if n := h.openCircuits(now); n != 1000 {
		t.Errorf("%d circuits are open, want 1000", n)
	}
	if n := h.openCircuits(now.Add(2 * circuitAge)); n != 0 || len(h.circuits) != 0 || h.failing.Load() != 0 {
		t.Errorf("when no host was called for long, %d circuits are open and %d kept, want none", n, len(h.circuits))
	}
}

func TestCircuitsEndWithTheLastJobOfTheirHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.hosts = newHosts(1, 0)
	for _, name := range []string{"stays", "moves", "gone"} {
		r.putWebhook(name, "http://"+name+".example.com/")
		r.hosts.report(hostOfApp{"app", name + ".example.com"}, run.JobID("app", name), broken(), r.now)
	}
	r.putWebhook("moves", "http://other.example.com/")
	r.deleteJob("gone")
	if err := r.leaveHosts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.hosts.openCircuits(r.now); n != 1 || r.hosts.failing.Load() != 1 {
		t.Errorf("%d circuits are open and %d kept, want that of the job that stays", n, r.hosts.failing.Load())
	}
}

// A node makes a number of requests a second to a host, for all apps together: the host cannot tell them apart.
func TestRateOfAHostCountsOverAllApps(t *testing.T) {
	t.Parallel()
	const rate = 10
	h, now := newHosts(-1, rate), time.Now()
	made := func(host string) (n int) {
		for i := range 20 {
			of := hostOfApp{fmt.Sprint("app", i), host}
			if h.admit(request{host: of, job: int64(i), run: run.Key{TriggerID: int64(i)}}, now) == nil {
				n++
			}
		}
		return n
	}
	if n := made("h"); n != 1 {
		t.Errorf("%d of 20 apps send a request at once, want 1: the rate is %d a second", n, rate)
	}
	if n := made("another"); n != 1 {
		t.Errorf("%d requests go at once to a host that has not been called, want 1", n)
	}
}

func TestRateOfAHostIsKept(t *testing.T) {
	t.Parallel()
	const rate = 10
	h, begin := newHosts(-1, rate), time.Now()
	turns := map[time.Duration]int{} // by the second in which a request is made
	for i := range 100 {
		one := request{host: theHost, job: 1, run: run.Key{TriggerID: int64(i)}}
		now := begin
		for d := h.admit(one, now); d != nil; d = h.admit(one, now) {
			if d.class != run.ClassHostRate || d.error == nil {
				t.Fatalf("class %s, reason %v", d.class, d.error)
			}
			now = now.Add(d.wait)
		}
		turns[now.Sub(begin)/time.Second]++
	}
	for second, n := range turns {
		if n > rate+1 { // and one more that falls on the edge of the burst
			t.Errorf("%d requests in second %d, want %d", n, second, rate)
		}
	}
	if len(turns) < 9 || len(h.reserved) != 0 {
		t.Errorf("100 requests took %d s and left %d reserved turns, want 10 s and none", len(turns), len(h.reserved))
	}
}

// Apps share hosts, and so their rates. They do not share groups, though two apps may use the same name.
func TestRateOfAGroupBelongsToItsApp(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20, 10), time.Now()
	for n, tt := range []struct {
		host  hostOfApp
		waits bool
	}{
		{hostOfApp{"a", "h"}, false}, {hostOfApp{"b", "h"}, true},
		{hostOfApp{"a", "group workers"}, false}, {hostOfApp{"b", "group workers"}, false}, {hostOfApp{"a", "group workers"}, true},
	} {
		if wait := h.turn(tt.host, run.Key{TriggerID: int64(n)}, now); (wait > 0) != tt.waits {
			t.Errorf("%d: %+v waits for %s, want a wait: %v", n, tt.host, wait, tt.waits)
		}
	}
}

// The circuit of a group opens when no endpoint is up, and not when all are busy: then they respond. One endpoint that
// comes back ends it, as with a host.
func TestCircuitOfAGroupIsAboutEndpointsThatAreDown(t *testing.T) {
	t.Parallel()
	h, now := newHosts(3, 0), time.Now()
	group := hostOfApp{"app", "group workers"}
	report := func(class run.Class, state run.State) {
		h.report(group, 1, run.Outcome{State: state, Class: class}, now)
	}
	deferred := func() bool { return h.admit(request{host: group, job: 2}, now) != nil }
	for range 5 {
		report(run.ClassEndpointsBusy, run.Failed)
	}
	if deferred() {
		t.Error("a group whose endpoints are busy has an open circuit")
	}
	for range 3 {
		report(run.ClassNoEndpoint, run.Failed)
	}
	now = now.Add(probePause)
	if deferred() {
		t.Error("after a pause, no request goes as a probe")
	}
	if !deferred() {
		t.Error("a group without an endpoint that is up has no open circuit")
	}
	report("", run.Succeeded)
	if deferred() {
		t.Error("the circuit is open after an endpoint responded")
	}
}

func TestWaitingRunShowsHowItsHostFailed(t *testing.T) {
	t.Parallel()
	h, now := newHosts(2, 0), time.Unix(0, 0)
	r := request{host: hostOfApp{app: "shop", host: "down.example"}, job: 1}
	for range 2 {
		h.report(r.host, r.job, run.Outcome{State: run.Failed, Class: run.ClassConnectRefused}, now)
	}
	const want = "host down.example failed 2 requests of the job in a row, the latest with connect_refused; " +
		"the run waits until a request of the job succeeds"
	if d := h.admit(r, now); d == nil || d.Error() != want {
		t.Errorf("got %v, want %q", d, want)
	}
}
