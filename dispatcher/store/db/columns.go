package db

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Column is a column of a batch.
type Column struct {
	Name string
	Type columnType
}

// columnType is the type of a column, by its PostgreSQL name.
type columnType string

// The types of columns.
const (
	Bigint  columnType = "bigint"
	Integer columnType = "integer"
	Text    columnType = "text"
	Boolean columnType = "boolean"
)

// Col names a column of a batch.
func Col(name string, typ columnType) Column { return Column{Name: name, Type: typ} }

// names joins the columns' names.
func names(columns []Column) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.Name
	}
	return strings.Join(list, ", ")
}

// The columns of the batches, in the order of their parameters.
var (
	advanceColumns = []Column{
		{"id", Bigint}, {"revision", Bigint}, {"calendars", Bigint}, {"prev", Bigint}, {"next", Bigint}, {"upto", Bigint}, {"upto_due", Bigint},
		{"job_id", Bigint},
	}
	ClaimColumns  = append(advanceColumns[:8:8], Col("live", Boolean))
	SettleColumns = append(advanceColumns[:8:8],
		Col("to_at", Bigint), Col("missed", Bigint), Col("decision", Text), Col("reason", Text), Col("run_at", Bigint))
	KeyColumns     = []Column{{"scheduled_at", Bigint}, {"trigger_id", Bigint}, {"kind", Integer}, {"token", Bigint}, {"attempt", Bigint}}
	outcomeColumns = []Column{{"node", Bigint}, {"started_at", Bigint}, {"ended_at", Bigint}, {"http_status", Integer},
		{"state", Text}, {"class", Text}, {"error", Text}}
	RecordColumns = append(KeyColumns[:5:5], outcomeColumns...)
	// The state that a run returned, and the revision that it was given.
	ReturnedColumns = append(RecordColumns[:12:12], Col("returned", Text), Col("seen", Bigint))
	// Five columns belong to a HostWait, the last two to a Callback.
	nextColumns = []Column{{"next_at", Bigint}, {"until_at", Bigint}, {"counts", Integer}, {"not_attempted", Integer}, {"stops", Boolean},
		{"waits_for", Bigint}, {"wait_app", Bigint}, {"wait_host", Text}, {"wait_pause", Bigint}, {"wait_probe", Bigint},
		{"callback_id", Bigint}, {"callback", Text}}
	AgainColumns = append(RecordColumns[:12:12], nextColumns...)
	// The records of fires carry the columns that live runs have and claims lack. All of these are first attempts of
	// scheduled fires.
	FireColumns = append([]Column{{"scheduled_at", Bigint}, {"trigger_id", Bigint}, {"token", Bigint}, {"job_id", Bigint},
		{"revision", Bigint}, {"claimed_at", Bigint}}, outcomeColumns...)
	FireAgainColumns = append(FireColumns[:13:13], nextColumns...)
	ResponseColumns  = []Column{{"scheduled_at", Bigint}, {"trigger_id", Bigint}, {"kind", Integer},
		{"attempt", Integer}, {"response", Text}}
	LateColumns         = append(RecordColumns[:12:12], Col("late", Text))
	ScheduleNextColumns = []Column{
		{"id", Bigint}, {"revision", Bigint}, {"calendars", Bigint}, {"prev", Bigint}, {"anchor", Bigint}, {"next", Bigint}, {"due", Bigint},
	}
	MisfireColumns = []Column{
		{"from_at", Bigint}, {"to_at", Bigint}, {"trigger_id", Bigint}, {"job_id", Bigint}, {"missed", Bigint},
		{"decision", Text}, {"reason", Text}, {"decided_at", Bigint}, {"run_at", Bigint},
	}
	CountColumns   = []Column{{"minutes", Bigint}, {"from_at", Bigint}, {"good", Bigint}, {"late", Bigint}, {"missed", Bigint}}
	FireKeyColumns = []Column{{"scheduled_at", Bigint}, {"trigger_id", Bigint}, {"kind", Bigint}}
	SettledColumns = append(KeyColumns[:3:3], Col("due", Bigint))
	EndColumns     = append(KeyColumns[:5:5], Col("error", Text))
	SlotColumns    = append(KeyColumns[:5:5], Col("node", Bigint), Col("job_id", Bigint), Col("endpoint", Text))
	IDColumns      = []Column{{"id", Bigint}}
	// Jobs, and endpoints that their runs wait for.
	WaitedColumns = []Column{{"id", Bigint}, {"endpoint", Text}}
	NameColumns   = []Column{{"name", Text}}
	LockColumns   = []Column{{"name", Text}, {"holder", Bigint}, {"fence", Bigint}}
	// Lists next to each other, the shorter ones padded: apps and labels of the node, and its positions in the apps.
	LookColumns = []Column{{"name", Text}, {"labels", Text}, {"app", Bigint}, {"after_due", Bigint}, {"after_at", Bigint},
		{"after_trigger", Bigint}, {"after_kind", Integer}}
	// The adopted runs, and what they wait for.
	AdoptColumns = []Column{{"scheduled_at", Bigint}, {"trigger_id", Bigint}, {"kind", Integer}, {"waits_for", Bigint}}
)

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

// Keys are the columns of a batch of runs.
type Keys struct {
	At, Trigger, Token, Attempt []int64 // attempt is wider than its column, so that no value of SQLite is cut off
	Kind                        []int32
}

// NewKeys returns Keys with room for rows.
func NewKeys(rows int) Keys {
	ids := func() []int64 { return make([]int64, 0, rows) }
	return Keys{At: ids(), Trigger: ids(), Token: ids(), Attempt: ids(), Kind: make([]int32, 0, rows)}
}

// Add adds a run and its attempt.
func (k *Keys) Add(key run.Key, token run.Token, attempt int) {
	k.At = append(k.At, key.ScheduledAt.UnixMilli())
	k.Trigger = append(k.Trigger, key.TriggerID)
	k.Kind = append(k.Kind, int32(key.Code()))
	k.Token = append(k.Token, int64(token))
	k.Attempt = append(k.Attempt, int64(attempt))
}

// KeysOf returns the batch of runs, in the order in which all statements lock them.
func (d *DB) KeysOf(runs []run.HeldRun) []any { return KeysIn(d.Flavor, runs) }

// KeysIn is DB.KeysOf for a flavor.
func KeysIn(f Flavor, runs []run.HeldRun) []any {
	k := NewKeys(len(runs))
	for _, run := range SortedBy(runs, HeldKey) {
		k.Add(run.Key, run.Token, run.Attempt)
	}
	return f.Batch(k.At, k.Trigger, k.Kind, k.Token, k.Attempt)
}

// HeldKey returns the key of a run, by which SortedBy sorts.
func HeldKey(r run.HeldRun) run.Key { return r.Key }

// List returns the parameter of Flavor.In.
func (d *DB) List(ids []int64) any { return d.Batch(append([]int64{}, ids...))[0] }

// Dated is Batch for runs, with their instants in the first column. The bounds of their days come first: from the
// first (inclusive) to the second (exclusive).
func (d *DB) Dated(columns ...any) []any { return DatedIn(d.Flavor, columns...) }

// DatedIn is DB.Dated for a flavor.
func DatedIn(f Flavor, columns ...any) []any {
	at := columns[0].([]int64)
	return append([]any{Day(slices.Min(at)), Day(slices.Max(at)) + DayMillis}, f.Batch(columns...)...)
}

// SortedBy returns items in the order of their runs, in which all statements lock them.
func SortedBy[T any](items []T, key func(T) run.Key) []T {
	sorted := slices.Clone(items)
	SortBy(sorted, key)
	return sorted
}

// SortBy sorts items as SortedBy does.
func SortBy[T any](items []T, key func(T) run.Key) {
	slices.SortFunc(items, func(x, y T) int {
		a, b := key(x), key(y)
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), cmp.Compare(a.TriggerID, b.TriggerID), cmp.Compare(a.Code(), b.Code()))
	})
}

// ByTrigger returns items in the order of their triggers, so that two nodes that write the same
// ones cannot deadlock.
func ByTrigger[T any](items []T, id func(T) int64) []T {
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	return sorted
}

// SortedKeys returns the sorted keys of a map; never nil.
func SortedKeys[V any](m map[string]V) []string {
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(m))))
}

// DayMillis is a day: the ledger of PostgreSQL has partitions of one UTC day each.
const DayMillis = 24 * 60 * 60 * 1000

// Day returns the first instant of the day of an instant, which is not before 1970.
func Day(ms int64) int64 { return ms - ms%DayMillis }
