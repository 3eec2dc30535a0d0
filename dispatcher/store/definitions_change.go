package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// A change of a definition has three steps. It loads all that the change depends on, as of one moment; a function of the domain, which
// knows no database, decides what becomes of it; and what was decided is written in one transaction. First it loads and decides
// without a lock: what changes nothing, such as a PUT of what is stored, and what is refused takes no lock and keeps nobody waiting,
// however often a client repeats it.

// source is where a change loads what it depends on: a snapshot, or its transaction, which locks what it will write.
type source struct {
	db.Querier
	tx   *tx    // nil: a snapshot
	lock string // of the flavor; empty: a snapshot
}

// locked is where a transaction loads what a change depends on.
func locked(t *tx) source { return source{t, t, t.ForUpdate()} }

// redefinition is a change of a definition: what it depends on is a B, what is decided a D, and what is stored then a T.
type redefinition[B, D, T any] struct {
	load func(ctx context.Context, from source) (B, error)
	// unchanged, if there is one, returns what is stored if the change leaves it as it is.
	unchanged func(B) (T, bool)
	decide    func(before B, now time.Time) (D, error)
	// prepare, if there is one, works out ahead of the transaction what takes long.
	prepare func(ctx context.Context, q db.Querier, decided D, now time.Time) error
	write   func(ctx context.Context, t *tx, before B, decided D) (T, error)
}

func (r redefinition[B, D, T]) keeps(before B) (stored T, same bool) {
	if r.unchanged == nil {
		return stored, false
	}
	return r.unchanged(before)
}

// redefine makes a change, and returns what is stored then, and what there was before.
func redefine[B, D, T any](ctx context.Context, s *Store, by input.Change, r redefinition[B, D, T]) (stored T, before B, err error) {
	var done bool
	err = s.snapshot(ctx, func(ctx context.Context, q db.Querier) error {
		var wrong error
		if before, wrong = r.load(ctx, source{Querier: q}); wrong != nil {
			return nil // the transaction comes to it again
		}
		if stored, done = r.keeps(before); done {
			return nil
		}
		now := by.Now
		if now.IsZero() {
			now, wrong = s.db.Now(ctx, q)
		}
		if wrong != nil {
			return wrong
		}
		now = now.UTC().Truncate(time.Millisecond)
		decided, wrong := r.decide(before, now)
		if wrong == nil && r.prepare != nil {
			wrong = r.prepare(ctx, q, decided, now)
		}
		return wrong
	})
	if err != nil || done {
		return stored, before, err
	}
	err = s.change(ctx, by, func(ctx context.Context, t *tx) (err error) {
		stored, before, err = r.in(ctx, t)
		return err
	})
	return stored, before, err
}

// in makes a change in a transaction.
func (r redefinition[B, D, T]) in(ctx context.Context, t *tx) (stored T, before B, err error) {
	if before, err = r.load(ctx, locked(t)); err != nil {
		return stored, before, err
	}
	if same, is := r.keeps(before); is {
		return same, before, nil
	}
	decided, err := r.decide(before, t.now)
	if err == nil {
		stored, err = r.write(ctx, t, before, decided)
	}
	return stored, before, err
}

// snapshot lets read see one state of the database, and lock nothing.
func (s *Store) snapshot(ctx context.Context, read func(ctx context.Context, q db.Querier) error) error {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	options := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if _, snapshots := s.db.Flavor.(*db.SQLite); snapshots { // each of its transactions reads one
		options = nil
	}
	tx, err := s.db.Read.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("begin a snapshot: %w", err)
	}
	defer tx.Rollback()
	return read(ctx, tx)
}

// app returns the app of a definition that is changed, locked in a transaction: writers of its definitions queue at its row.
func (from source) app(ctx context.Context, name string) (access.App, error) {
	if from.tx != nil {
		return lockReadableApp(ctx, from.tx, name)
	}
	return findApp(ctx, from, name, "")
}
