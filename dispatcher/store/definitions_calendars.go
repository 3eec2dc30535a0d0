package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// calendarDefinition is what a calendar's row holds as JSON: all that decides about fires.
type calendarDefinition struct {
	Timezone string                  `json:"timezone,omitempty"`
	Rules    []schedule.CalendarRule `json:"rules,omitempty"`
	Bases    []string                `json:"bases,omitempty"`
}

// encodeCalendar returns the JSON of what c excludes.
func encodeCalendar(c dispatcher.Calendar) (string, error) {
	text, err := json.Marshal(calendarDefinition{c.Timezone, c.Rules, c.Bases})
	return string(text), err
}

// decodeCalendar sets what c excludes. A definition of a newer version, such as a rule of an unknown
// kind, must not count as empty: it puts the calendar in error.
func decodeCalendar(c *dispatcher.Calendar, text string) {
	var d calendarDefinition
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		c.Err = fmt.Errorf("calendar %s/%s: stored definition: %w", c.App, c.Name, err)
		// Its bases can most likely still be read, and others depend on them.
		var bases struct {
			Bases []string `json:"bases"`
		}
		if json.Unmarshal([]byte(text), &bases) == nil {
			c.Bases = bases.Bases
		}
		return
	}
	c.Timezone, c.Rules, c.Bases = d.Timezone, d.Rules, d.Bases
}

// calendarColumns are a calendar without the name of its app.
const calendarColumns = `name, description, definition, revision, created_at, updated_at, removal_requested_at`

// scanCalendar returns the scan function for calendars of an app.
func scanCalendar(app string) func(db.Scanner) (dispatcher.Calendar, error) {
	return func(row db.Scanner) (dispatcher.Calendar, error) {
		c := dispatcher.Calendar{App: app}
		var text string
		err := row.Scan(&c.Name, &c.Description, &text, &c.Revision, db.InstantColumn(&c.CreatedAt), db.InstantColumn(&c.UpdatedAt),
			db.OptionalColumn(&c.RemovalRequestedAt))
		if err != nil {
			return c, err
		}
		decodeCalendar(&c, text)
		return c, nil
	}
}

// Calendar returns a calendar by its name.
func (s *Store) Calendar(ctx context.Context, app, name string) (dispatcher.Calendar, error) {
	// $1 app, $2 name
	const one = `SELECT ` + calendarColumns + ` FROM calendars WHERE app_id = $1 AND name = $2 AND deleted_at IS NULL`
	found, ok, err := db.First(ctx, s.Read, scanCalendar(app), one, run.AppID(app), name)
	if err == nil && !ok {
		err = dispatcher.NotFound("calendar", app+"/"+name)
	}
	if err != nil {
		return dispatcher.Calendar{}, err
	}
	return found, found.Err
}

// Calendars returns a page of the calendars of an app, by name.
func (s *Store) Calendars(ctx context.Context, app string, page input.Page) ([]dispatcher.Calendar, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := readApp(ctx, s.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + calendarColumns + ` FROM calendars
		WHERE app_id = $1 AND name > $2 AND deleted_at IS NULL ORDER BY name LIMIT $3`
	all, err := db.CollectPage(ctx, s.Read, page, scanCalendar(app), nil, list, run.AppID(app), page.Cursor, page.Limit)
	for i, c := range all {
		if c.Err != nil { // it must not hide the others of its app, nor look like one without rules
			all[i].Description = c.Err.Error()
		}
	}
	return all, err
}

// appCalendars returns all calendars of an app and the revision of the lot, as of one moment.
func appCalendars(ctx context.Context, q db.Querier, app string) (revision int64, all []dispatcher.Calendar, err error) {
	// $1 app. An app without calendars has one row, with nothing in it.
	const list = `SELECT a.calendar_revision, c.name IS NOT NULL, COALESCE(c.name, ''), COALESCE(c.description, ''),
			COALESCE(c.definition, '{}'), COALESCE(c.revision, 0), COALESCE(c.created_at, 0), COALESCE(c.updated_at, 0),
			c.removal_requested_at
		FROM apps AS a LEFT JOIN calendars AS c ON c.app_id = a.id AND c.deleted_at IS NULL
		WHERE a.id = $1 AND a.deleted_at IS NULL ORDER BY c.name`
	found := false
	scan := scanCalendar(app)
	_, err = db.Collect(ctx, q, func(row db.Scanner) (struct{}, error) {
		var there bool
		calendar, err := scan(db.WiderRow{Scanner: row, Before: []any{&revision, &there}})
		if found = true; there {
			all = append(all, calendar)
		}
		return struct{}{}, err
	}, list, run.AppID(app))
	if err == nil && !found {
		err = dispatcher.NotFound("app", app)
	}
	return revision, all, err
}

// AppCalendars returns all calendars of an app, and the revision of the lot.
func (s *Store) AppCalendars(ctx context.Context, app string) (int64, []dispatcher.Calendar, error) {
	return appCalendars(ctx, s.Read, app)
}

// calendarsOf returns the calendars of the app of jobs, and the revision of the lot, if one
// of them names any.
func calendarsOf(ctx context.Context, q db.Querier, app string, jobs ...dispatcher.Job) (int64, dispatcher.Calendars, error) {
	var revision int64
	var all []dispatcher.Calendar
	for _, job := range jobs {
		for _, t := range job.Triggers {
			if t.Calendar == "" {
				continue
			}
			var err error
			revision, all, err = appCalendars(ctx, q, app)
			return revision, dispatcher.CompileCalendars(all), err
		}
	}
	return 0, dispatcher.CompileCalendars(nil), nil
}

// putCalendarTimeout is how long a change of a calendar may take.
const putCalendarTimeout = time.Minute

// PutCalendar creates or replaces a calendar, and moves the triggers that depend on it. It
// returns the calendar as stored, and whether it was created. A calendar that is put as it is stored stays as it is.
func (s *Store) PutCalendar(ctx context.Context, calendar dispatcher.Calendar,
	change input.Change) (dispatcher.Calendar, bool, error) {
	if err := calendar.Validate(); err != nil {
		return dispatcher.Calendar{}, false, err
	}
	ctx, cancel := db.Bound(ctx, putCalendarTimeout)
	defer cancel()
	if same, is := s.unchangedCalendar(ctx, calendar, change); is {
		return same, false, nil
	}
	plan, err := s.plan(ctx, calendar, change)
	if err != nil {
		return dispatcher.Calendar{}, false, fmt.Errorf("put calendar %s/%s: %w", calendar.App, calendar.Name, err)
	}
	return s.putPlanned(ctx, calendar, plan, change)
}

// putPlanned is the transaction of PutCalendar.
func (s *Store) putPlanned(ctx context.Context, calendar dispatcher.Calendar, plan movePlan,
	change input.Change) (stored dispatcher.Calendar, created bool, err error) {
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// Writers of one app's calendars, and of its jobs, queue at its row.
		if _, err := lockApp(ctx, t, calendar.App); err != nil {
			return err
		}
		next, err := replace(ctx, t, calendar, change)
		if err != nil {
			return err
		}
		created = next.created
		if stored, err = writeCalendar(ctx, t, calendar, next.definition); err != nil {
			return fmt.Errorf("put calendar %s/%s: %w", calendar.App, calendar.Name, err)
		}
		if len(next.changed) > 0 {
			if err := s.rescheduleForCalendar(ctx, t, next, plan); err != nil {
				return fmt.Errorf("put calendar %s/%s: move triggers: %w", calendar.App, calendar.Name, err)
			}
		}
		t.notify(dispatcher.Notification{App: calendar.App})
		err = auditCalendar(ctx, t, auditEntry{action: "put", app: calendar.App, subject: "calendar " + calendar.Name, revision: stored.Revision},
			next.current, stored)
		if err != nil {
			return err
		}
		return removeUnused(ctx, t, calendar.App, dropped(next.current.Bases, stored.Bases))
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
	current       dispatcher.Calendar // what is replaced; no revision: nothing
}

// replace returns what changes when calendar is put, and refuses what may not be put.
func replace(ctx context.Context, q db.Querier, calendar dispatcher.Calendar, by input.Change) (replacement, error) {
	next := replacement{app: calendar.App, name: calendar.Name}
	var err error
	if next.definition, err = encodeCalendar(calendar); err != nil {
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
	next.created, next.current = current.Revision == 0, current
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
	var problems input.Problems
	if len(all) > dispatcher.MaxCalendars {
		problems.Add("", input.CodeTooMany, "the app has %d calendars already, which is the maximum; delete one "+
			"that is not used", dispatcher.MaxCalendars)
		return problems
	}
	if problems.AddError("", all.Check(name)); len(problems) > 0 {
		return problems // which would be those of its users, too
	}
	for _, user := range db.SortedKeys(users) {
		if err := all.Check(user); err != nil {
			problems.Add("/bases", input.CodeCalendarBase, "calendar %s, which is built on this, could not be used: %v",
				input.Echo(user), err)
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
	was, err := encodeCalendar(current)
	return was == text, err
}

// writeCalendar writes the row of a calendar, whose definition is given, and returns it.
func writeCalendar(ctx context.Context, t *tx, c dispatcher.Calendar, definition string) (dispatcher.Calendar, error) {
	// $1 app, $2 name, $3 description, $4 definition, $5 now. A deleted calendar's revision goes on.
	const put = `INSERT INTO calendars (app_id, name, description, definition, revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 1, $5, $5)
		ON CONFLICT (app_id, name) DO UPDATE SET description = excluded.description, definition = excluded.definition,
			revision = calendars.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL, removal_requested_at = NULL,
			created_at = CASE WHEN calendars.deleted_at IS NULL THEN calendars.created_at ELSE excluded.created_at END
		RETURNING ` + calendarColumns
	stored, _, err := db.First(ctx, t, scanCalendar(c.App), put, run.AppID(c.App), c.Name, c.Description, definition, t.now.UnixMilli())
	return stored, err
}
