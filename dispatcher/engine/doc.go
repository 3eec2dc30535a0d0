// Package engine turns due triggers into runs: poll a window, claim, fire, record.
//
// # The walk of a fire
//
// Every window (5 s) the poll reads the triggers that are due before the next poll into the
// timeline, a heap in memory that is a cache and never the truth. A little ahead of its
// instant (the claim lead) a fire is claimed: one statement per batch advances the trigger
// and inserts the run, for anyone who is first. What was won goes to the pool, which holds it
// until it is due by the database's clock, calls the target, and hands the outcome to the
// recorder, which stores outcomes in batches under the claim's token.
//
// A fire is claimed only when it has a place in the pool. Places are bounded in total, for
// each app and for each host, so that neither takes all of them; what finds none waits in
// fair order, and for other nodes to take it. An attempt that takes long moves to a share of
// its own, and so do later ones of its job until it recovers. The pool has as many workers as
// runs wait for, between a least and a most.
//
// Beside it, every 15 s give or take a tenth, the handler declares dead the nodes whose heartbeat
// stayed out and settles misfires, under locks: one for the fleet and one for each app that needs
// it, so that of all nodes one does the work of a window. For itself it reclaims runs that the
// database gives to this node and that it does not have. At the same rhythm, and at once when a hint comes, runs that nobody works on are
// adopted: those of dead nodes, those handed back, those requested by hand; and fixed delays
// whose run has ended without this node's knowing are given their next fire.
//
// An attempt that failed is recorded together with the time of the next, if there is one: the run is
// retrying, and nobody's. The node that recorded it is woken at that time and adopts what is due; the
// others look a grace later. Before an attempt begins, the gate says whether its host may be called
// now; if not, the run is defers by the same record, and its attempt is not consumed.
//
// Every ten minutes, on its own, the clean-up makes the partitions of the days to come and
// removes history past its retention. It waits for nobody, so claims never wait for it.
//
// # Who may do what
//
// Any node can do anything; there is no leader. Nodes prefer disjoint triggers (a rendezvous
// hash over the live nodes), so that they rarely contend; after a grace any node takes a fire
// that its preferred node left alone. Safety comes from the compare-and-swap alone.
//
// A node may act on its runs while its lease lasts: until the dead-after time has passed
// since it sent its last successful heartbeat, less a second. Without a lease it begins no
// attempt, because others may have taken its runs.
//
// # Time
//
// Due is decided by the database's clock. The engine keeps a lower bound of it, as a
// monotonic clock started from the database's answer; so a fire is never early, and a jump
// of the node's wall clock moves nothing. Only loops ask the clock; the steps that they call
// (pollOnce, claimOnce, handleOnce, ...) are given the present.
//
// # Crash and shutdown
//
// The engine is at-least-once: a crash between a request and its record repeats the request
// under the same event id, as the next attempt of the same run. At shutdown it stops
// claiming and beginning at once, hands back what was not begun, waits for what is in flight, records, and leaves
// the fleet.
package engine
