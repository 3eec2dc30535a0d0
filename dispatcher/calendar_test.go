package dispatcher_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

func calendar(name string, bases ...string) dispatcher.Calendar {
	return dispatcher.Calendar{App: "crm", Name: name, CalendarSpec: dispatcher.CalendarSpec{Bases: bases}}
}

// excluding is a calendar of single days.
func excluding(name string, dates ...string) dispatcher.Calendar {
	c := calendar(name)
	c.Rules = []schedule.CalendarRule{{Dates: dates}}
	return c
}

func compile(all ...dispatcher.Calendar) dispatcher.Calendars {
	return dispatcher.CompileCalendars(all)
}

func TestAllProblemsOfACalendarAreReported(t *testing.T) {
	t.Parallel()
	c := calendar("Bad", "x", "x", "Y")
	c.Timezone = "CEST"
	c.Rules = []schedule.CalendarRule{{Dates: []string{"2026-12-25", "25.12."}}, {}}
	var problems input.Problems
	if !errors.As(c.Validate(), &problems) {
		t.Fatal("Validate found nothing")
	}
	var got []string
	for _, f := range problems {
		got = append(got, f.Path+" "+f.Code)
	}
	want := []string{
		"/name name_format", "/timezone tz_unknown", "/rules/0/dates/1 time_invalid", "/rules/1 calendar_rule",
		"/bases/1 calendar_base", "/bases/2 name_format",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestBasesMustExistWithoutCycles(t *testing.T) {
	t.Parallel()
	var chain []dispatcher.Calendar
	for i := range 12 {
		c := calendar(fmt.Sprintf("c%d", i))
		if i > 0 {
			c.Bases = []string{fmt.Sprintf("c%d", i-1)}
		}
		chain = append(chain, c)
	}
	unreadable := calendar("new")
	unreadable.Err = errors.New("written by a newer version")
	for name, tt := range map[string]struct {
		all  []dispatcher.Calendar
		name string
		want string // path and code; empty for none
	}{
		"a chain":         {[]dispatcher.Calendar{calendar("a", "b", "c"), calendar("b", "c"), calendar("c")}, "a", ""},
		"an unknown base": {[]dispatcher.Calendar{calendar("a", "b", "z"), calendar("b")}, "a", "/bases/1 calendar_unknown"},
		"itself":          {[]dispatcher.Calendar{calendar("a", "a")}, "a", "/bases/0 calendar_base"},
		"a circle": {[]dispatcher.Calendar{calendar("a", "b"), calendar("b", "c"), calendar("c", "a")}, "a",
			"/bases/0 calendar_base"},
		"next to a circle":          {[]dispatcher.Calendar{calendar("a"), calendar("b", "b")}, "a", ""},
		"the longest chain":         {chain, "c9", ""},
		"too long a chain":          {chain, "c10", "/bases too_many"},
		"an unreadable base":        {[]dispatcher.Calendar{calendar("a", "new"), unreadable}, "a", "/bases/0 calendar_base"},
		"the order does not matter": {[]dispatcher.Calendar{calendar("b"), calendar("a", "b")}, "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := compile(tt.all...).Check(tt.name)
			var problems input.Problems
			got := ""
			if errors.As(err, &problems) {
				got = problems[0].Path + " " + problems[0].Code
			}
			if got != tt.want || (err == nil) != (tt.want == "") {
				t.Errorf("Check(%s) = %v, want %q", tt.name, err, tt.want)
			}
		})
	}
}

func TestBuiltOnFindsCalendarsByTheirBases(t *testing.T) {
	t.Parallel()
	all := []dispatcher.Calendar{calendar("top", "middle"), calendar("middle", "base"), calendar("base"), calendar("other")}
	want := map[string]bool{"base": true, "middle": true, "top": true}
	if diff := cmp.Diff(want, dispatcher.BuiltOn(all, "base")); diff != "" {
		t.Errorf("built on base (-want +got):\n%s", diff)
	}
}

func withCalendar(name string) func(*dispatcher.Job) {
	return withTrigger(func(t *dispatcher.Trigger) { t.Calendar = name })
}

func TestTriggerFollowsItsCalendar(t *testing.T) {
	t.Parallel()
	calendars := compile(excluding("holidays", "2026-03-03"))
	declared := job("0 12 * * *", withCalendar("holidays"))
	revised, _, err := dispatcher.Apply(nil, declared, dispatcher.Prior{}, calendars, monday.Add(3*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := revised.Triggers["t"].NextFireTime, monday.Add(50*time.Hour); got == nil || !got.Equal(want) {
		t.Errorf("next fire = %v, want %v, past the holiday", got, want)
	}
}

func TestUnknownCalendarIsAProblemOfTheTrigger(t *testing.T) {
	t.Parallel()
	var problems input.Problems
	_, _, err := dispatcher.Apply(nil, job(minutely, withCalendar("holidays")), dispatcher.Prior{}, compile(), monday)
	if !errors.As(err, &problems) || len(problems) != 1 || problems[0].Path != "/triggers/t/calendar" ||
		problems[0].Code != input.CodeCalendarUnknown {
		t.Errorf("Apply = %v, want calendar_unknown at /triggers/t/calendar", err)
	}
	if _, _, err := dispatcher.Apply(nil, job(minutely, withCalendar("holidays")), dispatcher.Prior{}, nil, monday); err != nil {
		t.Errorf("Apply with calendars not known = %v, want no judgement", err)
	}
}

func TestOnExcludedNeedsACalendar(t *testing.T) {
	t.Parallel()
	declared := job(minutely, withTrigger(func(t *dispatcher.Trigger) { t.OnExcluded = schedule.OnExcludedSkip }))
	if err := declared.Validate(); err == nil || !strings.Contains(err.Error(), "/triggers/t/on_excluded") {
		t.Errorf("Validate = %v, want a problem of on_excluded", err)
	}
}

// A fixed delay that skips an excluded instant has no later one to continue with.
func TestFixedDelayFollowsItsCalendar(t *testing.T) {
	t.Parallel()
	declared := job("delay(30s)", withCalendar("holidays"))
	if err := declared.Validate(); err == nil || !strings.Contains(err.Error(), "next_included") {
		t.Errorf("Validate = %v, want it to ask for next_included", err)
	}
	moved := job("delay(30s)", withTrigger(func(t *dispatcher.Trigger) {
		t.Calendar, t.OnExcluded = "holidays", schedule.OnExcludedNextIncluded
	}))
	revised, _, err := dispatcher.Apply(nil, moved, dispatcher.Prior{}, compile(excluding("holidays", "2026-03-02")), monday)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := revised.Triggers["t"].NextFireTime, time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC); got == nil || !got.Equal(want) {
		t.Errorf("next fire = %v, want %v", got, want)
	}
}

func TestRescheduleForCalendarMovesOrSkipsFires(t *testing.T) {
	t.Parallel()
	none, holiday := compile(calendar("c")), compile(excluding("c", "2026-03-02"))
	midnight := time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return monday.Add(time.Duration(minutes) * time.Minute) }
	for name, tt := range map[string]struct {
		change        func(*dispatcher.Trigger)
		before, after dispatcher.Calendars
		now           time.Time
		next          time.Time // zero if none
		missed        int
	}{
		"a future fire is excluded": {nil, none, holiday, monday, midnight, 0},
		"a due fire is excluded":    {nil, none, holiday, at(3), midnight, 3},
		"a due fire stays due":      {nil, none, none, at(3), at(1), 0},
		"an exclusion is lifted":    {nil, holiday, none, at(3), at(4), 0},
		"no fire is left": {func(t *dispatcher.Trigger) { t.EndAt = &midnight }, none,
			compile(excluding("c", "2026-03-02/2026-03-03")), monday, time.Time{}, 0},
		"a complete trigger goes on":            {func(t *dispatcher.Trigger) { t.EndAt = new(at(10)) }, holiday, none, at(3), at(4), 0},
		"a disabled trigger stays without fire": {func(t *dispatcher.Trigger) { t.Enabled = false }, none, holiday, monday, time.Time{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			declared := job(minutely, withCalendar("c"), withTrigger(func(t *dispatcher.Trigger) {
				if tt.change != nil {
					tt.change(t)
				}
			}))
			stored, _, err := dispatcher.Apply(nil, declared, dispatcher.Prior{}, tt.before, monday)
			if err != nil {
				t.Fatal(err)
			}
			got, missed := dispatcher.RescheduleForCalendar(stored, map[string]bool{"c": true}, tt.before, tt.after, tt.now)
			trigger, touched := got["t"]
			if !touched {
				trigger = stored.Triggers["t"]
			}
			switch next := trigger.NextFireTime; {
			case tt.next.IsZero() != (next == nil):
				t.Errorf("next fire = %v, want %v", next, tt.next)
			case next != nil && (!next.Equal(tt.next) || !trigger.DueAt.Equal(tt.next)):
				t.Errorf("next fire = %v, due at %v, want %v", next, trigger.DueAt, tt.next)
			}
			count := 0
			for _, m := range missed {
				count += m.Count
			}
			if count != tt.missed {
				t.Errorf("misfires = %+v, want %d instants", missed, tt.missed)
			}
		})
	}
}

// A node claims ahead of time; its fire must not be claimed again.
func TestRescheduleForCalendarSkipsFiresClaimedAhead(t *testing.T) {
	t.Parallel()
	calendars := compile(calendar("c"))
	stored, _, err := dispatcher.Apply(nil, job(minutely, withCalendar("c")), dispatcher.Prior{}, calendars, monday)
	if err != nil {
		t.Fatal(err)
	}
	claimed, next := monday.Add(time.Minute), monday.Add(2*time.Minute)
	one := stored.Triggers["t"]
	one.PrevFireTime, one.NextFireTime = &claimed, &next
	stored.Triggers["t"] = one
	got, _ := dispatcher.RescheduleForCalendar(stored, map[string]bool{"c": true}, calendars, calendars, claimed.Add(-time.Millisecond))
	if at := got["t"].NextFireTime; at == nil || !at.Equal(next) {
		t.Errorf("next fire = %v, want %v", at, next)
	}
}

func TestRescheduleForCalendarLeavesOtherTriggersAlone(t *testing.T) {
	t.Parallel()
	calendars := compile(calendar("c"), calendar("d"))
	stored, _, err := dispatcher.Apply(nil, job(minutely, withCalendar("d")), dispatcher.Prior{}, calendars, monday)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := dispatcher.RescheduleForCalendar(stored, map[string]bool{"c": true}, calendars, calendars, monday); len(got) != 0 {
		t.Errorf("triggers = %v, want none", got)
	}
}
