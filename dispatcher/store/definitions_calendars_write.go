package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// putCalendarTimeout is how long a change of a calendar may take.
const putCalendarTimeout = time.Minute

// PutCalendar creates or replaces a calendar, and moves the triggers that depend on it. It
// returns the calendar as stored, and whether it was created.
func (s *store) PutCalendar(ctx context.Context, calendar dispatcher.Calendar, change dispatcher.Change) (dispatcher.Calendar, bool, error) {
	if err := calendar.Validate(); err != nil {
		return dispatcher.Calendar{}, false, err
	}
	ctx, cancel := bound(ctx, putCalendarTimeout)
	defer cancel()
	plan, err := s.plan(ctx, calendar, change)
	if err != nil {
		return dispatcher.Calendar{}, false, fmt.Errorf("put calendar %s/%s: %w", calendar.App, calendar.Name, err)
	}
	return s.putPlanned(ctx, calendar, plan, change)
}

// putPlanned is the transaction of PutCalendar.
func (s *store) putPlanned(ctx context.Context, calendar dispatcher.Calendar, plan movePlan, change dispatcher.Change) (stored dispatcher.Calendar, created bool, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// Writers of one app's calendars, and of its jobs, queue at its row.
		if _, err := findApp(ctx, t, calendar.App, t.lock()); err != nil {
			return err
		}
		next, err := replace(ctx, t, calendar, change)
		if err != nil {
			return err
		}
		created = next.created
		if stored, err = t.writeCalendar(ctx, calendar); err != nil {
			return fmt.Errorf("put calendar %s/%s: %w", calendar.App, calendar.Name, err)
		}
		if len(next.changed) > 0 {
			if err := s.rescheduleForCalendar(ctx, t, next, plan); err != nil {
				return fmt.Errorf("put calendar %s/%s: move triggers: %w", calendar.App, calendar.Name, err)
			}
		}
		return t.audit(ctx, "put", calendar.App, "calendar "+calendar.Name, stored.Revision)
	})
	return stored, created, err
}

// replacement is a change of the calendars of an app.
type replacement struct {
	app, name  string
	created    bool   // there was no such calendar
	definition string // of the calendar that is put
	revision   int64  // of the app's calendars before
	// changed are the calendars that exclude something else now, by way of bases too; none if
	// only a description changed.
	changed       map[string]bool
	before, after dispatcher.Calendars
}

// replace returns what changes when calendar is put, and refuses what may not be put.
func replace(ctx context.Context, q querier, calendar dispatcher.Calendar, by dispatcher.Change) (replacement, error) {
	next := replacement{app: calendar.App, name: calendar.Name}
	var err error
	if next.definition, err = definition(calendar); err != nil {
		return next, err
	}
	revision, all, err := appCalendars(ctx, q, calendar.App)
	if err != nil {
		return next, err
	}
	var current dispatcher.Calendar
	i := slices.IndexFunc(all, func(c dispatcher.Calendar) bool { return c.Name == calendar.Name })
	after := append(slices.Clone(all), calendar)
	if i >= 0 {
		current = all[i]
		after = slices.Delete(after, i, i+1)
	}
	next.created = current.Revision == 0
	if err := allow(by, current.Revision); err != nil {
		return next, err
	}
	next.revision, next.before, next.after = revision, dispatcher.CompileCalendars(all), dispatcher.CompileCalendars(after)
	users := dispatcher.BuiltOn(after, calendar.Name)
	if err := checkCalendars(next.after, calendar.Name, users); err != nil {
		return next, err
	}
	if same, err := sameDefinition(current, next.definition); err != nil || same {
		return next, err
	}
	next.changed = users
	return next, nil
}

// checkCalendars returns what is wrong with calendar name among all of its app, or with one
// of those that are built on it.
func checkCalendars(all dispatcher.Calendars, name string, users map[string]bool) error {
	var problems dispatcher.Problems
	if len(all) > dispatcher.MaxCalendars {
		problems.Add("", dispatcher.CodeTooMany, "the app has %d calendars already, which is the maximum; delete one that is not used", dispatcher.MaxCalendars)
		return problems
	}
	if problems.AddError("", all.Check(name)); len(problems) > 0 {
		return problems // which would be those of its users, too
	}
	for _, user := range sortedKeys(users) {
		if err := all.Check(user); err != nil {
			problems.Add("/bases", dispatcher.CodeCalendarBase, "calendar %s, which is built on this, could not be used: %v", dispatcher.Echo(user), err)
		}
	}
	return problems.Err()
}

// sameDefinition tells whether a calendar excludes what a definition says; one without revision
// is none.
func sameDefinition(current dispatcher.Calendar, text string) (bool, error) {
	if readable := current.Revision != 0 && current.Err == nil; !readable {
		return false, nil
	}
	was, err := definition(current)
	return was == text, err
}

// writeCalendar writes the row of a calendar and returns it.
func (t *tx) writeCalendar(ctx context.Context, c dispatcher.Calendar) (dispatcher.Calendar, error) {
	text, err := definition(c)
	if err != nil {
		return c, err
	}
	// $1 app, $2 name, $3 description, $4 definition, $5 now. A deleted calendar's revision goes on.
	const put = `INSERT INTO calendars (app_id, name, description, definition, revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 1, $5, $5)
		ON CONFLICT (app_id, name) DO UPDATE SET description = excluded.description, definition = excluded.definition,
			revision = calendars.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL,
			created_at = CASE WHEN calendars.deleted_at IS NULL THEN calendars.created_at ELSE excluded.created_at END
		RETURNING ` + calendarColumns
	stored, _, err := first(ctx, t, scanCalendar(c.App), put, dispatcher.AppID(c.App), c.Name, c.Description, text, t.now.UnixMilli())
	return stored, err
}
