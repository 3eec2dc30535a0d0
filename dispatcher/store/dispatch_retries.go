package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Parts of the hot statements for runs that are attempted again; see dispatch_sql.go for the names.
// again chooses the runs of the batch that are still held. Where the trigger's next fire ends
// the retries, that is when they end at the latest; if it was claimed already, at once.
const again = ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.token AS of_token, b.attempt AS over,
		b.node, b.started_at, b.ended_at, b.http_status, b.state, b.class, b.error, b.next_at, b.counts, b.not_attempted,
		CASE WHEN b.stops = b.yes AND t.prev_fire_time > r.scheduled_at THEN 0
			WHEN b.stops = b.yes AND t.next_fire_time <= b.until_at THEN t.next_fire_time - 1
			ELSE b.until_at END AS until_at
	FROM b JOIN runs AS r ON` + fence + ` LEFT JOIN triggers AS t ON t.id = r.trigger_id`

// The row of a run that goes on makes place for its next attempt.
const insertFailed = ` INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at,
	http_status, state, class, error)
	SELECT c.of_at, c.of_trigger, c.of_kind, c.over, c.node, c.started_at, c.ended_at, c.http_status, c.state, c.class, c.error
	FROM c WHERE c.not_attempted = 0 AND c.next_at <= c.until_at ON CONFLICT DO NOTHING`

const retryRuns = ` UPDATE runs AS r SET live = (c.next_at <= c.until_at), token = CASE WHEN c.next_at <= c.until_at THEN 0
	ELSE r.token END,
		state = CASE WHEN c.next_at <= c.until_at THEN 'retrying' ELSE c.state END,
		next_attempt_at = CASE WHEN c.next_at <= c.until_at THEN c.next_at END,
		ended_at = CASE WHEN c.next_at <= c.until_at THEN NULL ELSE c.ended_at END,
		attempt = CASE WHEN c.next_at <= c.until_at THEN c.over - c.not_attempted ELSE c.over END,
		retry_until = c.until_at, failures = r.failures + c.counts, started_at = c.started_at, http_status = c.http_status,
		class = c.class, error = c.error
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind AND r.token = c.of_token` + within

// giveUpRuns ends runs as their latest attempts ended.
const giveUpRuns = ` UPDATE runs AS r SET live = FALSE, next_attempt_at = NULL, ended_at = c.now,
	state = COALESCE((SELECT a.state FROM attempts AS a
			WHERE a.scheduled_at = c.of_at AND a.trigger_id = c.of_trigger AND a.kind = c.of_kind AND a.attempt = c.over), 'failed')
	FROM c WHERE r.scheduled_at = c.of_at AND r.trigger_id = c.of_trigger AND r.kind = c.of_kind AND r.state = 'retrying'` + within + `
	RETURNING ` + heldColumns

// dueRetries chooses retrying runs that are due and not over. A pause, or a switch, of the job or
// trigger holds them, as it holds fires, but not what was asked for by hand. Those whose job or
// trigger is gone end at their next attempt. days is within where it helps: SQLite has no
// partitions, and would look through all days instead of the index of these runs.
// $3 node, $6 limit, $7 number of apps
func dueRetries(days string) string {
	return ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over,
		j.revision AS job_revision, n.now
		FROM n CROSS JOIN runs AS r JOIN jobs AS j ON j.id = r.job_id LEFT JOIN triggers AS t ON t.id = r.trigger_id
		WHERE r.state = 'retrying' AND r.next_attempt_at <= n.now AND r.retry_until >= n.now AND ` + mayRun + days + `
			AND (r.kind = 2 OR j.deleted_at IS NOT NULL OR t.deleted_at IS NOT NULL
				OR j.enabled AND NOT j.paused AND COALESCE(t.enabled, TRUE) AND NOT COALESCE(t.paused, FALSE))
		ORDER BY r.next_attempt_at, r.scheduled_at, r.trigger_id LIMIT $6`
}

// expiredRetries chooses retrying runs whose time is over. $4 limit
func expiredRetries(days string) string {
	return ` SELECT r.scheduled_at AS of_at, r.trigger_id AS of_trigger, r.kind AS of_kind, r.attempt AS over, n.now
		FROM n CROSS JOIN runs AS r
		WHERE r.state = 'retrying' AND r.next_attempt_at <= n.now AND r.retry_until < n.now` + days + `
		ORDER BY r.scheduled_at, r.trigger_id LIMIT $4`
}

// partRetries parts records into those that end their runs and those that do not.
func partRetries(records []dispatcher.Record) (ended, again []dispatcher.Record) {
	if !slices.ContainsFunc(records, func(r dispatcher.Record) bool { return r.Next != nil }) {
		return records, nil
	}
	for _, r := range records {
		if r.Next == nil {
			ended = append(ended, r)
		} else {
			again = append(again, r)
		}
	}
	return ended, again
}

// nextAttempts returns the columns that againColumns has besides those of a record.
func nextAttempts(records []dispatcher.Record) []any {
	var at, until []int64
	var counts, notAttempted []int32
	var stops []bool
	for _, r := range records {
		at, until = append(at, r.Next.At.UnixMilli()), append(until, r.Next.Until.UnixMilli())
		counts, notAttempted = append(counts, number(r.Next.CountsAsFailure)), append(notAttempted, number(r.Next.NotAttempted))
		stops = append(stops, r.Next.StopAtNextFire)
	}
	return []any{at, until, counts, notAttempted, stops}
}

// number is 1 for true.
func number(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// NextRetry returns when the first retry after an instant is due; zero: there is none.
func (s *store) NextRetry(ctx context.Context, after time.Time) (time.Time, error) {
	// $1 after
	const earliest = `SELECT next_attempt_at FROM runs WHERE state = 'retrying' AND next_attempt_at > $1 ORDER BY next_attempt_at LIMIT 1`
	at, found, err := first(ctx, s.read, scanInt, earliest, after.UnixMilli())
	if err != nil || !found {
		return time.Time{}, err
	}
	return instant(at), nil
}

// GiveUp ends the retrying runs whose time is over, and returns how many.
func (s *store) GiveUp(ctx context.Context, now time.Time) (int, error) {
	given, err := s.endRuns(ctx, s.hot.expiredRetries, s.hot.giveUp, now)
	if err != nil {
		return 0, fmt.Errorf("give up runs: %w", err)
	}
	return given, nil
}
