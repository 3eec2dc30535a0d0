package dispatch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/storetest/fixture"
)

func testRecord(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	failed := run.Outcome{
		State: run.Failed, StartedAt: fixture.T0.Add(time.Minute), EndedAt: fixture.T0.Add(2 * time.Minute),
		HTTPStatus: 500, Class: run.ClassHTTP5xx, Error: "it's \"broken\" – 壊",
	}
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, failed)}))
	check := func(what string) {
		t.Helper()
		r := f.RunOf(held.Key)
		want := []run.Attempt{{
			Attempt: 1, Node: fixture.NodeA, State: failed.State, StartedAt: failed.StartedAt, EndedAt: failed.EndedAt,
			HTTPStatus: 500, Class: failed.Class, Error: failed.Error,
		}}
		if diff := cmp.Diff(want, r.Attempts); diff != "" {
			t.Errorf("%s: attempts (-want +got):\n%s", what, diff)
		}
		if r.State != run.Failed || r.HTTPStatus != 500 || r.Class != failed.Class || r.Error != failed.Error ||
			r.StartedAt == nil || !r.StartedAt.Equal(failed.StartedAt) || r.EndedAt == nil || !r.EndedAt.Equal(failed.EndedAt) {
			t.Errorf("%s: got %+v, want the failure", what, r)
		}
	}
	check("recorded")
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, failed)}))
	check("recorded again")
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, fixture.Outcome(fixture.T0))}))
	check("recorded otherwise")
	stranger := fixture.Record(held, fixture.Outcome(fixture.T0))
	stranger.Token = fixture.Token2
	f.Must(f.Record(ctx, []dispatcher.Record{stranger}))
	check("recorded under another token")
	nobody := fixture.Record(held, fixture.Outcome(fixture.T0))
	nobody.ScheduledAt = fixture.T0.Add(99 * time.Hour)
	f.Must(f.Record(ctx, []dispatcher.Record{nobody}))
	f.Must(f.Record(ctx, nil))
}

// A server's response may contain any bytes; none of them prevents storing a result.
func testRecordAnyText(t *testing.T, f *wing) {
	ctx := t.Context()
	const text, want = "malformed \x00 header \xff\xfe: 壊", "malformed  header \uFFFD: 壊"
	ended, taken := f.ClaimOne("tick"), f.ClaimOne("tock")
	failed := run.Outcome{State: run.Failed, StartedAt: fixture.T0, EndedAt: fixture.T0.Add(time.Second),
		Class: run.ClassProtocol, Error: text}
	f.Must(f.CancelRun(ctx, taken.String(), fixture.At(fixture.T0.Add(time.Minute))))
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(ended, failed), fixture.Record(taken, failed)}))
	if got := f.RunOf(ended.Key); got.State != run.Failed || got.Error != want {
		t.Errorf("run is %s with error %q, want failed with %q", got.State, got.Error, want)
	}
	if got := f.RunOf(taken.Key); len(got.Attempts) != 1 || got.Attempts[0].Late == nil || got.Attempts[0].Late.Error != want {
		t.Errorf("late result: got %+v, want one with error %q", got.Attempts, want)
	}
	f.Must(f.Quarantine(ctx, ended.TriggerID, ended.Revision, text))
	j, err := f.Job(ctx, "shop", "tick")
	f.Must(err)
	if got := j.Triggers["tick"].Error; got != want {
		t.Errorf("reason of the quarantine: got %q, want %q", got, want)
	}
}

func testRelease(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	stranger := held
	stranger.Token = fixture.Token2
	f.Must(f.Release(ctx, []run.HeldRun{stranger}))
	if got := f.RunOf(held.Key).State; got != run.Claimed {
		t.Errorf("released under another token: run is %s, want claimed", got)
	}
	f.Must(f.Release(ctx, []run.HeldRun{held}))
	if r := f.RunOf(held.Key); r.State != run.Queued || r.Attempt != 0 || r.Node != nil || r.ClaimedAt != nil {
		t.Errorf("released: got %+v, want queued with no attempt", r)
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10, Now: fixture.T0})
	f.Must(err)
	held.Token, held.ClaimedAt, held.Live = fixture.Token2, fixture.T0, true
	if diff := cmp.Diff([]run.HeldRun{held}, adopted); diff != "" {
		t.Error("adopted after the release, attempt not consumed (-want +got):\n" + diff)
	}
	if run := f.RunOf(held.Key); len(run.Attempts) != 0 {
		t.Errorf("a release left attempts %+v", run.Attempts)
	}
}

// A node that missed the notification of the deletion may still have the job, or read it after its return.
func testAdoptOfDeletedJob(t *testing.T, f *wing) {
	due := fixture.T0.Add(5 * time.Minute)
	held := f.ClaimOne("tick")
	f.Again(held, fixture.Failure(fixture.T0), fixture.FailedUntil(due))
	f.Requested("tick")
	f.Must(f.DeleteJob(t.Context(), "shop", "tick", fixture.At(fixture.T0.Add(4*time.Minute))))
	adopted := append(f.AdoptRetries(due), f.AdoptIdle(fixture.NodeA, due)...)
	f.Expect("how many runs are adopted", len(adopted), 2)
	for _, run := range adopted {
		if run.Revision != -held.Revision {
			t.Errorf("run %s is adopted with revision %d, want %d, which no job has", run, run.Revision, -held.Revision)
		}
	}
}

func testAdopt(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	query := dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 10, Now: fixture.T0.Add(5 * time.Minute)}
	why := "the node died"
	if f.both() {
		why = "the node stopped"
		if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
			t.Errorf("adopt from the living: got %v, %v, want none", got, err)
		}
		f.Must(f.Deregister(ctx, fixture.NodeA))
	}
	query.Apps = []string{"books"}
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopt for another app: got %v, %v, want none", got, err)
	}
	query.Apps = []string{"shop"}
	f.Must(f.SetNodeState(ctx, fixture.NodeB, dispatcher.NodePaused, fixture.At(fixture.T0)))
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopted by a paused node: got %v, %v, want none", got, err)
	}
	f.Must(f.SetNodeState(ctx, fixture.NodeB, dispatcher.NodeActive, fixture.At(fixture.T0)))
	f.Must(f.PutApp(ctx, access.App{Name: "shop"}, fixture.At(fixture.T0)))
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopted of a disabled app: got %v, %v, want none", got, err)
	}
	f.DeclareApp("shop")
	edited := f.PutEvery("tick", time.Hour) // the second attempt uses the job as it is then
	adopted, err := f.Adopt(ctx, query)
	f.Must(err)
	second := held
	second.Token, second.Attempt, second.Revision = fixture.Token2, 2, edited.Revision
	second.ClaimedAt, second.Live = query.Now, true
	if diff := cmp.Diff([]run.HeldRun{second}, adopted); diff != "" || second.Revision == held.Revision {
		t.Fatal("adopted from the dead (-want +got):\n" + diff)
	}
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopted twice: got %v, %v, want none", got, err)
	}

	// The first node was only slow: its result is kept next to the run and does not overwrite it.
	late := fixture.Outcome(fixture.T0.Add(time.Minute))
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, late)}))
	r := f.RunOf(held.Key)
	if r.State != run.Claimed || r.Attempt != 2 || r.Node == nil || *r.Node != fixture.NodeB {
		t.Errorf("after a late result: got %+v, want attempt 2 claimed by the second node", r)
	}
	done := fixture.Outcome(fixture.T0.Add(6 * time.Minute))
	ours := fixture.Record(second, done)
	ours.Node = fixture.NodeB
	f.Must(f.Record(ctx, []dispatcher.Record{ours, fixture.Record(held, late)}))
	r = f.RunOf(held.Key)
	want := []run.Attempt{
		{
			Attempt: 1, Node: fixture.NodeA, State: run.Lost, StartedAt: fixture.T0.Add(time.Minute), EndedAt: query.Now,
			Class: run.ClassOther, Error: why, Late: &late,
		},
		{Attempt: 2, Node: fixture.NodeB, State: run.Succeeded, StartedAt: done.StartedAt, EndedAt: done.EndedAt, HTTPStatus: 200},
	}
	if diff := cmp.Diff(want, r.Attempts); diff != "" || r.State != run.Succeeded {
		t.Errorf("run is %s, attempts (-want +got):\n%s", r.State, diff)
	}
}

// The oldest come first, so waiting runs are not overtaken indefinitely.
func testAdoptFairly(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	for i := range 5 {
		f.Must(f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0.Add(time.Duration(5-i)*time.Second))))
	}
	var got []string
	for i := range 3 {
		adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: run.Token(i + 1), Limit: 2, Now: fixture.T0})
		f.Must(err)
		for _, run := range adopted {
			got = append(got, run.ScheduledAt.Format("05"))
		}
	}
	if diff := cmp.Diff([]string{"01", "02", "03", "04", "05"}, got); diff != "" {
		t.Error("in the order of adoption (-want +got):\n" + diff)
	}
}

func testManualRun(t *testing.T, f *wing) {
	ctx := t.Context()
	f.PutEvery("tick", time.Minute)
	r, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	if r.State != run.Queued || r.Attempt != 0 || r.Kind != run.KindManual || r.Trigger != "" ||
		r.Node != nil || !r.ScheduledAt.Equal(fixture.T0) || r.Revision != 1 {
		t.Errorf("requested: got %+v, want a queued manual run of now", r)
	}
	again, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	if again.ID == r.ID {
		t.Error("two requests of one millisecond made one run")
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token1, Limit: 1, Now: fixture.T0})
	f.Must(err)
	key, err := run.ParseKey(r.ID)
	f.Must(err)
	if diff := cmp.Diff([]run.HeldRun{{Key: key, JobID: run.JobID("shop", "tick"), Revision: 1,
		Token: fixture.Token1, Attempt: 1, ClaimedAt: fixture.T0, Live: true}}, adopted); diff != "" {
		t.Error("adopted (-want +got):\n" + diff)
	}
	if got := f.RunOf(key); got.State != run.Claimed || len(got.Attempts) != 0 {
		t.Errorf("adopted: got %+v, want claimed, no attempt over", got)
	}
	_, err = f.RequestRun(ctx, "shop", "none", nil, fixture.At(fixture.T0))
	fixture.WantError(t, "request a run of no job", err, dispatcher.ErrNotFound)
}

func testCancel(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	r, err := f.CancelRun(ctx, held.String(), fixture.At(fixture.T0.Add(2*time.Minute)))
	f.Must(err)
	if r.State != run.Cancelled || r.EndedAt == nil || !r.EndedAt.Equal(fixture.T0.Add(2*time.Minute)) ||
		r.Class != run.ClassCancelled {
		t.Errorf("cancelled: got %+v", r)
	}
	_, err = f.CancelRun(ctx, held.String(), fixture.At(fixture.T0))
	fixture.WantError(t, "cancel twice", err, dispatcher.ErrConflict)
	late := fixture.Outcome(fixture.T0.Add(time.Minute))
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, late)}))
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, late)}))
	r = f.RunOf(held.Key)
	if r.State != run.Cancelled || len(r.Attempts) != 1 || r.Attempts[0].State != run.Cancelled {
		t.Fatalf("after its result came: got %+v, want cancelled", r)
	}
	if diff := cmp.Diff(&late, r.Attempts[0].Late); diff != "" {
		t.Error("late result (-want +got):\n" + diff)
	}

	queued, err := f.RequestRun(ctx, "shop", "tick", nil, fixture.At(fixture.T0))
	f.Must(err)
	queued, err = f.CancelRun(ctx, queued.ID, fixture.At(fixture.T0))
	if err != nil || queued.State != run.Cancelled || len(queued.Attempts) != 0 {
		t.Errorf("cancelled in the queue: got %+v, %v", queued, err)
	}
	if got, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10,
		Now: fixture.T0}); err != nil || len(got) != 0 {
		t.Errorf("adopted cancelled runs: %v, %v", got, err)
	}
	for _, id := range []string{"nonsense", run.Key{TriggerID: 1, ScheduledAt: fixture.T0, Kind: run.KindManual}.String()} {
		_, err = f.CancelRun(ctx, id, fixture.At(fixture.T0))
		fixture.WantError(t, "cancel no run", err, dispatcher.ErrNotFound)
		_, err = f.Store.Run(ctx, id)
		fixture.WantError(t, "read no run", err, dispatcher.ErrNotFound)
	}
}

func testRetry(t *testing.T, f *wing) {
	ctx := t.Context()
	held := f.ClaimOne("tick")
	_, err := f.RetryRun(ctx, held.String(), fixture.At(fixture.T0))
	fixture.WantError(t, "retry a live run", err, dispatcher.ErrConflict)
	failed := run.Outcome{State: run.TimedOut, StartedAt: fixture.T0, EndedAt: fixture.T0.Add(time.Second),
		Class: run.ClassTimeout, Error: "slow"}
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, failed)}))
	f.EditEvery("tick", time.Minute) // a retry uses the job as it is then
	r, err := f.RetryRun(ctx, held.String(), fixture.At(fixture.T0))
	f.Must(err)
	if r.Revision != 2 || r.State != run.Queued || r.EndedAt != nil || r.Class != "" ||
		r.Error != "" || len(r.Attempts) != 1 {
		t.Errorf("queued again: got %+v", r)
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeA, Token: fixture.Token2, Limit: 10, Now: fixture.T0})
	f.Must(err)
	if len(adopted) != 1 || adopted[0].Attempt != 2 || adopted[0].Revision != 2 {
		t.Fatalf("adopted: got %+v, want attempt 2 of revision 2", adopted)
	}
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(held, failed)})) // again, after its response was lost
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(adopted[0], fixture.Outcome(fixture.T0))}))
	r = f.RunOf(held.Key)
	if len(r.Attempts) != 2 || r.Attempts[0].State != run.TimedOut || r.Attempts[0].Late != nil ||
		r.Attempts[1].State != run.Succeeded || r.State != run.Succeeded {
		t.Errorf("at the end: got %+v, want a time-out and a success", r)
	}
}

// Begun runs may have been sent: those of a dead node end as lost and are not repeated. Runs that a node certainly did
// not send are adopted, and their attempt is not consumed.
func testAdoptUnsent(t *testing.T, f *wing) {
	ctx := t.Context()
	for _, name := range []string{"same", "changed"} {
		j := fixture.Job(name, map[string]dispatcher.Trigger{"tick": fixture.Every(time.Minute, fixture.Minutes(1))})
		j.Delivery = dispatcher.AtMostOnce
		f.Put(j, fixture.T0)
	}
	for _, d := range f.DueAll(fixture.Minutes(1)) {
		if held := f.ClaimAll(f.Advance(d)); len(held) != 1 || held[0].Attempt != 1 {
			t.Fatalf("claimed %+v, want the first attempt", held)
		}
	}
	f.Must(f.PauseJob(ctx, "shop", "changed", "", true, fixture.At(fixture.Minutes(1)))) // perhaps unknown to the node
	f.AddNode(fixture.NodeB)
	f.Must(f.Deregister(ctx, fixture.NodeA))
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 10, Now: fixture.T0.Add(time.Hour)})
	f.Must(err)
	if len(adopted) != 2 {
		t.Fatalf("adopted %+v, want both", adopted)
	}
	for _, held := range adopted {
		run := f.RunOf(held.Key)
		attempt, lost := 1, 0
		if run.Job == "changed" {
			attempt, lost = 2, 1
		}
		if held.Attempt != attempt || run.Attempt != attempt || len(run.Attempts) != lost {
			t.Errorf("job %s: attempt %d, and %d that are over; want %d and %d", run.Job, held.Attempt, len(run.Attempts), attempt, lost)
		}
	}
}

func testBegin(t *testing.T, f *wing) {
	ctx := t.Context()
	begun, waiting := f.ClaimOne("begun"), f.ClaimOne("waiting")
	fenced := begun
	fenced.Token = fixture.Token2
	for range 2 { // repeating it changes nothing
		got, err := f.Begin(ctx, []run.HeldRun{begun, fenced})
		f.Must(err)
		want := begun
		want.Live = true // it left its claim to begin
		if diff := cmp.Diff([]run.HeldRun{want}, got); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
	}
	if r := f.RunOf(begun.Key); r.State != run.Running || r.StartedAt == nil {
		t.Errorf("a begun run: got %+v", r)
	}
	if n, err := f.FailLostRuns(ctx, fixture.T0.Add(time.Hour)); err != nil || n != 0 {
		t.Errorf("lost runs of live nodes: got %d, %v", n, err)
	}
	f.AddNode(fixture.NodeB)
	f.Must(f.Deregister(ctx, fixture.NodeA))
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: fixture.NodeB, Token: fixture.Token2, Limit: 10, Now: fixture.T0.Add(time.Hour)})
	f.Must(err)
	if len(adopted) != 1 || adopted[0].Key != waiting.Key {
		t.Errorf("adopted: got %+v, want only what was not begun", adopted)
	}
	// For a job without a begin step the outcome is unknown; see testAdoptUnsent for the others.
	if run := f.RunOf(waiting.Key); run.Attempt != 2 || len(run.Attempts) != 1 {
		t.Errorf("adopted: got %+v, want its second attempt", run)
	}
	if n, err := f.FailLostRuns(ctx, fixture.T0.Add(time.Hour)); err != nil || n != 1 {
		t.Errorf("lost runs: got %d, %v, want 1", n, err)
	}
	if r := f.RunOf(begun.Key); r.State != run.Lost || r.EndedAt == nil || !r.EndedAt.Equal(fixture.T0.Add(time.Hour)) ||
		!strings.HasPrefix(r.Error, "the node stopped when the request may have been sent") || r.Attempts[0].Error != "the node stopped" {
		t.Errorf("a run lost with its node: got %+v, want it lost", r)
	}
	// The node was only slow: its result is kept next to the run and does not overwrite it.
	f.Must(f.Record(ctx, []dispatcher.Record{fixture.Record(begun, fixture.Outcome(fixture.T0.Add(time.Minute)))}))
	r := f.RunOf(begun.Key)
	if r.State != run.Lost || len(r.Attempts) != 1 || r.Attempts[0].Late == nil {
		t.Errorf("after a late result: got %+v, want it kept next to the run", r)
	}
	if got, err := f.Begin(ctx, []run.HeldRun{begun}); err != nil || len(got) != 0 {
		t.Errorf("begun after it was lost: got %v, %v", got, err)
	}
}
