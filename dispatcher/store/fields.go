package store

import (
	"cmp"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// field is a column of a table, and where a T holds it. The fields of a table are listed once;
// what is selected, inserted, updated and scanned follows from that list.
type field[T any] struct {
	name string
	typ  columnType // in a batch; only triggers are written as one
	// ref returns a pointer to the value, which is scanned into and written from. A value that its
	// column holds in another form is one of those below, which convert it.
	ref func(*T) any
	use use
	// read is what is selected; empty: the column.
	read string
}

// use says which statements a field is not part of.
type use int

const (
	notRead use = 1 << iota // selected
	notNew                  // inserted
	notSet                  // an update leaves it alone

	always      use = 0
	neverSet        = notSet
	onlyRead        = notNew | notSet // read names it with its table
	onlyWritten     = notRead
	onlyNew         = notRead | notSet
)

// fields are the columns of a table.
type fields[T any] []field[T]

// without returns the fields that are part of a statement.
func (all fields[T]) without(not use) fields[T] {
	return slices.DeleteFunc(slices.Clone(all), func(f field[T]) bool { return f.use&not != 0 })
}

func (all fields[T]) read() fields[T]    { return all.without(notRead) }
func (all fields[T]) written() fields[T] { return all.without(notNew) }

// list joins what text makes of each field.
func (all fields[T]) list(text func(field[T]) string) string {
	list := make([]string, len(all))
	for i, f := range all {
		list[i] = text(f)
	}
	return strings.Join(list, ", ")
}

// selected lists what a query of a table selects, for refs to scan.
func (all fields[T]) selected(table string) string {
	return all.list(func(f field[T]) string { return cmp.Or(f.read, table+f.name) })
}

// names lists the columns, each after a prefix.
func (all fields[T]) names(prefix string) string {
	return all.list(func(f field[T]) string { return prefix + f.name })
}

// insert returns the insertion of one row, whose values are the parameters from $1 on.
func (all fields[T]) insert(table string) string {
	values := make([]string, len(all.written()))
	for i := range values {
		values[i] = fmt.Sprintf("$%d", i+1)
	}
	return `INSERT INTO ` + table + ` (` + all.written().names("") + `) VALUES (` + strings.Join(values, ", ") + `)`
}

// update is the list of assignments by which an insertion replaces a row that exists.
func (all fields[T]) update() string {
	return all.without(notSet).list(func(f field[T]) string { return f.name + " = excluded." + f.name })
}

// refs returns where the columns of a row are scanned into.
func (all fields[T]) refs(into *T) []any {
	refs := make([]any, len(all))
	for i, f := range all {
		refs[i] = f.ref(into)
	}
	return refs
}

// values returns the parameters of an insertion.
func (all fields[T]) values(from *T) []any {
	some := all.written()
	values := make([]any, len(some))
	for i, f := range some {
		values[i] = f.value(from)
	}
	return values
}

// value returns what a column is to hold.
func (f field[T]) value(from *T) driver.Value {
	value, err := driver.DefaultParameterConverter.ConvertValue(f.ref(from))
	if err != nil {
		panic(fmt.Sprintf("column %s: %v", f.name, err)) // the type of a field is wrong
	}
	return value
}

// batch returns the columns of rows that are inserted as one batch, and their values.
func (all fields[T]) batch(rows []T) (columns []column, values []any) {
	for _, f := range all.written() {
		columns = append(columns, column{f.name, f.typ})
		switch f.typ {
		case text:
			values = append(values, valuesOf[string](f, rows))
		case boolean:
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

// converted is a value that its column holds as a V.
type converted[T, V any] struct {
	at   *T
	from func(V) T
	to   func(T) V
}

// Scan and Value convert a column to and from what it points to.
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

// instantColumn, optionalColumn, which may be NULL, and durationColumn hold milliseconds.
func instantColumn(t *time.Time) any {
	return converted[time.Time, int64]{t, instant, time.Time.UnixMilli}
}

func optionalColumn(t **time.Time) any {
	return converted[*time.Time, *int64]{t, optional, orNullAt}
}

func durationColumn(d *input.Duration) any {
	return converted[input.Duration, int64]{d, millis, toMillis}
}

func labelsColumn(l *input.Labels) any {
	return converted[input.Labels, string]{l, input.ParseLabels, input.Labels.String}
}

// listColumn holds words that have no comma.
func listColumn(l *[]string) any {
	return converted[[]string, string]{l, func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, ",")
	}, func(words []string) string { return strings.Join(words, ",") }}
}

// kindColumn holds the kind and the shard of a key.
func kindColumn(k *run.Key) any { return kindScanner{k} }

type kindScanner struct{ key *run.Key }

// Scan reads what run.Key.Code wrote.
func (s kindScanner) Scan(src any) error {
	var code sql.Null[int]
	err := code.Scan(src)
	s.key.SetCode(code.V)
	return err
}
