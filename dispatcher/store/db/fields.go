package db

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// field is a column of a table and its place in a T. The fields of a table are listed once; the columns of SELECT,
// INSERT and UPDATE, and the scanned values, follow from that list.
type field[T any] struct {
	Name string
	Type columnType // in a batch; only triggers are written as one
	// Ref returns a pointer to the value, for scanning and writing. A value with another form in its column uses one
	// of the conversions below.
	Ref func(*T) any
	Use use
	// Read is the selected expression; empty: the column.
	Read string
}

// use names the statements that leave out a field.
type use int

// Which statements include a field: all, all but updates, none that write, only those that write, or only inserts.
const (
	notRead use = 1 << iota // selected
	notNew                  // inserted
	notSet                  // updates leave it unchanged

	Always      use = 0
	NeverSet        = notSet
	OnlyRead        = notNew | notSet // Read names it with its table
	OnlyWritten     = notRead
	OnlyNew         = notRead | notSet
)

// Fields are the columns of a table.
type Fields[T any] []field[T]

// without returns the fields that a statement includes.
func (all Fields[T]) without(not use) Fields[T] {
	return slices.DeleteFunc(slices.Clone(all), func(f field[T]) bool { return f.Use&not != 0 })
}

// Read returns the fields that are selected.
func (all Fields[T]) Read() Fields[T] { return all.without(notRead) }

// Written returns the fields that are inserted.
func (all Fields[T]) Written() Fields[T] { return all.without(notNew) }

// list joins the texts of the fields.
func (all Fields[T]) list(text func(field[T]) string) string {
	list := make([]string, len(all))
	for i, f := range all {
		list[i] = text(f)
	}
	return strings.Join(list, ", ")
}

// Selected lists the columns that a query of a table selects, for Refs to scan.
func (all Fields[T]) Selected(table string) string {
	return all.list(func(f field[T]) string { return cmp.Or(f.Read, table+f.Name) })
}

// Names lists the columns, each after a prefix.
func (all Fields[T]) Names(prefix string) string {
	return all.list(func(f field[T]) string { return prefix + f.Name })
}

// Insert returns an INSERT of one row, with values in the parameters from $1 on.
func (all Fields[T]) Insert(table string) string {
	values := make([]string, len(all.Written()))
	for i := range values {
		values[i] = fmt.Sprintf("$%d", i+1)
	}
	return `INSERT INTO ` + table + ` (` + all.Written().Names("") + `) VALUES (` + strings.Join(values, ", ") + `)`
}

// Update is the list of assignments with which an INSERT replaces an existing row.
func (all Fields[T]) Update() string {
	return all.without(notSet).list(func(f field[T]) string { return f.Name + " = excluded." + f.Name })
}

// Refs returns the scan destinations of a row.
func (all Fields[T]) Refs(into *T) []any {
	refs := make([]any, len(all))
	for i, f := range all {
		refs[i] = f.Ref(into)
	}
	return refs
}

// Values returns the parameters of an INSERT.
func (all Fields[T]) Values(from *T) []any {
	some := all.Written()
	values := make([]any, len(some))
	for i, f := range some {
		values[i] = f.value(from)
	}
	return values
}

// value returns the value to store in a column.
func (f field[T]) value(from *T) driver.Value {
	value, err := driver.DefaultParameterConverter.ConvertValue(f.Ref(from))
	if err != nil {
		panic(fmt.Sprintf("column %s: %v", f.Name, err)) // the type of a field is wrong
	}
	return value
}

// Batch returns the columns of rows for inserting them as one batch, and their values.
func (all Fields[T]) Batch(rows []T) (columns []Column, values []any) {
	for _, f := range all.Written() {
		columns = append(columns, Column{f.Name, f.Type})
		switch f.Type {
		case Text:
			values = append(values, valuesOf[string](f, rows))
		case Boolean:
			values = append(values, valuesOf[bool](f, rows))
		default:
			values = append(values, valuesOf[int64](f, rows))
		}
	}
	return columns, values
}

// valuesOf returns the values of a field in all rows; nil is NULL.
func valuesOf[V, T any](f field[T], rows []T) []*V {
	all := make([]*V, len(rows))
	for i := range rows {
		if value, ok := f.value(&rows[i]).(V); ok {
			all[i] = &value
		}
	}
	return all
}

// converted is a value stored in its column as a V.
type converted[T, V any] struct {
	at   *T
	from func(V) T
	to   func(T) V
}

// Scan and Value convert between the column and the value that it points to.
// The poll scans every due trigger, so the usual forms skip sql.Null, which costs several allocations.
func (c converted[T, V]) Scan(src any) error {
	var v V
	switch usual := src.(type) {
	case nil:
		*c.at = c.from(v)
		return nil
	case V:
		*c.at = c.from(usual)
		return nil
	case int64:
		if pointer, ok := any(&usual).(V); ok {
			*c.at = c.from(pointer)
			return nil
		}
	}
	var other sql.Null[V]
	err := other.Scan(src)
	*c.at = c.from(other.V)
	return err
}

func (c converted[T, V]) Value() (driver.Value, error) {
	return driver.DefaultParameterConverter.ConvertValue(c.to(*c.at))
}

// ConvertedColumn stores at in another form.
func ConvertedColumn[T, V any](at *T, from func(V) T, to func(T) V) any {
	return converted[T, V]{at, from, to}
}

// InstantColumn stores milliseconds.
func InstantColumn(t *time.Time) any {
	return converted[time.Time, int64]{t, Instant, time.Time.UnixMilli}
}

// OptionalColumn stores milliseconds, and NULL for nil.
func OptionalColumn(t **time.Time) any {
	return converted[*time.Time, *int64]{t, Optional, OrNullAt}
}

// DurationColumn stores milliseconds.
func DurationColumn(d *input.Duration) any {
	return converted[input.Duration, int64]{d, Millis, ToMillis}
}

// JSONColumn stores a value as JSON. Scanning NULL leaves it as it is; text of another form is an error that
// IsUnreadable recognises.
func JSONColumn(at any) any { return jsonColumn{at} }

type jsonColumn struct{ at any }

// Scan decodes the text of the column.
func (j jsonColumn) Scan(src any) error {
	var text sql.Null[string]
	if err := text.Scan(src); err != nil || !text.Valid {
		return err
	}
	if err := json.Unmarshal([]byte(text.V), j.at); err != nil {
		return AsUnreadable(err)
	}
	return nil
}

// Value encodes the value.
func (j jsonColumn) Value() (driver.Value, error) {
	text, err := json.Marshal(j.at)
	return string(text), err
}

// LabelsColumn stores labels as a text.
func LabelsColumn(l *input.Labels) any {
	return converted[input.Labels, string]{l, input.ParseLabels, input.Labels.String}
}

// ListColumn stores words without commas.
func ListColumn(l *[]string) any {
	return converted[[]string, string]{l, func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, ",")
	}, func(words []string) string { return strings.Join(words, ",") }}
}

// KeyRefs are the scan destinations of the columns scheduled_at, trigger_id and kind of a run, followed by after.
func KeyRefs(k *run.Key, after ...any) []any {
	return append([]any{InstantColumn(&k.ScheduledAt), &k.TriggerID, KindColumn(k)}, after...)
}

// ContenderRefs are the scan destinations of ContenderColumns, followed by after.
func ContenderRefs(r *run.HeldRun, node *run.NodeID, after ...any) []any {
	return append(append([]any{&r.JobID}, KeyRefs(&r.Key, node, &r.Token, &r.Attempt)...), after...)
}

// KindColumn stores the kind and the shard of a key.
func KindColumn(k *run.Key) any { return kindScanner{k} }

type kindScanner struct{ key *run.Key }

// Scan reads a value written by run.Key.Code.
func (s kindScanner) Scan(src any) error {
	var code sql.Null[int]
	err := code.Scan(src)
	s.key.SetCode(code.V)
	return err
}
