// Package store stores definitions, ledger and fleet in PostgreSQL or SQLite.
//
// # One store, two flavors
//
// Both databases run the same code over database/sql and, wherever their dialects allow, the
// same SQL. The differences are in [db.Flavor]: how a batch of rows travels in one parameter or a few (arrays and
// unnest, or JSON and json_each), the clock, row locks, and notifications.
//
// # The hot path
//
// Due, Claim, Settle, Adopt, Record, Release, Held, EndedDelays and ScheduleNext take batches. Each batch
// becomes a common table expression "b". On PostgreSQL one statement then does all of the work, so that a crash
// leaves either everything or nothing behind. SQLite cannot update inside a query, so there the same parts run one
// after the other in a transaction that excludes all others, and with the same now, so that each chooses the same rows.
//
// Every condition that a hot statement puts on a large table compares it with a column of b,
// constants included (b.yes, b.no, b.waiting). A condition on the table alone would let the
// planner, misled by old statistics, begin with the table and not with the batch: on a young
// table that was measured to be twenty times slower.
//
// # Where a run is
//
// A won run is in one of three tables, in this order:
//
//	claims     the first attempts of fires, one row for each claim     dispatch/claim.go
//	live_runs  runs with their own row, until they end                 dispatch/unfold.go
//	runs       the history: inserted once, by the end of the run       dispatch/record.go, dispatch/end.go
//
// A claim always loses its whole row at once. Any other change of one of its runs unfolds it first. No hot statement
// reads the history, except to unfold a claim, which looks up the claim's own fires by their keys.
//
// # Days
//
// On PostgreSQL runs, attempts, responses, broadcasts and run_inputs are partitioned by the UTC day of the scheduled
// instant. A statement that searches for runs there bounds the day by parameters, because the planner, which plans each
// batch again, takes longer the more partitions it sees. Purge makes the partitions of the coming days and drops those
// past retention; other rows (the history of apps that keep less than others, the default partitions, all of SQLite) it
// deletes in small batches. It waits for locks only as long as claims can wait without being late.
//
// # Definitions over time
//
// Each change of a definition or calendar writes a row with the state of the trigger from then on and the instants that
// belong to it (trigger_revisions, calendar_revisions). Fires never write there. From these rows and the ledger,
// package verify explains single instants and compares all of them.
//
// # A bad row does not stop its batch
//
// A statement may fail because of the data in one of its rows. Batches over the rows of several jobs go through
// [dispatch.InParts], inPortions or OrAside, which divide them until that row is alone, set it aside, and continue with
// the rest; see package dispatch. New batches must do the same, and be added to storetest.Batches.
//
// # A lost compare-and-swap is not an error
//
// A compare-and-swap that finds another state changes nothing and returns nothing. Errors mean
// that the outcome is unknown. The store repeats transactions after serialization failures and deadlocks.
package store
