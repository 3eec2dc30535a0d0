package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// The statements of locks. Each is a transaction by itself, because every node asks for locks all the time. Now is
// when the statement began. One that waits for another's statement judges by an earlier time, which errs on the safe
// side.
const (
	// What is held is not touched at all: a row that is locked in vain is written, too. What is held
	// for far longer than any node asks for is from before the clock was set back, and is free.
	// $1 now, $2 holder, $3 at most and $4 at least in milliseconds, from $5 on: names
	takeLocks = ` INSERT INTO locks AS l (name, holder, fence, locked_until, free_at)
		SELECT b.name, $2, 1, b.now + $3, b.now + $4 FROM b LEFT JOIN locks AS o ON o.name = b.name
		WHERE o.name IS NULL OR o.locked_until <= b.now OR o.locked_until > b.now + 2 * $3 ORDER BY b.name
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = l.fence + 1, locked_until = excluded.locked_until,
			free_at = excluded.free_at
		WHERE l.locked_until <= excluded.locked_until - $3 OR l.locked_until > excluded.locked_until + $3
		RETURNING name, fence`

	// From $1 on: db.LockColumns
	freeLocks = ` UPDATE locks AS l SET locked_until = l.free_at FROM b WHERE l.name = b.name AND l.holder = b.holder AND l.fence = b.fence`

	// $1 name, $2 holder, $3 fence, $4 now
	lockHeld = `SELECT 1 FROM locks WHERE name = $1 AND holder = $2 AND fence = $3 AND locked_until > $4`
)

// Lock takes those of the named locks that are free.
func (s *Store) Lock(ctx context.Context, request dispatcher.LockRequest) (locks []dispatcher.Lock, err error) {
	if len(request.Names) == 0 {
		return nil, nil
	}
	// In order, so that two nodes that ask for the same cannot deadlock.
	names := slices.Compact(slices.Sorted(slices.Values(request.Names)))
	args := append([]any{db.OrZero(request.Now), request.Node, request.AtMost.Milliseconds(), request.AtLeast.Milliseconds()},
		s.db.Batch(names)...)
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	err = retry(ctx, s.db.Transient, func() error {
		locks, err = db.Collect(ctx, s.db.Write, func(row db.Scanner) (dispatcher.Lock, error) {
			lock := dispatcher.Lock{Node: request.Node}
			return lock, row.Scan(&lock.Name, &lock.Fence)
		}, s.hot.takeLocks, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take %d locks: %w", len(names), err)
	}
	return locks, nil
}

// Unlock gives locks back.
func (s *Store) Unlock(ctx context.Context, locks []dispatcher.Lock) error {
	if len(locks) == 0 {
		return nil
	}
	var names []string
	var holders, fences []int64
	for _, lock := range slices.SortedFunc(slices.Values(locks), func(a, b dispatcher.Lock) int { return cmp.Compare(a.Name, b.Name) }) {
		names, holders, fences = append(names, lock.Name), append(holders, int64(lock.Node)), append(fences, lock.Fence)
	}
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	err := retry(ctx, s.db.Transient, func() error {
		_, err := s.db.Write.ExecContext(ctx, s.hot.giveBack, s.db.Batch(names, holders, fences)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("give back %d locks: %w", len(locks), err)
	}
	return nil
}

// holds tells whether a lock is still its holder's, which stays so until the transaction ends: who
// wants to take it waits for that.
func holds(ctx context.Context, q db.Querier, f db.Flavor, lock dispatcher.Lock, now time.Time) (bool, error) {
	if now.IsZero() {
		var err error
		if now, err = f.Now(ctx, q); err != nil {
			return false, err
		}
	}
	_, held, err := db.First(ctx, q, db.ScanInt, lockHeld+f.ForUpdate(), lock.Name, lock.Node, lock.Fence, now.UnixMilli())
	return held, err
}

// Work that is too long for one holder of its lock proceeds in small steps from a cursor in the row of the lock. So it
// comes to its end on any number of nodes, however often they start.

// cursor returns from where the work under a lock goes on; 0: from the beginning.
func cursor(ctx context.Context, q db.Querier, lock string) (int64, error) {
	// $1 name
	at, _, err := db.First(ctx, q, db.ScanInt, `SELECT cursor FROM locks WHERE name = $1`, lock)
	return at, err
}

// moveCursor moves the cursor of a lock, unless another node has moved it meanwhile.
func moveCursor(ctx context.Context, q db.Querier, lock string, from, to int64) error {
	if from == to {
		return nil
	}
	// $1 name, $2 from, $3 to
	const move = `INSERT INTO locks AS l (name, holder, fence, locked_until, free_at, cursor) VALUES ($1, 0, 0, 0, 0, $3)
		ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor WHERE l.cursor = $2`
	_, err := q.ExecContext(ctx, move, lock, from, to)
	return err
}
