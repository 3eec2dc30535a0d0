package store

import (
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// statements are the hot statements.
type statements struct {
	claim, claimLive, settle, held, begun, release, begin, idle, adopt, waiting, retry, failLost, loseBegun, late, responses,
	ended, endedOf, scheduleNext, triggers, dueRetries, retriesByTurns, giveUp, rollbackSkip, noteEmpty db.Statement

	due                 dueStatements
	record              recordStatements
	unfold              unfoldStatements
	slots               slotStatements
	heartbeat           db.Statement
	takeLocks, giveBack string
	markDead            [3]string // run in this order
	broadcast           broadcastStatements
	queue               queueStatements
}

// statementsOf returns the hot statements.
func statementsOf(f db.Flavor) statements {
	all := common(f)
	if _, parts := f.(*db.SQLite); parts {
		all.inParts(f)
	} else {
		all.inOne(f)
	}
	return all
}

// inOne adds the statements that are one, with what they write in common table expressions.
func (all *statements) inOne(f db.Flavor) {
	all.heartbeat = db.Writing(`WITH me AS (` + renewHeartbeat(db.PostgresMillis) + `)
		SELECT * FROM me UNION ALL ` + otherNodes + ` AND EXISTS (SELECT 1 FROM me)`)
	won := f.Rows(3, 5, claimExtra, db.ClaimColumns...) + db.Chosen(advance+` RETURNING `+claimedRow+`, b.live`) + `, g AS (` +
		insertClaim(f) + `)`
	const fires = ` SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, CAST($2 AS bigint), 1, 0, CAST(NULL AS bigint), c.now, FALSE FROM c`
	all.claim = db.Writing(won + fires)
	all.claimLive = db.Writing(won + `, l AS (` + insertLive + `c.live = c.yes` + returnLive + `)` + fires + ` WHERE c.live = c.no
		UNION ALL SELECT * FROM l`)
	all.settle = db.Writing(f.Rows(3, 5, settleExtra, db.SettleColumns...) + db.Chosen(advanceSettled+` RETURNING `+settledRow) +
		`, m AS (` + insertDecisions + `), e AS (` + insertPendingMisfires + `)` + insertCaughtUp)
}

// inParts adds the same where only the last part of a statement can write, so that each has several.
func (all *statements) inParts(f db.Flavor) {
	all.heartbeat = db.WritingAt(7, renewHeartbeat(db.SQLiteMillis), otherNodes)
	claim, settle := f.Rows(3, 5, claimExtra, db.ClaimColumns...), f.Rows(3, 5, settleExtra, db.SettleColumns...)
	const matching = ` FROM b JOIN trigger_clock AS t ON` + advanceMatches
	won := claim + db.Chosen(`SELECT `+claimedRow+`, b.live`+matching)
	fires := `SELECT ` + heldFire + ` FROM (` + f.ClaimedFires() + `) AS f WHERE f.token = $2`
	all.claim = db.WritingAt(3, won+insertClaim(f), fires, claim+` `+advance)
	all.claimLive = db.WritingAt(3, won+insertClaim(f), fires, won+insertLive+`c.live = c.yes`+returnLive, claim+` `+advance)
	caughtUp := settle + db.Chosen(`SELECT `+settledRow+matching)
	all.settle = db.WritingAt(3, caughtUp+insertDecisions, caughtUp+insertPendingMisfires, caughtUp+insertCaughtUp, settle+` `+advanceSettled)
}

// common returns the hot statements that are the same in both flavors.
func common(f db.Flavor) statements {
	asker := f.Rows(1, 3, "", db.Col("id", db.Bigint), db.Col("heartbeat", db.Bigint))
	return statements{
		due:            dueStatementsOf(f),
		triggers:       db.Reading(f.Rows(0, 1, "", db.IDColumns...) + triggersByID),
		held:           db.Reading(heldRows),
		begun:          db.Reading(begunRows),
		release:        db.Writing(f.Rows(0, 1, "", db.KeyColumns...) + releaseRuns + db.Fence(f)),
		begin:          db.Writing(f.Rows(0, 1, "", db.KeyColumns...) + beginRuns(f)),
		record:         recordStatementsOf(f),
		unfold:         unfoldStatementsOf(f),
		responses:      db.Writing(f.Rows(0, 1, "", db.ResponseColumns...) + keepResponses),
		late:           db.Writing(f.Rows(0, 3, "", db.LateColumns...) + recordLate),
		ended:          db.Reading(anyEnded),
		endedOf:        db.Reading(f.Rows(0, 2, waitingExtra, db.IDColumns...) + theseEnded),
		scheduleNext:   scheduleNextOn(f),
		idle:           lookFor(f, idleRuns(f)),
		dueRetries:     lookFor(f, dueRetries),
		retriesByTurns: lookFor(f, retriesByTurns(f)),
		waiting:        lookFor(f, hostWaiters),
		adopt:          adoptOf(f, takeIdle, whichIdle, insertLost),
		retry:          adoptOf(f, takeRetries, whichRetries),
		noteEmpty:      db.Writing(f.Rows(1, 2, "", db.IDColumns...) + noteEmpty(f)),
		failLost:       endingOf(f, begunByDeadNodes(f), insertLost),
		loseBegun: f.Steps(1, f.Rows(1, 2, "", db.KeyColumns...), chooseBegun(f), db.LockToDelete, 1,
			append([]string{insertLost}, followedEndSteps(f, "")...)...),
		giveUp:       endingOf(f, expiredRetries),
		rollbackSkip: endingUnfollowed(f, skippableRuns, insertLost),
		slots:        slotStatementsOf(f),
		broadcast:    broadcastStatementsOf(f),
		queue:        queueStatementsOf(f),
		takeLocks:    f.Rows(1, 5, "", db.NameColumns...) + takeLocks,
		giveBack:     f.Rows(0, 1, "", db.LockColumns...) + freeLocks,
		markDead:     [3]string{asker + clampHeartbeats, asker + purgeNodes, asker + markDeadNodes},
	}
}
