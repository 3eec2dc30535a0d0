package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

func testRecord(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("tick")
	failed := run.Outcome{
		State: run.Failed, StartedAt: t0.Add(time.Minute), EndedAt: t0.Add(2 * time.Minute),
		HTTPStatus: 500, Class: run.ClassHTTP5xx, Error: "it's \"broken\" – 壊",
	}
	f.must(f.Record(ctx, []dispatcher.Record{record(held, failed)}))
	check := func(what string) {
		t.Helper()
		r := f.run(held.Key)
		want := []run.Attempt{{
			Attempt: 1, Node: nodeA, State: failed.State, StartedAt: failed.StartedAt, EndedAt: failed.EndedAt,
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
	f.must(f.Record(ctx, []dispatcher.Record{record(held, failed)}))
	check("recorded again")
	f.must(f.Record(ctx, []dispatcher.Record{record(held, outcome(t0))}))
	check("recorded otherwise")
	stranger := record(held, outcome(t0))
	stranger.Token = token2
	f.must(f.Record(ctx, []dispatcher.Record{stranger}))
	check("recorded under another token")
	nobody := record(held, outcome(t0))
	nobody.ScheduledAt = t0.Add(99 * time.Hour)
	f.must(f.Record(ctx, []dispatcher.Record{nobody}))
	f.must(f.Record(ctx, nil))
}

// What a server answers may be any bytes; none of them keeps a result from being stored.
func testRecordAnyText(t *testing.T, f *fixture) {
	ctx := t.Context()
	const text, want = "malformed \x00 header \xff\xfe: 壊", "malformed  header \uFFFD: 壊"
	ended, taken := f.claimOne("tick"), f.claimOne("tock")
	failed := run.Outcome{State: run.Failed, StartedAt: t0, EndedAt: t0.Add(time.Second),
		Class: run.ClassProtocol, Error: text}
	f.must(f.CancelRun(ctx, taken.String(), at(t0.Add(time.Minute))))
	f.must(f.Record(ctx, []dispatcher.Record{record(ended, failed), record(taken, failed)}))
	if got := f.run(ended.Key); got.State != run.Failed || got.Error != want {
		t.Errorf("run is %s with error %q, want failed with %q", got.State, got.Error, want)
	}
	if got := f.run(taken.Key); len(got.Attempts) != 1 || got.Attempts[0].Late == nil || got.Attempts[0].Late.Error != want {
		t.Errorf("late result: got %+v, want one with error %q", got.Attempts, want)
	}
	f.must(f.Quarantine(ctx, ended.TriggerID, ended.Revision, text))
	j, err := f.Job(ctx, "shop", "tick")
	f.must(err)
	if got := j.Triggers["tick"].Error; got != want {
		t.Errorf("reason of the quarantine: got %q, want %q", got, want)
	}
}

func testRelease(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("tick")
	stranger := held
	stranger.Token = token2
	f.must(f.Release(ctx, []run.HeldRun{stranger}))
	if got := f.run(held.Key).State; got != run.Claimed {
		t.Errorf("released under another token: run is %s, want claimed", got)
	}
	f.must(f.Release(ctx, []run.HeldRun{held}))
	if r := f.run(held.Key); r.State != run.Queued || r.Attempt != 0 || r.Node != nil || r.ClaimedAt != nil {
		t.Errorf("released: got %+v, want queued with no attempt", r)
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 10, Now: t0})
	f.must(err)
	held.Token, held.ClaimedAt, held.Live = token2, t0, true
	if diff := cmp.Diff([]run.HeldRun{held}, adopted); diff != "" {
		t.Error("adopted after the release, attempt not consumed (-want +got):\n" + diff)
	}
	if run := f.run(held.Key); len(run.Attempts) != 0 {
		t.Errorf("a release left attempts %+v", run.Attempts)
	}
}

func testAdopt(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("tick")
	query := dispatcher.AdoptQuery{Node: nodeB, Token: token2, Limit: 10, Now: t0.Add(5 * time.Minute)}
	if f.both() {
		if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
			t.Errorf("adopt from the living: got %v, %v, want none", got, err)
		}
		f.must(f.Deregister(ctx, nodeA))
	}
	query.Apps = []string{"books"}
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopt for another app: got %v, %v, want none", got, err)
	}
	query.Apps = []string{"shop"}
	f.must(f.SetNodeState(ctx, nodeB, dispatcher.NodePaused, at(t0)))
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopted by a paused node: got %v, %v, want none", got, err)
	}
	f.must(f.SetNodeState(ctx, nodeB, dispatcher.NodeActive, at(t0)))
	f.must(f.PutApp(ctx, access.App{Name: "shop"}, at(t0)))
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopted of a disabled app: got %v, %v, want none", got, err)
	}
	f.putApp("shop")
	edited := f.putEvery("tick", time.Hour) // the second attempt is made as the job is then
	adopted, err := f.Adopt(ctx, query)
	f.must(err)
	second := held
	second.Token, second.Attempt, second.Revision = token2, 2, edited.Revision
	second.ClaimedAt, second.Live = query.Now, true
	if diff := cmp.Diff([]run.HeldRun{second}, adopted); diff != "" || second.Revision == held.Revision {
		t.Fatal("adopted from the dead (-want +got):\n" + diff)
	}
	if got, err := f.Adopt(ctx, query); err != nil || len(got) != 0 {
		t.Errorf("adopted twice: got %v, %v, want none", got, err)
	}

	// The first node was only slow: its result is kept next to the run and does not overwrite it.
	late := outcome(t0.Add(time.Minute))
	f.must(f.Record(ctx, []dispatcher.Record{record(held, late)}))
	r := f.run(held.Key)
	if r.State != run.Claimed || r.Attempt != 2 || r.Node == nil || *r.Node != nodeB {
		t.Errorf("after a late result: got %+v, want attempt 2 claimed by the second node", r)
	}
	done := outcome(t0.Add(6 * time.Minute))
	ours := record(second, done)
	ours.Node = nodeB
	f.must(f.Record(ctx, []dispatcher.Record{ours, record(held, late)}))
	r = f.run(held.Key)
	want := []run.Attempt{
		{
			Attempt: 1, Node: nodeA, State: run.Lost, StartedAt: t0.Add(time.Minute), EndedAt: query.Now,
			Class: run.ClassOther, Error: "the node died", Late: &late,
		},
		{Attempt: 2, Node: nodeB, State: run.Succeeded, StartedAt: done.StartedAt, EndedAt: done.EndedAt, HTTPStatus: 200},
	}
	if diff := cmp.Diff(want, r.Attempts); diff != "" || r.State != run.Succeeded {
		t.Errorf("run is %s, attempts (-want +got):\n%s", r.State, diff)
	}
}

// The oldest come first, so what waits is not overtaken for ever.
func testAdoptFairly(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putEvery("tick", time.Minute)
	for i := range 5 {
		f.must(f.RequestRun(ctx, "shop", "tick", nil, at(t0.Add(time.Duration(5-i)*time.Second))))
	}
	var got []string
	for i := range 3 {
		adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: run.Token(i + 1), Limit: 2, Now: t0})
		f.must(err)
		for _, run := range adopted {
			got = append(got, run.ScheduledAt.Format("05"))
		}
	}
	if diff := cmp.Diff([]string{"01", "02", "03", "04", "05"}, got); diff != "" {
		t.Error("in the order of adoption (-want +got):\n" + diff)
	}
}

func testManualRun(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putEvery("tick", time.Minute)
	r, err := f.RequestRun(ctx, "shop", "tick", nil, at(t0))
	f.must(err)
	if r.State != run.Queued || r.Attempt != 0 || r.Kind != run.KindManual || r.Trigger != "" ||
		r.Node != nil || !r.ScheduledAt.Equal(t0) || r.Revision != 1 {
		t.Errorf("requested: got %+v, want a queued manual run of now", r)
	}
	again, err := f.RequestRun(ctx, "shop", "tick", nil, at(t0))
	f.must(err)
	if again.ID == r.ID {
		t.Error("two requests of one millisecond made one run")
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token1, Limit: 1, Now: t0})
	f.must(err)
	key, err := run.ParseKey(r.ID)
	f.must(err)
	if diff := cmp.Diff([]run.HeldRun{{Key: key, JobID: run.JobID("shop", "tick"), Revision: 1,
		Token: token1, Attempt: 1, ClaimedAt: t0, Live: true}}, adopted); diff != "" {
		t.Error("adopted (-want +got):\n" + diff)
	}
	if got := f.run(key); got.State != run.Claimed || len(got.Attempts) != 0 {
		t.Errorf("adopted: got %+v, want claimed, no attempt over", got)
	}
	_, err = f.RequestRun(ctx, "shop", "none", nil, at(t0))
	wantError(t, "request a run of no job", err, dispatcher.ErrNotFound)
}

func testCancel(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("tick")
	r, err := f.CancelRun(ctx, held.String(), at(t0.Add(2*time.Minute)))
	f.must(err)
	if r.State != run.Cancelled || r.EndedAt == nil || !r.EndedAt.Equal(t0.Add(2*time.Minute)) ||
		r.Class != run.ClassCancelled {
		t.Errorf("cancelled: got %+v", r)
	}
	_, err = f.CancelRun(ctx, held.String(), at(t0))
	wantError(t, "cancel twice", err, dispatcher.ErrConflict)
	late := outcome(t0.Add(time.Minute))
	f.must(f.Record(ctx, []dispatcher.Record{record(held, late)}))
	f.must(f.Record(ctx, []dispatcher.Record{record(held, late)}))
	r = f.run(held.Key)
	if r.State != run.Cancelled || len(r.Attempts) != 1 || r.Attempts[0].State != run.Cancelled {
		t.Fatalf("after its result came: got %+v, want cancelled", r)
	}
	if diff := cmp.Diff(&late, r.Attempts[0].Late); diff != "" {
		t.Error("late result (-want +got):\n" + diff)
	}

	queued, err := f.RequestRun(ctx, "shop", "tick", nil, at(t0))
	f.must(err)
	queued, err = f.CancelRun(ctx, queued.ID, at(t0))
	if err != nil || queued.State != run.Cancelled || len(queued.Attempts) != 0 {
		t.Errorf("cancelled in the queue: got %+v, %v", queued, err)
	}
	if got, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 10, Now: t0}); err != nil || len(got) != 0 {
		t.Errorf("adopted cancelled runs: %v, %v", got, err)
	}
	for _, id := range []string{"nonsense", run.Key{TriggerID: 1, ScheduledAt: t0, Kind: run.KindManual}.String()} {
		_, err = f.CancelRun(ctx, id, at(t0))
		wantError(t, "cancel no run", err, dispatcher.ErrNotFound)
		_, err = f.Store.Run(ctx, id)
		wantError(t, "read no run", err, dispatcher.ErrNotFound)
	}
}

func testRetry(t *testing.T, f *fixture) {
	ctx := t.Context()
	held := f.claimOne("tick")
	_, err := f.RetryRun(ctx, held.String(), at(t0))
	wantError(t, "retry a live run", err, dispatcher.ErrConflict)
	failed := run.Outcome{State: run.TimedOut, StartedAt: t0, EndedAt: t0.Add(time.Second),
		Class: run.ClassTimeout, Error: "slow"}
	f.must(f.Record(ctx, []dispatcher.Record{record(held, failed)}))
	f.editEvery("tick", time.Minute) // a retry runs the job as it is then
	r, err := f.RetryRun(ctx, held.String(), at(t0))
	f.must(err)
	if r.Revision != 2 || r.State != run.Queued || r.EndedAt != nil || r.Class != "" ||
		r.Error != "" || len(r.Attempts) != 1 {
		t.Errorf("queued again: got %+v", r)
	}
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeA, Token: token2, Limit: 10, Now: t0})
	f.must(err)
	if len(adopted) != 1 || adopted[0].Attempt != 2 || adopted[0].Revision != 2 {
		t.Fatalf("adopted: got %+v, want attempt 2 of revision 2", adopted)
	}
	f.must(f.Record(ctx, []dispatcher.Record{record(held, failed)})) // once more, after its response was lost
	f.must(f.Record(ctx, []dispatcher.Record{record(adopted[0], outcome(t0))}))
	r = f.run(held.Key)
	if len(r.Attempts) != 2 || r.Attempts[0].State != run.TimedOut || r.Attempts[0].Late != nil ||
		r.Attempts[1].State != run.Succeeded || r.State != run.Succeeded {
		t.Errorf("at the end: got %+v, want a time-out and a success", r)
	}
}

func testRuns(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putApp("books")
	f.put(job("two", map[string]dispatcher.Trigger{
		"x": every(time.Minute, t0.Add(time.Minute)), "y": every(time.Minute, t0.Add(time.Minute)),
	}), t0)
	f.putEvery("one", time.Minute)
	for range 3 { // at minutes 1, 2 and 3: runs of x, y and one's tick
		var advances []dispatcher.Advance
		for _, d := range f.dueAll(t0.Add(time.Hour)) {
			advances = append(advances, f.advance(d))
		}
		for _, held := range f.claim(advances...) {
			if held.ScheduledAt.Equal(t0.Add(time.Minute)) {
				f.must(f.Record(ctx, []dispatcher.Record{record(held, outcome(t0))}))
			}
		}
	}
	f.must(f.RequestRun(ctx, "shop", "one", nil, at(t0.Add(150*time.Second))))
	f.must(f.DeleteJob(ctx, "shop", "two", at(t0.Add(3*time.Minute))))

	list := func(q dispatcher.RunQuery) []string {
		t.Helper()
		q.Page.Limit = 2
		got := []string{}
		for {
			page, err := f.Runs(ctx, q)
			f.must(err)
			for _, run := range page {
				got = append(got, run.Job+"/"+run.Trigger+" "+run.ScheduledAt.Format("04:05"))
				q.Page.Cursor = run.ID
			}
			if len(page) < 2 {
				return got
			}
		}
	}
	check := func(what string, q dispatcher.RunQuery, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), list(q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if got := list(dispatcher.RunQuery{App: "shop"}); len(got) != 10 || got[3] != "one/ 02:30" {
		t.Errorf("runs of the app: got %q, want 10, the manual run fourth", got)
	}
	if got := list(dispatcher.RunQuery{}); len(got) != 10 {
		t.Errorf("all runs: got %q, want 10", got)
	}
	check("of an app without runs", dispatcher.RunQuery{App: "books"})
	check("of a job", dispatcher.RunQuery{App: "shop", Job: "one"}, "one/tick 03:00", "one/ 02:30", "one/tick 02:00", "one/tick 01:00")
	check("of a deleted trigger", dispatcher.RunQuery{App: "shop", Job: "two", Trigger: "x"}, "two/x 03:00", "two/x 02:00", "two/x 01:00")
	check("in a state", dispatcher.RunQuery{App: "shop", Job: "one", State: run.Succeeded}, "one/tick 01:00")
	check("queued", dispatcher.RunQuery{App: "shop", State: run.Queued}, "one/ 02:30")
	check("between instants", dispatcher.RunQuery{App: "shop", Job: "one", From: t0.Add(2 * time.Minute), To: t0.Add(150 * time.Second)},
		"one/ 02:30", "one/tick 02:00")
	for _, q := range []dispatcher.RunQuery{{App: "none"}, {App: "shop", Job: "none"}, {App: "shop", Job: "one", Trigger: "none"}} {
		q.Page.Limit = 1
		_, err := f.Runs(ctx, q)
		wantError(t, "runs of what never existed", err, dispatcher.ErrNotFound)
		_, err = f.Misfires(ctx, q)
		wantError(t, "misfires of what never existed", err, dispatcher.ErrNotFound)
	}
}

func testMisfires(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.putEvery("tick", time.Minute)
	f.putEvery("tock", time.Minute)
	for range 3 {
		var settlements []dispatcher.Settlement
		for _, d := range f.dueAll(t0.Add(time.Hour)) {
			settlements = append(settlements, dispatcher.Settlement{Advance: f.advance(d), To: d.NextFireTime, Count: 1,
				Decision: dispatcher.DecisionSkip})
		}
		f.must(f.Settle(ctx, dispatcher.SettleBatch{Node: nodeA, Token: token1, Settlements: settlements, Now: t0.Add(time.Hour)}))
	}
	list := func(q dispatcher.RunQuery) []string {
		t.Helper()
		q.Page.Limit = 1
		got := []string{}
		for {
			page, err := f.Misfires(ctx, q)
			f.must(err)
			if len(page) == 0 {
				return got
			}
			got = append(got, page[0].Job+" "+page[0].From.Format("04:05"))
			q.Page.Cursor = page[0].Cursor()
		}
	}
	if got := list(dispatcher.RunQuery{App: "shop"}); len(got) != 6 {
		t.Errorf("misfires of the app: got %q, want 6", got)
	}
	if diff := cmp.Diff([]string{"tock 03:00", "tock 02:00", "tock 01:00"},
		list(dispatcher.RunQuery{App: "shop", Job: "tock", Trigger: "tick"})); diff != "" {
		t.Error("of a trigger (-want +got):\n" + diff)
	}
	if diff := cmp.Diff([]string{"tick 02:00"}, list(dispatcher.RunQuery{App: "shop", Job: "tick",
		From: t0.Add(2 * time.Minute), To: t0.Add(2 * time.Minute)})); diff != "" {
		t.Error("between instants (-want +got):\n" + diff)
	}
}

// What was begun may have been sent: of a dead node it ends as lost, and nobody repeats it.
// What a node surely did not send is handed on, and its attempt is not consumed.
func testAdoptUnsent(t *testing.T, f *fixture) {
	ctx := t.Context()
	for _, name := range []string{"same", "changed"} {
		j := job(name, map[string]dispatcher.Trigger{"tick": every(time.Minute, minutes(1))})
		j.Delivery = dispatcher.AtMostOnce
		f.put(j, t0)
	}
	for _, d := range f.dueAll(minutes(1)) {
		if held := f.claim(f.advance(d)); len(held) != 1 || held[0].Attempt != 1 {
			t.Fatalf("claimed %+v, want the first attempt", held)
		}
	}
	f.must(f.PauseJob(ctx, "shop", "changed", "", true, at(minutes(1)))) // of which the node may not have known
	f.register(nodeB)
	f.must(f.Deregister(ctx, nodeA))
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeB, Token: token2, Limit: 10, Now: t0.Add(time.Hour)})
	f.must(err)
	if len(adopted) != 2 {
		t.Fatalf("adopted %+v, want both", adopted)
	}
	for _, held := range adopted {
		run := f.run(held.Key)
		attempt, lost := 1, 0
		if run.Job == "changed" {
			attempt, lost = 2, 1
		}
		if held.Attempt != attempt || run.Attempt != attempt || len(run.Attempts) != lost {
			t.Errorf("job %s: attempt %d, and %d that are over; want %d and %d", run.Job, held.Attempt, len(run.Attempts), attempt, lost)
		}
	}
}

func testBegin(t *testing.T, f *fixture) {
	ctx := t.Context()
	begun, waiting := f.claimOne("begun"), f.claimOne("waiting")
	fenced := begun
	fenced.Token = token2
	for range 2 { // doing it again changes nothing
		got, err := f.Begin(ctx, []run.HeldRun{begun, fenced})
		f.must(err)
		want := begun
		want.Live = true // it left its claim to begin
		if diff := cmp.Diff([]run.HeldRun{want}, got); diff != "" {
			t.Errorf("begun (-want +got):\n%s", diff)
		}
	}
	if r := f.run(begun.Key); r.State != run.Running || r.StartedAt == nil {
		t.Errorf("a begun run: got %+v", r)
	}
	if n, err := f.FailLostRuns(ctx, t0.Add(time.Hour)); err != nil || n != 0 {
		t.Errorf("lost runs of live nodes: got %d, %v", n, err)
	}
	f.register(nodeB)
	f.must(f.Deregister(ctx, nodeA))
	adopted, err := f.Adopt(ctx, dispatcher.AdoptQuery{Node: nodeB, Token: token2, Limit: 10, Now: t0.Add(time.Hour)})
	f.must(err)
	if len(adopted) != 1 || adopted[0].Key != waiting.Key {
		t.Errorf("adopted: got %+v, want only what was not begun", adopted)
	}
	// Of a job that does not say before it sends, nobody knows; see testAdoptUnsent for the others.
	if run := f.run(waiting.Key); run.Attempt != 2 || len(run.Attempts) != 1 {
		t.Errorf("adopted: got %+v, want its second attempt", run)
	}
	if n, err := f.FailLostRuns(ctx, t0.Add(time.Hour)); err != nil || n != 1 {
		t.Errorf("lost runs: got %d, %v, want 1", n, err)
	}
	if r := f.run(begun.Key); r.State != run.Lost || r.EndedAt == nil || !r.EndedAt.Equal(t0.Add(time.Hour)) {
		t.Errorf("a run lost with its node: got %+v, want it lost", r)
	}
	// The node was only slow: its result is kept next to the run and does not overwrite it.
	f.must(f.Record(ctx, []dispatcher.Record{record(begun, outcome(t0.Add(time.Minute)))}))
	r := f.run(begun.Key)
	if r.State != run.Lost || len(r.Attempts) != 1 || r.Attempts[0].Late == nil {
		t.Errorf("after a late result: got %+v, want it kept next to the run", r)
	}
	if got, err := f.Begin(ctx, []run.HeldRun{begun}); err != nil || len(got) != 0 {
		t.Errorf("begun after it was lost: got %v, %v", got, err)
	}
}
