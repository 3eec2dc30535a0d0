package db

import (
	"context"
	"database/sql"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// tryChange runs do in a transaction that gives up where claims would wait for it. done is false if it gave up.
type tryChange func(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error)

// Flavor is the part of the SQL that differs between the databases.
type Flavor interface {
	// Rows returns the common table expressions n(now) and b: the batch, one column per
	// name, with the columns' values in the parameters from $first on; now is the database's clock, or parameter $now
	// if that is not 0. extra is a list of expressions to add to b.
	Rows(now, first int, extra string, columns ...Column) string
	// Batch returns the parameters for Rows.
	Batch(columns ...any) []any
	// In is the condition that the number before it is in the batch of one column in parameter $n.
	In(n int) string
	// SameRun is the condition that joins the rows r of runs by their key, from left to right: the rest of the query
	// comes first.
	SameRun(r, at, trigger, kind string) string
	// RunsOf joins the preceding rows to the live runs r of a node that are not retrying and meet conditions: all
	// runs of each node, or those that cut selects.
	RunsOf(node, conditions, cut string) string
	// EachRun joins b to those of its live runs r that meet conditions, one after the other, before any other join.
	// It locks the runs, and skips runs locked by others.
	EachRun(conditions string) string
	// EachFirst selects columns of the first rows r, at most $3, of each a, in an order, from live runs r joined to
	// other tables, if they meet conditions.
	EachFirst(columns, joined, conditions, order string) string
	// EachFirstEnds selects the first pending ends e of each a, at most a.share, in an order, if they meet
	// conditions. ForUpdate is empty, or locks them.
	EachFirstEnds(conditions, order, ForUpdate string) string
	// ClaimColumns are the columns of claims that list fires.
	ClaimColumns() string
	ClaimValues() string
	// ClaimedFires is a query for the fires of claims, including recorded ones: token, node, claimed_at, trigger_id,
	// scheduled_at, job_id, revision.
	ClaimedFires() string
	// ClaimFence are common table expressions. f holds the claims in $1 and $2 that still exist, and keeps them until
	// the transaction ends. Either the fence or ThenClose, after the statement, deletes the claims in $2.
	ClaimFence() string
	ThenClose(Statement) Statement
	// Steps returns a statement that chooses live runs r as c and then takes steps with them, each a statement that
	// reads c. The last counted of them affect all chosen runs. ForUpdate is LockToDelete, SkipLocked, LockedThere or
	// empty; now is the number of the parameter that holds now.
	Steps(now int, with, choose, ForUpdate string, counted int, effects ...string) Statement
	// Edges is a query for the first and the last live runs of each of some jobs, as contenders.
	// $1 how many of each, from $2 on: IDColumns
	Edges() string
	// DeleteChosen is a step that deletes the rows of the chosen runs c that meet a condition.
	DeleteChosen(condition string) string
	// ForUpdate is the clause that locks selected rows until the transaction ends.
	ForUpdate() string
	LockRows(mode string) string
	// ForShare is the clause that protects selected rows from changes until the transaction ends, and lets others do
	// the same.
	ForShare() string
	// Now reads the database's clock.
	Now(ctx context.Context, q Querier) (time.Time, error)
	// Execute runs a hot statement and calls scan for each row of its result; scan may be nil if it returns no rows.
	// It returns the number of rows that the last part affected.
	Execute(ctx context.Context, hot Statement, args []any, scan func(Scanner) error) (int64, error)
	// apart returns connections for requests.
	apart(ctx context.Context) (apart, error)
	// OnOneConnection returns a context that runs hot statements on one connection until release.
	OnOneConnection(ctx context.Context) (on context.Context, release func(), err error)
	// SendNotifications notifies all nodes when tx is committed, or earlier.
	SendNotifications(ctx context.Context, tx *sql.Tx, notifications []dispatcher.Notification) error
	// Committed is called after a transaction with notifications was committed.
	Committed(notifications []dispatcher.Notification)
	// Listen calls notification for each change that concerns nodes, until ctx ends.
	Listen(ctx context.Context, notification func(dispatcher.Notification)) error
	// LimitLockWait lets a transaction of the clean-up wait only a moment for locks, if LimitsLockWait.
	LimitLockWait(ctx context.Context, tx *sql.Tx) error
	LimitsLockWait() bool
	// RotatePartitions makes partitions for the days around now and drops those that expired before horizon, with all
	// runs that ended in them. Both are Unix milliseconds. It changes tables through try.
	RotatePartitions(ctx context.Context, q Querier, try tryChange, now, horizon int64) (dropped int, err error)
	// DaysAhead returns for how many days after today all tables have partitions; nil: the history has none.
	DaysAhead(ctx context.Context, q Querier, now int64) (*int, error)
	// Unpartitioned is the table of the runs that RotatePartitions does not drop.
	Unpartitioned() string
	// ByDay reports whether the history has a partition for each day.
	ByDay() bool
	// ExpiredOfJobs selects expired runs of the jobs of a batch; see removeOf.
	ExpiredOfJobs() string
	// SeemingFew is a condition, with AND in front, that every number meets. The planner expects few rows from it.
	SeemingFew(column string) string
	// EndedOfEach selects from the history the latest runs of each job of a batch that meet conditions. limit orders
	// and limits them.
	EndedOfEach(conditions, limit string) string
	// EndedOfEachKey selects from the history the run of each key of a batch, found by the condition is.
	EndedOfEachKey(is string) string
	// LatestOfEach selects columns of the latest rows r of a table, by at, of each job of a batch: at most limit rows
	// that meet conditions, and further rows as late as the last of them.
	// $1 a time that is not after any of them
	LatestOfEach(columns, table, at, conditions string, limit int) string
	// DeadOfEach is EndedOfEach of dead letters.
	DeadOfEach(conditions, limit string) string
	// Identity returns the identity of the database: its location and its timeline.
	Identity(ctx context.Context) (string, error)
	// Mismatch returns, when a node registers, why the database seems to have lost commits; empty: it does not.
	Mismatch(ctx context.Context, tx *sql.Tx, now time.Time, Identity string) (reason string, err error)
	// Accept notes, while a rollback awaits a decision, that nodes continue with the database: no more Mismatch.
	Accept(ctx context.Context, tx *sql.Tx, identity string) error
	// Mark notes next to the database how many heartbeats of a node it contains, where that can be noted.
	Mark(node run.NodeID, heartbeats int64)
	// Transient reports whether the same transaction may succeed after this error.
	Transient(err error) bool
	// OfData reports whether the rows of a statement cause an error that is not transient or of the connection.
	OfData(err error) bool
	// Single reports whether only one node can use the database.
	Single() bool
	close() error
}
