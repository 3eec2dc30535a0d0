package kit

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Fields are the values of a form, and all problems with them.
type Fields struct {
	values   url.Values
	Problems input.Problems
}

// FieldsOf returns Fields with some values.
func FieldsOf(values url.Values) *Fields { return &Fields{values: values} }

// Text returns a field without the space around it.
func (f *Fields) Text(name string) string { return strings.TrimSpace(f.values.Get(name)) }

// Instant returns the time of a field; zero if it is empty.
func (f *Fields) Instant(name string) time.Time {
	text := f.Text(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		f.Problems.Add(input.Pointer(name), input.CodeTimeInvalid,
			"%s %s is not a time; write it with its offset, such as 2026-01-31T06:00:00Z or 2026-01-31T07:00:00+01:00",
			name, input.Echo(text))
	}
	return at.UTC()
}

// Duration returns the duration of a field; 0 if it is empty.
func (f *Fields) Duration(name string) input.Duration {
	text := f.Text(name)
	if text == "" {
		return 0
	}
	d, err := input.ParseDuration(text)
	f.Problems.AddError(input.Pointer(name), err)
	return d
}

// Until returns the end of a period that begins now and lasts as long as a field; nil if it is empty.
func (f *Fields) Until(name string, now time.Time) *time.Time {
	d := f.Duration(name)
	if d <= 0 {
		return nil
	}
	at := now.Add(d.Std()).Truncate(time.Millisecond)
	return &at
}

// Number returns the number of a field; standard if it is empty.
func (f *Fields) Number(name string, standard int) int {
	text := f.Text(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		f.Problems.Add(input.Pointer(name), input.CodeCountRange, "%s %s is not a number; write digits only", name,
			input.Echo(text))
	}
	return n
}

// Labels returns the labels of a field, as name=value with commas between them. The API reports problems with them.
func (f *Fields) Labels(name string) input.Labels {
	return input.ParseLabels(strings.ReplaceAll(f.Text(name), " ", ""))
}

// List returns the words of a field, with spaces or commas between them.
func (f *Fields) List(name string) []string {
	return strings.FieldsFunc(f.values.Get(name), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' })
}

// Err returns all problems, as Problems, or nil.
func (f *Fields) Err() error { return f.Problems.Err() }

// All returns some fields as they were written, for a form that is shown again.
func (f *Fields) All(names ...string) map[string]string {
	given := make(map[string]string, len(names))
	for _, name := range names {
		given[name] = f.Text(name)
	}
	return given
}

// Part is a piece of a page that has its own request. If the request fails, the rest of the page is still useful, so
// Problem is shown in its place.
type Part[T any] struct {
	Value   T
	Problem string
}

// ReadPart makes a part of the response to a request.
func ReadPart[T any](value T, err error) Part[T] {
	if err != nil {
		return Part[T]{Problem: err.Error()}
	}
	return Part[T]{Value: value}
}
