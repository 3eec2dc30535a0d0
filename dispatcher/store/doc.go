// Package store keeps definitions, ledger and fleet in PostgreSQL or in SQLite.
//
// # One store, two flavors
//
// Both databases run the same code over database/sql and, wherever their dialects allow, the
// same SQL. What differs is a [db.Flavor]: how a batch of rows travels in one parameter or a few
// (arrays and unnest, or JSON and json_each), the clock, row locks, and notifications.
//
// # The hot path
//
// Due, Claim, Settle, Adopt, Record, Release, Held, EndedDelays and ScheduleNext take batches. Each batch
// becomes a common table expression "b". On PostgreSQL one statement then does all of the work, so that a crash
// leaves either everything or nothing behind. SQLite cannot update inside a query, so there the
// same parts run one after the other in a transaction that nobody can interleave with, and with
// one present, so that each chooses the same rows.
//
// Every condition that a hot statement puts on a large table compares it with a column of b,
// constants included (b.yes, b.no, b.waiting). A condition on the table alone would let the
// planner, misled by old statistics, begin with the table and not with the batch: on a young
// table that was measured to be twenty times slower.
//
// # Where a run is
//
// A run that was won is in one of three tables, each of which leads to the next:
//
//	claims     the first attempts of fires, one row for each claim     dispatch/claim.go
//	live_runs  whatever needs a row of its own until it is over        dispatch/unfold.go
//	runs       the history: inserted once, by the end of the run       dispatch/record.go, dispatch/end.go
//
// A claim only ever loses its whole row. Anyone who must change one of its runs unfolds it first. No hot statement
// looks at the history, except to unfold a claim, which finds the claim's own fires by their keys.
//
// # Days
//
// On PostgreSQL runs, attempts, responses, broadcasts and run_inputs are partitioned by the UTC day of the scheduled instant. A
// statement that looks for runs there bounds the day by parameters, because the planner, which plans each
// batch again, takes longer the more partitions it sees. Purge makes the partitions of the days
// to come and drops those past retention; what cannot go by days (the history of apps that keep
// less than others, the default partitions, all of SQLite) it deletes in small batches. It asks for locks
// only for as long as claims can wait without being late.
//
// # Definitions over time
//
// Each change of a definition or calendar leaves a row that says what the trigger was from then on, and which
// instants it owes (trigger_revisions, calendar_revisions). Fires never write there. From these and the ledger,
// package verify explains single instants and compares all of them.
//
// # A bad row stops itself only
//
// A statement may fail on what is stored in one of its rows. Batches over the rows of several jobs go through [dispatch.InParts],
// inPortions or OrAside, which divide them until that row is alone, set it aside, and go on with the rest; see package dispatch. A
// new batch goes through them, too, and into storetest.Batches.
//
// # Losing is not an error
//
// A compare-and-swap that finds another state changes nothing and returns nothing. Errors mean
// that the outcome is unknown. Serialization failures and deadlocks are repeated here.
package store
