package dispatch

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
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

// runEnds are all ways in which a run with a slot can end. Each gets a run of nodeA of the job "tick".
var runEnds = map[string]func(*wing, run.HeldRun){
	"succeeds": func(f *wing, run run.HeldRun) {
		f.Must(f.Record(f.Context(), records(run)))
	},
	"fails for good": func(f *wing, run run.HeldRun) {
		f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(run, fixture.Failure(run.ScheduledAt))}))
	},
	"is given up between two attempts": func(f *wing, run run.HeldRun) {
		f.Again(run, fixture.Failure(run.ScheduledAt), dispatcher.NextAttempt{At: fixture.T0.Add(2 * time.Hour),
			Until: fixture.T0.Add(time.Hour)})
		f.Must(f.GiveUp(f.Context(), fixture.T0.Add(2*time.Hour)))
	},
	"is cancelled between two attempts": func(f *wing, run run.HeldRun) {
		f.Again(run, fixture.Failure(run.ScheduledAt), dispatcher.NextAttempt{At: fixture.T0.Add(2 * time.Hour),
			Until: fixture.T0.Add(3 * time.Hour)})
		f.Must(f.CancelRun(f.Context(), run.String(), fixture.At(fixture.T0)))
	},
	"is cancelled while it waits for its host": func(f *wing, run run.HeldRun) {
		f.Waits(run, fixture.WaitOf("tick", "down.example.com"))
		f.Must(f.CancelRun(f.Context(), run.String(), fixture.At(fixture.T0)))
	},
	"is cancelled in flight": func(f *wing, run run.HeldRun) {
		f.Must(f.CancelRun(f.Context(), run.String(), fixture.At(fixture.T0)))
	},
	"is replaced": func(f *wing, _ run.HeldRun) {
		j, err := f.Job(f.Context(), "shop", "tick")
		f.Must(err)
		j.ConcurrencyPolicy = run.ConcurrencyReplace
		f.Put(j, fixture.T0)
		newer := f.ClaimNext(fixture.Token2)
		f.AcquireSlots(newer)
		f.Must(f.CancelRun(f.Context(), newer.String(), fixture.At(fixture.T0)))
	},
	"is completed by its target": func(f *wing, run run.HeldRun) {
		f.accept(run, run.ScheduledAt)
		f.Must(f.complete(run.Key, 1, fixture.T0.Add(2*time.Minute)))
	},
	"is failed by its target": func(f *wing, run run.HeldRun) {
		f.accept(run, run.ScheduledAt)
		f.Must(f.fail(run.Key, 1, fixture.T0.Add(2*time.Minute)))
		f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(f.adoptEnded(fixture.T0.Add(2*time.Minute)),
			fixture.Failure(run.ScheduledAt))}))
	},
	"gets no callback": func(f *wing, run run.HeldRun) {
		deadline := f.accept(run, run.ScheduledAt)
		f.Must(f.Record(f.Context(), []dispatcher.Record{fixture.Record(f.adoptEnded(deadline), fixture.Failure(run.ScheduledAt))}))
	},
	"is lost with its node": func(f *wing, r run.HeldRun) {
		f.Must(f.Begin(f.Context(), []run.HeldRun{r}))
		f.Must(f.Deregister(f.Context(), fixture.NodeA))
		f.Must(f.FailLostRuns(f.Context(), fixture.T0.Add(time.Hour)))
	},
	"is lost because its node no longer attempts it": func(f *wing, r run.HeldRun) {
		begun, err := f.Begin(f.Context(), []run.HeldRun{r})
		f.Must(err)
		found, err := f.Begun(f.Context(), fixture.NodeA)
		f.Must(err)
		f.Expect("begun", fixture.MinutesOf(found), fixture.MinutesOf(begun))
		stranger := r
		stranger.Token++
		for _, tt := range []struct {
			run  run.HeldRun
			want int
		}{{stranger, 0}, {found[0], 1}, {found[0], 0}} {
			lost, err := f.LoseRuns(f.Context(), []run.HeldRun{tt.run}, fixture.T0.Add(2*time.Minute))
			f.Must(err)
			f.Expect("lost", lost, tt.want)
		}
		if got := f.RunOf(r.Key); got.State != run.Lost || len(got.Attempts) != 1 {
			f.Errorf("the run is %+v, want it lost with its attempt", got)
		}
	},
	"is adopted from a dead node and succeeds": func(f *wing, _ run.HeldRun) {
		f.AddNode(fixture.NodeB)
		f.Must(f.Deregister(f.Context(), fixture.NodeA))
		taken := f.adopted(fixture.NodeB, fixture.Token2)
		f.AcquireSlots(taken...)
		f.Must(f.Record(f.Context(), records(taken...)))
	},
	"is handed back and succeeds": func(f *wing, r run.HeldRun) {
		f.Must(f.Release(f.Context(), []run.HeldRun{r}))
		f.letGoOfSlots()
		again := f.adopted(fixture.NodeA, fixture.Token2)
		f.AcquireSlots(again...)
		f.Must(f.Record(f.Context(), records(again...)))
	},
	"is skipped after a rollback": func(f *wing, _ run.HeldRun) { f.resolveRollback(dispatcher.RollbackSkip) },
	"is skipped after a rollback in which its node died": func(f *wing, _ run.HeldRun) {
		f.Must(f.Deregister(f.Context(), fixture.NodeA))
		f.resolveRollback(dispatcher.RollbackSkip)
	},
	"is replayed after a rollback": func(f *wing, run run.HeldRun) {
		f.resolveRollback(dispatcher.RollbackReplay)
		f.Must(f.Record(f.Context(), records(run)))
	},
	"succeeds after its job was deleted and declared again": func(f *wing, run run.HeldRun) {
		j, err := f.Job(f.Context(), "shop", "tick")
		f.Must(err)
		f.Must(f.DeleteJob(f.Context(), "shop", "tick", fixture.At(fixture.T0)))
		f.Put(j, fixture.T0)
		f.Must(f.Record(f.Context(), records(run)))
	},
	"succeeds after its job was renamed there and back": func(f *wing, run run.HeldRun) {
		f.Rename("tick", "tock", nil, fixture.T0)
		f.Must(f.Record(f.Context(), records(run)))
		f.Rename("tock", "tick", nil, fixture.T0)
	},
	"is a broadcast and all its shards end": func(f *wing, run run.HeldRun) {
		f.spread(run, 2)
		f.Must(f.Record(f.Context(), records(f.adopted(fixture.NodeA, fixture.Token2)...)))
		f.endBroadcasts()
	},
	"is a broadcast that is cancelled with shards in flight": func(f *wing, run run.HeldRun) {
		f.spread(run, 2)
		f.Expect("shards in flight", len(f.adopted(fixture.NodeA, fixture.Token2)), 2)
		f.Must(f.CancelRun(f.Context(), run.String(), fixture.At(fixture.T0)))
	},
	"is a broadcast that is skipped after a rollback with shards in flight": func(f *wing, run run.HeldRun) {
		f.spread(run, 2)
		f.Expect("shards in flight", len(f.adopted(fixture.NodeA, fixture.Token2)), 2)
		f.resolveRollback(dispatcher.RollbackSkip)
	},
	"is a broadcast that is lost": func(f *wing, run run.HeldRun) {
		f.spread(run, 2)
		f.adopted(fixture.NodeA, fixture.Token2)
		f.Must(f.Deregister(f.Context(), fixture.NodeA))
		f.resolveRollback(dispatcher.RollbackSkip)
	},
}

// resolveRollback decides about a rollback, and lets the handler carry it out.
func (f *wing) resolveRollback(choice dispatcher.RollbackChoice) {
	f.Helper()
	later := fixture.At(fixture.T0.Add(90 * time.Second))
	f.Must(f.DeclareRollback(f.Context(), "restored", later))
	f.Must(f.ResolveRollback(f.Context(), choice, later))
	for after, more := int64(0), true; more; {
		done, err := f.SkipRolledBack(f.Context(), after, 10, fixture.T0.Add(2*time.Minute))
		f.Must(err)
		after, more = done.Last, done.More
	}
}

// letGoOfSlots does what nodes do on their own with slots of attempts that they no longer hold.
func (f *wing) letGoOfSlots() (released int) {
	f.Helper()
	for _, node := range []run.NodeID{fixture.NodeA, fixture.NodeB} {
		for after, more := (dispatcher.SlotKey{}), true; more; {
			left, err := f.LeftSlots(f.Context(), node, after, 1)
			f.Must(err)
			f.Must(f.ReleaseSlots(f.Context(), left.Runs))
			released, after, more = released+len(left.Runs), left.Last, left.More
		}
	}
	f.Must(f.GrantWaiting(f.Context()))
	return released
}

// slotEndTests test the slot of a run after each way in which it can end.
func slotEndTests() tests {
	all := tests{
		"a slot is not left while its node makes the attempt":    testSlotNotLeft,
		"slots that were left are found page by page":            testLeftSlotsInPages,
		"a job continues when an import brings its app back":     testSlotsOfImportedApp,
		"an operator can free the slot of a run":                 testReleaseSlot,
		"verify lists leftovers of ended runs":                   testLeaks,
		"slots of a cancelled run that waits are not its node's": testLeftSlotsOfEndpoints,
	}
	for name, end := range runEnds {
		all["a job continues when its run "+name] = func(t *testing.T, f *wing) {
			runs := f.Bounded(1, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid })
			f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
			end(f, runs[0])
			f.endBroadcasts()
			f.letGoOfSlots()
			f.Expect("slots", f.holders(), []int{})
			f.Must(f.DropHostWait(t.Context(), fixture.WaitOf("tick", "down.example.com").ID)) // as the probing node
			f.Expect("leaks", f.leaks(), []string{})
			f.AddNode(fixture.NodeC) // the first may be dead
			f.Must(f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0.Add(3*time.Minute))))
			f.Expect("acquired by the next", len(f.AcquireSlots(f.adopted(fixture.NodeC, 77)...)), 1)
		}
	}
	return all
}

// Slots of runs that the node holds are left alone, and so are slots that a run keeps without a node.
func testSlotNotLeft(t *testing.T, f *wing) {
	runs := f.Bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 2 })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1, 2})
	f.Again(runs[1], fixture.Failure(runs[1].ScheduledAt), dispatcher.NextAttempt{At: fixture.T0.Add(time.Hour),
		Until: fixture.T0.Add(2 * time.Hour)})
	f.Expect("released", f.letGoOfSlots(), 0)
	f.Expect("slots", f.holders(), []int{1, 2})
	f.Must(f.CancelRun(t.Context(), runs[0].String(), fixture.At(fixture.T0)))
	left, err := f.LeftSlots(t.Context(), fixture.NodeB, dispatcher.SlotKey{}, 10)
	f.Must(err)
	f.Expect("left by another node", len(left.Runs), 0)
	f.Expect("released by its own", f.letGoOfSlots(), 1)
	f.Expect("slots then", f.holders(), []int{2})
	f.Expect("woken", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token2)), []int{3})
}

func testLeftSlotsInPages(t *testing.T, f *wing) {
	runs := f.Bounded(5, func(j *dispatcher.Job) { j.ConcurrencyPolicy, j.MaxConcurrency = run.ConcurrencyQueue, 5 })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1, 2, 3, 4, 5})
	for _, i := range []int{0, 3, 4} {
		f.Must(f.CancelRun(t.Context(), runs[i].String(), fixture.At(fixture.T0)))
	}
	var found []run.HeldRun
	for after, more := (dispatcher.SlotKey{}), true; more; {
		page, err := f.LeftSlots(t.Context(), fixture.NodeA, after, 2)
		f.Must(err)
		found = append(found, page.Runs...)
		after, more = page.Last, page.More
	}
	f.Expect("found", fixture.MinutesOf(found), []int{1, 4, 5})
	tokens := map[run.Token]bool{}
	for _, run := range found {
		tokens[run.Token] = true
	}
	f.Expect("their tokens", slices.Sorted(maps.Keys(tokens)), []run.Token{runs[0].Token, runs[3].Token, runs[4].Token})
}

// The same holds for the slot of an endpoint. A run that only waits for one has no slot, and no node.
func testLeftSlotsOfEndpoints(t *testing.T, f *wing) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, nil)
	f.occupy("a", runs[0])
	f.occupy("a", runs[1])
	f.Must(f.CancelRun(t.Context(), runs[0].String(), fixture.At(fixture.T0)))
	f.Must(f.GrantWaiting(t.Context()))
	f.Expect("woken while the request may be in flight", fixture.MinutesOf(f.adopted(fixture.NodeA, 88)), []int{})
	f.Expect("released", f.letGoOfSlots(), 1)
	f.Expect("woken", fixture.MinutesOf(f.adopted(fixture.NodeA, 89)), []int{2})
	f.Expect("released again", f.letGoOfSlots(), 0)
}

// leaks are the leaks that verify finds in the app "shop" much later.
func (f *wing) leaks() []string {
	f.Helper()
	page, err := verify.Ledger(f.Context(), f.Store, verify.Query{App: "shop", Now: fixture.T0.Add(10 * time.Hour),
		Page: input.Page{Limit: 1}})
	f.Must(err)
	list := []string{}
	for _, leak := range page.Leaks {
		text := string(leak.Kind) + " " + leak.Job
		if leak.Run != "" {
			key, err := run.ParseKey(leak.Run)
			f.Must(err)
			text += fmt.Sprintf(" %d", int(key.ScheduledAt.Sub(fixture.T0)/time.Minute))
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

func testLeaks(t *testing.T, f *wing) {
	runs := f.perEndpoint(2, run.ConcurrencyQueue, func(j *dispatcher.Job) { j.MaxConcurrency = 2 })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1, 2})
	f.occupy("a", runs[0])
	f.Expect("while they are live", f.leaks(), []string{})
	f.Must(f.CancelRun(t.Context(), runs[0].String(), fixture.At(fixture.T0)))
	waiting := f.ClaimOne("waits")
	f.Waits(waiting, fixture.WaitOf("waits", "down.example.com"))
	f.PutFollowed(fixture.OnFailure("child"))
	f.RecordFollowed(f.FireOf("parent"), fixture.Failure(fixture.T0))
	f.Expect("while one waits for its host", f.leaks(), []string{
		"following parent 1", "slot tick 1 on " + fixture.NodeA.String(), "slot tick 1 of a on " + fixture.NodeA.String(),
	})
	page, err := verify.Ledger(t.Context(), f.Store, verify.Query{App: "shop", Now: fixture.T0.Add(4 * time.Minute),
		Page: input.Page{Limit: 1}})
	f.Must(err)
	f.Expect("leaks of a moment", len(page.Leaks), 0)
	f.Must(f.CancelRun(t.Context(), waiting.String(), fixture.At(fixture.T0)))
	f.letGoOfSlots()
	f.FollowAll(fixture.T0)
	f.Expect("what is left", f.leaks(), []string{"host_wait waits of down.example.com"})
}

// The run moved with its app, and ends here as cancelled. Its node may still have its request in flight.
func testSlotsOfImportedApp(t *testing.T, f *wing) {
	for _, change := range []func(*dispatcher.Job){
		func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyForbid },
		func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue },
	} {
		j := fixture.Job("tick", nil)
		change(&j)
		f.Put(j, fixture.T0)
		f.SetApp(false)
		export, err := f.ExportApp(t.Context(), "shop")
		f.Must(err)
		f.SetApp(true)
		f.Must(f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0)))
		runs := f.adopted(fixture.NodeA, fixture.Token1)
		f.Expect("acquired", len(f.AcquireSlots(runs...)), 1)
		f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(fixture.T0)))
		f.Must(f.DeleteApp(t.Context(), "shop", fixture.At(fixture.T0)))
		f.Must(f.ImportApp(t.Context(), export, fixture.At(fixture.T0)))
		f.Expect("the run", f.RunOf(runs[0].Key).State, run.Cancelled)
		f.Expect("slots while the request may be in flight", len(f.holders()), 1)
		f.Expect("released", f.letGoOfSlots(), 1)
		f.Expect("leaks", f.leaks(), []string{})
		f.SetApp(true)
		f.Must(f.RequestRun(t.Context(), "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Minute))))
		next := f.adopted(fixture.NodeA, fixture.Token2)
		f.Expect("acquired by the next", len(f.AcquireSlots(next...)), 1)
		f.Must(f.Record(t.Context(), records(next...)))
	}
}

func testReleaseSlot(t *testing.T, f *wing) {
	runs := f.Bounded(3, func(j *dispatcher.Job) { j.ConcurrencyPolicy = run.ConcurrencyQueue })
	f.Expect("acquired", f.AcquireSlots(runs...), []int{1})
	release := func(of run.HeldRun, cancel bool) (run.Run, error) {
		return f.ReleaseSlot(t.Context(), "shop", "tick", run.SlotRelease{Run: of.String(), Reason: "frozen", Cancel: cancel},
			fixture.At(fixture.T0))
	}
	_, err := release(runs[0], false)
	wantConflict(t, "release that of a live run", err)
	f.Must(f.CancelRun(t.Context(), runs[0].String(), fixture.At(fixture.T0)))
	f.Must(f.GrantWaiting(t.Context()))
	f.Expect("slots while the request may be in flight", f.holders(), []int{1})
	_, err = f.ReleaseSlot(t.Context(), "shop", "tick", run.SlotRelease{}, fixture.At(fixture.T0))
	f.Expect("problems without a reason", fmt.Sprint(err), "/reason: reason is missing; say why the slot is freed, for the audit log")
	one, err := f.ReleaseSlot(t.Context(), "shop", "tick", run.SlotRelease{Reason: "frozen"}, fixture.At(fixture.T0))
	f.Must(err)
	f.Expect("the run that had the only slot", one.ID+" "+string(one.State), runs[0].String()+" cancelled")
	f.Expect("slots", f.holders(), []int{})
	f.Expect("woken", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token2)), []int{2})
	_, err = release(runs[0], false)
	fixture.WantError(t, "release it again", err, dispatcher.ErrNotFound)
	_, err = f.ReleaseSlot(t.Context(), "shop", "tick", run.SlotRelease{Reason: "frozen"}, fixture.At(fixture.T0))
	wantConflict(t, "release without a slot", err)
	entries := f.AuditLog(access.AuditQuery{Subject: "job tick run " + runs[0].String()})
	if len(entries) == 0 || entries[0].Action != "release" || string(entries[0].After) != `{"cancelled":false,"reason":"frozen"}` {
		t.Errorf("the latest audit entries are %+v, want the release with its reason", entries)
	}
	held := runs[1]
	held.Token, held.Attempt = fixture.Token2, 1
	f.Expect("acquired by the next", f.AcquireSlots(held), []int{2})
	one, err = release(held, true)
	f.Must(err)
	f.Expect("a live run whose slot a person frees", one.State, run.Cancelled)
	f.Expect("the slots then", f.holders(), []int{})
	f.Expect("woken by that", fixture.MinutesOf(f.adopted(fixture.NodeA, fixture.Token2+1)), []int{3})
}
