package store

// statements are the hot statements.
type statements struct {
	claim, claimLive, settle, held, begun, release, begin, idle, adopt, waiting, retry, failLost, loseBegun, late, responses,
	ended, endedOf, scheduleNext, triggers, dueRetries, retriesByTurns, giveUp, rollbackSkip, noteEmpty statement

	due                 dueStatements
	record              recordStatements
	unfold              unfoldStatements
	slots               slotStatements
	heartbeat           statement
	takeLocks, giveBack string
	markDead            [3]string // run in this order
	broadcast           broadcastStatements
	queue               queueStatements
}

// statementsOf returns the hot statements.
func statementsOf(f flavor) statements {
	all := common(f)
	if _, parts := f.(*sqlite); parts {
		all.inParts(f)
	} else {
		all.inOne(f)
	}
	return all
}

// inOne adds the statements that are one, with what they write in common table expressions.
func (all *statements) inOne(f flavor) {
	all.heartbeat = write(`WITH me AS (` + renewHeartbeat(postgresMillis) + `)
		SELECT * FROM me UNION ALL ` + otherNodes + ` AND EXISTS (SELECT 1 FROM me)`)
	won := f.rows(3, 5, claimExtra, claimColumns...) + chosen(advance+` RETURNING `+claimedRow+`, b.live`) + `, g AS (` + insertClaim(f) + `)`
	const fires = ` SELECT c.run_at, c.id, c.kind, c.job_id, c.revision, CAST($2 AS bigint), 1, 0, CAST(NULL AS bigint), c.now, FALSE FROM c`
	all.claim = write(won + fires)
	all.claimLive = write(won + `, l AS (` + insertLive + `c.live = c.yes` + returnLive + `)` + fires + ` WHERE c.live = c.no
		UNION ALL SELECT * FROM l`)
	all.settle = write(f.rows(3, 5, settleExtra, settleColumns...) + chosen(advanceSettled+` RETURNING `+settledRow) +
		`, m AS (` + insertDecisions + `), e AS (` + insertPendingMisfires + `)` + insertCaughtUp)
}

// inParts adds the same where only the last part of a statement can write, so that each has several.
func (all *statements) inParts(f flavor) {
	all.heartbeat = writeAt(7, renewHeartbeat(sqliteMillis), otherNodes)
	claim, settle := f.rows(3, 5, claimExtra, claimColumns...), f.rows(3, 5, settleExtra, settleColumns...)
	const matching = ` FROM b JOIN trigger_clock AS t ON` + advanceMatches
	won := claim + chosen(`SELECT `+claimedRow+`, b.live`+matching)
	fires := `SELECT ` + heldFire + ` FROM (` + f.claimedFires() + `) AS f WHERE f.token = $2`
	all.claim = writeAt(3, won+insertClaim(f), fires, claim+` `+advance)
	all.claimLive = writeAt(3, won+insertClaim(f), fires, won+insertLive+`c.live = c.yes`+returnLive, claim+` `+advance)
	caughtUp := settle + chosen(`SELECT `+settledRow+matching)
	all.settle = writeAt(3, caughtUp+insertDecisions, caughtUp+insertPendingMisfires, caughtUp+insertCaughtUp, settle+` `+advanceSettled)
}

// common returns the hot statements that are the same in both flavors.
func common(f flavor) statements {
	asker := f.rows(1, 3, "", col("id", bigint), col("heartbeat", bigint))
	return statements{
		due:            dueStatementsOf(f),
		triggers:       read(f.rows(0, 1, "", idColumns...) + triggersByID),
		held:           read(heldRows),
		begun:          read(begunRows),
		release:        write(f.rows(0, 1, "", keyColumns...) + releaseRuns + fence(f)),
		begin:          write(f.rows(0, 1, "", keyColumns...) + beginRuns(f)),
		record:         recordStatementsOf(f),
		unfold:         unfoldStatementsOf(f),
		responses:      write(f.rows(0, 1, "", responseColumns...) + keepResponses),
		late:           write(f.rows(0, 3, "", lateColumns...) + recordLate),
		ended:          read(anyEnded),
		endedOf:        read(f.rows(0, 2, waitingExtra, idColumns...) + theseEnded),
		scheduleNext:   scheduleNextOn(f),
		idle:           lookFor(f, idleRuns(f)),
		dueRetries:     lookFor(f, dueRetries),
		retriesByTurns: lookFor(f, retriesByTurns(f)),
		waiting:        lookFor(f, hostWaiters),
		adopt:          adoptOf(f, takeIdle, whichIdle, insertLost),
		retry:          adoptOf(f, takeRetries, whichRetries),
		noteEmpty:      write(f.rows(1, 2, "", idColumns...) + noteEmpty(f)),
		failLost:       endingOf(f, begunByDeadNodes(f), insertLost),
		loseBegun: f.steps(1, f.rows(1, 2, "", keyColumns...), chooseBegun(f), lockToDelete, 1,
			append([]string{insertLost}, followedEndSteps(f, "")...)...),
		giveUp:       endingOf(f, expiredRetries),
		rollbackSkip: endingUnfollowed(f, skippableRuns, insertLost),
		slots:        slotStatementsOf(f),
		broadcast:    broadcastStatementsOf(f),
		queue:        queueStatementsOf(f),
		takeLocks:    f.rows(1, 5, "", nameColumns...) + takeLocks,
		giveBack:     f.rows(0, 1, "", lockColumns...) + freeLocks,
		markDead:     [3]string{asker + clampHeartbeats, asker + purgeNodes, asker + markDeadNodes},
	}
}
