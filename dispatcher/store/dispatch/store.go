// Package dispatch moves runs on: it claims, begins, records and ends them, gives them slots, adopts those of dead
// nodes, and sets aside the rows that make a batch fail.
//
// Package store describes the statements of a run. The packages that change definitions and read the ledger build on
// this one, which does not import them.
package dispatch

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Tx is one transaction of a change.
type Tx struct {
	*sql.Tx
	db.Flavor
	By            input.Change
	At            time.Time // of the change: given, or from the database's clock
	Notifications []dispatcher.Notification
	Hot           *Statements
	Audits        *AuditState
	Skipped       []Skipped
	Importing     bool // it is part of an import, or removes a cut-off one
}

// Change runs do in a transaction and sends its notifications to all nodes once it is committed. After a serialization
// failure or a deadlock it runs again, so do must not keep state.
func (s *Store) Change(ctx context.Context, by input.Change, do func(context.Context, *Tx) error) error {
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
		t := &Tx{Tx: sqlTx, Flavor: s.db.Flavor, By: by, At: by.Now.UTC().Truncate(time.Millisecond), Hot: &s.Hot,
			Audits: s.audits}
		defer t.Rollback()
		if by.Now.IsZero() {
			now, err := s.db.Now(ctx, t)
			if err != nil {
				return err
			}
			t.At = now.Truncate(time.Millisecond)
		}
		if err := do(ctx, t); err != nil {
			return err
		}
		notifications := db.Coalesced(t.Notifications)
		if err := s.db.SendNotifications(ctx, t.Tx, notifications); err != nil {
			return err
		}
		if err := t.Commit(); err != nil {
			return err
		}
		s.db.Committed(notifications)
		for _, run := range t.Skipped {
			s.skips.apps.Of(run.App)[run.Reason].Inc()
		}
		return nil
	})
}

// execute runs a statement in some transaction, and returns how many rows it affected.
type execute func(ctx context.Context, statement string, args ...any) (int64, error)

// Exec runs a statement.
func (t *Tx) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := t.ExecContext(ctx, statement, args...)
	return err
}

// Affect runs a statement, and returns how many rows it affected.
func (t *Tx) Affect(ctx context.Context, statement string, args ...any) (int64, error) {
	return db.Affect(ctx, t, statement, args...)
}

// Notify adds a notification, which all nodes get once the change is committed.
func (t *Tx) Notify(notification dispatcher.Notification) {
	t.Notifications = append(t.Notifications, notification)
}

// Allow checks the conditions of the change against the stored revision; 0: nothing is stored.
func (t *Tx) Allow(revision int64) error { return Allow(t.By, revision) }

// Allow checks the conditions of a change against the stored revision, 0 for none. Its error is ErrPrecondition.
func Allow(by input.Change, revision int64) error {
	if by.IfAbsent && revision != 0 || by.IfRevision != 0 && by.IfRevision != revision {
		return fmt.Errorf("revision is %d: %w", revision, dispatcher.ErrPrecondition)
	}
	return nil
}

// retry runs do until it succeeds or fails permanently, at most five times.
func retry(ctx context.Context, transient func(error) bool, do func() error) error {
	return backoff.Pauses{First: 20 * time.Millisecond, Most: 80 * time.Millisecond}.Repeat(ctx, do,
		func(f backoff.Failure) bool { return f.Tries < 5 && transient(f.Err) })
}

// The statements of locks. Each is its own transaction, because all nodes ask for locks all the time. Now is the start
// of the statement. A statement that waits for another one decides with an earlier time, which errs on the safe side.
const (
	// Held locks are not touched at all: even locking a row in vain writes it. A lock held
	// for far longer than any node requests is from before the clock was set back, and is free.
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

// Lock takes the free ones among the named locks.
func (s *Store) Lock(ctx context.Context, request dispatcher.LockRequest) (locks []dispatcher.Lock, err error) {
	if len(request.Names) == 0 {
		return nil, nil
	}
	// In order, so that two nodes that ask for the same locks cannot deadlock.
	names := slices.Compact(slices.Sorted(slices.Values(request.Names)))
	args := append([]any{db.OrZero(request.Now), request.Node, request.AtMost.Milliseconds(), request.AtLeast.Milliseconds()},
		s.db.Batch(names)...)
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	err = retry(ctx, s.db.Transient, func() error {
		locks, err = db.Collect(ctx, s.db.Write, func(row db.Scanner) (dispatcher.Lock, error) {
			lock := dispatcher.Lock{Node: request.Node}
			return lock, row.Scan(&lock.Name, &lock.Fence)
		}, s.Hot.TakeLocks, args...)
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
		_, err := s.db.Write.ExecContext(ctx, s.Hot.GiveBack, s.db.Batch(names, holders, fences)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("give back %d locks: %w", len(locks), err)
	}
	return nil
}

// Holds reports whether a lock is still its holder's. It stays so until the transaction ends: others wait for that
// before they take the lock.
func Holds(ctx context.Context, q db.Querier, f db.Flavor, lock dispatcher.Lock, now time.Time) (bool, error) {
	if now.IsZero() {
		var err error
		if now, err = f.Now(ctx, q); err != nil {
			return false, err
		}
	}
	_, held, err := db.First(ctx, q, db.ScanInt, lockHeld+f.ForUpdate(), lock.Name, lock.Node, lock.Fence, now.UnixMilli())
	return held, err
}

// Work that takes too long for one holder of its lock proceeds in small steps, with a cursor in the row of the lock. So
// any number of nodes finish it, however often they restart.

// Cursor returns where the work under a lock continues; 0: at the beginning.
func Cursor(ctx context.Context, q db.Querier, lock string) (int64, error) {
	// $1 name
	at, _, err := db.First(ctx, q, db.ScanInt, `SELECT cursor FROM locks WHERE name = $1`, lock)
	return at, err
}

// MoveCursor moves the cursor of a lock, unless another node has moved it meanwhile.
func MoveCursor(ctx context.Context, q db.Querier, lock string, from, to int64) error {
	if from == to {
		return nil
	}
	// $1 name, $2 from, $3 to
	const move = `INSERT INTO locks AS l (name, holder, fence, locked_until, free_at, cursor) VALUES ($1, 0, 0, 0, 0, $3)
		ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor WHERE l.cursor = $2`
	_, err := q.ExecContext(ctx, move, lock, from, to)
	return err
}

// Statements are the hot statements.
type Statements struct {
	Claim, ClaimLive, Settle, Held, Begun, Release, Begin, Idle, Adopt, Waiting, Retry, FailLost, LoseBegun, Late, Responses,
	Ended, EndedOf, ScheduleNext, Triggers, DueRetries, RetriesByTurns, GiveUp, RollbackSkip, NoteEmpty db.Statement

	Due                 dueStatements
	Record              recordStatements
	Unfold              unfoldStatements
	Slots               slotStatements
	Heartbeat           db.Statement
	TakeLocks, GiveBack string
	MarkDead            [3]string // run in this order
	Broadcast           broadcastStatements
	Queue               queueStatements
}

// StatementsOf returns the hot statements.
func StatementsOf(f db.Flavor) Statements {
	all := common(f)
	if _, parts := f.(*db.SQLite); parts {
		all.inParts(f)
		return all
	}
	// One statement each, with the changes in common table expressions.
	all.Heartbeat = db.Writing(`WITH me AS (` + renewHeartbeat(db.PostgresMillis) + `)
		SELECT * FROM me UNION ALL ` + otherNodes + ` AND EXISTS (SELECT 1 FROM me)`)
	won := f.Rows(3, 5, claimExtra, db.ClaimColumns...) + db.Chosen(advance+` RETURNING `+claimedRow+`, b.live`) + `, g AS (` +
		insertClaim(f) + `)`
	const fires = ` SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, CAST($2 AS bigint), 1, 0, CAST(NULL AS bigint), c.now, FALSE FROM c`
	all.Claim = db.Writing(won + fires)
	all.ClaimLive = db.Writing(won + `, l AS (` + insertLive + `c.live = c.yes` + returnLive + `)` + fires + ` WHERE c.live = c.no
		UNION ALL SELECT * FROM l`)
	all.Settle = db.Writing(f.Rows(3, 5, settleExtra, db.SettleColumns...) + db.Chosen(advanceSettled+` RETURNING `+settledRow) +
		`, m AS (` + insertDecisions + `), e AS (` + insertPendingMisfires + `)` + insertCaughtUp)
	return all
}

// inParts adds the statements of SQLite that write several tables, in several parts: only the last part can write.
func (all *Statements) inParts(f db.Flavor) {
	all.Heartbeat = db.WritingAt(7, renewHeartbeat(db.SQLiteMillis), otherNodes)
	claim, settle := f.Rows(3, 5, claimExtra, db.ClaimColumns...), f.Rows(3, 5, settleExtra, db.SettleColumns...)
	const matching = ` FROM b JOIN trigger_clock AS t ON` + advanceMatches
	won := claim + db.Chosen(`SELECT `+claimedRow+`, b.live`+matching)
	fires := `SELECT ` + heldFire + ` FROM (` + f.ClaimedFires() + `) AS f WHERE f.token = $2`
	all.Claim = db.WritingAt(3, won+insertClaim(f), fires, claim+` `+advance)
	all.ClaimLive = db.WritingAt(3, won+insertClaim(f), fires, won+insertLive+`c.live = c.yes`+returnLive, claim+` `+advance)
	caughtUp := settle + db.Chosen(`SELECT `+settledRow+matching)
	all.Settle = db.WritingAt(3, caughtUp+insertDecisions, caughtUp+insertPendingMisfires, caughtUp+insertCaughtUp, settle+` `+advanceSettled)
}

// common returns the hot statements that both flavors share.
func common(f db.Flavor) Statements {
	asker := f.Rows(1, 3, "", db.Col("id", db.Bigint), db.Col("heartbeat", db.Bigint))
	return Statements{
		Due:            dueStatementsOf(f),
		Triggers:       db.Reading(f.Rows(0, 1, "", db.IDColumns...) + triggersByID),
		Held:           db.Reading(heldRows),
		Begun:          db.Reading(begunRows),
		Release:        db.Writing(f.Rows(0, 1, "", db.KeyColumns...) + releaseRuns + db.Fence(f)),
		Begin:          db.Writing(f.Rows(0, 1, "", db.KeyColumns...) + beginRuns(f)),
		Record:         recordStatementsOf(f),
		Unfold:         unfoldStatementsOf(f),
		Responses:      db.Writing(f.Rows(0, 1, "", db.ResponseColumns...) + keepResponses),
		Late:           db.Writing(f.Rows(0, 3, "", db.LateColumns...) + recordLate),
		Ended:          db.Reading(anyEnded),
		EndedOf:        db.Reading(f.Rows(0, 2, waitingExtra, db.IDColumns...) + theseEnded),
		ScheduleNext:   scheduleNextOn(f),
		Idle:           lookFor(f, idleRuns(f)),
		DueRetries:     lookFor(f, dueRetries),
		RetriesByTurns: lookFor(f, retriesByTurns(f)),
		Waiting:        lookFor(f, hostWaiters),
		Adopt:          adoptOf(f, takeIdle, whichIdle, insertLost),
		Retry:          adoptOf(f, takeRetries, whichRetries),
		NoteEmpty:      db.Writing(f.Rows(1, 2, "", db.IDColumns...) + noteEmpty(f)),
		FailLost:       endingOf(f, begunByDeadNodes(f), insertLost),
		LoseBegun: f.Steps(1, f.Rows(1, 2, "", db.KeyColumns...), chooseBegun(f), db.LockToDelete, 1,
			append([]string{insertLost}, followedEndSteps(f)...)...),
		GiveUp: endingOf(f, expiredRetries),
		RollbackSkip: f.Steps(1, f.Rows(1, 3, "", db.IDColumns...), SkippableRuns, db.SkipLockedRows, 1,
			append([]string{insertLost}, EndSteps(f, "")...)...),
		Slots:     slotStatementsOf(f),
		Broadcast: broadcastStatementsOf(f),
		Queue:     queueStatementsOf(f),
		TakeLocks: f.Rows(1, 5, "", db.NameColumns...) + takeLocks,
		GiveBack:  f.Rows(0, 1, "", db.LockColumns...) + freeLocks,
		MarkDead:  [3]string{asker + clampHeartbeats, asker + purgeNodes, asker + markDeadNodes},
	}
}

// Store is the part of the store that the dispatch uses.
type Store struct {
	db        *db.DB
	Rollbacks *rollbackDetector
	Claims    *openClaims
	Hot       Statements
	audits    *AuditState
	skips     *skips
	Asides    *Asides
}

// New returns a store without a database. log gets a line for each row that is set aside.
func New(log *slog.Logger) *Store {
	s := &Store{Rollbacks: &rollbackDetector{}, Claims: newOpenClaims(), audits: &AuditState{}, skips: newSkips(), Asides: newAsides(log)}
	s.audits.ids.Store(drawAuditID())
	return s
}

// Over returns a store with the state of s over a database.
func (s *Store) Over(d *db.DB) *Store {
	own := *s
	own.db, own.Hot = d, StatementsOf(d.Flavor)
	return &own
}

// Watch returns the callbacks for connections of the database.
func (s *Store) Watch() db.ConnectionWatch {
	return db.ConnectionWatch{Opened: s.Claims.forgetPartial, Whole: s.Rollbacks.whole}
}

// Metrics returns the counts of skipped runs and of rows set aside.
func (s *Store) Metrics() []prometheus.Collector {
	return []prometheus.Collector{s.skips.total, s.Asides.total}
}
