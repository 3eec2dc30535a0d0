package store_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// restoredAtOnce restores a copy of a database, made while its node was running, after all nodes have stopped.
func restoredAtOnce(t *testing.T, database string, before func(*store.Store)) *store.Store {
	t.Helper()
	s, _ := registered(t, database)
	if before != nil {
		before(s)
	}
	must(t, s.Close())
	file, isFile := strings.CutPrefix(database, "sqlite:")
	if !isFile {
		return openCopy(t, database, store.Options{})
	}
	text, err := os.ReadFile(file)
	must(t, err)
	s = open(t, database)
	_, err = s.Heartbeat(t.Context(), firstNode, dispatcher.NodeReport{}, time.Time{})
	must(t, err)
	must(t, s.Close())
	must(t, errors.Join(os.WriteFile(file, text, 0o600), os.RemoveAll(file+"-wal"), os.RemoveAll(file+"-shm")))
	return open(t, database)
}

// A restore declared while no node runs is one rollback with one decision, however young the copy is, and whether nodes
// register before the decision or after it.
func TestRestoreDeclaredBeforeNodesStartIsOneRollback(t *testing.T) {
	t.Parallel()
	declare := func(t *testing.T, s *store.Store) {
		t.Helper()
		_, err := s.DeclareRollback(t.Context(), "restored", input.Change{Actor: "test"})
		must(t, err)
	}
	for name, declared := range map[string]struct {
		before, after func(*testing.T, *store.Store)
	}{
		"declared in the copy":                     {after: declare},
		"the copy is of one that awaited a choice": {before: declare},
		"declared again in such a copy":            {before: declare, after: declare},
		"declared in a copy in which skip was being carried out": {before: func(t *testing.T, s *store.Store) {
			t.Helper()
			declare(t, s)
			_, err := s.ResolveRollback(t.Context(), dispatcher.RollbackSkip, input.Change{Actor: "test"})
			must(t, err)
		}, after: declare},
	} {
		for _, choice := range []dispatcher.RollbackChoice{dispatcher.RollbackSkip, dispatcher.RollbackReplay} {
			for when, registersBefore := range map[string]bool{"before nodes register": false, "after nodes registered": true} {
				t.Run(name+", "+string(choice)+" "+when, func(t *testing.T) {
					t.Parallel()
					onBothDatabases(t, func(t *testing.T, database string) {
						s := restoredAtOnce(t, database, func(s *store.Store) {
							if declared.before != nil {
								declared.before(t, s)
							}
						})
						if declared.after != nil {
							declared.after(t, s)
						}
						testOneRollback(t, s, choice, registersBefore)
					})
				})
			}
		}
	}
}

func testOneRollback(t *testing.T, s *store.Store, choice dispatcher.RollbackChoice, registersBefore bool) {
	t.Helper()
	ctx := t.Context()
	register := func(node run.NodeID) { must(t, s.Register(ctx, dispatcher.Node{ID: node}, time.Time{})) }
	first, err := s.Rollback(ctx)
	must(t, err)
	if registersBefore {
		register(0x80)
		if reply, err := s.Heartbeat(ctx, 0x80, dispatcher.NodeReport{}, time.Time{}); err != nil || !reply.RolledBack ||
			reply.State != dispatcher.NodePaused {
			t.Errorf("before the choice a node is told %+v, %v; want paused by the rollback", reply, err)
		}
		if still, err := s.Rollback(ctx); err != nil || *still != *first {
			t.Errorf("once a node has registered, the rollback is %+v, %v; want %+v", still, err, first)
		}
	}
	if _, err := s.ResolveRollback(ctx, choice, input.Change{Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	register(0x81)
	if choice == dispatcher.RollbackSkip {
		if rollback, err := s.Rollback(ctx); err != nil || rollback == nil || rollback.Choice != choice {
			t.Errorf("while skip is carried out: got %+v, %v; want the same rollback", rollback, err)
		}
		return
	}
	if rollback, err := s.Rollback(ctx); err != nil || rollback != nil {
		t.Errorf("after the choice: got %+v, %v; want no other rollback", rollback, err)
	}
	if reply, err := s.Heartbeat(ctx, 0x81, dispatcher.NodeReport{}, time.Time{}); err != nil || reply.RolledBack ||
		reply.State != dispatcher.NodeActive {
		t.Errorf("after the choice a node is told %+v, %v; want active", reply, err)
	}
}
