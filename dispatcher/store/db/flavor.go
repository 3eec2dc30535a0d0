package db

import (
	"context"
	"database/sql"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// tryChange runs do in a transaction that gives up where it would make claims wait. done is false if it gave up.
type tryChange func(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error)

// Flavor is what differs between the databases.
type Flavor interface {
	// Rows returns the common table expressions n(now) and b: the batch, one column per
	// name, with its columns' values in the parameters from $first on; now is the database's
	// clock, or parameter $now if that is not 0. extra is a list of expressions to add to b.
	Rows(now, first int, extra string, columns ...Column) string
	// Batch returns the parameters that rows speaks of.
	Batch(columns ...any) []any
	// In is the condition that the number before it is in the batch of one column in parameter $n.
	In(n int) string
	// SameRun is the condition that joins the rows r of runs by their key, from left to right: what else is in
	// the query comes first.
	SameRun(r, at, trigger, kind string) string
	// RunsOf joins the live runs r of a node that are not retrying and meet conditions to what comes before: of each node
	// all, or what cut leaves.
	RunsOf(node, conditions, cut string) string
	// EachRun joins b to those of its live runs r that meet conditions, one after the other, before it joins anything
	// else. It locks them, and passes over what is locked.
	EachRun(conditions string) string
	// EachFirst selects columns of the first rows r, $3 at most, of each a, in an order, from live runs r joined to others, of those
	// that meet conditions.
	EachFirst(columns, joined, conditions, order string) string
	// EachFirstEnds selects the first pending ends e of each a, a.share at most, in an order, of those that meet conditions. lock is
	// empty, or locks them.
	EachFirstEnds(conditions, order, ForUpdate string) string
	// ClaimColumns are the columns of claims that list fires, and ClaimValues what goes there of the fires c.
	ClaimColumns() string
	ClaimValues() string
	// ClaimedFires is a query for the fires of claims, also those that are recorded: token, node, claimed_at,
	// trigger_id, scheduled_at, job_id, revision.
	ClaimedFires() string
	// ClaimFence are common table expressions; f has those claims in $1 and $2 that are still there, and keeps them
	// so until the transaction ends. ThenClose deletes those in $2 after a statement with them.
	ClaimFence() string
	ThenClose(Statement) Statement
	// Steps returns a statement that chooses live runs r as c and then takes steps with them, each a statement with
	// c. The last counted of them affect all that is chosen. lock is LockToDelete, skipLocked, LockedThere or empty, now the
	// number of the parameter that holds now.
	Steps(now int, with, choose, ForUpdate string, counted int, effects ...string) Statement
	// Edges is a query for the first and the last live runs of each of some jobs, as contenders.
	// $1 how many of each, from $2 on: IDColumns
	Edges() string
	// DeleteChosen is a step that deletes the rows of those runs c that meet a condition.
	DeleteChosen(condition string) string
	// lock is the clause that locks selected rows until the transaction ends, and LockRows one that is written
	// out.
	ForUpdate() string
	LockRows(mode string) string
	// shareLock is the clause that keeps selected rows as they are until the transaction ends, and lets others
	// do the same.
	ForShare() string
	// clock reads the database's clock.
	Now(ctx context.Context, q Querier) (time.Time, error)
	// run runs a hot statement and calls scan for each row of its result; scan may be nil if
	// there is none. It returns the number of rows that the last part affected.
	Execute(ctx context.Context, hot Statement, args []any, scan func(Scanner) error) (int64, error)
	// apart returns connections for requests.
	apart(ctx context.Context) (apart, error)
	// OnOneConnection returns a context with which hot statements run on one connection, until release.
	OnOneConnection(ctx context.Context) (on context.Context, release func(), err error)
	// SendNotifications notifies all nodes, at the latest when tx has been committed.
	SendNotifications(ctx context.Context, tx *sql.Tx, notifications []dispatcher.Notification) error
	// Committed is called when a transaction with notifications has been committed.
	Committed(notifications []dispatcher.Notification)
	// Listen calls notification for each change that nodes should know of, until ctx ends.
	Listen(ctx context.Context, notification func(dispatcher.Notification)) error
	// LimitLockWait makes a transaction of the clean-up wait for locks only a moment, if LimitsLockWait.
	LimitLockWait(ctx context.Context, tx *sql.Tx) error
	LimitsLockWait() bool
	// RotatePartitions makes partitions for the days about now and drops those that expired before horizon, with all
	// that has ended in them. Both are Unix milliseconds. It changes tables by try.
	RotatePartitions(ctx context.Context, q Querier, try tryChange, now, horizon int64) (dropped int, err error)
	// DaysAhead returns for how many days after today there are partitions of all tables; nil: the history has none.
	DaysAhead(ctx context.Context, q Querier, now int64) (*int, error)
	// Unpartitioned is the table of the runs that RotatePartitions does not drop.
	Unpartitioned() string
	// ByDay tells that the history has a partition for each day.
	ByDay() bool
	// ExpiredOfJobs selects expired runs of the jobs of a batch; see removeOf.
	ExpiredOfJobs() string
	// SeemingFew is a condition that is true of a number and lets the planner take those that meet it for few, with an AND before it.
	SeemingFew(column string) string
	// EndedOfEach selects from the history the latest runs of each job of a batch, of those that meet conditions. limit
	// orders and limits them.
	EndedOfEach(conditions, limit string) string
	// EndedOfEachKey selects from the history the run of each key of a batch that a condition names.
	EndedOfEachKey(is string) string
	// LatestOfEach selects columns of the latest rows r of a table, by at, of each job of a batch, of those that meet
	// conditions, and at most limit of them, and those that are as late as the last of these.
	// $1 a time that is not after any of them
	LatestOfEach(columns, table, at, conditions string, limit int) string
	// DeadOfEach is EndedOfEach of dead letters.
	DeadOfEach(conditions, limit string) string
	// Identity returns the identity of the database: where it is, and which of its histories.
	Identity(ctx context.Context) (string, error)
	// Mismatch tells, when a node registers, why the database seems to have lost commits; empty: it does not.
	Mismatch(ctx context.Context, tx *sql.Tx, now time.Time, Identity string) (reason string, err error)
	// Accept notes, while a rollback awaits its choice, that nodes go on with the database as it is: there is no Mismatch any more.
	Accept(ctx context.Context, tx *sql.Tx, identity string) error
	// Mark notes next to the database how many heartbeats of a node are in it, where that can be noted.
	Mark(node run.NodeID, heartbeats int64)
	// Transient tells an error after which the same transaction may well succeed.
	Transient(err error) bool
	// OfData tells whether an error, which is neither transient nor of the connection, is about the rows of a statement.
	OfData(err error) bool
	// Single tells whether only one node can use the database.
	Single() bool
	close() error
}
