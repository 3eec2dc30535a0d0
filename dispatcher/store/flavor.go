package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// tryChange runs do in a transaction that gives up where it would make claims wait. done is false if it gave up.
type tryChange func(ctx context.Context, do func(context.Context, *sql.Tx) error) (done bool, err error)

// flavor is what differs between the databases.
type flavor interface {
	// rows returns the common table expressions n(now) and b: the batch, one column per
	// name, with its columns' values in the parameters from $first on; now is the database's
	// clock, or parameter $now if that is not 0. extra is a list of expressions to add to b.
	rows(now, first int, extra string, columns ...column) string
	// batch returns the parameters that rows speaks of.
	batch(columns ...any) []any
	// in is the condition that the number before it is in the batch of one column in parameter $n.
	in(n int) string
	// sameRun is the condition that joins the rows r of runs by their key, from left to right: what else is in
	// the query comes first.
	sameRun(r, at, trigger, kind string) string
	// runsOf joins the live runs r of a node that are not retrying and meet conditions to what comes before: of each node
	// all, or what cut leaves.
	runsOf(node, conditions, cut string) string
	// eachRun joins b to those of its live runs r that meet conditions, one after the other, before it joins anything
	// else. It locks them, and passes over what is locked.
	eachRun(conditions string) string
	// eachFirst selects columns of the first rows r, $3 at most, of each a, in an order, from live runs r joined to others, of those
	// that meet conditions.
	eachFirst(columns, joined, conditions, order string) string
	// eachFirstEnds selects the first pending ends e of each a, a.share at most, in an order, of those that meet conditions. lock is
	// empty, or locks them.
	eachFirstEnds(conditions, order, lock string) string
	// claimColumns are the columns of claims that list fires, and claimValues what goes there of the fires c.
	claimColumns() string
	claimValues() string
	// claimedFires is a query for the fires of claims, also those that are recorded: token, node, claimed_at,
	// trigger_id, scheduled_at, job_id, revision.
	claimedFires() string
	// claimFence are common table expressions; f has those claims in $1 and $2 that are still there, and keeps them
	// so until the transaction ends. thenClose deletes those in $2 after a statement with them.
	claimFence() string
	thenClose(statement) statement
	// steps returns a statement that chooses live runs r as c and then takes steps with them, each a statement with
	// c. The last counted of them affect all that is chosen. lock is lockToDelete, skipLocked, lockedThere or empty, now the
	// number of the parameter that holds now.
	steps(now int, with, choose, lock string, counted int, effects ...string) statement
	// edges is a query for the first and the last live runs of each of some jobs, as contenders.
	// $1 how many of each, from $2 on: idColumns
	edges() string
	// deleteChosen is a step that deletes the rows of those runs c that meet a condition.
	deleteChosen(condition string) string
	// lock is the clause that locks selected rows until the transaction ends, and lockRows one that is written
	// out.
	lock() string
	lockRows(mode string) string
	// shareLock is the clause that keeps selected rows as they are until the transaction ends, and lets others
	// do the same.
	shareLock() string
	// clock reads the database's clock.
	clock(ctx context.Context, q querier) (time.Time, error)
	// run runs a hot statement and calls scan for each row of its result; scan may be nil if
	// there is none. It returns the number of rows that the last part affected.
	run(ctx context.Context, hot statement, args []any, scan func(scanner) error) (int64, error)
	// apart returns connections for requests.
	apart(ctx context.Context) (apart, error)
	// onOneConnection returns a context with which hot statements run on one connection, until release.
	onOneConnection(ctx context.Context) (on context.Context, release func(), err error)
	// sendNotifications notifies all nodes, at the latest when tx has been committed.
	sendNotifications(ctx context.Context, tx *sql.Tx, notifications []dispatcher.Notification) error
	// committed is called when a transaction with notifications has been committed.
	committed(notifications []dispatcher.Notification)
	// listen is Store.Listen.
	listen(ctx context.Context, notification func(dispatcher.Notification)) error
	// limitLockWait makes a transaction of the clean-up wait for locks only a moment, if limitsLockWait.
	limitLockWait(ctx context.Context, tx *sql.Tx) error
	limitsLockWait() bool
	// rotatePartitions makes partitions for the days about now and drops those that expired before horizon, with all
	// that has ended in them. Both are Unix milliseconds. It changes tables by try.
	rotatePartitions(ctx context.Context, q querier, try tryChange, now, horizon int64) (dropped int, err error)
	// daysAhead returns for how many days after today there are partitions of all tables; nil: the history has none.
	daysAhead(ctx context.Context, q querier, now int64) (*int, error)
	// unpartitioned is the table of the runs that rotatePartitions does not drop.
	unpartitioned() string
	// byDay tells that the history has a partition for each day.
	byDay() bool
	// expiredOfJobs selects expired runs of the jobs of a batch; see removeOf.
	expiredOfJobs() string
	// seemingFew is a condition that is true of a number and lets the planner take those that meet it for few, with an AND before it.
	seemingFew(column string) string
	// endedOfEach selects from the history the latest runs of each job of a batch, of those that meet conditions. limit
	// orders and limits them.
	endedOfEach(conditions, limit string) string
	// endedOfEachKey selects from the history the run of each key of a batch that a condition names.
	endedOfEachKey(is string) string
	// latestOfEach selects columns of the latest rows r of a table, by at, of each job of a batch, of those that meet
	// conditions, and at most limit of them, and those that are as late as the last of these.
	// $1 a time that is not after any of them
	latestOfEach(columns, table, at, conditions string, limit int) string
	// deadOfEach is endedOfEach of dead letters.
	deadOfEach(conditions, limit string) string
	// identity returns the identity of the database: where it is, and which of its histories.
	identity(ctx context.Context) (string, error)
	// mismatch tells, when a node registers, why the database seems to have lost commits; empty: it does not.
	mismatch(ctx context.Context, tx *sql.Tx, now time.Time, identity string) (reason string, err error)
	// mark notes next to the database how many heartbeats of a node are in it, where that can be noted.
	mark(node run.NodeID, heartbeats int64)
	// transient tells an error after which the same transaction may well succeed.
	transient(err error) bool
	// ofData tells whether an error, which is neither transient nor of the connection, is about the rows of a statement.
	ofData(err error) bool
	// single tells whether only one node can use the database.
	single() bool
	close() error
}
