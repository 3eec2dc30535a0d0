package db

import "slices"

// Shared parts of the hot statements. Names they rely on: b is the batch, n holds now (see
// flavor.rows), c is what was chosen, t a trigger's clock, r a run.

// Statement is a hot statement. Its parts are one transaction; each has the same parameters.
type Statement struct {
	Parts []string
	reads bool // changes nothing
	// OrElse is run instead if the first part, which has then changed nothing, finds a row that
	// it was to insert; nil: that is an error. To be ready for such a row in each insert, as
	// ON CONFLICT is, makes PostgreSQL insert it tentatively first: a record cost a sixth more.
	OrElse []string
	// Now is the number of the parameter that holds now, for a statement of several parts that must
	// share it.
	Now int
	// counted are the parts whose rows count as affected; none: the last.
	counted []int
}

// counts tells whether the rows of a part are what the statement affects.
func (s Statement) counts(part int) bool {
	if len(s.counted) == 0 {
		return part == len(s.Parts)-1
	}
	return slices.Contains(s.counted, part)
}

// Within bounds the attempts r by the days of the batch, so that the planner leaves the
// other partitions alone: planning for a month of them made claim and record together up to
// 1.6 times as slow.
//
// The ORs say nothing new. Of two plain bounds on a young partition, of which there are no
// statistics, the planner guesses that they leave one row in 200, and begins with the
// partition and not with the batch: both together were six times as slow. It recognises no pair
// of bounds in ORs, but prunes partitions by them.
// $1 first day, $2 end of the last
const Within = ` AND (r.scheduled_at >= $1 OR r.scheduled_at > $1) AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)`

// OfBatch joins the batch to the rows r of its runs.
func OfBatch(f Flavor) string { return f.SameRun("r", "b.scheduled_at", "b.trigger_id", "b.kind") }

// OfChosen joins what was chosen to the rows r of its runs.
func OfChosen(f Flavor) string { return f.SameRun("r", "c.of_at", "c.of_trigger", "c.of_kind") }

// parked are the states of live runs that no node holds, and that wait for a time and not for a node. They are not in
// live_runs_node; these texts are also the conditions of the indexes.
const parked = `('retrying', 'waiting_callback')`

// IsParked tells the live runs r in these states, and NotParked the others.
const (
	IsParked  = `r.state IN ` + parked
	NotParked = `r.state NOT IN ` + parked
)

// Fence joins the batch to the live runs r, and lets only the holder of a run pass, in the attempt that it
// holds the run for.
func Fence(f Flavor) string {
	return OfBatch(f) + ` AND r.token = b.token AND r.attempt = b.attempt`
}

// How rows are locked, where databases do: LockToDelete waits for those that somebody else has locked, and skipLocked
// leaves them out. LockedThere says that the query for them has locked them.
const (
	LockToDelete   = " FOR UPDATE"
	SkipLockedRows = " SKIP LOCKED"
	LockedThere    = " LOCKED"
)

// Chosen makes a common table expression c of a query or a statement that returns rows.
func Chosen(query string) string { return `, c AS (` + query + `)` }

// Reading is a statement that changes nothing.
func Reading(part string) Statement { return Statement{Parts: []string{part}, reads: true} }

// Writing is a statement of parts.
func Writing(parts ...string) Statement { return Statement{Parts: parts} }

// WritingAt is Writing for parts that share now, in the parameter of that number.
func WritingAt(now int, parts ...string) Statement {
	return Statement{Parts: parts, Now: now}
}
