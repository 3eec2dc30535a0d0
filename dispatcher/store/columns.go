package store

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// column is a column of a batch.
type column struct {
	name string
	typ  columnType
}

// columnType is the type of a column, as PostgreSQL names it.
type columnType string

const (
	bigint  columnType = "bigint"
	integer columnType = "integer"
	text    columnType = "text"
	boolean columnType = "boolean"
)

// col names a column of a batch.
func col(name string, typ columnType) column { return column{name: name, typ: typ} }

// names joins the columns' names.
func names(columns []column) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.name
	}
	return strings.Join(list, ", ")
}

// The columns of the batches, in the order of their parameters.
var (
	advanceColumns = []column{
		{"id", bigint}, {"revision", bigint}, {"calendars", bigint}, {"prev", bigint}, {"next", bigint}, {"upto", bigint}, {"upto_due", bigint},
		{"job_id", bigint},
	}
	claimColumns  = append(advanceColumns[:8:8], col("live", boolean))
	settleColumns = append(advanceColumns[:8:8],
		col("to_at", bigint), col("missed", bigint), col("decision", text), col("reason", text), col("run_at", bigint))
	keyColumns     = []column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"kind", integer}, {"token", bigint}, {"attempt", bigint}}
	outcomeColumns = []column{{"node", bigint}, {"started_at", bigint}, {"ended_at", bigint}, {"http_status", integer},
		{"state", text}, {"class", text}, {"error", text}}
	recordColumns = append(keyColumns[:5:5], outcomeColumns...)
	// The state that a run returned, and the revision that it was given.
	returnedColumns = append(recordColumns[:12:12], col("returned", text), col("seen", bigint))
	// Five are those of a HostWait, the last two those of a Callback.
	nextColumns = []column{{"next_at", bigint}, {"until_at", bigint}, {"counts", integer}, {"not_attempted", integer}, {"stops", boolean},
		{"waits_for", bigint}, {"wait_app", bigint}, {"wait_host", text}, {"wait_pause", bigint}, {"wait_probe", bigint},
		{"callback_id", bigint}, {"callback", text}}
	againColumns = append(recordColumns[:12:12], nextColumns...)
	// What the rows of live runs know and claims do not comes with the records of fires. All of these are first
	// attempts of scheduled fires.
	fireColumns = append([]column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"token", bigint}, {"job_id", bigint},
		{"revision", bigint}, {"claimed_at", bigint}}, outcomeColumns...)
	fireAgainColumns = append(fireColumns[:13:13], nextColumns...)
	responseColumns  = []column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"kind", integer},
		{"attempt", integer}, {"response", text}}
	lateColumns         = append(recordColumns[:12:12], col("late", text))
	scheduleNextColumns = []column{
		{"id", bigint}, {"revision", bigint}, {"calendars", bigint}, {"prev", bigint}, {"anchor", bigint}, {"next", bigint}, {"due", bigint},
	}
	misfireColumns = []column{
		{"from_at", bigint}, {"to_at", bigint}, {"trigger_id", bigint}, {"job_id", bigint}, {"missed", bigint},
		{"decision", text}, {"reason", text}, {"decided_at", bigint}, {"run_at", bigint},
	}
	countColumns   = []column{{"minutes", bigint}, {"from_at", bigint}, {"good", bigint}, {"late", bigint}, {"missed", bigint}}
	fireKeyColumns = []column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"kind", bigint}}
	settledColumns = append(keyColumns[:3:3], col("due", bigint))
	endColumns     = append(keyColumns[:5:5], col("error", text))
	slotColumns    = append(keyColumns[:5:5], col("node", bigint), col("job_id", bigint), col("endpoint", text))
	idColumns      = []column{{"id", bigint}}
	// Jobs, and endpoints that their runs wait for.
	waitedColumns = []column{{"id", bigint}, {"endpoint", text}}
	nameColumns   = []column{{"name", text}}
	lockColumns   = []column{{"name", text}, {"holder", bigint}, {"fence", bigint}}
	// Lists side by side, the shorter ones filled up: apps and labels of the node, and up to which runs of which apps it has looked.
	lookColumns = []column{{"name", text}, {"labels", text}, {"app", bigint}, {"after_due", bigint}, {"after_at", bigint},
		{"after_trigger", bigint}, {"after_kind", integer}}
	// Which runs are adopted, and what they wait for.
	adoptColumns = []column{{"scheduled_at", bigint}, {"trigger_id", bigint}, {"kind", integer}, {"waits_for", bigint}}
)

// length returns how many rows a batch has.
func length(columns []any) int { return reflect.ValueOf(columns[0]).Len() }

// appendJSON appends the value of a column in row i.
func appendJSON(b []byte, column any, i int) []byte {
	switch c := column.(type) {
	case []int64:
		return strconv.AppendInt(b, c[i], 10)
	case []int32:
		return strconv.AppendInt(b, int64(c[i]), 10)
	case []bool:
		return strconv.AppendBool(b, c[i])
	case []*int64:
		return appendOptional(b, c, i)
	case []*string:
		return appendOptional(b, c, i)
	case []*bool:
		return appendOptional(b, c, i)
	case []string:
		if c == nil {
			return append(b, "null"...)
		}
		text, err := json.Marshal(c[i])
		if err != nil {
			panic(err) // a string always marshals
		}
		return append(b, text...)
	}
	panic("batch of an unknown type")
}

// appendOptional appends a value that may be NULL.
func appendOptional[V int64 | string | bool](b []byte, column []*V, i int) []byte {
	if column[i] == nil {
		return append(b, "null"...)
	}
	return appendJSON(b, []V{*column[i]}, 0)
}

// keys are the columns of a batch of runs.
type keys struct {
	at, trigger, token, attempt []int64 // attempt is wider than its column, so that none that SQLite has is cut off
	kind                        []int32
}

func newKeys(rows int) keys {
	ids := func() []int64 { return make([]int64, 0, rows) }
	return keys{at: ids(), trigger: ids(), token: ids(), attempt: ids(), kind: make([]int32, 0, rows)}
}

func (k *keys) add(key run.Key, token run.Token, attempt int) {
	k.at = append(k.at, key.ScheduledAt.UnixMilli())
	k.trigger = append(k.trigger, key.TriggerID)
	k.kind = append(k.kind, int32(key.Code()))
	k.token = append(k.token, int64(token))
	k.attempt = append(k.attempt, int64(attempt))
}

// keysOf returns the batch of runs, in the order in which all statements lock them.
func (d *DB) keysOf(runs []run.HeldRun) []any { return keysIn(d.flavor, runs) }

func keysIn(f flavor, runs []run.HeldRun) []any {
	k := newKeys(len(runs))
	for _, run := range sortedBy(runs, heldKey) {
		k.add(run.Key, run.Token, run.Attempt)
	}
	return f.batch(k.at, k.trigger, k.kind, k.token, k.attempt)
}

func heldKey(r run.HeldRun) run.Key { return r.Key }

// list returns the parameter that flavor.in speaks of.
func (d *DB) list(ids []int64) any { return d.batch(append([]int64{}, ids...))[0] }

// dated is batch for runs in the order of their instants, which the first column holds, after
// the bounds of their days: from the first inclusive, to the second exclusive.
func (d *DB) dated(columns ...any) []any {
	at := columns[0].([]int64)
	first, last := day(at[0]), day(at[len(at)-1])
	return append([]any{first, last + dayMillis}, d.batch(columns...)...)
}

// sortedBy returns items in the order of their runs, in which all statements lock them.
func sortedBy[T any](items []T, key func(T) run.Key) []T {
	sorted := slices.Clone(items)
	sortBy(sorted, key)
	return sorted
}

// sortBy sorts items as sortedBy does.
func sortBy[T any](items []T, key func(T) run.Key) {
	slices.SortFunc(items, func(x, y T) int {
		a, b := key(x), key(y)
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID), cmp.Compare(a.Code(), b.Code()))
	})
}

// byTrigger returns items in the order of their triggers, so that two nodes that write the same
// ones cannot deadlock.
func byTrigger[T any](items []T, id func(T) int64) []T {
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	return sorted
}

// sortedKeys returns the keys of a map in order; none are not nil.
func sortedKeys[V any](m map[string]V) []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(m))))
}

// dayMillis is a day: the ledger of PostgreSQL has partitions of one UTC day each.
const dayMillis = 24 * 60 * 60 * 1000

// day returns the first instant of the day of an instant, which is not before 1970.
func day(ms int64) int64 { return ms - ms%dayMillis }
