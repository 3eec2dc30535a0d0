package console

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// fields are what a person has filled into a form, and all that is wrong with it.
type fields struct {
	values   url.Values
	problems input.Problems
}

// newFields returns those with some values.
func newFields(values url.Values) *fields { return &fields{values: values} }

// text returns a field without the space around it.
func (f *fields) text(name string) string { return strings.TrimSpace(f.values.Get(name)) }

// instant returns the time of a field; zero if it is empty.
func (f *fields) instant(name string) time.Time {
	text := f.text(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		f.problems.Add(input.Pointer(name), input.CodeTimeInvalid,
			"%s %s is not a time; write it with its offset, such as 2026-01-31T06:00:00Z or 2026-01-31T07:00:00+01:00",
			name, input.Echo(text))
	}
	return at.UTC()
}

// duration returns the duration of a field; 0 if it is empty.
func (f *fields) duration(name string) input.Duration {
	text := f.text(name)
	if text == "" {
		return 0
	}
	d, err := input.ParseDuration(text)
	f.problems.AddError(input.Pointer(name), err)
	return d
}

// until returns the end of something that begins now and lasts as long as a field says; nil if it is empty.
func (f *fields) until(name string, now time.Time) *time.Time {
	d := f.duration(name)
	if d <= 0 {
		return nil
	}
	at := now.Add(d.Std()).Truncate(time.Millisecond)
	return &at
}

// number returns the number of a field; standard if it is empty.
func (f *fields) number(name string, standard int) int {
	text := f.text(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		f.problems.Add(input.Pointer(name), input.CodeCountRange, "%s %s is not a number; write digits only", name,
			input.Echo(text))
	}
	return n
}

// labels returns the labels of a field, as name=value with commas between them. The API says what is wrong with them.
func (f *fields) labels(name string) input.Labels {
	return input.ParseLabels(strings.ReplaceAll(f.text(name), " ", ""))
}

// list returns the words of a field, with spaces or commas between them.
func (f *fields) list(name string) []string {
	return strings.FieldsFunc(f.values.Get(name), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

// err returns all that is wrong, as Problems, or nil.
func (f *fields) err() error { return f.problems.Err() }

// all returns some fields as they were given, for a form that is shown again.
func (f *fields) all(names ...string) map[string]string {
	given := make(map[string]string, len(names))
	for _, name := range names {
		given[name] = f.text(name)
	}
	return given
}
