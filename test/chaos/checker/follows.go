package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// checkAfterwards checks what comes after runs, and the runs that no trigger caused.
func (j *judge) checkAfterwards() {
	if j.pending > 0 {
		j.add(unrecovered, "%d ends of runs are yet to be followed", j.pending)
	}
	j.checkLaterRuns()
	j.checkFollows()
	j.checkAlerts()
	j.checkBackfills()
	j.checkCallbacks()
}

// isLater reports whether a request is of a run that no trigger caused.
func isLater(h history.Hit) bool {
	return slices.Contains([]string{"chain", "backfill", "alert", "follow"}, h.Kind)
}

func (r laterRun) name() string {
	return fmt.Sprintf("%s/%s at %s (kind %d, %s)", r.app, r.job, instant(r.at), r.kind, r.id())
}

// checkLaterRuns requires that the runs which no trigger caused have ended, and that the receiver got each under one event id,
// each attempt once.
func (j *judge) checkLaterRuns() {
	runs := map[string]laterRun{}
	last := j.lastTold()
	isLast := func(t told) bool { return last[t.of()] <= t.sequence }
	for _, r := range j.later {
		runs[r.id()] = r
		switch {
		case r.overtaken() && !slices.ContainsFunc(r.tells(), isLast):
		case r.live:
			j.add(unrecovered, "%s: still %s, attempt %d (%s)", r.name(), r.state, r.attempt, r.class)
		case r.state != "succeeded" && r.state != "failed" && r.state != "timed_out":
			j.add(lost, "%s: ended as %s (%s) without a reason", r.name(), r.state, r.class)
		}
	}
	responses := map[int64]int{}
	for _, h := range j.hits {
		responses[h.Request] = max(responses[h.Request], h.Status)
	}
	eventOf, runOf := map[string]string{}, map[string]string{}
	sent, answered := map[string]bool{}, map[string]bool{}
	for _, h := range j.hits {
		if h.Status != 0 || !isLater(h) {
			continue
		}
		r, known := runs[h.Run]
		attempt := fmt.Sprint(h.Run, "/", h.Attempt)
		switch {
		case !known:
			j.add(unexplained, "%s/%s: a request of run %s, which is not in the ledger", h.App, h.Job, h.Run)
		case sent[attempt]:
			j.add(unexplained, "%s: attempt %d was sent twice", r.name(), h.Attempt)
		case h.Event == "" || eventOf[h.Run] != "" && eventOf[h.Run] != h.Event:
			j.add(unexplained, "%s: came under two event ids", r.name())
		case runOf[h.Event] != "" && runOf[h.Event] != h.Run:
			j.add(unexplained, "%s: came under the event id of run %s", r.name(), runOf[h.Event])
		case h.ScheduledAt.After(h.At):
			j.add(early, "%s: came %s early", r.name(), h.ScheduledAt.Sub(h.At))
		}
		sent[attempt], eventOf[h.Run], runOf[h.Event] = true, h.Event, h.Run
		answered[attempt] = responses[h.Request] >= 200 && responses[h.Request] < 300
	}
	for id, r := range runs {
		if r.state == "succeeded" && !answered[fmt.Sprint(id, "/", r.attempt)] {
			j.add(unexplained, "%s: succeeded by the ledger, but the receiver did not respond so to attempt %d", r.name(), r.attempt)
		}
	}
}

// follower names one run that is to follow: what it follows, the event, and the job of which it is a run.
type follower struct{ of, event, job string }

// ended is a run that others may follow.
type ended struct{ id, job, state string }

// endsOfAfter returns the runs of the app whose runs are followed, in the order of their ends.
func (j *judge) endsOfAfter() []ended {
	type timed struct {
		ended
		at int64
	}
	var all []timed
	for _, r := range j.runs {
		if t := j.triggersByID[r.trigger]; t.app == history.After && !r.live {
			all = append(all, timed{ended{r.id(), t.job, r.state}, orZero(r.ended)})
		}
	}
	for _, r := range j.later {
		if r.kind == chained && !r.live {
			all = append(all, timed{ended{r.id(), r.job, r.state}, orZero(r.ended)})
		}
	}
	slices.SortStableFunc(all, func(a, b timed) int { return int(a.at - b.at) })
	ends := make([]ended, len(all))
	for i, one := range all {
		ends[i] = one.ended
	}
	return ends
}

// missedOf names the missed fires of a trigger.
func missedOf(job, trigger string, from int64) string {
	return fmt.Sprintf("fires missed by %s/%s from %s on", job, trigger, instant(from))
}

// checkFollows requires that each end of a run, and each decision about missed fires, is followed once by what was declared, and
// that nothing else is.
func (j *judge) checkFollows() {
	declared := j.latest
	wanted, allowed := map[follower]bool{}, map[follower]bool{}
	want := func(in map[follower]bool, of, job, event string) {
		for _, name := range declared[job].Follows[event] {
			in[follower{of, event, name}] = true
		}
		if declared[job].Delivers && event == history.OnFailure {
			in[follower{of, event, job + "." + event}] = true
		}
	}
	for _, e := range j.endsOfAfter() {
		switch e.state {
		case "succeeded":
			want(wanted, e.id, e.job, history.OnSuccess)
			if declared[e.job].Replayed { // it may have failed before
				want(allowed, e.id, e.job, history.OnFailure)
			}
		case "failed", "timed_out", "lost":
			want(wanted, e.id, e.job, history.OnFailure)
		}
	}
	for _, m := range j.misfires {
		if t := j.triggersByID[m.trigger]; t.app == history.After && m.decision != "fire_all" {
			want(wanted, missedOf(t.job, t.name, m.from), t.job, history.OnMisfire)
		}
	}
	found := map[follower]int{}
	for _, r := range j.later {
		if r.kind != chained && r.kind != delivery {
			continue
		}
		f := follower{r.Cause.Run, r.Cause.On, r.job}
		if f.event == history.OnMisfire {
			p := r.Payload.Parent
			f.of = missedOf(p.Job, p.Trigger, p.ScheduledAt.UnixMilli())
		}
		found[f]++
	}
	for _, f := range slices.SortedFunc(maps.Keys(wanted), func(a, b follower) int { return strings.Compare(a.of, b.of) }) {
		j.followed++
		if found[f] == 0 {
			j.add(lost, "%s of %s is not followed by %s", f.event, f.of, f.job)
		}
	}
	for f, n := range found {
		switch {
		case !wanted[f] && !allowed[f]:
			j.add(unexplained, "%s of %s is followed by %s, which nothing declares", f.event, f.of, f.job)
		case n > 1:
			j.add(unexplained, "%s of %s is followed %d times by %s", f.event, f.of, n, f.job)
		}
	}
}
