package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// flavor is what differs between the databases.
type flavor interface {
	// rows returns the common table expressions n(now) and b: the batch, one column per
	// name, with its columns' values in the parameters from $first on; now is the database's
	// clock, or parameter $now if that is not 0. extra is a list of expressions to add to b.
	rows(now, first int, extra string, columns ...column) string
	// batch returns the parameters that rows speaks of.
	batch(columns ...any) []any
	// lock is the clause that locks selected rows until the transaction ends.
	lock() string
	// clock reads the database's clock.
	clock(ctx context.Context, q querier) (time.Time, error)
	// statements returns the hot statements.
	statements() statements
	// run runs a hot statement and calls scan for each row of its result; scan may be nil if
	// there is none. It returns the number of rows that the last part affected.
	run(ctx context.Context, hot statement, args []any, scan func(scanner) error) (int64, error)
	// sendNotification notifies all nodes, at the latest when tx has been committed.
	sendNotification(ctx context.Context, tx *sql.Tx, notification dispatcher.Notification) error
	// committed is called when a transaction with notifications has been committed.
	committed(notifications []dispatcher.Notification)
	// listen is Store.Listen.
	listen(ctx context.Context, notification func(dispatcher.Notification)) error
	// limitLockWait makes a transaction of the clean-up wait for locks only a moment.
	limitLockWait(ctx context.Context, tx *sql.Tx) error
	// rotatePartitions makes partitions for the days about now and drops those before horizon. done is
	// false if some of these are to be dropped by a later call. Both are Unix milliseconds.
	rotatePartitions(ctx context.Context, c cleaner, now, horizon int64) (dropped int, done bool, err error)
	// transient tells an error after which the same transaction may well succeed.
	transient(err error) bool
	// single tells whether only one node can use the database.
	single() bool
	close() error
}
