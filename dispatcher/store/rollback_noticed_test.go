package store_test

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// unnoticed is a node with a database that lost commits but no connections, as behind a pooler, until a heartbeat.
type unnoticed struct {
	*testing.T
	*store.Store
	now time.Time
}

// claim claims the next fire of the job.
func (u unnoticed) claim(token run.Token) []run.HeldRun {
	u.Helper()
	due, err := u.Due(u.Context(), dispatcher.DueQuery{Until: u.now.Add(2 * time.Minute), Now: u.now, Limit: 10})
	must(u.T, err)
	if len(due) != 1 {
		u.Fatalf("%d triggers are due, want 1", len(due))
	}
	held, err := u.Claim(u.Context(), dispatcher.ClaimBatch{Node: firstNode, Token: token, Lead: time.Hour, Advances: []dispatcher.Advance{{
		TriggerID: due[0].ID, JobID: run.JobID("app", "job"), Revision: due[0].Revision, CalendarRevision: due[0].CalendarRevision,
		Prev: due[0].PrevFireTime, Next: due[0].NextFireTime, Then: due[0].NextFireTime.Add(time.Minute),
	}}})
	must(u.T, err)
	return held
}

// won claims a fire and expects to win it.
func (u unnoticed) won(token run.Token) run.HeldRun {
	u.Helper()
	held := u.claim(token)
	if len(held) != 1 {
		u.Fatalf("claimed %v under token %d, want one fire", held, token)
	}
	return held[0]
}

// succeeds records the success of an attempt.
func (u unnoticed) succeeds(r run.HeldRun) {
	u.Helper()
	must(u.T, u.Record(u.Context(), []dispatcher.Record{{Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt,
		Node: firstNode, Token: r.Token, Attempt: 1, Outcome: run.Outcome{State: run.Succeeded, StartedAt: u.now, EndedAt: u.now}}}))
}

// heartbeat sends a heartbeat, and returns the reply.
func (u unnoticed) heartbeat() dispatcher.HeartbeatReply {
	u.Helper()
	reply, err := u.Heartbeat(u.Context(), firstNode, dispatcher.NodeReport{}, time.Time{})
	must(u.T, err)
	return reply
}

// noticed returns the unsettled rollback; nil: none.
func (u unnoticed) noticed() *dispatcher.Rollback {
	u.Helper()
	rollback, err := u.Rollback(u.Context())
	must(u.T, err)
	return rollback
}

// is expects the state of a run.
func (u unnoticed) is(what string, r run.HeldRun, want run.State) {
	u.Helper()
	got, err := u.Store.Run(u.Context(), r.String())
	must(u.T, err)
	if got.State != want || got.Attempt != 1 {
		u.Errorf("%s: got %s in attempt %d, want %s in the first", what, got.State, got.Attempt, want)
	}
}

// allConnections is the size of a pool that opens them all at its start. New ones would notice the loss too early.
const allConnections = 5

// withAllConnections returns a database with such a pool.
func withAllConnections(t *testing.T, database string) string {
	t.Helper()
	at, err := url.Parse(database)
	must(t, err)
	query := at.Query()
	query.Set("pool_max_conns", strconv.Itoa(allConnections))
	query.Set("pool_min_conns", strconv.Itoa(allConnections))
	at.RawQuery = query.Encode()
	return at.String()
}

// awaitConnections waits until all connections, including that of heartbeats, are open.
func (u unnoticed) awaitConnections() {
	u.Helper()
	const open = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'carillon'`
	for {
		n, err := store.Count(u.Context(), u.Store, open)
		must(u.T, err)
		if n > allConnections {
			return
		}
	}
}

// rollBackUnnoticed makes a database lose a claim and a heartbeat after the first fire. The node then claims the lost
// fire again, and another one, before its heartbeat. It returns the three fires.
func rollBackUnnoticed(t *testing.T, database string) (u unnoticed, first, again, ended run.HeldRun) {
	t.Helper()
	postgres := !strings.HasPrefix(database, "sqlite:")
	if postgres {
		database = withAllConnections(t, database)
	}
	s, first := registered(t, database)
	u = unnoticed{t, s, time.Now().UTC().Truncate(time.Second)}
	if postgres {
		u.awaitConnections()
	}
	exec := func(statement string) {
		t.Helper()
		must(t, store.Exec(t.Context(), s, statement))
	}
	exec(`CREATE TABLE restored AS SELECT id, prev_fire_time, next_fire_time, due_at FROM trigger_clock`)
	lost := u.won(6)
	u.heartbeat()
	exec(`DELETE FROM claims WHERE token = 6`)
	exec(`UPDATE trigger_clock SET prev_fire_time = (SELECT r.prev_fire_time FROM restored AS r WHERE r.id = trigger_clock.id),
		next_fire_time = (SELECT r.next_fire_time FROM restored AS r WHERE r.id = trigger_clock.id),
		due_at = (SELECT r.due_at FROM restored AS r WHERE r.id = trigger_clock.id)`)
	exec(`UPDATE nodes SET heartbeats = 1`)

	if again = u.won(7); again.Key != lost.Key {
		t.Fatalf("after the restore the node claims %s, want %s once more", again.Key, lost.Key)
	}
	u.succeeds(lost) // its claim is lost
	u.is("the fire whose claim was lost, after its outcome came", again, run.Claimed)
	ended = u.won(8)
	u.succeeds(ended)
	if rollback := u.noticed(); rollback != nil {
		t.Fatalf("noticed before the heartbeat: %+v", rollback)
	}
	reply := u.heartbeat()
	rollback := u.noticed()
	if rollback == nil || !strings.Contains(rollback.Reason, "has sent more heartbeats than the database knows of") {
		t.Fatalf("after the heartbeat the rollback is %+v", rollback)
	}
	if reply.State != dispatcher.NodePaused || !reply.RolledBack {
		if reply = u.heartbeat(); reply.State != dispatcher.NodePaused || !reply.RolledBack {
			t.Errorf("the node is told %+v, want that it is paused by a rollback", reply)
		}
	}
	if held := u.claim(9); len(held) != 0 {
		t.Errorf("the paused node claimed %v", held)
	}
	u.heartbeat()
	if still := u.noticed(); still == nil || *still != *rollback {
		t.Errorf("after another heartbeat the rollback is %+v, want %+v", still, rollback)
	}
	return u, first, again, ended
}

// goesOn expects that the node claims and records again, and notices no other rollback.
func (u unnoticed) goesOn(token run.Token) {
	u.Helper()
	if reply := u.heartbeat(); reply.State != dispatcher.NodeActive || reply.RolledBack {
		u.Errorf("after the choice the node is told %+v, want active", reply)
	}
	next := u.won(token)
	u.succeeds(next)
	u.is("the next fire", next, run.Succeeded)
	u.heartbeat()
	if rollback := u.noticed(); rollback != nil {
		u.Errorf("noticed again: %+v", rollback)
	}
}

// Skip ends all fires claimed before the rollback was noticed, lost or not, and leaves ended ones unchanged.
func TestRollbackNoticedByAHeartbeatIsSkipped(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		u, first, again, ended := rollBackUnnoticed(t, database)
		_, err := u.ResolveRollback(t.Context(), dispatcher.RollbackSkip, input.Change{})
		must(t, err)
		var after int64
		for rounds := 0; u.noticed() != nil; rounds++ {
			done, err := u.SkipRolledBack(t.Context(), after, 100, time.Time{})
			must(t, err)
			if after = done.Last; rounds > 20 {
				t.Fatalf("the rollback is not settled after %d pages; the last did %+v", rounds, done)
			}
		}
		u.is("a claim from before the restore", first, run.Lost)
		u.is("a claim from after the restore", again, run.Lost)
		u.is("what ended before it was noticed", ended, run.Succeeded)
		u.succeeds(again)
		u.is("a claim that was skipped, after its outcome came", again, run.Lost)
		u.goesOn(10)
	})
}

// Replay leaves the claims from before and after the loss to their node, and its records count.
func TestRollbackNoticedByAHeartbeatIsReplayed(t *testing.T) {
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		u, first, again, ended := rollBackUnnoticed(t, database)
		_, err := u.ResolveRollback(t.Context(), dispatcher.RollbackReplay, input.Change{})
		must(t, err)
		for _, one := range []run.HeldRun{first, again} {
			u.is("a claim", one, run.Claimed)
			u.succeeds(one)
			u.is("a claim, after its outcome came", one, run.Succeeded)
		}
		u.is("what ended before it was noticed", ended, run.Succeeded)
		u.goesOn(10)
	})
}

// The decision of an operator remains valid while it is carried out, for all nodes that notice the same rollback only
// then. Losing commits from after the rollback was noticed is another rollback.
func TestDecisionHoldsForNodesThatNoticeTheRollbackLate(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"by a new connection": `UPDATE nodes SET heartbeats = 0`,
		"by a registration":   `DELETE FROM nodes`,
		"by a heartbeat":      `UPDATE nodes SET heartbeats = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, database := t.Context(), pgtest.New(t)
			s, _ := registered(t, database)
			late := open(t, database)
			defer late.Close()
			must(t, late.Register(ctx, dispatcher.Node{ID: secondNode}, time.Time{}))
			heartbeat := func(one *store.Store, node run.NodeID) {
				response(t, func() error {
					_, err := one.Heartbeat(ctx, node, dispatcher.NodeReport{}, time.Time{})
					if errors.Is(err, dispatcher.ErrNodeDead) {
						return nil
					}
					return err
				})
			}
			heartbeat(late, secondNode)
			conn, err := pgx.Connect(ctx, database)
			must(t, err)
			defer conn.Close(ctx)
			restore := func(statement string) {
				_, err := conn.Exec(ctx, statement)
				must(t, err)
				_, err = conn.Exec(ctx,
					`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
				must(t, err)
			}
			noticed := func(one *store.Store) (rollback *dispatcher.Rollback) {
				response(t, func() (err error) {
					rollback, err = one.Rollback(ctx)
					return err
				})
				return rollback
			}
			if name == "by a heartbeat" { // as behind a pooler, which keeps connections alive
				_, err = conn.Exec(ctx, lose)
				must(t, err)
				heartbeat(s, firstNode)
			} else {
				restore(lose)
			}
			if noticed(s) == nil {
				t.Fatal("the rollback was not noticed")
			}
			chosen, err := s.ResolveRollback(ctx, dispatcher.RollbackSkip, input.Change{})
			must(t, err)
			for range 2 {
				heartbeat(late, secondNode)
				if got := noticed(late); got == nil || *got != chosen {
					t.Errorf("after the other node noticed it: got %+v, want %+v", got, chosen)
				}
			}
			heartbeat(s, firstNode)
			if name == "by a registration" {
				return // no node has committed since
			}
			restore(`UPDATE nodes SET heartbeats = heartbeats - 1`)
			if got := noticed(s); got == nil || got.Choice != "" {
				t.Errorf("after another rollback: got %+v, want one without a choice", got)
			}
		})
	}
}

// A failover may lose the record of a fire but keep its claim. The record of the claim's other fire, by the process
// that knows both to be recorded, does not end the claim: the first fire is attempted again.
func TestFireWithALostRecordStaysInItsClaim(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), pgtest.New(t)
	s := open(t, database)
	now := time.Now().UTC().Truncate(time.Second)
	change := input.Change{Actor: "test", Now: now.Add(-time.Hour)}
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	trigger := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Schedule: dispatcher.Schedule{Expression: "rate(1m)"}, Enabled: true,
		MisfireAfter: input.Duration(24 * time.Hour)}}
	_, _, err = s.PutJob(ctx, dispatcher.Job{App: "app", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true,
		Triggers: map[string]dispatcher.Trigger{"a": trigger, "b": trigger},
		Target:   target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
	}, change)
	must(t, err)
	must(t, s.Register(ctx, dispatcher.Node{ID: firstNode}, time.Time{}))
	due, err := s.Due(ctx, dispatcher.DueQuery{Until: now, Now: now, Limit: 10})
	must(t, err)
	batch := dispatcher.ClaimBatch{Node: firstNode, Token: 5}
	for _, d := range due {
		batch.Advances = append(batch.Advances, dispatcher.Advance{TriggerID: d.ID, JobID: run.JobID("app", "job"),
			Revision: d.Revision, Next: d.NextFireTime, Then: d.NextFireTime.Add(time.Minute)})
	}
	held, err := s.Claim(ctx, batch)
	must(t, err)
	if len(held) != 2 {
		t.Fatalf("%d fires were claimed, want 2", len(held))
	}
	record := func(r run.HeldRun) {
		response(t, func() error {
			return s.Record(ctx, []dispatcher.Record{{
				Key: r.Key, JobID: r.JobID, Revision: r.Revision, ClaimedAt: r.ClaimedAt, Node: firstNode,
				Token: r.Token, Attempt: 1, Outcome: run.Outcome{State: run.Succeeded, StartedAt: now, EndedAt: now},
			}})
		})
	}
	record(held[0])
	conn, err := pgx.Connect(ctx, database)
	must(t, err)
	defer conn.Close(ctx)
	for _, lose := range []string{`DELETE FROM runs`,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`} {
		_, err = conn.Exec(ctx, lose)
		must(t, err)
	}
	for range 20 { // another statement than the record notices that the connections are cut
		_, _ = s.Rollback(ctx)
	}
	record(held[1])
	open, err := s.Held(ctx, firstNode, 0)
	must(t, err)
	if len(open) != 1 || open[0].Key != held[0].Key {
		t.Errorf("the node holds %+v, want the fire whose record was lost", open)
	}
}
