// Package dispatcher is the root of Carillon's domain: jobs, triggers, calendars and nodes, their rules, and the
// decisions about their fires. It builds on the packages below it, such as run and target; alert, access, repeat and
// view build on it. None of them does I/O.
//
// # The model
//
// An App (package access) is a namespace of jobs. A [Job] is a target to call with a payload, and a map of
// named triggers. A [Trigger] is one schedule with its own previous and next fire time. Each
// scheduled instant of a trigger is a fire; the execution of one fire, or of a request to
// run a job by hand, is a [run.Run], made of attempts. A fire whose time passed without a claim
// gets a recorded decision, a [Misfire]. Runs and misfires together are the ledger, which is kept
// for the retention of the app.
//
// A node is one dispatcher process. It draws a new id at each start (an incarnation); its
// name is only a label.
//
// # States and who changes them
//
// A trigger is "waiting" with a next fire time (without one while it is disabled), or
// "complete" without one, or in "error" with a reason when it cannot be evaluated or its target
// responded 410 (Gone). Only three writes move its times: a claim, the
// settlement of a misfire, and a change of its definition. Each names the state, revision,
// previous and next fire time it expects (compare-and-swap), so exactly one of
// any number of nodes succeeds.
//
// A claim is one statement (on SQLite, one transaction): it advances triggers and stores their
// fires under a token, or does neither, so a crash cannot lose a fire. A run that a node has won is in
// one place at a time: in its claim, among the live runs if it needs more than one attempt or a
// permission, or, once it is over, in the history. A node must present the token to record an
// outcome. A node that was marked dead, and whose runs another node adopted, presents an old token:
// its result is kept next to the run and never overwrites it.
//
// A run whose attempt failed may be "retrying": it is a live run without a token, so no node can record
// an outcome until one adopts it when it is due. The statement that records the failure sets this state.
//
// A run that is spread over all endpoints of a group is "waiting_shards": no node holds it, and each of its shards is
// a run with the same key and another index. It ends after its last shard, in a transaction of the node that recorded
// that shard, or of the handler.
//
// The operator's switches (enabled, paused) have their own columns, which no scheduler writes. A trigger that must
// not fire is off, and adds nothing to the cost of a poll.
//
// # Identity
//
// The ids of apps, jobs and triggers are hashes of their names, and a run's id encodes its trigger, its instant and
// its kind. Nothing is drawn from a sequence. A database that was restored from a backup, or a job that was deleted
// and declared again, gives the same fires the same ids and the same event ids, so receivers can drop duplicates.
//
// # Guarantees
//
// Every scheduled instant of every enabled trigger ends in exactly one run or inside
// exactly one misfire. Delivery is at least once: a crash between a request and its record
// repeats the request under the same event id. A fire is never early by the database's clock.
package dispatcher
