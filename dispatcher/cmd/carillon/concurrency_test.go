package main

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// span is a request as its receiver saw it, from its arrival to its response or to when its
// connection was cut.
type span struct {
	job        string
	scheduled  time.Time
	attempt    int
	begin, end time.Time
	cut        bool
}

// spans is a receiver that takes a second or three for each request, and records when it had which.
type spans struct {
	*httptest.Server
	mu   sync.Mutex
	open map[*span]bool
	all  []*span
}

func newSpans(t *testing.T) *spans {
	t.Helper()
	s := &spans{open: map[*span]bool{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := &span{job: r.Header.Get("carillon-job"), begin: time.Now()}
		_, _ = io.Copy(io.Discard, r.Body)
		one.attempt, _ = strconv.Atoi(r.Header.Get("carillon-attempt"))
		one.scheduled, _ = time.Parse(time.RFC3339Nano, r.Header.Get("carillon-scheduled-at"))
		s.mu.Lock()
		s.open[one], s.all = true, append(s.all, one)
		s.mu.Unlock()
		takes := time.NewTimer(time.Second + rand.N(2*time.Second))
		defer takes.Stop()
		select {
		case <-takes.C:
		case <-r.Context().Done():
		}
		one.cut = r.Context().Err() != nil // both may be true by the time that a busy machine comes to it
		s.mu.Lock()
		one.end = time.Now()
		delete(s.open, one)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s
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

// byJob returns the requests that were answered or cut, in the order of arrival.
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

// most returns how many spans overlapped at most. A cut one counts as ended a second before its receiver
// noticed, because the node that cut it has not waited for that.
func most(all []span) int {
	type edge struct {
		at time.Time
		by int
	}
	var edges []edge
	for _, one := range all {
		end := one.end
		if one.cut {
			end = end.Add(-time.Second)
		}
		if end.After(one.begin) {
			edges = append(edges, edge{one.begin, 1}, edge{end, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	now, highest := 0, 0
	for _, e := range edges {
		now += e.by
		highest = max(highest, now)
	}
	return highest
}

// Fifty jobs of each policy fire faster than their receiver responds, while nodes are killed. No job has more
// requests in flight than it may, and none comes to a stop.
func TestRunsOfAJobNeverExceedItsLimitWhileNodesAreKilled(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	receiver := newSpans(t)
	token := newToken(t, database)
	nodes := []*node{startNode(t, database, token, quick()...), startNode(t, database, token, quick()...),
		startNode(t, database, token, quick()...)}
	bounds := declareBounded(t, nodes[0], receiver.URL, 50)
	for i := range 6 {
		receiver.awaitMore(t, 200) // about three seconds
		nodes[i%3].kill()
		nodes[i%3] = startNode(t, database, token, quick()...)
	}
	// Each job goes on: fires scheduled after the last kill get through.
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
	for name, all := range receiver.byJob() {
		if got := most(all); got > bounds[name] {
			t.Errorf("%s had %d requests at once, want %d at most: %+v", name, got, bounds[name], all)
		}
		if strings.HasPrefix(name, "queue") && !slices.IsSortedFunc(all, func(a, b span) int { return a.scheduled.Compare(b.scheduled) }) {
			t.Errorf("%s had requests out of order: %+v", name, all)
		}
	}
	checkBounded(t, nodes[0])
	checkSlots(t, nodes[0])
}

// declareBounded declares jobs of each policy, and returns how many requests of each there may be at once.
func declareBounded(t *testing.T, n *node, url string, each int) map[string]int {
	t.Helper()
	must[dispatcher.App](t)(n.PutApp(t.Context(), dispatcher.App{Name: "bounded", Enabled: true}, client.Condition{}))
	bounds := map[string]int{}
	for i := range each {
		for _, policy := range []dispatcher.ConcurrencyPolicy{
			dispatcher.ConcurrencyAllow, dispatcher.ConcurrencyForbid, dispatcher.ConcurrencyQueue, dispatcher.ConcurrencyReplace,
		} {
			job := webhookJob("bounded", fmt.Sprintf("%s-%d", policy, i), url, map[string]string{"often": "rate(2s)"})
			job.ConcurrencyPolicy, job.QueueLimit = policy, 3
			if policy == dispatcher.ConcurrencyAllow {
				job.MaxConcurrency = 2
			}
			must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
			bounds[job.Name] = job.Slots()
		}
	}
	return bounds
}

// checkBounded checks the runs in the ledger: a skipped run names the run in its way and is no failure, and
// each policy had its effect.
func checkBounded(t *testing.T, n *node) {
	t.Helper()
	did := map[string]int{}
	for _, run := range n.allRuns("bounded") {
		policy, _, _ := strings.Cut(run.Job, "-")
		did[policy+" "+string(run.State)]++
		switch run.State {
		case dispatcher.RunSkipped:
			if !strings.Contains(run.Error, "run ") || run.Class != "" || run.StartedAt != nil {
				t.Errorf("skipped run %+v, want it to name a run, and no failure", run)
			}
		case dispatcher.RunFailed, dispatcher.RunTimedOut, dispatcher.RunLost:
			t.Errorf("run %+v of a receiver that answers all", run)
		}
	}
	for _, want := range []string{"forbid skipped", "queue skipped", "queue queued", "replace cancelled"} {
		if did[want] == 0 {
			t.Errorf("no run was %s; there were %v", want, did)
		}
	}
	t.Logf("runs: %v", did)
}

// checkSlots checks that a job which is always busy shows who holds its slot, in the API and at the
// command line.
func checkSlots(t *testing.T, n *node) {
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
