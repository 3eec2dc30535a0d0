package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/chaos/history"
)

// The triggers of the app whose runs are followed, in the made-up history.
const (
	moody, accepting, filled = 10, 11, 12
	follower1, follower2     = 71, 72 // what has the place of a trigger in a run that follows another
	notified1                = 81
)

// newAfterwards makes up a history in which all is well after the runs, too: two runs of which one failed, each followed once, an
// alert that fires and is resolved, a run that is completed by a callback, and a backfill of two instants.
func newAfterwards() *story {
	s := newStory()
	add := func(id int64, d history.Declaration, follows map[string][]string) {
		d.Follows, d.Accepts = follows, d.Job == "accepting"
		s.declare(id, d)
	}
	add(moody, declared(history.After, "moody", "at_least_once", "0/15 * * * * ?"),
		map[string][]string{history.OnSuccess: {"succeeded"}, history.OnFailure: {"failed"}})
	add(accepting, declared(history.After, "accepting", "at_least_once", "0/30 * * * * ?"), nil)
	add(filled, declared(history.After, "filled", "at_least_once", "0/30 * * * * ?"), nil)
	s.fired(moody, 15*time.Second, scheduled)
	s.fired(moody, 30*time.Second, scheduled)
	s.fired(accepting, 30*time.Second, scheduled)
	s.fired(filled, 30*time.Second, scheduled)
	failed := s.run(moody, 15*time.Second)
	failed.state, failed.class = "failed", "http_5xx"
	s.response(moody, 15*time.Second, 503)
	s.response(accepting, 30*time.Second, 202)
	s.callbacks = []history.Callback{{Run: s.run(accepting, 30*time.Second).id(), Attempt: 1, Said: "complete", Status: 200}}
	s.followed("failed", history.OnFailure, follower1, failed.fire)
	s.followed("succeeded", history.OnSuccess, follower2, s.run(moody, 30*time.Second).fire)
	for i, which := range []string{"firing", "resolved"} {
		of := s.run(moody, time.Duration(15+15*i)*time.Second).fire
		s.events = append(s.events, alertEvent{job: "moody", transition: transition{Condition: "failure", Transition: which, Sequence: i + 1,
			Run: of.id()}})
		r := s.later1("watch", "alert", fire{notified1 + int64(i), of.at, notifying})
		r.Payload.Job, r.Payload.Condition, r.Payload.Sequence = "moody", "failure", i+1
	}
	s.firing = map[string]bool{}
	day := base.Add(-24 * time.Hour)
	s.asked = []history.Backfill{{Job: "filled", From: day, To: day.Add(30 * time.Second)}}
	s.backfilled = []backfilled{{job: "filled", state: "complete", total: 2, queued: 2, succeeded: 2}}
	for _, at := range []time.Time{day, day.Add(30 * time.Second)} {
		s.later1("filled", "backfill", fire{filled, at.UnixMilli(), backfill})
	}
	return s
}

// later1 is a run that no trigger caused, which succeeded at once.
func (s *story) later1(job, kind string, f fire) *laterRun {
	s.later = append(s.later, laterRun{fire: f, app: history.After, job: job, attempt: 1, state: "succeeded", ended: at(30 * time.Second)})
	s.requests++
	s.hits = append(s.hits, history.Hit{Request: s.requests, At: base.Add(30 * time.Second), App: history.After, Job: job, Kind: kind,
		Attempt: 1, Event: "evt_" + f.id(), Run: f.id(), ScheduledAt: time.UnixMilli(f.at)},
		history.Hit{Request: s.requests, At: base.Add(30 * time.Second), Status: 204})
	return &s.later[len(s.later)-1]
}

// followed is a run of a job that follows another run.
func (s *story) followed(job, event string, id int64, of fire) {
	r := s.later1(job, "chain", fire{id, of.at, chained})
	r.Cause.Run, r.Cause.On = of.id(), event
}

// followedAgain lets a run be followed as one that failed, by another run than the one that may follow it so.
func (s *story) followedAgain(due time.Duration) {
	s.followed("failed", history.OnFailure, 99, s.run(moody, due).fire)
}

func TestGoodAfterwardsPass(t *testing.T) {
	t.Parallel()
	v := judged(t, newAfterwards())
	for kind, found := range v.found {
		t.Errorf("%s: %s", kind, strings.Join(found, "; "))
	}
	if v.followed != 2 || v.transitions != 2 || v.backfilledInstants != 2 || v.calledBack != 1 {
		t.Errorf("%d follow, %d transitions, %d instants, %d callbacks; want 2, 2, 2 and 1", v.followed, v.transitions, v.backfilledInstants,
			v.calledBack)
	}
}

// overtake ends the notification of a transition as one that a later one has overtaken.
func (s *story) overtake(sequence int) {
	for i, r := range s.later {
		if r.kind == notifying && r.Payload.Sequence == sequence {
			s.later[i].state, s.later[i].class = "cancelled", "cancelled"
			s.hits = slices.DeleteFunc(s.hits, func(h history.Hit) bool { return h.Run == r.id() })
		}
	}
}

func TestNotificationMayTellOfSeveralJobs(t *testing.T) {
	t.Parallel()
	s := newAfterwards()
	for i := range s.later {
		if r := &s.later[i]; r.kind == notifying { // one message tells what two did
			r.Payload.Others = []telling{{Job: "other", Condition: "late", Transition: r.Payload.Transition, Sequence: r.Payload.Sequence}}
		}
	}
	for i, which := range []string{"firing", "resolved"} {
		s.events = append(s.events, alertEvent{job: "other", transition: transition{Condition: "late", Transition: which, Sequence: i + 1}})
	}
	for kind, found := range judged(t, s).found {
		t.Errorf("%s: %s", kind, strings.Join(found, "; "))
	}
	s.events = append(s.events, alertEvent{job: "other", transition: transition{Condition: "late", Transition: "firing", Sequence: 3}})
	if found := judged(t, s).found[lost]; len(found) != 1 {
		t.Errorf("lost: %q, want the third transition, which no message tells", found)
	}
}

func TestNotificationMayBeOvertakenByALaterOne(t *testing.T) {
	t.Parallel()
	s := newAfterwards()
	s.overtake(1)
	for kind, found := range judged(t, s).found {
		t.Errorf("%s: %s", kind, strings.Join(found, "; "))
	}
}

// dropLater removes the runs of a kind that no trigger caused, of one scheduled time.
func (s *story) dropLater(kind int, at int64) {
	s.later = slices.DeleteFunc(s.later, func(r laterRun) bool { return r.kind == kind && r.at == at })
	s.hits = slices.DeleteFunc(s.hits, func(h history.Hit) bool {
		return isLater(h) && h.ScheduledAt.UnixMilli() == at && kindsLater[h.Kind] == kind
	})
}

var kindsLater = map[string]int{"chain": chained, "backfill": backfill, "alert": notifying, "follow": delivery}

func TestBadAfterwardsAreFound(t *testing.T) {
	t.Parallel()
	const second = time.Second
	bad := map[string]spoiled{
		"a failure is not followed":       {func(s *story) { s.dropLater(chained, ms(15*second)) }, lost},
		"a success is not followed":       {func(s *story) { s.dropLater(chained, ms(30*second)) }, lost},
		"a failure is followed twice":     {func(s *story) { s.followedAgain(15 * second) }, unexplained},
		"a success is followed as failed": {func(s *story) { s.followedAgain(30 * second) }, unexplained},
		"an end waits":                    {func(s *story) { s.pending = 1 }, unrecovered},
		"a follower waits":                {func(s *story) { s.later[0].live, s.later[0].state = true, "queued" }, unrecovered},
		"a follower is lost":              {func(s *story) { s.later[0].state = "lost" }, lost},
		"the last is overtaken":           {func(s *story) { s.overtake(2) }, lost},
		"all are overtaken":               {func(s *story) { s.overtake(1); s.overtake(2) }, lost},
		"a follower is overtaken":         {func(s *story) { s.later[0].state, s.later[0].class = "cancelled", "cancelled" }, lost},
		"an attempt is sent twice": {func(s *story) {
			again := s.hits[slices.IndexFunc(s.hits, isLater)]
			s.requests++
			again.Request = s.requests
			s.hits = append(s.hits, again)
		}, unexplained},
		"two runs have an event id":       {func(s *story) { s.hitOf(follower1).Event = s.hitOf(follower2).Event }, unexplained},
		"a follower was not sent":         {func(s *story) { s.hitOf(follower1).Attempt = 2 }, unexplained},
		"a follower came early":           {func(s *story) { s.hitOf(follower1).At = base }, early},
		"a request is of no run":          {func(s *story) { s.hitOf(follower1).Run = fire{1, 1, chained}.id() }, unexplained},
		"a transition is not notified":    {func(s *story) { s.dropLater(notifying, ms(30*second)) }, lost},
		"a transition is missing":         {func(s *story) { s.events = s.events[1:] }, unexplained},
		"a failure fires no alert":        {func(s *story) { s.events = nil; s.dropLater(notifying, ms(15*second)) }, lost},
		"a success fires an alert":        {func(s *story) { s.events[0].Run = s.run(moody, 30*second).id() }, unexplained},
		"an alert holds without a reason": {func(s *story) { s.firing["moody/failure"] = true }, unexplained},
		"a notification is of nothing":    {func(s *story) { s.events = s.events[:1] }, unexplained},
		"an instant has no run":           {func(s *story) { s.dropLater(backfill, s.asked[0].From.UnixMilli()) }, lost},
		"an instant is not in the range":  {func(s *story) { s.asked[0].To = s.asked[0].From }, unexplained},
		"a backfill goes on":              {func(s *story) { s.backfilled[0].state = "running" }, unrecovered},
		"a backfill counts wrong":         {func(s *story) { s.backfilled[0].succeeded = 1 }, unexplained},
		"a completion is lost": {func(s *story) {
			r := s.run(accepting, 30*second)
			r.state, r.class = "timed_out", "callback"
		}, lost},
		"nobody completed a run": {func(s *story) { s.callbacks = nil }, unexplained},
		"two attempts were completed": {func(s *story) {
			again := s.callbacks[0]
			again.Attempt = 2
			s.callbacks = append(s.callbacks, again)
		}, unexplained},
	}
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAfterwards()
			b.spoil(s)
			if v := judged(t, s); len(v.found[b.want]) == 0 {
				t.Errorf("found %v, want %s", v.found, b.want)
			}
		})
	}
}

// hitOf finds the request of a run that no trigger caused.
func (s *story) hitOf(id int64) *history.Hit {
	for i, h := range s.hits {
		for _, r := range s.later {
			if r.trigger == id && h.Run == r.id() {
				return &s.hits[i]
			}
		}
	}
	panic(fmt.Sprint("no request of ", id))
}
