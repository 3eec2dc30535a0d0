package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// tx is one transaction of a change.
type tx struct {
	*sql.Tx
	db.Flavor
	by            input.Change
	now           time.Time // of the change: given, or by the database's clock
	notifications []dispatcher.Notification
	hot           *statements
	audits        *auditState
	skipped       []skipped
	importing     bool // it is a part of an import, or removes one that was cut off
}

// change runs do in a transaction and sends its notifications to all nodes once it is committed. A
// transaction that failed for reasons of concurrency is run again, so do must not keep state.
func (s *Store) change(ctx context.Context, by input.Change, do func(context.Context, *tx) error) error {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	leave, err := s.db.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return retry(ctx, s.db.Transient, func() error {
		sqlTx, err := s.db.Write.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		t := &tx{Tx: sqlTx, Flavor: s.db.Flavor, by: by, now: by.Now.UTC().Truncate(time.Millisecond), hot: &s.hot,
			audits: s.audits}
		defer t.Rollback()
		if by.Now.IsZero() {
			now, err := s.db.Now(ctx, t)
			if err != nil {
				return err
			}
			t.now = now.Truncate(time.Millisecond)
		}
		if err := do(ctx, t); err != nil {
			return err
		}
		notifications := db.Coalesced(t.notifications)
		if err := s.db.SendNotifications(ctx, t.Tx, notifications); err != nil {
			return err
		}
		if err := t.Commit(); err != nil {
			return err
		}
		s.db.Committed(notifications)
		s.skips.count(t.skipped)
		return nil
	})
}

// execute runs a statement in some transaction, and returns how many rows it affected.
type execute func(ctx context.Context, statement string, args ...any) (int64, error)

func (t *tx) execute(ctx context.Context, statement string, args ...any) (int64, error) {
	return db.Affect(ctx, t, statement, args...)
}

// announce notifies all nodes of what a statement without a transaction of its own has changed.
func (s *Store) announce(ctx context.Context, notification dispatcher.Notification) error {
	return s.change(ctx, input.Change{}, func(_ context.Context, t *tx) error {
		t.notify(notification)
		return nil
	})
}

// notify adds a notification, which all nodes get once the change is committed.
func (t *tx) notify(notification dispatcher.Notification) {
	t.notifications = append(t.notifications, notification)
}

// allow checks the conditions of the change against what is there: revision 0 is nothing.
func (t *tx) allow(revision int64) error { return allow(t.by, revision) }

func allow(by input.Change, revision int64) error {
	if by.IfAbsent && revision != 0 || by.IfRevision != 0 && by.IfRevision != revision {
		return fmt.Errorf("revision is %d: %w", revision, dispatcher.ErrPrecondition)
	}
	return nil
}

// retry runs do until it succeeds or fails for good, five times at most.
func retry(ctx context.Context, transient func(error) bool, do func() error) error {
	return backoff.Pauses{First: 20 * time.Millisecond, Most: 80 * time.Millisecond}.Repeat(ctx, do,
		func(f backoff.Failure) bool { return f.Tries < 5 && transient(f.Err) })
}
