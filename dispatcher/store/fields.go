package store

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// field is a column of a table, and where a T holds it. The fields of a table are listed once;
// what is selected, inserted, updated and scanned follows from that list.
type field[T any] struct {
	name string
	typ  columnType // in a batch; only triggers are written as one
	// ref returns a pointer to the value, which is scanned into and written from. A value that its
	// column holds in another form has one of the types below, which convert it.
	ref func(*T) any
	use use
	// read is what is selected; empty: the column.
	read string
}

// use says which statements a field is part of.
type use int

const (
	always      use = iota
	neverSet        // selected and inserted; an update leaves it alone
	onlyRead        // selected; read names it with its table
	onlyWritten     // inserted and updated
	onlyNew         // inserted
)

// fields are the columns of a table.
type fields[T any] []field[T]

// of returns the fields that have one of some uses.
func (all fields[T]) of(uses ...use) fields[T] {
	var some fields[T]
	for _, f := range all {
		for _, u := range uses {
			if f.use == u {
				some = append(some, f)
			}
		}
	}
	return some
}

// selected lists what a query of a table selects, for refs to scan.
func (all fields[T]) selected(table string) string {
	list := make([]string, len(all))
	for i, f := range all {
		if list[i] = f.read; f.read == "" {
			list[i] = table + f.name
		}
	}
	return strings.Join(list, ", ")
}

func (all fields[T]) read() fields[T]    { return all.of(always, neverSet, onlyRead) }
func (all fields[T]) written() fields[T] { return all.of(always, neverSet, onlyWritten, onlyNew) }

// names lists the columns, each after a prefix.
func (all fields[T]) names(prefix string) string {
	list := make([]string, len(all))
	for i, f := range all {
		list[i] = prefix + f.name
	}
	return strings.Join(list, ", ")
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
	var list []string
	for _, f := range all.of(always, onlyWritten) {
		list = append(list, f.name+" = excluded."+f.name)
	}
	return strings.Join(list, ", ")
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

// The forms in which columns hold values.
type (
	instantColumn  struct{ *time.Time }           // milliseconds
	optionalColumn struct{ at **time.Time }       // milliseconds; NULL: nil
	durationColumn struct{ *dispatcher.Duration } // milliseconds
	labelsColumn   struct{ *dispatcher.Labels }   // text
	listColumn     struct{ list *[]string }       // text, joined with commas
)

// Scan and Value convert a column to and from what it points to.
func (c instantColumn) Scan(src any) error {
	return scanMillis(src, func(ms int64) { *c.Time = instant(ms) })
}
func (c instantColumn) Value() (driver.Value, error) { return c.UnixMilli(), nil }

func (c optionalColumn) Scan(src any) error {
	*c.at = nil
	if src == nil {
		return nil
	}
	return scanMillis(src, func(ms int64) { *c.at = optional(&ms) })
}

func (c optionalColumn) Value() (driver.Value, error) {
	if *c.at == nil {
		return nil, nil
	}
	return (*c.at).UnixMilli(), nil
}

func (c durationColumn) Scan(src any) error {
	return scanMillis(src, func(ms int64) { *c.Duration = millis(ms) })
}
func (c durationColumn) Value() (driver.Value, error) { return c.Std().Milliseconds(), nil }

func (c labelsColumn) Scan(src any) error {
	return scanString(src, func(s string) { *c.Labels = dispatcher.ParseLabels(s) })
}
func (c labelsColumn) Value() (driver.Value, error) { return c.String(), nil }

func (c listColumn) Scan(src any) error {
	return scanString(src, func(s string) {
		if *c.list = nil; s != "" {
			*c.list = strings.Split(s, ",")
		}
	})
}
func (c listColumn) Value() (driver.Value, error) { return strings.Join(*c.list, ","), nil }

func scanMillis(src any, set func(int64)) error {
	ms, ok := src.(int64)
	if !ok {
		return fmt.Errorf("got %T, want milliseconds", src)
	}
	set(ms)
	return nil
}

func scanString(src any, set func(string)) error {
	switch s := src.(type) {
	case string:
		set(s)
	case []byte:
		set(string(s))
	default:
		return fmt.Errorf("got %T, want text", src)
	}
	return nil
}
