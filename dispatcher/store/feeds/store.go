// Package feeds makes the runs that no schedule makes: followers, backfills, bulk actions, notifications of alerts, and
// requests by users and targets.
package feeds

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/backoff"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/definitions"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
	"github.com/carillon-dev/carillon/dispatcher/store/reads"
)

// Store makes further runs from the ledger and the definitions.
type Store struct {
	dispatch    *dispatch.Store
	definitions *definitions.Store
	reads       *reads.Store
	db          *db.DB
}

// New returns a store over the database d.
func New(dispatch *dispatch.Store, definitions *definitions.Store, reads *reads.Store, d *db.DB) *Store {
	return &Store{dispatch: dispatch, definitions: definitions, reads: reads, db: d}
}

// Backfills and bulk actions advance in steps. A step that fails because of stored data is tried again after growing
// pauses, so that it does not delay others, and its object shows the reason. An operator's change ends the pause.

// stepPauses are the pauses before a failed step is tried again.
var stepPauses = backoff.Pauses{First: time.Second, Most: 5 * time.Minute}

// mostStepText bounds the stored reason of a failed step, in letters.
const mostStepText = 1024

// orNothing returns the time of a column; 0 means none.
func orNothing(at int64) *time.Time {
	if at == 0 {
		return nil
	}
	return new(db.Instant(at))
}

// openSteps returns the objects of a table that have not ended.
func (s *Store) openSteps(ctx context.Context, table string) ([]dispatcher.OpenSteps, error) {
	open, err := db.Collect(ctx, s.db.Read, func(row db.Scanner) (one dispatcher.OpenSteps, err error) {
		var at int64
		err = row.Scan(&one.ID, &at)
		one.TryAt = db.Zeroable(orNothing(at))
		return one, err
	}, `SELECT id, try_at FROM `+table+` WHERE ended_at IS NULL AND `+dispatch.NoRollback+` ORDER BY tries, id`)
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", strings.ReplaceAll(table, "_", " "), err)
	}
	return open, nil
}

// setStepAside notes why a step of an object of a table failed, and returns when it is tried again; zero: stored data
// did not cause the error.
func (s *Store) setStepAside(ctx context.Context, table string, id int64, why error, now time.Time) (at time.Time, err error) {
	if !s.dispatch.OfStored(ctx, why) {
		return at, nil
	}
	err = s.dispatch.Change(ctx, input.Change{Now: now}, func(ctx context.Context, t *dispatch.Tx) error {
		// $1 object
		tries, found, err := db.First(ctx, t, db.ScanInt, `SELECT tries FROM `+table+` WHERE id = $1 AND ended_at IS NULL`+t.ForUpdate(), id)
		if err != nil || !found {
			return err
		}
		tries++
		at = t.At.Add(stepPauses.After(int(tries)))
		// $1 object, $2 tries, $3 when it is tried again, $4 why
		return t.Exec(ctx, `UPDATE `+table+` SET tries = $2, try_at = $3, waits = $4 WHERE id = $1`, id, tries,
			at.UnixMilli(), dispatch.Storable(dispatch.Shortened(why.Error(), mostStepText)))
	})
	if err != nil {
		return at, fmt.Errorf("note why the step failed: %w", err)
	}
	return at, nil
}
