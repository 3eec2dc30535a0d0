// Package engine turns due triggers into runs: poll a window, claim, attempt, record.
//
// # The walk of a fire
//
//	poll (5 s)       claim (50 ms ahead)      pool                     recorder
//	due triggers --> timeline --> claim ----> wait until due, in turn --> outcomes in batches
//	from the         heap in      one         resolve, slot, host,       under the claim's token
//	database         memory       statement   begin, lease, invoke       |
//	   ^                                         ^                       |
//	   |                                         |                       v
//	   +-- PlanNext / ScheduleNext               +---- adopt <--- retrying, queued, of dead nodes
//
// The poll reads the clocks of the triggers that are due before the next poll. Their definitions come from memory or, a
// moment before they are due, from the database; then they are in the timeline. The timeline is a cache and never the
// truth. A little ahead of its time (the claim lead) a fire is claimed: one statement per batch advances the clocks of
// the triggers and inserts one row, the claim, with the fires that it won; the first node wins. Fires that need a row
// of their own, such as those at most once or with slots, become live runs in the same statement. Won runs go to the
// pool, which attempts them when they are due by the database's clock. The recorder stores their outcomes in batches,
// as rows of the history. A record counts only under the token of its claim.
//
// # Loops
//
// Each loop calls one step (Planner.Poll, claimOnce, Chores.Round, ...), which tests call by hand.
//
//	loop        interval     does
//	poll        5 s *        reads the window: of the node's own share of the triggers
//	ahead       when soon    looks up the triggers of the window that are due soon
//	sweep       1 s          in turns, plans fires that the nodes before this one left alone
//	claim       when due     claims a batch of the timeline
//	adopt       15 s *       adopts runs without a node, schedules fixed delays
//	retry       when due     adopts runs that are attempted again, and probes hosts for those that wait
//	unfold      5 s          unfolds the node's claims that are older than 30 s
//	delay       when ended   schedules the next fire of fixed delays
//	follow      15 s *       queues the followers of ended runs, and evaluates the alerts of their jobs
//	backfill    15 s *       queues the next runs of backfills, and counts those that have ended
//	bulk        15 s *       acts on the next jobs and runs of bulk actions
//	handler     15 s         steps for the fleet, see below
//	purge       10 min       removes history past its retention
//	heartbeat   5 s          renews the lease, reads which nodes are live
//	listen                   receives notifications of changes, which wake the loops marked *
//	changes     1 s at least reads the jobs that changed, by id, or wakes the poll
//	usage       1 s          samples how busy the pool is
//
// Notifications may be lost: every loop finds its work at its interval, too. Loops mark their progress, so
// that Stalled can distinguish a loop that is stuck from one that waits for the database.
//
// # Attempt
//
// An attempt is a list of steps. Each step proceeds, refuses or finishes the attempt:
//
//	resolve      finds the call, within the current bounds       call.go
//	takeSlot     waits for a slot of a job that limits its runs  slots.go
//	checkHost    defers the run while its host may not be called hosts.go, breaker.go
//	protect      asks for protection if it may outlast a drain   membership.go
//	readState    reads the state that the run before has left    inputs.go
//	begin        commits that an at_most_once request is sent    begin.go
//	checkLease   checks again that the run is still its own      attempt.go
//	invoke       calls the target                                attempt.go
//	conclude     plans a retry and hands the outcome over        retry.go, record.go
//
// For a job that sends one run at a time to an endpoint, begin and checkLease come after the invoker has chosen the
// endpoint, when the attempt has its slot (slots.go). A run that has to wait for the slot is let go.
//
// The invoker checks the lease again before it sends, and once more on a new connection: the time until the first byte
// may be longer than the lease (Call.Held).
//
// A refused attempt gives its slot back. A deferred one is recorded with the time of the next try and does not count.
// An attempt that a shutdown cuts off is not recorded: only the node that adopts its run can record that the outcome is
// unknown.
//
// A failed attempt is recorded together with the time of the next, if there is one. The run is then retrying and
// belongs to no node. The node that recorded it adopts it to the millisecond; the others look a grace later. A run that
// the circuit of its host defers waits for the host, and looks for retries skip it; see hosts.go.
//
// # Hosts
//
// A node learns about hosts by itself, from how requests end. A circuit belongs to an app and a host, and in it each
// job has a memory of its own, so no job waits long because of another job's failures; see breaker.go. The rate of a
// host counts all apps.
//
// A run that exceeds a rate is retried at its turn. A run that an open circuit defers waits for the host: its row is
// retrying, belongs to no node, and looks for retries skip it. All runs of a job that wait for a host share one row in
// the database (dispatcher.HostWait), which says when the next probe is due. Whichever node takes the probe, by
// compare-and-swap, adopts one of the runs, one that was never attempted first. If it fails, the pause doubles. If a
// request of the job succeeds on any node, the runs go in portions, as many as the pools have room for, and the row is
// removed with the last of them. A run that was never attempted is attempted when its time is over, even if the circuit
// is open: no run is given up only because it waited. See hosts.go.
//
// # Handler
//
// Every 15 s, give or take a tenth, the handler makes a round of the chores, the rows of package chores. Those for the
// fleet and for apps run under locks, so that one node does the work of an interval. Every write is a compare-and-swap
// as well, so a node that freezes under a lock does no harm.
//
// # Nodes
//
// Any node can do anything; there is no leader. The ids of triggers are hashes. Each node fires the range of ids at its
// place among the live nodes; see plan/shares.go. So nodes rarely contend, and none reads the triggers of another.
// After a grace the next in order takes a fire that its node left alone. Safety comes from the compare-and-swap alone.
//
// A poll starts at the earliest unclaimed fire; see plan/floor.go.
//
// Long attempts, those that may outlast a drain, go to new nodes while a deployment starts them: see
// membership.go.
//
// A node may act on its runs while its lease lasts: until the dead-after time has passed since it sent its last
// successful heartbeat, less a second, by its monotonic clock or by its wall clock, whichever is first. The monotonic
// clock stands still while a machine is suspended. Without a lease it begins no attempt, because other nodes may have
// taken its runs.
//
// # Time
//
// The database's clock decides what is due. The engine keeps a lower bound of it, on the node's
// monotonic clock, so a fire is never early and a jump of the node's wall clock changes nothing. Only
// loops read the clock; they pass the time to the steps.
//
// # Crash and shutdown
//
// The engine is at-least-once: a crash between a request and its record repeats the request under the
// same event id, as the next attempt of the same run. At_most_once jobs end as lost instead.
//
// A shutdown stops claiming and beginning at once, hands back the runs that were not begun, waits for
// attempts in flight, stores their outcomes, and leaves the fleet.
package engine
