package dispatcher_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// levels returns calendars where each level builds on all ten of the level below, and one on top: a walk along every
// base would visit the 91 calendars 10^9 times.
func levels(n int) []dispatcher.Calendar {
	name := func(level, i int) string { return fmt.Sprintf("c%d-%d", level, i) }
	var all []dispatcher.Calendar
	for level := range n {
		width := 10
		if level == n-1 {
			width = 1
		}
		for i := range width {
			c := dispatcher.Calendar{App: "shop", Name: name(level, i)}
			if level == 0 {
				c.Rules = []schedule.CalendarRule{{Dates: []string{fmt.Sprintf("12-%02d", 10+i)}}}
			}
			for base := 0; level > 0 && base < 10; base++ {
				c.Bases = append(c.Bases, name(level-1, base))
			}
			all = append(all, c)
		}
	}
	return all
}

func hasCode(err error, code string) bool {
	var problems input.Problems
	if !errors.As(err, &problems) {
		problems.AddError("", err)
	}
	for _, p := range problems {
		if p.Code == code {
			return true
		}
	}
	return false
}

// T5: every calendar has ten bases at most and every chain ten levels, yet their product was not bounded.
func TestTooManyCombinedBaseCalendarsAreRefused(t *testing.T) {
	t.Parallel()
	all := levels(10)
	calendars := dispatcher.CompileCalendars(all)
	err := calendars.Check("c9-0")
	if !hasCode(err, "calendar_cost") {
		t.Fatalf("%d calendars: %v, want a problem calendar_cost", len(all), err)
	}
	for _, want := range []string{"c8-0", "51 calendars", "maximum is 50", "merge"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if n := len(err.Error()); n > 5000 {
		t.Errorf("the error has %d bytes, want no more with every level", n)
	}
}

// T5: shared bases count once, and are evaluated once.
func TestSharedBaseCalendarsAreEvaluatedOnce(t *testing.T) {
	t.Parallel()
	calendars := dispatcher.CompileCalendars(levels(5)) // 41 calendars, 10^4 ways to the lowest
	found, err := calendars.Find("c4-0")
	if err != nil {
		t.Fatal(err)
	}
	spec := schedule.Spec{Expression: "rate(1s)", Calendar: found}
	s, err := schedule.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	at, budget := time.Date(2026, 12, 9, 23, 59, 58, 0, time.UTC), schedule.NewBudget(t.Context(), 1<<40)
	for range 1000 {
		var ok bool
		if at, ok, err = s.FindWithin(budget, at); !ok || err != nil {
			t.Fatalf("next fire: %v, %v", ok, err)
		}
	}
	if want := time.Date(2026, 12, 20, 0, 16, 38, 0, time.UTC); !at.Equal(want) {
		t.Errorf("the thousandth fire is %s, want %s", at, want)
	}
	if used := budget.Used(); used > 10_000 {
		t.Errorf("1,000 fires took %d steps, want some for each, and not one for each way to a calendar", used)
	}
}

func expecting(expression string) error {
	w := target.Webhook{
		URL: "https://example.com/", Method: "GET", Timeout: input.Duration(time.Minute), ExpectBody: expression,
	}
	return w.Validate()
}

// T6: a short expression can compile to a large program.
func TestExpectBodyOfALargeProgramIsRefused(t *testing.T) {
	t.Parallel()
	for name, expression := range map[string]string{
		"repeated repeats":    strings.Repeat("(?:a?){1000}", 83) + "b",
		"nested repeats":      "((a{10}){10}){10}",
		"repeated classes":    `(?:\pL?){600}`,
		"optional characters": strings.Repeat("a?", 511),
	} {
		if err := expecting(expression); !hasCode(err, "regexp_size") {
			t.Errorf("%s: %v, want a problem regexp_size", name, err)
		}
	}
	for _, expression := range []string{
		`"status":\s*"(ok|done)"`, `(?i)^\s*success`, strings.Repeat("a", 1024), `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`,
		`\A\{"id":[0-9]{1,20},"state":"(?:queued|running|done)"\}\z`,
	} {
		if err := expecting(expression); err != nil {
			t.Errorf("%s: %v, want it accepted", expression, err)
		}
	}
}

// T6: the length is checked before the expression is parsed.
func TestLongExpectBodyIsNotCompiled(t *testing.T) { // not in parallel, because it counts allocations
	for name, tt := range map[string]struct{ expression, code string }{
		"1 MiB of brackets": {strings.Repeat("(", 1<<20), input.CodeTextTooLong},
		"512 brackets":      {strings.Repeat("(", 512) + "a" + strings.Repeat(")", 511), "regexp_size"},
	} {
		if err := expecting(tt.expression); !hasCode(err, tt.code) {
			t.Errorf("%s: %v, want a problem %s", name, err, tt.code)
		}
		// A parser allocates more than one node for each bracket.
		if n := testing.AllocsPerRun(1, func() { _ = expecting(tt.expression) }); n > 100 {
			t.Errorf("%s: %v allocations, want those of the error alone", name, n)
		}
	}
}
