package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// span is a request as its receiver saw it, from its arrival to its response or to the notice that
// its connection was cut.
type span struct {
	job, run   string
	scheduled  time.Time
	attempt    int
	begin, end time.Time
	cut        bool

	conn net.Conn
}

// spans is a receiver that takes one to three seconds for each request, and records the times.
type spans struct {
	*httptest.Server
	mu   sync.Mutex
	open map[*span]bool
	all  []*span
}

// connOf is the key of a request's connection in its context.
type connOf struct{}

func newSpans(t *testing.T) *spans {
	t.Helper()
	s := &spans{open: map[*span]bool{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connOf{}, conn)
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one := &span{job: r.Header.Get("carillon-job"), run: r.Header.Get("carillon-run")}
	one.conn, _ = r.Context().Value(connOf{}).(net.Conn)
	_, _ = io.Copy(io.Discard, r.Body)
	one.attempt, _ = strconv.Atoi(r.Header.Get("carillon-attempt"))
	one.scheduled, _ = time.Parse(time.RFC3339Nano, r.Header.Get("carillon-scheduled-at"))
	if !s.begin(one) {
		return
	}
	takes := time.NewTimer(time.Second + rand.N(2*time.Second))
	defer takes.Stop()
	select {
	case <-takes.C:
	case <-r.Context().Done():
	}
	s.mu.Lock()
	s.end(one, hungUp(one.conn))
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// begin records the arrival of a request, and the end of cut requests of its job. The node cuts a request before
// another begins, but a busy server may notice the cut later than the new request. So begin asks the kernel.
func (s *spans) begin(one *span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hungUp(one.conn) {
		return false // it was cut before the server handled it
	}
	for other := range s.open {
		if other.job == one.job && hungUp(other.conn) {
			s.end(other, true)
		}
	}
	one.begin = time.Now()
	s.open[one], s.all = true, append(s.all, one)
	return true
}

// end records the end of a request. s.mu is held.
func (s *spans) end(one *span, cut bool) {
	if s.open[one] {
		one.end, one.cut = time.Now(), cut
		delete(s.open, one)
	}
}

// hungUp reports whether the other side has closed a connection.
func hungUp(conn net.Conn) bool {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	var n int
	var peeked error
	// Control and not Read, because the server always reads, to notice the same.
	if raw.Control(func(fd uintptr) { n, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK) }) != nil {
		return true
	}
	return peeked == nil && n == 0 || peeked != nil && !errors.Is(peeked, syscall.EAGAIN)
}

// awaitMore waits until that many further requests have arrived.
func (s *spans) awaitMore(t *testing.T, count int) {
	t.Helper()
	arrived := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.all)
	}
	want := arrived() + count
	until(t, fmt.Sprint(count, " further requests"), func() bool { return arrived() >= want })
}

// byJob returns the finished and cut requests, in the order of arrival.
func (s *spans) byJob() map[string][]span {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := map[string][]span{}
	for _, one := range s.all {
		if !s.open[one] {
			jobs[one.job] = append(jobs[one.job], *one)
		}
	}
	return jobs
}

// mostOf returns the largest number of concurrent requests of a job, among those that count.
func (s *spans) mostOf(job string, counts func(*span) bool) (most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*span
	for _, one := range s.all { // in the order of their start
		if one.job != job || !counts(one) {
			continue
		}
		open = slices.DeleteFunc(open, func(other *span) bool { return !s.open[other] && !other.end.After(one.begin) })
		open = append(open, one)
		most = max(most, len(open))
	}
	return most
}

// A request counts until its sender cuts the connection, even if the server does not notice that.
func TestSpansKnowWhenARequestWasCut(t *testing.T) {
	t.Parallel()
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer listener.Close()
	s := &spans{open: map[*span]bool{}}
	most := func() int { return s.mostOf("one", func(*span) bool { return true }) }
	request := func() (one *span, cut func() error) {
		sender := must[net.Conn](t)(net.Dial("tcp", listener.Addr().String()))
		conn := must[net.Conn](t)(listener.Accept())
		t.Cleanup(func() { _ = errors.Join(sender.Close(), conn.Close()) })
		return &span{job: "one", conn: conn}, sender.Close
	}
	first, cutFirst := request()
	second, _ := request()
	third, _ := request()
	late, cutLate := request()
	if !s.begin(first) || !s.begin(second) || most() != 2 {
		t.Errorf("%d requests at once, want 2 that are both in flight", most())
	}
	if err := errors.Join(cutFirst(), cutLate()); err != nil {
		t.Fatal(err)
	}
	// A busy kernel may report the end of a connection late.
	until(t, "the kernel to know of both cuts", func() bool { return hungUp(first.conn) && hungUp(late.conn) })
	if !s.begin(third) || most() != 2 || !first.cut {
		t.Errorf("%d requests at once, want 2: the first was cut before the third came", most())
	}
	if s.begin(late) {
		t.Error("a request counts that was cut before the server came to it")
	}
}

// Fifty jobs of each policy fire faster than their receiver responds, while nodes are killed. No job exceeds
// its limit of requests in flight, and none stalls. A request of a lost attempt does not count at the receiver:
// its node was marked dead, perhaps only for lack of processor time, and HTTP cannot recall a request.
func TestRunsOfAJobNeverExceedItsLimitWhileNodesAreKilled(t *testing.T) {
	need.Step(t, "fleets")
	t.Parallel()
	database := pgtest.New(t)
	receiver := newSpans(t)
	token := newToken(t, database)
	nodes := []*process{startNode(t, database, token, quick()...), startNode(t, database, token, quick()...),
		startNode(t, database, token, quick()...)}
	bounds := declareBounded(t, nodes[0], receiver.URL, 50)
	for i := range 6 {
		receiver.awaitMore(t, 200) // about three seconds
		nodes[i%3].kill()
		nodes[i%3] = startNode(t, database, token, quick()...)
	}
	// Each job continues: fires that were scheduled after the last kill run.
	after := time.Now()
	until(t, "all jobs to go on", func() bool {
		jobs := receiver.byJob()
		for name := range bounds {
			through := func(s span) bool { return !s.cut && s.scheduled.After(after) }
			if !slices.ContainsFunc(jobs[name], through) && !strings.HasPrefix(name, "replace") ||
				!slices.ContainsFunc(jobs[name], func(s span) bool { return s.scheduled.After(after) }) {
				return false
			}
		}
		return true
	})
	lost := lostAttempts(t, nodes[0], "bounded")
	counts := func(s *span) bool { return !lost[fmt.Sprint(s.run, " ", s.attempt)] }
	for name, all := range receiver.byJob() {
		if got := receiver.mostOf(name, counts); got > bounds[name] {
			t.Errorf("%s had %d requests at once, want %d at most: %+v", name, got, bounds[name], all)
		}
		all = slices.DeleteFunc(all, func(s span) bool { return !counts(&s) })
		if strings.HasPrefix(name, "queue") && !slices.IsSortedFunc(all, func(a, b span) int { return a.scheduled.Compare(b.scheduled) }) {
			t.Errorf("%s had requests out of order: %+v", name, all)
		}
	}
	checkBounded(t, nodes[0])
	checkSlots(t, nodes[0])
}

// lostAttempts returns the attempts of an app that were lost, as run and number.
func lostAttempts(t *testing.T, n *process, app string) map[string]bool {
	t.Helper()
	lost := map[string]bool{}
	for _, r := range n.allRuns(app) {
		if r.Attempt < 2 && r.State != run.Lost {
			continue
		}
		for _, attempt := range must[run.Run](t)(n.Run(t.Context(), r.ID)).Attempts {
			if attempt.State == run.Lost {
				lost[fmt.Sprint(r.ID, " ", attempt.Attempt)] = true
			}
		}
	}
	return lost
}

// declareBounded declares jobs of each policy, and returns the request limit of each.
func declareBounded(t *testing.T, n *process, url string, each int) map[string]int {
	t.Helper()
	must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "bounded", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
	bounds := map[string]int{}
	for i := range each {
		for _, policy := range []run.ConcurrencyPolicy{
			run.ConcurrencyAllow, run.ConcurrencyForbid, run.ConcurrencyQueue, run.ConcurrencyReplace,
		} {
			job := patient(webhookJob("bounded", fmt.Sprintf("%s-%d", policy, i), url, map[string]string{"often": "rate(2s)"}))
			job.ConcurrencyPolicy, job.QueueLimit = policy, 3
			job.Retry.SetDefaults()
			job.Retry.MaxAttempts = run.MostAttempts
			if policy == run.ConcurrencyAllow {
				job.MaxConcurrency = 2
			}
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
			bounds[job.Name] = job.Slots()
		}
	}
	return bounds
}

// checkBounded checks the runs in the ledger: a skipped run names the run that blocked it and is no
// failure, and each policy had its effect.
func checkBounded(t *testing.T, n *process) {
	t.Helper()
	did := map[string]int{}
	for _, r := range n.allRuns("bounded") {
		policy, _, _ := strings.Cut(r.Job, "-")
		did[policy+" "+string(r.State)]++
		switch r.State {
		case run.Skipped:
			if !strings.Contains(r.Error, "run ") || r.Class != "" || r.StartedAt != nil {
				t.Errorf("skipped run %+v, want it to name a run, and no failure", r)
			}
		case run.Failed, run.TimedOut, run.Lost:
			t.Errorf("run %+v of a receiver that answers all", r)
		}
	}
	for _, want := range []string{"forbid skipped", "queue skipped", "queue queued", "replace cancelled"} {
		if did[want] == 0 {
			t.Errorf("no run was %s; there were %v", want, did)
		}
	}
	t.Logf("runs: %v", did)
}

// checkSlots checks that the API and the command line show the slot holders of a busy job.
func checkSlots(t *testing.T, n *process) {
	t.Helper()
	until(t, "the holder of a slot to be shown", func() bool {
		slots := must[client.List[dispatcher.Slot]](t)(n.Slots(t.Context(), "bounded", "queue-0")).Items
		out, errs, code := n.commandWith("", "slot", "list", "bounded/queue-0")
		if code != 0 {
			t.Fatalf("slot list: exit %d: %s", code, errs)
		}
		return len(slots) == 1 && slots[0].Node != nil && strings.Contains(out, slots[0].Run) && strings.Contains(out, slots[0].Node.String())
	})
}
