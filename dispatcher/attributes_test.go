package dispatcher_test

import (
	"fmt"
	"os" //nolint:depguard // this test reads the page that it checks
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// attributeChange is the effect of a change of one attribute of a trigger, as a row of the reference.
type attributeChange struct {
	attribute string
	// old fires each minute and has two fires pending unless it says otherwise.
	old, changed           func(*dispatcher.Trigger)
	anchor, count, pending string
}

// The words of the table.
const (
	kept       = "stays"
	fresh      = "the time of the change"
	restarts   = "starts again"
	goesOn     = "goes on"
	stay       = "stay if the new schedule contains them"
	all        = "stay"
	dueStays   = "stay, with their `due_at`"
	areSkipped = "are skipped"
)

func attributeChanges() []attributeChange {
	type tr = *dispatcher.Trigger
	set := func(change func(tr)) func(tr) { return change }
	return []attributeChange{
		{"`expression`, with another meaning", nil, set(func(t tr) { t.Expression = "30 12 * * *" }), fresh, restarts, stay},
		{"`expression`, with another spelling", nil, set(func(t tr) { t.Expression = " 0 0-59 * * * ?" }), kept, goesOn, all},
		{"`dialect`, written out", nil, set(func(t tr) { t.Dialect = schedule.DialectUnix }), kept, goesOn, all},
		{"`timezone`, with other rules", func(t tr) { t.Expression = "* 10 * * *" },
			set(func(t tr) { t.Timezone = "Asia/Tokyo" }), fresh, restarts, stay},
		{"`timezone`, with the same rules, or of an interval", nil, set(func(t tr) { t.Timezone = "Etc/UTC" }), kept, goesOn, all},
		{"`start_at`", nil, set(func(t tr) { t.StartAt = new(monday.Add(time.Hour)) }), fresh, restarts, stay},
		{"`end_at`", nil, set(func(t tr) { t.EndAt = new(monday.Add(time.Hour)) }), kept, goesOn, stay},
		{"`repeat_count`", nil, set(func(t tr) { t.RepeatCount = 9 }), kept, goesOn, stay},
		{"`gap`", nil, set(func(t tr) { t.Gap = schedule.GapNext }), kept, goesOn, stay},
		{"`overlap`", nil, set(func(t tr) { t.Overlap = schedule.OverlapFirst }), kept, goesOn, stay},
		{"`drift_hour`", func(t tr) { t.Expression = "every 1 day"; t.StartAt = new(monday.Add(time.Minute)) },
			set(func(t tr) { t.DriftHour = true }), kept, goesOn, stay},
		{"`calendar`", nil, set(func(t tr) { t.Calendar = "nights" }), kept, goesOn, stay},
		{"`on_excluded`", func(t tr) { t.Calendar = "nights" },
			set(func(t tr) { t.OnExcluded = schedule.OnExcludedNextIncluded }), kept, goesOn, stay},
		{"`jitter`", nil, set(func(t tr) { t.Jitter = input.Duration(time.Minute) }), kept, goesOn, dueStays},
		{"`misfire_after`", nil, set(func(t tr) { t.MisfireAfter = input.Duration(time.Hour) }), kept, goesOn, all},
		{"`misfire_policy`", nil, set(func(t tr) { t.MisfirePolicy = dispatcher.Skip }), kept, goesOn, all},
		{"`catch_up_window`", nil, set(func(t tr) { t.CatchUpWindow = input.Duration(time.Hour) }), kept, goesOn, all},
		{"`enabled`, to false", nil, set(func(t tr) { t.Enabled = false }), kept, goesOn, areSkipped},
	}
}

// TestAttributesBehaveAsInTheReference changes each attribute of a trigger with pending fires, and compares the
// effect with the table of docs/reference/schedules.md, which is the same as this one.
func TestAttributesBehaveAsInTheReference(t *testing.T) {
	t.Parallel()
	calendars := dispatcher.CompileCalendars([]dispatcher.Calendar{
		{App: "crm", Name: "nights", CalendarSpec: dispatcher.CalendarSpec{Rules: []schedule.CalendarRule{{From: "22:00", To: "06:00"}}}},
	})
	apply := func(old *dispatcher.Job, declared dispatcher.Job, now time.Time) (dispatcher.Job, []dispatcher.Misfire) {
		t.Helper()
		applied, missed, err := dispatcher.Apply(old, declared, dispatcher.Prior{}, calendars, now)
		if err != nil {
			t.Fatal(err)
		}
		return applied, missed
	}
	rows := []string{"| attribute | anchor | count of `repeat_count` | pending fires |", "|---|---|---|---|"}
	now := monday.Add(2*time.Minute + time.Second)
	for _, one := range attributeChanges() {
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", one.attribute, one.anchor, one.count, one.pending))
		declared := with("* * * * *")
		if one.old != nil {
			withTrigger(one.old)(&declared)
		}
		old, _ := apply(nil, declared, monday)
		changed := with("* * * * *")
		if one.old != nil {
			withTrigger(one.old)(&changed)
		}
		withTrigger(one.changed)(&changed)
		applied, missed := apply(&old, changed, now)
		was, is := old.Triggers["t"], applied.Triggers["t"]
		anchor, count, pending := fresh, restarts, all
		if is.AnchorAt.Equal(was.AnchorAt) {
			anchor, count = kept, goesOn
		}
		switch {
		case !is.Enabled && len(missed) == 1 && missed[0].Decision == dispatcher.DecisionSkip:
			pending = areSkipped
		case one.pending == stay: // as in the other tests
			pending = stay
		case one.pending == dueStays && is.DueAt.Equal(*was.DueAt):
			pending = dueStays
		}
		stays := is.NextFireTime != nil && is.NextFireTime.Equal(*was.NextFireTime)
		moved := one.attribute == "`start_at`" || strings.HasSuffix(one.attribute,
			"another meaning") || strings.HasSuffix(one.attribute, "other rules")
		if (pending != areSkipped && !moved) != stays {
			t.Errorf("%s: next fire at %s, it was at %s", one.attribute, instant(is.NextFireTime), instant(was.NextFireTime))
		}
		if moved && (len(missed) != 1 || missed[0].Decision != dispatcher.DecisionFireOnce || missed[0].Count != 2) {
			t.Errorf("%s: decisions %v, want one catch-up run", one.attribute, decisions(missed))
		}
		if diff := cmp.Diff([]string{one.anchor, one.count, one.pending}, []string{anchor, count, pending}); diff != "" {
			t.Errorf("%s: anchor, count and pending fires (-want +got):\n%s", one.attribute, diff)
		}
		if applied.TriggerKey("t") != old.TriggerKey("t") || applied.Identity("t") != old.Identity("t") {
			t.Errorf("%s: event ids change", one.attribute)
		}
	}
	page, err := os.ReadFile("../docs/reference/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := strings.Join(rows, "\n"); !strings.Contains(string(page), table+"\n") {
		t.Errorf("docs/reference/schedules.md lacks this table:\n%s", table)
	}
}

// A new attribute needs a row.
func TestAllAttributesOfTriggersAreInTheReference(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, one := range attributeChanges() {
		rows = append(rows, strings.Split(one.attribute, "`")[1])
	}
	readOnly := false
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if readOnly = readOnly || name == "paused"; readOnly { // so are all below
				return
			}
			if field.Anonymous {
				check(field.Type)
			} else if !slices.Contains(rows, name) {
				t.Errorf("attribute %s has no row", name)
			}
		}
	}
	check(reflect.TypeFor[dispatcher.Trigger]())
}
