// Package definitions stores what users declare: apps, jobs, triggers, calendars, groups, alerts, tokens and secrets. A
// change writes to the audit log and updates the affected triggers, followers and alerts in the same transaction.
package definitions

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/seal"
)

// A change of a definition has three steps. It loads all data that the change depends on, at one moment; a function of
// the domain, which does not access the database, decides the result; and one transaction writes the result. First it
// loads and decides without a lock: a change without effect, such as a PUT of the stored definition, and a refused
// change take no lock and delay no other change, however often a client repeats them.

// Source is where a change loads its data: a snapshot, or its transaction, which locks the rows to write.
type Source struct {
	db.Querier
	tx   *dispatch.Tx // nil: a snapshot
	Lock string       // of the flavor; empty: a snapshot
}

// locked is the Source of a transaction.
func locked(t *dispatch.Tx) Source { return Source{t, t, t.ForUpdate()} }

// Redefinition is a change of a definition: it depends on a B, decides a D and then stores a T.
type Redefinition[B, D, T any] struct {
	Load func(ctx context.Context, from Source) (B, error)
	// Unchanged, if not nil, returns the stored definition if the change has no effect.
	Unchanged func(B) (T, bool)
	Decide    func(before B, now time.Time) (D, error)
	// Prepare, if not nil, does long computations ahead of the transaction.
	Prepare func(ctx context.Context, q db.Querier, decided D, now time.Time) error
	Write   func(ctx context.Context, t *dispatch.Tx, before B, decided D) (T, error)
}

// replaced returns the definition that a PUT replaces, as it was read; nil if there is none. It checks the conditions of
// the change.
func replaced[T any](by input.Change, old T, revision int64, err error) (*T, error) {
	if errors.Is(err, dispatcher.ErrNotFound) {
		return nil, dispatch.Allow(by, 0)
	}
	return &old, cmp.Or(err, dispatch.Allow(by, revision))
}

func (r Redefinition[B, D, T]) keeps(before B) (stored T, same bool) {
	if r.Unchanged == nil {
		return stored, false
	}
	return r.Unchanged(before)
}

// Redefine makes a change, and returns the stored definition and the data from before. If the snapshot cannot read
// something, it leaves the error to the transaction, which reads it again and is repeated after transient errors.
func Redefine[B, D, T any](ctx context.Context, s *Store, by input.Change, r Redefinition[B, D, T]) (stored T, before B, err error) {
	var done bool
	var refused error
	_ = s.snapshot(ctx, func(ctx context.Context, q db.Querier) (err error) {
		if before, err = r.Load(ctx, Source{Querier: q}); err != nil {
			return err
		}
		if stored, done = r.keeps(before); done {
			return nil
		}
		now := by.Now
		if now.IsZero() {
			if now, err = s.db.Now(ctx, q); err != nil {
				return err
			}
		}
		now = now.UTC().Truncate(time.Millisecond)
		var decided D
		if decided, refused = r.Decide(before, now); refused == nil && r.Prepare != nil {
			return r.Prepare(ctx, q, decided, now)
		}
		return nil
	})
	if refused != nil || done {
		return stored, before, refused
	}
	return directly(ctx, s, by, r)
}

// directly is Redefine without the snapshot, for changes that are rarely refused and always have an effect.
func directly[B, D, T any](ctx context.Context, s *Store, by input.Change, r Redefinition[B, D, T]) (stored T, before B, err error) {
	err = s.dispatch.Change(ctx, by, func(ctx context.Context, t *dispatch.Tx) (err error) {
		stored, before, err = r.In(ctx, t)
		return err
	})
	return stored, before, err
}

// In makes a change in a transaction.
func (r Redefinition[B, D, T]) In(ctx context.Context, t *dispatch.Tx) (stored T, before B, err error) {
	if before, err = r.Load(ctx, locked(t)); err != nil {
		return stored, before, err
	}
	if same, is := r.keeps(before); is {
		return same, before, nil
	}
	decided, err := r.Decide(before, t.At)
	if err == nil {
		stored, err = r.Write(ctx, t, before, decided)
	}
	return stored, before, err
}

// snapshot lets read see one state of the database without locks.
func (s *Store) snapshot(ctx context.Context, read func(ctx context.Context, q db.Querier) error) error {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if _, snapshots := s.db.Flavor.(*db.SQLite); snapshots { // each of its transactions reads a snapshot
		options = nil
	}
	tx, err := s.db.Read.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("begin a snapshot: %w", err)
	}
	defer tx.Rollback()
	return read(ctx, tx)
}

// app returns the app of a changed definition, locked in a transaction: writers of its definitions queue at its row.
func (from Source) app(ctx context.Context, name string) (access.App, error) {
	if from.tx != nil {
		app, err := LockApp(ctx, from.tx, name)
		if err == nil {
			err = app.Err
		}
		return app, err
	}
	return FindApp(ctx, from, name, "")
}

// Store stores the definitions on top of the dispatch.
type Store struct {
	dispatch *dispatch.Store
	db       *db.DB
	keys     *seal.Keys
}

// New returns a store over the database d. keys encrypt the values of secrets; nil: secrets cannot be stored.
func New(dispatch *dispatch.Store, d *db.DB, keys *seal.Keys) *Store {
	return &Store{dispatch: dispatch, db: d, keys: keys}
}
