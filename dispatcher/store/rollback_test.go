package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/sqlitetest"
)

const firstNode, secondNode run.NodeID = 0x77, 0x78

// registered returns a store after a node has registered, sent a heartbeat and claimed a fire.
func registered(t *testing.T, database string, without ...db.Capability) (*store.Store, run.HeldRun) {
	t.Helper()
	return registeredAndClaimed(t, database, time.Now(), without...)
}

// registeredAndClaimed is registered with a fire at about that instant.
func registeredAndClaimed(t *testing.T, database string, of time.Time,
	without ...db.Capability) (*store.Store, run.HeldRun) {
	t.Helper()
	ctx, s := t.Context(), openAs(t, database, store.Options{Options: db.Options{Without: without}})
	now := of.UTC().Truncate(time.Second)
	change := input.Change{Actor: "test", Now: now.Add(-time.Hour)}
	_, _, err := s.PutApp(ctx, access.App{Name: "app", AppSpec: access.AppSpec{Enabled: true}}, change)
	must(t, err)
	_, _, err = s.PutJob(ctx, dispatcher.Job{
		App: "app", Name: "job", JobSpec: dispatcher.JobSpec{Enabled: true,
			Triggers: map[string]dispatcher.Trigger{"tick": {TriggerSpec: dispatcher.TriggerSpec{
				Schedule:     dispatcher.Schedule{Expression: "rate(1m)"},
				MisfireAfter: input.Duration(24 * time.Hour), Enabled: true}}},
			Target: target.Target{Webhook: &target.Webhook{URL: "http://127.0.0.1", Method: "POST", Timeout: target.DefaultTimeout}}},
	}, change)
	must(t, err)
	must(t, s.Register(ctx, dispatcher.Node{ID: firstNode}, time.Time{}))
	_, err = s.Heartbeat(ctx, firstNode, dispatcher.NodeReport{}, time.Time{})
	must(t, err)
	due, err := s.Due(ctx, dispatcher.DueQuery{Until: now, Now: now, Limit: 10})
	must(t, err)
	if len(due) != 1 {
		t.Fatalf("%d triggers are due, want 1", len(due))
	}
	held, err := s.Claim(ctx, dispatcher.ClaimBatch{Node: firstNode, Token: 5, Advances: []dispatcher.Advance{{
		TriggerID: due[0].ID, JobID: run.JobID("app", "job"), Revision: due[0].Revision, Next: due[0].NextFireTime,
		Then: due[0].NextFireTime.Add(time.Minute),
	}}})
	must(t, err)
	if len(held) != 1 {
		t.Fatalf("%d fires were claimed, want 1", len(held))
	}
	return s, held[0]
}

// response repeats a call until it succeeds: cut connections are noticed only when they are used.
func response(t *testing.T, call func() error) {
	t.Helper()
	err := call()
	for range 20 {
		if err == nil {
			break
		}
		err = call()
	}
	must(t, err)
}

// A node checks on each new connection whether all commits that it knows are there. Legitimate changes by other nodes
// are not a loss.
func TestLostCommitsAreNoticedOnTheNextConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose string // SQL
		do   func(context.Context, *store.Store, run.HeldRun) error
		want string // of the reason; empty: no rollback
	}{
		"nothing":           {},
		"a claim":           {lose: `DELETE FROM claims`, want: "has claimed run"},
		"claimed by others": {lose: `UPDATE claims SET token = 6, node = 9`, want: "has claimed run"},
		"run by others":     {lose: `DELETE FROM claims; ` + ranByAnother, want: "has claimed run"},
		"a heartbeat":       {lose: `UPDATE nodes SET heartbeats = heartbeats - 1`, want: "has sent 1 heartbeats, and the database knows of 0"},
		"a registration":    {lose: `DELETE FROM nodes`, want: "has registered"},
		"too long ago":      {lose: `DELETE FROM claims; UPDATE nodes SET state = 'dead'`},
		"recorded": {do: func(ctx context.Context, s *store.Store, r run.HeldRun) error {
			return s.Record(ctx, []dispatcher.Record{{Key: r.Key, Node: firstNode, Token: r.Token, Attempt: 1,
				Outcome: run.Outcome{State: run.Succeeded, StartedAt: may1, EndedAt: may1}}})
		}},
		"released": {do: func(ctx context.Context, s *store.Store, r run.HeldRun) error {
			return s.Release(ctx, []run.HeldRun{r})
		}},
		"handed back, and taken by another": {do: func(ctx context.Context, s *store.Store, r run.HeldRun) error {
			return s.Release(ctx, []run.HeldRun{r})
		}, lose: takenByAnother},
		"defers, and taken by another": {do: func(ctx context.Context, s *store.Store, r run.HeldRun) error {
			return s.Record(ctx, []dispatcher.Record{{
				Key: r.Key, Node: firstNode, Token: r.Token, Attempt: 1,
				Outcome: run.Outcome{State: run.Failed, StartedAt: may1, EndedAt: may1},
				Next:    &dispatcher.NextAttempt{At: may1, Until: may1.Add(time.Hour), NotAttempted: true},
			}})
		}, lose: takenByAnother},
		"accepted, and its end is recorded by another": {do: func(ctx context.Context, s *store.Store, r run.HeldRun) error {
			return s.Record(ctx, []dispatcher.Record{{
				Key: r.Key, Node: firstNode, Token: r.Token, Attempt: 1,
				Outcome: run.Outcome{State: run.Succeeded, StartedAt: may1, EndedAt: may1},
				Next:    &dispatcher.NextAttempt{At: may1, Until: may1.Add(time.Hour), Callback: &run.Callback{}},
			}})
		}, lose: takenByAnother},
		"asked for a slot, and taken by another": {do: func(ctx context.Context, s *store.Store, r run.HeldRun) error {
			_, err := s.Acquire(ctx, []run.HeldRun{r})
			return err
		}, lose: takenByAnother},
		"cancelled": {do: func(ctx context.Context, s *store.Store, run run.HeldRun) error {
			_, err := s.CancelRun(ctx, run.String(), input.Change{})
			return err
		}},
		"retried by hand": {do: func(ctx context.Context, s *store.Store, run run.HeldRun) error {
			_, err := s.CancelRun(ctx, run.String(), input.Change{})
			if err == nil {
				_, err = s.RetryRun(ctx, run.String(), input.Change{})
			}
			if err == nil {
				query := dispatcher.AdoptQuery{Node: firstNode, Token: 8, Limit: 10}
				_, err = adopt(ctx, s, query)
			}
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost(t, test.lose, test.do, test.want)
		})
		// This works without knowing which server it is.
		t.Run(name+", without identity", func(t *testing.T) {
			t.Parallel()
			lost(t, test.lose, test.do, test.want, db.Identity)
		})
	}
}

// lost makes a node do something, and then the database lose data and connections. It expects a rollback for a reason,
// or none.
func lost(t *testing.T, lose string, do func(context.Context, *store.Store, run.HeldRun) error, want string,
	without ...db.Capability) {
	t.Helper()
	ctx, database := t.Context(), pgtest.New(t)
	s, run := registered(t, database, without...)
	if do != nil {
		must(t, do(ctx, s, run))
	}
	conn, err := pgx.Connect(ctx, database)
	must(t, err)
	defer conn.Close(ctx)
	if lose != "" {
		_, err = conn.Exec(ctx, lose)
		must(t, err)
	}
	_, err = conn.Exec(ctx,
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	must(t, err)
	var rollback *dispatcher.Rollback
	response(t, func() (err error) {
		rollback, err = s.Rollback(ctx)
		return err
	})
	if got := reason(rollback); want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("the reason is %q, want one that says %q", got, want)
	}
}

// A settled rollback stays settled: neither the node that noticed it nor one that comes back after the decision
// mistakes its memory for another rollback. A later loss is another rollback.
func TestSettledRollbackIsNotNoticedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ lose, again string }{
		"a claim":        {lose: `DELETE FROM claims`, again: `UPDATE nodes SET heartbeats = heartbeats - 1`},
		"heartbeats":     {lose: `UPDATE nodes SET heartbeats = 0`, again: `UPDATE nodes SET heartbeats = heartbeats - 1`},
		"a registration": {lose: `DELETE FROM nodes`},
		"a settlement": {lose: `UPDATE nodes SET heartbeats = 0`,
			again: `UPDATE installation SET rollback_settled_at = rollback_settled_at - 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, database := t.Context(), pgtest.New(t)
			s, _ := registered(t, database)
			late := open(t, database)
			defer late.Close()
			must(t, late.Register(ctx, dispatcher.Node{ID: secondNode}, time.Time{}))
			heartbeat := func(s *store.Store, node run.NodeID) {
				for range 3 {
					response(t, func() error {
						_, err := s.Heartbeat(ctx, node, dispatcher.NodeReport{}, time.Time{})
						if errors.Is(err, dispatcher.ErrNodeDead) {
							return nil
						}
						return err
					})
				}
			}
			heartbeat(late, secondNode)
			conn, err := pgx.Connect(ctx, database)
			must(t, err)
			defer conn.Close(ctx)
			lose := func(statement string) {
				_, err := conn.Exec(ctx, statement)
				must(t, err)
				_, err = conn.Exec(ctx,
					`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
				must(t, err)
			}
			noticed := func(s *store.Store) (rollback *dispatcher.Rollback) {
				response(t, func() (err error) {
					rollback, err = s.Rollback(ctx)
					return err
				})
				return rollback
			}
			lose(test.lose)
			if noticed(s) == nil {
				t.Fatal("the rollback was not noticed")
			}
			_, err = s.ResolveRollback(ctx, dispatcher.RollbackReplay, input.Change{})
			must(t, err)
			for who, one := range map[string]*store.Store{"who noticed it": s, "who comes late": late} {
				lose(`SELECT 1`)
				if again := noticed(one); again != nil {
					t.Errorf("%s has noticed it again: %s", who, again.Reason)
				}
			}
			heartbeat(s, firstNode)
			heartbeat(late, secondNode)
			if again := noticed(s); again != nil {
				t.Errorf("after heartbeats it was noticed again: %s", again.Reason)
			}
			if test.again == "" {
				return
			}
			lose(test.again)
			if noticed(s) == nil {
				t.Error("another rollback was not noticed")
			}
		})
	}
}

// A caught-up run soon exceeds its retention.
func TestPurgedRunIsNotTakenForARollback(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), pgtest.New(t)
	s, _ := registeredAndClaimed(t, database, time.Now().Add(-23*time.Hour))
	conn, err := pgx.Connect(ctx, database)
	must(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `DELETE FROM claims`)
	must(t, err)
	if got, err := store.Missing(ctx, s, conn); err != nil || got != "" {
		t.Errorf("missing are %q, %v; want nothing", got, err)
	}
}

// takenByAnother is an attempt that was not made, made by another node under the same number.
const takenByAnother = `UPDATE live_runs SET state = 'claimed', token = 6, node = 9, attempt = 1; UPDATE claims SET token = 6, node = 9`

// ranByAnother is the history of the run claimed by another node instead.
const ranByAnother = `INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, attempt, http_status, kind)
	SELECT prev_fire_time, id, 1, 1, 9, prev_fire_time, 1, 200, 1 FROM trigger_clock`

// between runs a statement after each query of a connection.
type between struct {
	t    *testing.T
	conn *pgx.Conn
	sql  string
}

func (b between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (b between) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	_, err := b.conn.Exec(ctx, b.sql)
	must(b.t, err)
}

// A node may freeze during the check and be marked dead meanwhile, so that its run belongs to another node.
func TestNodeThatDiesDuringTheCheckSeesNoRollback(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), pgtest.New(t)
	s, _ := registered(t, database)
	other, err := pgx.Connect(ctx, database)
	must(t, err)
	defer other.Close(ctx)
	config, err := pgx.ParseConfig(database)
	must(t, err)
	config.Tracer = between{t, other, `UPDATE nodes SET state = 'dead'; ` + takenByAnother}
	conn, err := pgx.ConnectConfig(ctx, config)
	must(t, err)
	defer conn.Close(ctx)
	if got, err := store.Missing(ctx, s, conn); err != nil || got != "" {
		t.Errorf("missing are %q, %v; want nothing", got, err)
	}
}

func reason(rollback *dispatcher.Rollback) string {
	if rollback == nil {
		return ""
	}
	return rollback.Reason
}

// A database with another identity when a node registers was restored, unless nodes were running throughout, which know
// whether commits are missing.
func TestRestoredDatabaseIsNoticedWhenANodeRegisters(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), pgtest.New(t)
	s, _ := registered(t, database)
	must(t, s.Register(ctx, dispatcher.Node{ID: secondNode}, time.Time{}))
	if rollback, err := s.Rollback(ctx); err != nil || rollback != nil {
		t.Fatalf("where it was: got %+v, %v; want no rollback", rollback, err)
	}
	must(t, s.Close())

	copied := openCopy(t, database, store.Options{})
	const third run.NodeID = 0x79
	if err := copied.Register(ctx, dispatcher.Node{ID: third}, time.Time{}); err == nil ||
		!strings.Contains(err.Error(), "have not said yet") {
		t.Errorf("while others seem to be at work: got error %v, want one that says to wait", err)
	}
	if rollback, err := copied.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("while others seem to be at work: got %+v, %v; want no rollback yet", rollback, err)
	}
	later := time.Now().Add(time.Minute)
	must(t, copied.Register(ctx, dispatcher.Node{ID: third}, later))
	if rollback, err := copied.Rollback(ctx); err != nil || !strings.Contains(reason(rollback), "its identity was ") {
		t.Errorf("got %+v, %v; want a rollback by its place", rollback, err)
	}
	heartbeat, err := copied.Heartbeat(ctx, third, dispatcher.NodeReport{}, later)
	if err != nil || heartbeat.State != dispatcher.NodePaused || !heartbeat.RolledBack {
		t.Errorf("the node is told %+v, %v; want paused by a rollback", heartbeat, err)
	}
	_, err = copied.ResolveRollback(ctx, dispatcher.RollbackReplay, input.Change{})
	must(t, err)
	must(t, copied.Register(ctx, dispatcher.Node{ID: third + 1}, later))
	if rollback, err := copied.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("once it is settled: got %+v, %v; want no rollback", rollback, err)
	}
}

// openCopy opens a copy of a closed database, as if a dump of it had been restored.
func openCopy(t *testing.T, database string, o store.Options) *store.Store {
	t.Helper()
	u, err := url.Parse(database)
	must(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin, err := pgx.Connect(t.Context(), u.String())
	must(t, err)
	_, err = admin.Exec(t.Context(), fmt.Sprintf(`CREATE DATABASE %s_copy TEMPLATE %s`, name, name))
	must(t, err)
	u.Path = "/" + name + "_copy"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := admin.Exec(ctx, fmt.Sprintf(`DROP DATABASE %s_copy WITH (FORCE)`, name))
		must(t, errors.Join(err, admin.Close(ctx)))
	})
	return openAs(t, u.String(), o) // it is closed before that
}

// If no identity can be read, a restore while no node was running stays unnoticed until it is declared.
func TestRestoreWithoutIdentityIsDeclared(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), pgtest.New(t)
	s, _ := registered(t, database, db.Identity)
	must(t, s.Close())
	copied := openCopy(t, database, store.Options{Options: db.Options{Without: db.Capabilities{db.Identity}}})
	later := time.Now().Add(time.Minute)
	must(t, copied.Register(ctx, dispatcher.Node{ID: secondNode}, later))
	if rollback, err := copied.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("got %+v, %v; want no rollback, because nothing tells the copy from the database", rollback, err)
	}
	_, err := copied.DeclareRollback(ctx, "restored", input.Change{})
	must(t, err)
	heartbeat, err := copied.Heartbeat(ctx, secondNode, dispatcher.NodeReport{}, later)
	if err != nil || heartbeat.State != dispatcher.NodePaused || !heartbeat.RolledBack {
		t.Errorf("the node is told %+v, %v; want paused by a rollback", heartbeat, err)
	}
}

// A restored database file has fewer heartbeats than the lock file next to it.
func TestRestoredFileIsNoticedWhenANodeRegisters(t *testing.T) {
	t.Parallel()
	heartbeats := func(t *testing.T, s *store.Store, n int) {
		for range n {
			_, err := s.Heartbeat(t.Context(), firstNode, dispatcher.NodeReport{}, time.Time{})
			must(t, err)
		}
	}
	keep := func(t *testing.T, from, to string) {
		text, err := os.ReadFile(from)
		must(t, err)
		must(t, os.WriteFile(to, text, 0o600))
	}
	for name, test := range map[string]struct {
		between func(t *testing.T, s *store.Store) // between the copy and the end
		after   func(t *testing.T, file string)    // between the end and the next start
		want    string
	}{
		"nothing": {},
		"heartbeats": {between: func(t *testing.T, s *store.Store) { heartbeats(t, s, 3) },
			want: "has sent 4 heartbeats, and the database knows of 1"},
		"a node": {between: func(t *testing.T, s *store.Store) {
			must(t, s.Register(t.Context(), dispatcher.Node{ID: secondNode}, time.Time{}))
		}, want: "does not know that node"},
		"its lock file": {after: func(t *testing.T, file string) { must(t, os.Remove(file+".lock")) },
			want: "came without the lock file"},
		"the content of the lock file": {after: func(t *testing.T,
			file string) {
			must(t, os.WriteFile(file+".lock", []byte("x"), 0o600))
		}, want: "came without the lock file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := sqlitetest.New(t)
			file := strings.TrimPrefix(database, "sqlite:")
			s, _ := registered(t, database)
			must(t, s.Close())
			keep(t, file, file+".backup")
			s = open(t, database)
			if test.between != nil {
				test.between(t, s)
			}
			must(t, s.Close())
			keep(t, file+".backup", file)
			must(t, errors.Join(os.RemoveAll(file+"-wal"), os.RemoveAll(file+"-shm")))
			if test.after != nil {
				test.after(t, file)
			}
			s = open(t, database)
			defer s.Close()
			must(t, s.Register(t.Context(), dispatcher.Node{ID: 0x80}, time.Time{}))
			rollback, err := s.Rollback(t.Context())
			if got := reason(rollback); err != nil || test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("the reason is %q, %v; want one that says %q", got, err, test.want)
			}
		})
	}
}
