package storetest

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// runEnds are all ways in which a run with a slot can end. Each is given a run of nodeA of the job "tick".
var runEnds = map[string]func(*fixture, run.HeldRun){
	"succeeds": func(f *fixture, run run.HeldRun) {
		f.must(f.Record(f.Context(), records(run)))
	},
	"fails for good": func(f *fixture, run run.HeldRun) {
		f.must(f.Record(f.Context(), []dispatcher.Record{record(run, failure(run.ScheduledAt))}))
	},
	"is given up between two attempts": func(f *fixture, run run.HeldRun) {
		f.again(run, failure(run.ScheduledAt), dispatcher.NextAttempt{At: t0.Add(2 * time.Hour), Until: t0.Add(time.Hour)})
		f.must(f.GiveUp(f.Context(), t0.Add(2*time.Hour)))
	},
	"is cancelled between two attempts": func(f *fixture, run run.HeldRun) {
		f.again(run, failure(run.ScheduledAt), dispatcher.NextAttempt{At: t0.Add(2 * time.Hour), Until: t0.Add(3 * time.Hour)})
		f.must(f.CancelRun(f.Context(), run.String(), at(t0)))
	},
	"is cancelled while it waits for its host": func(f *fixture, run run.HeldRun) {
		f.waits(run, waitOf("tick", "down.example.com"))
		f.must(f.CancelRun(f.Context(), run.String(), at(t0)))
	},
	"is cancelled in flight": func(f *fixture, run run.HeldRun) {
		f.must(f.CancelRun(f.Context(), run.String(), at(t0)))
	},
	"is replaced": func(f *fixture, _ run.HeldRun) {
		j, err := f.Job(f.Context(), "shop", "tick")
		f.must(err)
		j.ConcurrencyPolicy = run.ConcurrencyReplace
		f.put(j, t0)
		newer := f.claimNext(token2)
		f.acquire(newer)
		f.must(f.CancelRun(f.Context(), newer.String(), at(t0)))
	},
	"is completed by its target": func(f *fixture, run run.HeldRun) {
		f.accept(run, run.ScheduledAt)
		f.must(f.complete(run.Key, 1, t0.Add(2*time.Minute)))
	},
	"is failed by its target": func(f *fixture, run run.HeldRun) {
		f.accept(run, run.ScheduledAt)
		f.must(f.fail(run.Key, 1, t0.Add(2*time.Minute)))
		f.must(f.Record(f.Context(), []dispatcher.Record{record(f.adoptEnded(t0.Add(2*time.Minute)), failure(run.ScheduledAt))}))
	},
	"gets no callback": func(f *fixture, run run.HeldRun) {
		deadline := f.accept(run, run.ScheduledAt)
		f.must(f.Record(f.Context(), []dispatcher.Record{record(f.adoptEnded(deadline), failure(run.ScheduledAt))}))
	},
	"is lost with its node": func(f *fixture, r run.HeldRun) {
		f.must(f.Begin(f.Context(), []run.HeldRun{r}))
		f.must(f.Deregister(f.Context(), nodeA))
		f.must(f.FailLostRuns(f.Context(), t0.Add(time.Hour)))
	},
	"is lost, as its node does not make it any more": func(f *fixture, r run.HeldRun) {
		begun, err := f.Begin(f.Context(), []run.HeldRun{r})
		f.must(err)
		found, err := f.Begun(f.Context(), nodeA)
		f.must(err)
		f.expect("begun", minutesOf(found), minutesOf(begun))
		stranger := r
		stranger.Token++
		for _, tt := range []struct {
			run  run.HeldRun
			want int
		}{{stranger, 0}, {found[0], 1}, {found[0], 0}} {
			lost, err := f.LoseRuns(f.Context(), []run.HeldRun{tt.run}, t0.Add(2*time.Minute))
			f.must(err)
			f.expect("lost", lost, tt.want)
		}
		if got := f.run(r.Key); got.State != run.Lost || len(got.Attempts) != 1 {
			f.Errorf("the run is %+v, want it lost with its attempt", got)
		}
	},
	"is adopted from a dead node and succeeds": func(f *fixture, _ run.HeldRun) {
		f.register(nodeB)
		f.must(f.Deregister(f.Context(), nodeA))
		taken := f.adopted(nodeB, token2)
		f.acquire(taken...)
		f.must(f.Record(f.Context(), records(taken...)))
	},
	"is handed back and succeeds": func(f *fixture, r run.HeldRun) {
		f.must(f.Release(f.Context(), []run.HeldRun{r}))
		f.letGoOfSlots()
		again := f.adopted(nodeA, token2)
		f.acquire(again...)
		f.must(f.Record(f.Context(), records(again...)))
	},
	"is skipped after a rollback": func(f *fixture, _ run.HeldRun) { f.resolveRollback(dispatcher.RollbackSkip) },
	"is skipped after a rollback in which its node died": func(f *fixture, _ run.HeldRun) {
		f.must(f.Deregister(f.Context(), nodeA))
		f.resolveRollback(dispatcher.RollbackSkip)
	},
	"is replayed after a rollback": func(f *fixture, run run.HeldRun) {
		f.resolveRollback(dispatcher.RollbackReplay)
		f.must(f.Record(f.Context(), records(run)))
	},
	"succeeds after its job was deleted and declared again": func(f *fixture, run run.HeldRun) {
		j, err := f.Job(f.Context(), "shop", "tick")
		f.must(err)
		f.must(f.DeleteJob(f.Context(), "shop", "tick", at(t0)))
		f.put(j, t0)
		f.must(f.Record(f.Context(), records(run)))
	},
	"succeeds after its job was renamed there and back": func(f *fixture, run run.HeldRun) {
		f.rename("tick", "tock", nil, t0)
		f.must(f.Record(f.Context(), records(run)))
		f.rename("tock", "tick", nil, t0)
	},
	"is a broadcast of which all shards end": func(f *fixture, run run.HeldRun) {
		f.spread(run, 2)
		f.must(f.Record(f.Context(), records(f.adopted(nodeA, token2)...)))
		f.endBroadcasts()
	},
	"is a broadcast that is cancelled with shards in flight": func(f *fixture, run run.HeldRun) {
		f.spread(run, 2)
		f.expect("shards in flight", len(f.adopted(nodeA, token2)), 2)
		f.must(f.CancelRun(f.Context(), run.String(), at(t0)))
	},
	"is a broadcast that is skipped after a rollback with shards in flight": func(f *fixture, run run.HeldRun) {
		f.spread(run, 2)
		f.expect("shards in flight", len(f.adopted(nodeA, token2)), 2)
		f.resolveRollback(dispatcher.RollbackSkip)
	},
	"is a broadcast that is lost": func(f *fixture, run run.HeldRun) {
		f.spread(run, 2)
		f.adopted(nodeA, token2)
		f.must(f.Deregister(f.Context(), nodeA))
		f.resolveRollback(dispatcher.RollbackSkip)
	},
}

// resolveRollback chooses what becomes of a rollback, and lets the handler carry it out.
func (f *fixture) resolveRollback(choice dispatcher.RollbackChoice) {
	f.Helper()
	later := at(t0.Add(90 * time.Second))
	f.must(f.DeclareRollback(f.Context(), "restored", later))
	f.must(f.ResolveRollback(f.Context(), choice, later))
	for after, more := int64(0), true; more; {
		done, err := f.SkipRolledBack(f.Context(), after, 10, t0.Add(2*time.Minute))
		f.must(err)
		after, more = done.Last, done.More
	}
}

// letGoOfSlots is what nodes do of themselves that hold none of the attempts any more for which they have slots.
func (f *fixture) letGoOfSlots() (released int) {
	f.Helper()
	for _, node := range []run.NodeID{nodeA, nodeB} {
		for after, more := (dispatcher.SlotKey{}), true; more; {
			left, err := f.LeftSlots(f.Context(), node, after, 1)
			f.must(err)
			f.must(f.ReleaseSlots(f.Context(), left.Runs))
			released, after, more = released+len(left.Runs), left.Last, left.More
		}
	}
	f.must(f.GrantWaiting(f.Context()))
	return released
}

// slotEndTests are about the slot of a run after each way in which it can end.
func slotEndTests() tests {
	all := tests{
		"a slot is not left while its node makes the attempt":    testSlotNotLeft,
		"slots that were left are found page by page":            testLeftSlotsInPages,
		"a job goes on when its app comes back by an import":     testSlotsOfImportedApp,
		"an operator can free the slot of an ended run":          testReleaseRun,
		"verify lists what ended runs have left":                 testLeaks,
		"slots of a cancelled run that waits are not its node's": testLeftSlotsOfEndpoints,
	}
	for name, end := range runEnds {
		all["a job goes on when its run "+name] = func(t *testing.T, f *fixture) {
			runs := f.bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
			f.expect("acquired", f.acquire(runs...), []int{1})
			end(f, runs[0])
			f.endBroadcasts()
			f.letGoOfSlots()
			f.expect("slots", f.holders(), []int{})
			f.must(f.DropHostWait(t.Context(), waitOf("tick", "down.example.com").ID)) // as the node does that probes the host
			f.expect("leaks", f.leaks(), []string{})
			f.register(nodeC) // the first may be dead
			f.must(f.RequestRun(t.Context(), "shop", "tick", nil, at(t0.Add(3*time.Minute))))
			f.expect("acquired by the next", len(f.acquire(f.adopted(nodeC, 77)...)), 1)
		}
	}
	return all
}

// What the node holds is not in question, nor what its run left to no node.
func testSlotNotLeft(t *testing.T, f *fixture) {
	runs := f.bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 2 })
	f.expect("acquired", f.acquire(runs...), []int{1, 2})
	f.again(runs[1], failure(runs[1].ScheduledAt), dispatcher.NextAttempt{At: t0.Add(time.Hour), Until: t0.Add(2 * time.Hour)})
	f.expect("released", f.letGoOfSlots(), 0)
	f.expect("slots", f.holders(), []int{1, 2})
	f.must(f.CancelRun(t.Context(), runs[0].String(), at(t0)))
	left, err := f.LeftSlots(t.Context(), nodeB, dispatcher.SlotKey{}, 10)
	f.must(err)
	f.expect("left by another node", len(left.Runs), 0)
	f.expect("released by its own", f.letGoOfSlots(), 1)
	f.expect("slots then", f.holders(), []int{2})
	f.expect("woken", minutesOf(f.adopted(nodeA, token2)), []int{3})
}

func testLeftSlotsInPages(t *testing.T, f *fixture) {
	runs := f.bounded(5, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 5 })
	f.expect("acquired", f.acquire(runs...), []int{1, 2, 3, 4, 5})
	for _, i := range []int{0, 3, 4} {
		f.must(f.CancelRun(t.Context(), runs[i].String(), at(t0)))
	}
	var found []run.HeldRun
	for after, more := (dispatcher.SlotKey{}), true; more; {
		page, err := f.LeftSlots(t.Context(), nodeA, after, 2)
		f.must(err)
		found = append(found, page.Runs...)
		after, more = page.Last, page.More
	}
	f.expect("found", minutesOf(found), []int{1, 4, 5})
	tokens := map[run.Token]bool{}
	for _, run := range found {
		tokens[run.Token] = true
	}
	f.expect("their tokens", slices.Sorted(maps.Keys(tokens)), []run.Token{runs[0].Token, runs[3].Token, runs[4].Token})
}

// The slot of an endpoint goes the same way. A run that only waits for one has none, and no node.
func testLeftSlotsOfEndpoints(t *testing.T, f *fixture) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, nil)
	f.occupy("a", runs[0])
	f.occupy("a", runs[1])
	f.must(f.CancelRun(t.Context(), runs[0].String(), at(t0)))
	f.must(f.GrantWaiting(t.Context()))
	f.expect("woken while the request may be in flight", minutesOf(f.adopted(nodeA, 88)), []int{})
	f.expect("released", f.letGoOfSlots(), 1)
	f.expect("woken", minutesOf(f.adopted(nodeA, 89)), []int{2})
	f.expect("released again", f.letGoOfSlots(), 0)
}

// leaks are what verify finds of the app "shop" much later.
func (f *fixture) leaks() []string {
	f.Helper()
	page, err := verify.Ledger(f.Context(), f.Store, verify.Query{App: "shop", Now: t0.Add(10 * time.Hour), Page: input.Page{Limit: 1}})
	f.must(err)
	list := []string{}
	for _, leak := range page.Leaks {
		text := string(leak.Kind) + " " + leak.Job
		if leak.Run != "" {
			key, err := run.ParseKey(leak.Run)
			f.must(err)
			text += fmt.Sprintf(" %d", int(key.ScheduledAt.Sub(t0)/time.Minute))
		}
		if leak.Of != "" {
			text += " of " + leak.Of
		}
		if leak.Node != nil {
			text += " on " + leak.Node.String()
		}
		list = append(list, text)
	}
	return list
}

func testLeaks(t *testing.T, f *fixture) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, func(j *dispatcher.Job) { j.MaxConcurrency = 2 })
	f.expect("acquired", f.acquire(runs...), []int{1, 2})
	f.occupy("a", runs[0])
	f.expect("while they are live", f.leaks(), []string{})
	f.must(f.CancelRun(t.Context(), runs[0].String(), at(t0)))
	waiting := f.claimOne("waits")
	f.waits(waiting, waitOf("waits", "down.example.com"))
	f.putFollowed(onFailure("child"))
	f.recordFollowed(f.fireOf("parent"), failure(t0))
	f.expect("while one waits for its host", f.leaks(), []string{
		"following parent 1", "slot tick 1 on " + nodeA.String(), "slot tick 1 of a on " + nodeA.String(),
	})
	page, err := verify.Ledger(t.Context(), f.Store, verify.Query{App: "shop", Now: t0.Add(4 * time.Minute), Page: input.Page{Limit: 1}})
	f.must(err)
	f.expect("leaks of a moment", len(page.Leaks), 0)
	f.must(f.CancelRun(t.Context(), waiting.String(), at(t0)))
	f.letGoOfSlots()
	f.followEnds(t0)
	f.expect("what is left", f.leaks(), []string{"host_wait waits of down.example.com"})
}

// A slot that outlived its job could never be released: its release locks the row of the job.
func testRetentionOfSlots(t *testing.T, f *fixture) {
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 2 })
	f.expect("acquired", f.acquire(runs...), []int{1, 2})
	f.waits(runs[1], waitOf("tick", "down.example.com"))
	for _, run := range runs {
		f.must(f.CancelRun(t.Context(), run.String(), at(t0)))
	}
	f.must(f.DeleteJob(t.Context(), "shop", "tick", at(t0)))
	f.purge(t0.AddDate(0, 0, 60))
	if names, err := f.EveryJobName(t.Context(), "shop", input.Page{Limit: 10}); err != nil || len(names) != 0 {
		t.Fatalf("jobs %v, %v, want the job purged", names, err)
	}
	left, err := f.LeftSlots(t.Context(), nodeA, dispatcher.SlotKey{}, 10)
	f.must(err)
	f.expect("slots that are left", len(left.Runs), 0)
	dropped, err := f.DropHostWait(t.Context(), waitOf("tick", "down.example.com").ID)
	f.must(err)
	f.expect("a wait that is left", dropped, false)
}

// The run went elsewhere with its app, and ends here as cancelled. Its node may still have its request in flight.
func testSlotsOfImportedApp(t *testing.T, f *fixture) {
	for _, change := range []func(*dispatcher.Job){
		func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid },
		func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue },
	} {
		j := job("tick", nil)
		change(&j)
		f.put(j, t0)
		f.setApp(false)
		export, err := f.ExportApp(t.Context(), "shop")
		f.must(err)
		f.setApp(true)
		f.must(f.RequestRun(t.Context(), "shop", "tick", nil, at(t0)))
		runs := f.adopted(nodeA, token1)
		f.expect("acquired", len(f.acquire(runs...)), 1)
		f.must(f.DeleteJob(t.Context(), "shop", "tick", at(t0)))
		f.must(f.DeleteApp(t.Context(), "shop", at(t0)))
		f.must(f.ImportApp(t.Context(), export, at(t0)))
		f.expect("the run", f.run(runs[0].Key).State, run.Cancelled)
		f.expect("slots while the request may be in flight", len(f.holders()), 1)
		f.expect("released", f.letGoOfSlots(), 1)
		f.expect("leaks", f.leaks(), []string{})
		f.setApp(true)
		f.must(f.RequestRun(t.Context(), "shop", "tick", nil, at(t0.Add(time.Minute))))
		next := f.adopted(nodeA, token2)
		f.expect("acquired by the next", len(f.acquire(next...)), 1)
		f.must(f.Record(t.Context(), records(next...)))
	}
}

func testReleaseRun(t *testing.T, f *fixture) {
	runs := f.bounded(2, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.expect("acquired", f.acquire(runs...), []int{1})
	_, err := f.ReleaseRun(t.Context(), runs[0].String(), at(t0))
	wantConflict(t, "release a live run", err)
	f.must(f.CancelRun(t.Context(), runs[0].String(), at(t0)))
	f.must(f.GrantWaiting(t.Context()))
	f.expect("slots while the request may be in flight", f.holders(), []int{1})
	if r, err := f.ReleaseRun(t.Context(), runs[0].String(), at(t0)); err != nil || r.State != run.Cancelled {
		t.Errorf("released: %+v, %v, want the cancelled run", r, err)
	}
	f.expect("slots", f.holders(), []int{})
	f.expect("woken", minutesOf(f.adopted(nodeA, token2)), []int{2})
	_, err = f.ReleaseRun(t.Context(), runs[0].String(), at(t0))
	wantConflict(t, "release it again", err)
	_, err = f.ReleaseRun(t.Context(), run.Key{TriggerID: 1, ScheduledAt: t0, Kind: run.KindManual}.String(), at(t0))
	wantError(t, "release an unknown run", err, dispatcher.ErrNotFound)
	entries := f.auditLog(access.AuditQuery{Subject: "run " + runs[0].String()})
	if len(entries) == 0 || entries[0].Action != "release" {
		t.Errorf("the latest audit entries are %+v, want the release", entries)
	}
}
