package store

// Shared parts of the hot statements. Names they rely on: b is the batch, n holds now (see
// flavor.rows), c is what was chosen, t a trigger, r a run.

// statement is a hot statement. Its parts are one transaction; each has the same parameters.
type statement struct {
	parts []string
	reads bool // changes nothing
	// orElse is run instead if the first part, which has then changed nothing, finds a row that
	// it was to insert; empty: that is an error. To be ready for such a row in each insert, as
	// ON CONFLICT is, makes PostgreSQL insert it tentatively first: a claim cost a tenth more.
	orElse string
	// now is the number of the parameter that holds now, for a statement of several parts that must
	// share it.
	now int
}

// statements are the hot statements.
type statements struct {
	claim, settle, adoptable, adopt, held, release, begin, lostRuns, failLost, record, late, responses,
	ended, endedOf, scheduleNext, triggers statement
	again, dueRetries, adoptRetries, expiredRetries, giveUp, rollbackSkippable,
	rollbackSkip statement

	due                            dueStatements
	slots                          slotStatements
	heartbeat, takeLocks, giveBack string
	markDead                       [3]string // run in this order
}

// sameRun joins the batch to the runs of its keys, in the days of within.
const sameRun = ` r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind` + within

// within bounds runs or attempts r by the days of the batch, so that the planner leaves the
// other partitions alone: planning for a month of them made claim and record together up to
// 1.6 times as slow.
//
// The ORs say nothing new. Of two plain bounds on a young partition, of which there are no
// statistics, the planner guesses that they leave one row in 200, and begins with the
// partition and not with the batch: both together were six times as slow. It recognises no pair
// of bounds in ORs, but prunes partitions by them.
// $1 first day, $2 end of the last
const within = ` AND (r.scheduled_at >= $1 OR r.scheduled_at > $1) AND (r.scheduled_at < $2 OR r.scheduled_at < $2 - 1)`

// fence lets only the holder of a run pass, in the attempt that it holds the run for.
const fence = sameRun + ` AND r.token = b.token AND r.attempt = b.attempt AND r.live = b.yes`

// chosen makes a common table expression c of a query or a statement that returns rows.
func chosen(query string) string { return `, c AS (` + query + `)` }

func read(part string) statement { return statement{parts: []string{part}, reads: true} }

func write(parts ...string) statement { return statement{parts: parts} }

// writeAt is write for parts that share now, in the parameter of that number.
func writeAt(now int, parts ...string) statement {
	return statement{parts: parts, now: now}
}

// common returns the hot statements that are the same in both flavors.
func common(f flavor) statements {
	keys := f.rows(0, 3, "", keyColumns...)
	asker := f.rows(1, 3, "", column{"id", bigint}, column{"heartbeat", bigint})
	return statements{
		due:          dueStatementsOf(f),
		triggers:     read(f.rows(0, 1, "", idColumns...) + triggersByID),
		held:         read(heldRuns),
		release:      write(keys + releaseRuns),
		begin:        write(keys + chosen(beginnable) + beginRuns),
		record:       write(f.rows(0, 3, "", recordColumns...) + recordRuns),
		responses:    write(f.rows(0, 1, "", responseColumns...) + keepResponses),
		late:         write(f.rows(0, 3, "", lateColumns...) + recordLate),
		ended:        read(anyEnded),
		endedOf:      read(f.rows(0, 2, waitingExtra, idColumns...) + theseEnded),
		adoptable:    read(f.rows(5, 8, "", adoptColumns...) + chosen(adoptable(within)) + adoptableSpan),
		lostRuns:     read(f.rows(3, 5, "", idColumns...) + chosen(begunByDeadNodes(within)) + chosenSpan),
		scheduleNext: scheduleNextOn(f),
		slots:        slotStatementsOf(f),
		heartbeat:    renewHeartbeat,
		takeLocks:    f.rows(1, 5, "", nameColumns...) + takeLocks,
		giveBack:     f.rows(0, 1, "", lockColumns...) + freeLocks,
		markDead:     [3]string{asker + clampHeartbeats, asker + purgeNodes, asker + markDeadNodes},
	}
}
