package dispatcher_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// triggersNamed returns triggers of these names, separated by spaces.
func triggersNamed(names string) map[string]dispatcher.Trigger {
	all := map[string]dispatcher.Trigger{}
	for name := range strings.FieldsSeq(names) {
		all[name] = dispatcher.Trigger{}
	}
	return all
}

// says checks that an error is one problem with this pointer and part of its message, or nil if both are empty.
func says(t *testing.T, err error, pointer, message string) {
	t.Helper()
	var problems input.Problems
	switch errors.As(err, &problems); {
	case pointer == "" && err != nil:
		t.Errorf("got %v, want no problem", err)
	case pointer != "" && (len(problems) != 1 || problems[0].Path != pointer || !strings.Contains(problems[0].Message, message)):
		t.Errorf("got %v, want %s: %s", err, pointer, message)
	}
}

func TestRenamedFromIsCheckedWithoutTheJob(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		from             dispatcher.RenamedFrom
		declared         string
		pointer, message string
	}{
		"a rename":                  {from: dispatcher.RenamedFrom{"b": "a"}, declared: "b c"},
		"a swap":                    {from: dispatcher.RenamedFrom{"a": "b", "b": "a"}, declared: "a b"},
		"a chain":                   {from: dispatcher.RenamedFrom{"c": "b", "b": "a"}, declared: "b c"},
		"its own name":              {dispatcher.RenamedFrom{"a": "a"}, "a", "/triggers/a/renamed_from", "the trigger itself"},
		"no name":                   {dispatcher.RenamedFrom{"b": "A"}, "b", "/triggers/b/renamed_from", "does not match"},
		"two names":                 {dispatcher.RenamedFrom{"b": "a", "c": "a"}, "b c", "/triggers/c/renamed_from", `renamed to "b" already`},
		"a trigger that stays, too": {dispatcher.RenamedFrom{"b": "a"}, "a b", "/triggers/b/renamed_from", "declared, too"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, tt.from.Check(triggersNamed(tt.declared)), tt.pointer, tt.message)
		})
	}
}

func TestRenamedFromIsDoneOnce(t *testing.T) {
	t.Parallel()
	swap := dispatcher.RenamedFrom{"a": "b", "b": "a"}
	for name, tt := range map[string]struct {
		from, done       dispatcher.RenamedFrom
		stored           string
		want             map[string]string
		pointer, message string
	}{
		"a rename":           {from: dispatcher.RenamedFrom{"b": "a"}, stored: "a c", want: map[string]string{"a": "b"}},
		"a completed rename": {from: dispatcher.RenamedFrom{"b": "a"}, stored: "b c"},
		"a swap":             {from: swap, stored: "a b", want: map[string]string{"a": "b", "b": "a"}},
		"a completed swap":   {from: swap, done: swap, stored: "a b"},
		"a chain": {from: dispatcher.RenamedFrom{"b": "a", "c": "b"}, stored: "a b",
			want: map[string]string{"a": "b", "b": "c"}},
		"a former name that comes new": {from: dispatcher.RenamedFrom{"b": "a"}, done: dispatcher.RenamedFrom{"b": "a"}, stored: "a b"},
		"a misspelt name": {from: dispatcher.RenamedFrom{"b": "berlim"}, stored: "berlin",
			pointer: "/triggers/b/renamed_from", message: `no trigger "berlim"; did you mean berlin`},
		"a name that another trigger has": {from: dispatcher.RenamedFrom{"b": "a"}, stored: "a b",
			pointer: "/triggers/b/renamed_from", message: `a trigger "b" already`},
		"a name that another trigger keeps": {from: dispatcher.RenamedFrom{"b": "a", "c": "b"}, done: dispatcher.RenamedFrom{"c": "b"},
			stored: "a b c", pointer: "/triggers/b/renamed_from", message: `a trigger "b" already`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.from.Pending(tt.done, dispatcher.Job{JobSpec: dispatcher.JobSpec{Triggers: triggersNamed(tt.stored)}})
			says(t, err, tt.pointer, tt.message)
			if want := tt.want; err == nil && len(got)+len(want) > 0 && !cmp.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
