package dispatch

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// EndedShard is a shard in the history.
type EndedShard struct {
	key           run.Key
	State         run.State
	class, reason string
}

// EndBroadcast ends a run locked by the transaction if it waits for shards and all have ended.
func EndBroadcast(ctx context.Context, t *Tx, parent run.Key) (ended bool, err error) {
	attempt, found, err := db.First(ctx, t, db.ScanInt, DoneAttempt, KeyArgs(parent)...)
	if err != nil || !found {
		return false, err
	}
	endpoints, _, err := EndpointsOf(ctx, t, parent)
	if err != nil {
		return false, err
	}
	shards, err := EndedShards(ctx, t, parent)
	if err != nil {
		return false, err
	}
	state, class, why := sumOfShards(shards, len(endpoints))
	var k db.Keys
	k.Add(parent, 0, int(attempt))
	err = Take(ctx, t, t.Hot.Broadcast.End, append([]any{t.At.UnixMilli()}, t.Batch(k.At, k.Trigger, k.Kind, k.Token, k.Attempt,
		[]string{why}, []string{string(state)}, []string{class})...)...)
	if err != nil {
		return false, fmt.Errorf("end broadcast %s: %w", parent, err)
	}
	t.Notify(dispatcher.Notification{Adopt: true}) // a fixed delay continues from here
	return true, NotifyEnds(ctx, t)
}

// EndedShards returns the ended shards of a run, by index.
func EndedShards(ctx context.Context, q db.Querier, parent run.Key) ([]EndedShard, error) {
	const list = `SELECT r.scheduled_at, r.trigger_id, r.kind, coalesce(r.state, 'succeeded'), coalesce(r.class, ''), coalesce(r.error, '')
		FROM runs AS r WHERE` + ofParent + ` ORDER BY r.kind`
	return db.ReadRows(ctx, q, func(one *EndedShard) []any { return db.KeyRefs(&one.key, &one.State, &one.class, &one.reason) },
		list, KeyArgs(parent)...)
}

// mostShardsNamed is how many failed shards the error of a broadcast names.
const mostShardsNamed = 5

// sumOfShards returns the outcome of a broadcast from its ended shards. A shard missing from the history counts as
// failed. A shard refused by its endpoint as stale does not, but the broadcast has not succeeded either.
func sumOfShards(shards []EndedShard, total int) (state run.State, class, why string) {
	var failed []EndedShard
	superseded := 0
	for _, one := range shards {
		switch one.State {
		case run.Succeeded:
		case run.Superseded:
			superseded++
		default:
			failed = append(failed, one)
		}
	}
	switch unknown := max(total-len(shards), 0); {
	case len(failed)+unknown > 0:
		class, why = whyShardsFailed(failed, unknown, total)
		return run.Failed, class, why
	case superseded > 0:
		return run.Superseded, "", fmt.Sprintf("%d of %d shards were refused as stale: newer ones had been done", superseded, total)
	}
	return run.Succeeded, "", ""
}

// whyShardsFailed returns the class of a broadcast with failed or missing shards, and names the first of them.
func whyShardsFailed(failed []EndedShard, unknown, total int) (class, why string) {
	var text strings.Builder
	fmt.Fprintf(&text, "%d of %d shards failed", len(failed)+unknown, total)
	class = string(run.ClassOther)
	for i, one := range failed {
		if i == 0 && one.class != "" {
			class = one.class
		}
		if i == mostShardsNamed {
			fmt.Fprintf(&text, "; and %d more", len(failed)-i)
			break
		}
		fmt.Fprintf(&text, "%s shard %d %s", map[bool]string{true: ":", false: ";"}[i == 0], one.key.Shard-1, one.State)
		if one.reason != "" {
			text.WriteString(": " + Shortened(one.reason, 150))
		}
	}
	return class, text.String()
}

// Shortened returns a text cut to so many characters.
func Shortened(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most]) + "…"
	}
	return text
}

// RetryBroadcast brings back an ended shard, or the failed shards of a broadcast, or all of them if none failed. An
// ended parent is queued, so that it gets a slot again, and its shards wait until it is spread. args are the key of the
// run and its job, in the form of a runChange.
func RetryBroadcast(ctx context.Context, t *Tx, id string, args []any, counts *run.ShardCounts) error {
	key, err := run.ParseKey(id)
	if err != nil {
		return err
	}
	parent := append(KeyArgs(key.Parent()), args[3])
	which := ofParent + ` AND r.job_id = $4`
	switch {
	case key.Shard > 0:
		which = IsRun
	case counts.Failed+counts.Superseded > 0:
		which += ` AND r.state IS NOT NULL`
	}
	node := 0
	const waits = `SELECT 1 FROM live_runs AS r WHERE` + IsRun + ` AND r.state = 'waiting_shards'`
	if _, spread, err := db.First(ctx, t, db.ScanInt, waits, parent...); err != nil {
		return err
	} else if !spread {
		node = heldShard
	}
	t.Notify(dispatcher.Notification{Adopt: true})
	for _, step := range []struct {
		statement string
		args      []any
	}{
		{KeepLatest(which), args},
		{BackToLive(node) + which, args},
		{`DELETE FROM runs AS r WHERE` + which, args},
		{BackToLive(0) + IsRun, parent},
		{`DELETE FROM runs AS r WHERE` + IsRun, parent},
		{`UPDATE trigger_clock AS r SET ended_at = NULL WHERE r.prev_fire_time = $1 AND r.id = $2 AND $3 IN (1, 3) AND r.delayed
			AND r.next_fire_time IS NULL`, parent[:3]},
	} {
		if err := t.Exec(ctx, step.statement, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// KeepLatest inserts rows of attempts for the latest attempts of selected runs r of the history.
func KeepLatest(which string) string {
	return `INSERT INTO attempts (scheduled_at, trigger_id, kind, attempt, node, started_at, ended_at, http_status, state, class, error)
		SELECT r.scheduled_at, r.trigger_id, r.kind, r.attempt, r.node, r.ended_at - r.started_ms, r.ended_at, r.http_status,
			coalesce(r.state, 'succeeded'), coalesce(r.class, ''), coalesce(r.error, '')
		FROM runs AS r WHERE` + which + ` AND r.attempt > 0 AND r.node <> 0 AND r.started_ms IS NOT NULL ON CONFLICT DO NOTHING`
}

// IsRun is the condition of a run r.
// $1 scheduled instant, $2 trigger, $3 kind, $4 job
const IsRun = ` r.scheduled_at = $1 AND r.trigger_id = $2 AND r.kind = $3 AND r.job_id = $4`

// BackToLive queues runs of the history again, with the current revision of their job.
func BackToLive(node int) string {
	return `INSERT INTO live_runs (scheduled_at, trigger_id, job_id, app_id, kind, revision, node, token, attempt, state, has_input)
	SELECT r.scheduled_at, r.trigger_id, r.job_id, ` + AppOf("r.job_id") + `, r.kind, (SELECT j.revision FROM jobs AS j WHERE j.id = r.job_id),
		` + strconv.Itoa(node) + `, 0, r.attempt, 'queued', ` + HasInput + ` FROM runs AS r WHERE`
}

// AddShards adds to a run its place in a broadcast, or the counts of its shards.
func AddShards(ctx context.Context, q db.Querier, r *run.Run, key run.Key) error {
	endpoints, found, err := EndpointsOf(ctx, q, key.Parent())
	if err != nil || !found {
		return err
	}
	if r.Shard != nil {
		fillShard(r, endpoints)
		return nil
	}
	shards, err := EndedShards(ctx, q, key)
	if err != nil {
		return err
	}
	counts := run.ShardCounts{Total: len(endpoints)}
	for _, one := range shards {
		switch one.State {
		case run.Succeeded:
			counts.Succeeded++
		case run.Superseded:
			counts.Superseded++
		default:
			counts.Failed++
		}
	}
	const live = `SELECT count(*) FROM live_runs AS r WHERE` + ofParent
	alive, _, err := db.First(ctx, q, db.ScanInt, live, KeyArgs(key)...)
	counts.Live = int(alive)
	r.Shards = &counts
	return err
}

func fillShard(run *run.Run, endpoints []string) {
	if run.Shard.Total = len(endpoints); run.Shard.Index < len(endpoints) {
		run.Shard.Endpoint = endpoints[run.Shard.Index]
	}
}

// AddEndpoints adds their endpoints to the shards of a run.
func AddEndpoints(ctx context.Context, q db.Querier, parent string, shards []run.Run) error {
	key, err := run.ParseKey(parent)
	if err != nil {
		return err
	}
	endpoints, _, err := EndpointsOf(ctx, q, key)
	for i := range shards {
		fillShard(&shards[i], endpoints)
	}
	return err
}
