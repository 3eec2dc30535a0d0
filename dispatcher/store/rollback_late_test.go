package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// The choice of an operator stands while it is carried out, for all nodes that notice the same rollback only then. What is lost of what
// was committed after the rollback was noticed is another one.
func TestChoiceStandsForNodesThatNoticeTheRollbackLate(t *testing.T) {
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
				return // no node has committed anything since
			}
			restore(`UPDATE nodes SET heartbeats = heartbeats - 1`)
			if got := noticed(s); got == nil || got.Choice != "" {
				t.Errorf("after another rollback: got %+v, want one without a choice", got)
			}
		})
	}
}
