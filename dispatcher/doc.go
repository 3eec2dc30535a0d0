// Package dispatcher is the domain of Carillon: the words, states, rules and the Store
// contract that every other package speaks. It does no I/O.
//
// # The model
//
// An [App] is a namespace of jobs. A [Job] is a target to call with a payload, and a map of
// named triggers. A [Trigger] is one schedule with its own previous and next fire time. Each
// scheduled instant of a trigger is a fire; the execution of one fire, or of a request to
// run a job by hand, is a [Run], made of attempts. A fire whose time passed without a claim
// is settled by a recorded [Misfire]. Runs and misfires together are the ledger, which is kept
// for the retention of the app.
//
// A node is one dispatcher process. Its id is drawn again at each start (an incarnation); its
// name is only a label.
//
// # States and who changes them
//
// A trigger is "waiting" with a next fire time (without one while it is disabled), or
// "complete" without one, or in "error" with a reason when it cannot be evaluated or its target
// has answered that it is gone. Only three writes move its times: a claim, the
// settlement of a misfire, and a change of its definition. Each names the state, revision,
// previous and next fire time it expects (compare-and-swap), so that of any number of
// nodes exactly one succeeds.
//
// A claim is one statement (on SQLite, one transaction): it advances the trigger and inserts
// the run, or does neither.
// That is why a crash cannot lose a fire. The run holds the claim's token; anyone who
// records an outcome must present it. A node that lost its runs to another, because it was
// taken for dead, presents an old token: its result is kept beside the run, never over it.
//
// A run whose attempt failed may be "retrying": still live, but without a token, so that nobody can
// record it, until some node adopts it at its time. The record of the failure makes it so.
//
// What an operator wants (enabled, paused) has its own columns, which no scheduler writes.
//
// # Identity
//
// The ids of apps, jobs and triggers are hashes of their names, and a run's id encodes its
// trigger, its instant and its kind. Nothing is drawn from a sequence. A database that was
// restored from a backup, or a job that was deleted and declared again, gives the same
// fires the same ids and the same event id, so receivers can drop what they have seen.
//
// # Guarantees
//
// Every scheduled instant of every enabled trigger ends in exactly one run or inside
// exactly one misfire. Delivery is at least once: a crash between a request and its record
// repeats the request under the same event id. A fire is never early by the database's clock.
package dispatcher
