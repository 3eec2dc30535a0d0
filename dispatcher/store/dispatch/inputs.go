package dispatch

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// HasInput is the condition that a run r, or the parent of a shard r, has an input.
const HasInput = `EXISTS (SELECT 1 FROM run_inputs AS x WHERE x.scheduled_at = r.scheduled_at AND x.trigger_id = r.trigger_id
		AND x.kind = r.kind % 16)`

// QueuedRun is a run to queue.
type QueuedRun struct {
	run.Key
	JobID, Revision int64
	Input           *run.Input // nil: none
}

var (
	// QueuedColumns are the columns of queued runs.
	QueuedColumns = append(db.KeyColumns[:3:3], db.Col("job_id", db.Bigint), db.Col("revision", db.Bigint), db.Col("has_input", db.Boolean))
	// InputColumns are the columns of inputs of runs.
	InputColumns = append(db.KeyColumns[:3:3], db.Col("input", db.Text))
)

// queueStatements queue runs that may have been queued before.
// $1 first day, $2 end of the last, from $3 on: QueuedColumns, or InputColumns for input
type queueStatements struct{ Insert, Recheck, Input string }

func queueStatementsOf(f db.Flavor) queueStatements {
	const inHistory = `EXISTS (SELECT 1 FROM runs AS r WHERE r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id
		AND r.kind = b.kind` + db.Within + `)`
	batch := f.Rows(0, 3, "", QueuedColumns...)
	return queueStatements{
		Insert: batch + `
	INSERT INTO live_runs (scheduled_at, trigger_id, kind, job_id, app_id, revision, node, token, attempt, state, has_input)
	SELECT b.scheduled_at, b.trigger_id, b.kind, b.job_id, ` + AppOf("b.job_id") + `, b.revision, 0, 0, 0, 'queued', b.has_input FROM b
	WHERE NOT ` + inHistory + ` ON CONFLICT DO NOTHING RETURNING scheduled_at, trigger_id, kind`,
		Recheck: batch + `, c AS MATERIALIZED (SELECT b.scheduled_at AS of_at, b.trigger_id AS of_trigger, b.kind AS of_kind FROM b
		WHERE ` + inHistory + `)` + f.DeleteChosen(`c.of_kind > 0`) + ` RETURNING scheduled_at, trigger_id, kind`,
		Input: f.Rows(0, 1, "", InputColumns...) + `
	INSERT INTO run_inputs (scheduled_at, trigger_id, kind, input)
	SELECT b.scheduled_at, b.trigger_id, b.kind, b.input FROM b WHERE 1 = 1
	ON CONFLICT (scheduled_at, trigger_id, kind) DO UPDATE SET input = excluded.input`,
	}
}

// QueueRun queues a run of a job unless its key exists, live or in the history, and reports whether it did.
func QueueRun(ctx context.Context, t *Tx, one QueuedRun) (bool, error) {
	queued, err := QueueRuns(ctx, t, []QueuedRun{one})
	return len(queued) == 1, err
}

// QueueRuns queues the runs with keys that do not exist yet, live or in the history, and returns their keys. However
// often a run is requested, it is queued once while the history has it.
func QueueRuns(ctx context.Context, t *Tx, runs []QueuedRun) ([]run.Key, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	k := db.NewKeys(len(runs))
	jobs, revisions, has := make([]int64, 0, len(runs)), make([]int64, 0, len(runs)), make([]bool, 0, len(runs))
	for _, run := range db.SortedBy(runs, func(r QueuedRun) run.Key { return r.Key }) {
		k.Add(run.Key, 0, 0)
		jobs, revisions, has = append(jobs, run.JobID), append(revisions, run.Revision), append(has, run.Input != nil)
	}
	batch := db.DatedIn(t, k.At, k.Trigger, k.Kind, jobs, revisions, has)
	queued, err := db.Collect(ctx, t, ScanRunKey, t.Hot.Queue.Insert, batch...)
	if err != nil || len(queued) == 0 {
		return nil, wrapQueue(len(runs), err)
	}
	// A run that ended during the insert was still live when the insert read the history, and in the history when it
	// reached the key.
	again, err := db.Collect(ctx, t, ScanRunKey, t.Hot.Queue.Recheck, batch...)
	if err != nil {
		return nil, wrapQueue(len(runs), err)
	}
	added := make(map[run.Key]bool, len(queued))
	for _, key := range queued {
		added[key] = true
	}
	for _, key := range again {
		delete(added, key)
	}
	queued = queued[:0]
	var fresh []QueuedRun
	for _, run := range db.SortedBy(runs, func(r QueuedRun) run.Key { return r.Key }) {
		if added[run.Key] {
			queued, fresh = append(queued, run.Key), append(fresh, run)
		}
	}
	if len(queued) > 0 {
		t.Notify(dispatcher.Notification{Adopt: true})
	}
	return queued, WriteInputs(ctx, t, fresh)
}

// WriteInputs stores the inputs of the runs that have one, replacing earlier ones, and counts their bytes.
func WriteInputs(ctx context.Context, t *Tx, runs []QueuedRun) error {
	k, inputs := db.NewKeys(len(runs)), []string(nil)
	var jobs, bytes []int64
	for _, run := range runs {
		if run.Input == nil {
			continue
		}
		text, err := run.Input.Encode()
		if err != nil {
			return fmt.Errorf("input of run %s: %w", run.Key, err)
		}
		k.Add(run.Key, 0, 0)
		inputs, jobs, bytes = append(inputs, text), append(jobs, run.JobID), append(bytes, int64(len(text)))
	}
	if len(inputs) == 0 {
		return nil
	}
	if err := t.Exec(ctx, t.Hot.Queue.Input, t.Batch(k.At, k.Trigger, k.Kind, inputs)...); err != nil {
		return fmt.Errorf("write %d inputs of runs: %w", len(inputs), err)
	}
	// $1 day, from $2 on: jobs and bytes
	count := t.Rows(0, 2, "", db.Col("job_id", db.Bigint), db.Col("bytes", db.Bigint)) + ` INSERT INTO app_bytes (app_id, day, bytes)
		SELECT j.app_id, CAST($1 AS BIGINT), CAST(SUM(b.bytes) AS BIGINT) FROM b JOIN jobs AS j ON j.id = b.job_id WHERE 1 = 1
		GROUP BY j.app_id ORDER BY j.app_id
		ON CONFLICT (app_id, day) DO UPDATE SET bytes = app_bytes.bytes + excluded.bytes`
	if err := t.Exec(ctx, count, append([]any{db.Day(t.At.UnixMilli())}, t.Batch(jobs, bytes)...)...); err != nil {
		return fmt.Errorf("count the bytes of %d inputs: %w", len(jobs), err)
	}
	return nil
}

// WriteRequester adds the trace context of a retry request to the input of the run, so that its next attempts link to
// that request. The rest of the input stays.
func WriteRequester(ctx context.Context, t *Tx, id string) error {
	key, err := run.ParseKey(id)
	if err != nil || t.By.Traceparent == "" {
		return err
	}
	key = key.Parent()
	inputs, err := InputsOf(ctx, t.Flavor, t, []run.Key{key})
	if err != nil || inputs[key].Err != nil { // an unreadable input fails the run, and stays for diagnosis
		return err
	}
	input := inputs[key]
	input.Traceparent = t.By.Traceparent
	return WriteInputs(ctx, t, []QueuedRun{{Key: key, Input: &input}})
}

func wrapQueue(runs int, err error) error {
	if err != nil {
		return fmt.Errorf("queue %d runs: %w", runs, err)
	}
	return nil
}

// InputsOf returns the inputs of the runs that have one. A shard has the input of its parent.
func InputsOf(
	ctx context.Context, f db.Flavor, q db.Querier, keys []run.Key,
) (map[run.Key]run.Input, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	k, shards := db.NewKeys(len(keys)), make(map[run.Key][]run.Key, len(keys))
	for _, key := range keys {
		if parent := key.Parent(); shards[parent] == nil {
			k.Add(parent, 0, 0)
			shards[parent] = []run.Key{key}
		} else {
			shards[parent] = append(shards[parent], key)
		}
	}
	// $1 first day, $2 end of the last, from $3 on: the keys
	query := f.Rows(0, 3, "", db.KeyColumns[:3]...) + ` SELECT r.scheduled_at, r.trigger_id, r.kind, r.input
		FROM b JOIN run_inputs AS r ON r.scheduled_at = b.scheduled_at AND r.trigger_id = b.trigger_id AND r.kind = b.kind` + db.Within
	inputs := make(map[run.Key]run.Input, len(keys))
	err := db.EachRow(ctx, q, func(row db.Scanner) error {
		var of run.Key
		var text string
		if err := row.Scan(db.KeyRefs(&of, &text)...); err != nil {
			return err
		}
		given, err := run.DecodeInput(text)
		if err != nil {
			given = run.Input{Err: db.AsUnreadable(fmt.Errorf("run %s: %w", of, err))}
		}
		for _, key := range shards[of] {
			inputs[key] = given
		}
		return nil
	}, query, db.DatedIn(f, k.At, k.Trigger, k.Kind)...)
	if err != nil {
		return nil, fmt.Errorf("read the inputs of %d runs: %w", len(keys), err)
	}
	return inputs, nil
}
