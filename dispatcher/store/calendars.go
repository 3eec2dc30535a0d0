package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// calendarDefinition is what a calendar's row holds as JSON.
type calendarDefinition struct {
	Description string                  `json:"description,omitempty"`
	Timezone    string                  `json:"timezone,omitempty"`
	Rules       []schedule.CalendarRule `json:"rules,omitempty"`
	Bases       []string                `json:"bases,omitempty"`
}

// calendarColumns belong to a query over calendars AS c and apps AS a.
const calendarColumns = `a.name, c.name, c.definition, c.revision, c.created_at, c.updated_at`

func scanCalendar(row scanner) (dispatcher.Calendar, error) {
	var c dispatcher.Calendar
	var definition string
	var created, updated int64
	err := row.Scan(&c.App, &c.Name, &definition, &c.Revision, &created, &updated)
	if err != nil {
		return c, err
	}
	c.CreatedAt, c.UpdatedAt = instant(created), instant(updated)
	// A kind of rule that a newer version knows must not be taken for none.
	decoder := json.NewDecoder(bytes.NewReader([]byte(definition)))
	decoder.DisallowUnknownFields()
	var d calendarDefinition
	if err := decoder.Decode(&d); err != nil {
		c.Err = fmt.Errorf("calendar %s/%s: stored definition: %w", c.App, c.Name, err)
		return c, nil
	}
	c.Description, c.Timezone, c.Rules, c.Bases = d.Description, d.Timezone, d.Rules, d.Bases
	return c, nil
}

// appCalendars returns all calendars of an app and the revision of the lot, as of one moment.
func appCalendars(ctx context.Context, q querier, app string) (revision int64, all []dispatcher.Calendar, err error) {
	// $1 app. An app without calendars has one row, with nothing in it.
	const list = `SELECT a.calendar_revision, c.name IS NOT NULL, a.name, COALESCE(c.name, ''), COALESCE(c.definition, '{}'),
			COALESCE(c.revision, 0), COALESCE(c.created_at, 0), COALESCE(c.updated_at, 0)
		FROM apps AS a LEFT JOIN calendars AS c ON c.app_id = a.id AND c.deleted_at IS NULL
		WHERE a.id = $1 AND a.deleted_at IS NULL ORDER BY c.name`
	found := false
	_, err = collect(ctx, q, func(row scanner) (struct{}, error) {
		var there bool
		calendar, err := scanCalendar(wider{scanner: row, before: []any{&revision, &there}})
		if found = true; there {
			all = append(all, calendar)
		}
		return struct{}{}, err
	}, list, dispatcher.AppID(app))
	if err == nil && !found {
		err = dispatcher.NotFound("app", app)
	}
	return revision, all, err
}

func (s *store) AppCalendars(ctx context.Context, app string) (int64, []dispatcher.Calendar, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	return appCalendars(ctx, s.read, app)
}

func (s *store) Calendar(ctx context.Context, app, name string) (dispatcher.Calendar, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	_, all, err := appCalendars(ctx, s.read, app)
	if err != nil {
		return dispatcher.Calendar{}, err
	}
	if i := slices.IndexFunc(all, func(c dispatcher.Calendar) bool { return c.Name == name }); i >= 0 {
		return all[i], all[i].Err
	}
	return dispatcher.Calendar{}, dispatcher.NotFound("calendar", app+"/"+name)
}

func (s *store) Calendars(ctx context.Context, app string, page dispatcher.Page) ([]dispatcher.Calendar, error) {
	ctx, cancel := bound(ctx, otherTimeout)
	defer cancel()
	if _, err := findApp(ctx, s.read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + calendarColumns + ` FROM calendars AS c JOIN apps AS a ON a.id = c.app_id
		WHERE c.app_id = $1 AND c.name > $2 AND c.deleted_at IS NULL ORDER BY c.name LIMIT $3`
	all, err := collect(ctx, s.read, scanCalendar, list, dispatcher.AppID(app), page.Cursor, page.Limit)
	for i, c := range all {
		if c.Err != nil { // it must not hide the others of its app
			all[i].Description = c.Err.Error()
		}
	}
	return all, err
}

// PutCalendar has time for the triggers of a large app: 100,000 of them take some seconds.
func (s *store) PutCalendar(ctx context.Context, calendar dispatcher.Calendar, change dispatcher.Change) (stored dispatcher.Calendar, err error) {
	if err := calendar.Validate(); err != nil {
		return stored, err
	}
	ctx, cancel := bound(ctx, recalendarTimeout)
	defer cancel()
	err = s.change(ctx, change, func(ctx context.Context, t *tx) error {
		// Writers of one app's calendars, and of its jobs, queue at its row.
		if _, err := findApp(ctx, t, calendar.App, t.lock()); err != nil {
			return err
		}
		_, before, err := appCalendars(ctx, t, calendar.App)
		if err != nil {
			return err
		}
		current, after := replaced(before, calendar)
		if err := t.allow(current.Revision); err != nil {
			return err
		}
		affected, err := checkCalendars(after, calendar.Name)
		if err != nil {
			return err
		}
		if stored, err = t.writeCalendar(ctx, calendar); err != nil {
			return fmt.Errorf("put calendar %s/%s: %w", calendar.App, calendar.Name, err)
		}
		if current.Err != nil || !sameRules(current, calendar) {
			move := recalendar{app: calendar.App, names: affected, before: dispatcher.CompileCalendars(before), after: dispatcher.CompileCalendars(after)}
			if err := s.recalendar(ctx, t, move); err != nil {
				return fmt.Errorf("move triggers of calendar %s/%s: %w", calendar.App, calendar.Name, err)
			}
		}
		return t.audit(ctx, "put", calendar.App, "calendar "+calendar.Name, stored.Revision)
	})
	return stored, err
}

// replaced returns the calendar of that name, if there is one, and all as they will be.
func replaced(all []dispatcher.Calendar, calendar dispatcher.Calendar) (current dispatcher.Calendar, after []dispatcher.Calendar) {
	after = slices.Clone(all)
	if i := slices.IndexFunc(all, func(c dispatcher.Calendar) bool { return c.Name == calendar.Name }); i >= 0 {
		after[i] = calendar
		return all[i], after
	}
	return current, append(after, calendar)
}

// checkCalendars returns what is wrong with the calendar of that name among all of its app,
// or with one that is built on it, and else the names of these.
func checkCalendars(all []dispatcher.Calendar, name string) (map[string]bool, error) {
	var faults dispatcher.Faults
	if len(all) > dispatcher.MaxCalendars {
		faults.Add("", dispatcher.CodeTooMany, "the app has %d calendars already, which is the maximum", dispatcher.MaxCalendars)
		return nil, faults
	}
	compiled := dispatcher.CompileCalendars(all)
	faults.AddError("", compiled.Check(name))
	users := dispatcher.BuiltOn(all, name)
	for user := range users {
		if err := compiled.Check(user); err != nil && len(faults) == 0 {
			faults.Add("/bases", dispatcher.CodeCalendarBase, "calendar %s, which is built on this, could not be used: %v", dispatcher.Echo(user), err)
		}
	}
	return users, faults.Err()
}

// sameRules tells whether two calendars exclude the same.
func sameRules(a, b dispatcher.Calendar) bool {
	of := func(c dispatcher.Calendar) calendarDefinition {
		return calendarDefinition{Timezone: c.Timezone, Rules: c.Rules, Bases: c.Bases}
	}
	return a.Revision != 0 && reflect.DeepEqual(of(a), of(b))
}

// writeCalendar writes the row of a calendar and returns it.
func (t *tx) writeCalendar(ctx context.Context, c dispatcher.Calendar) (dispatcher.Calendar, error) {
	definition, err := json.Marshal(calendarDefinition{c.Description, c.Timezone, c.Rules, c.Bases})
	if err != nil {
		return c, err
	}
	// $1 app, $2 name, $3 definition, $4 now. A deleted calendar's revision goes on.
	const put = `INSERT INTO calendars (app_id, name, definition, revision, created_at, updated_at) VALUES ($1, $2, $3, 1, $4, $4)
		ON CONFLICT (app_id, name) DO UPDATE SET definition = excluded.definition, revision = calendars.revision + 1,
			updated_at = excluded.updated_at, deleted_at = NULL,
			created_at = CASE WHEN calendars.deleted_at IS NULL THEN calendars.created_at ELSE excluded.created_at END`
	if _, err := t.ExecContext(ctx, put, dispatcher.AppID(c.App), c.Name, string(definition), t.now.UnixMilli()); err != nil {
		return c, err
	}
	// $1 app, $2 name
	const read = `SELECT ` + calendarColumns + ` FROM calendars AS c JOIN apps AS a ON a.id = c.app_id WHERE c.app_id = $1 AND c.name = $2`
	stored, _, err := first(ctx, t, scanCalendar, read, dispatcher.AppID(c.App), c.Name)
	return stored, err
}

func (s *store) DeleteCalendar(ctx context.Context, app, name string, change dispatcher.Change) error {
	return s.change(ctx, change, func(ctx context.Context, t *tx) error {
		if _, err := findApp(ctx, t, app, t.lock()); err != nil {
			return err
		}
		_, all, err := appCalendars(ctx, t, app)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(c dispatcher.Calendar) bool { return c.Name == name })
		if i < 0 {
			return dispatcher.NotFound("calendar", app+"/"+name)
		}
		if err := t.allow(all[i].Revision); err != nil {
			return err
		}
		if err := t.unused(ctx, all, app, name); err != nil {
			return err
		}
		// $1 now, $2 app, $3 name
		const remove = `UPDATE calendars SET deleted_at = $1, updated_at = $1 WHERE app_id = $2 AND name = $3`
		if _, err := t.ExecContext(ctx, remove, t.now.UnixMilli(), dispatcher.AppID(app), name); err != nil {
			return fmt.Errorf("delete calendar %s/%s: %w", app, name, err)
		}
		return t.audit(ctx, "delete", app, "calendar "+name, all[i].Revision)
	})
}

// unused returns an error that is ErrInUse, and names a user, while there is one.
func (t *tx) unused(ctx context.Context, all []dispatcher.Calendar, app, name string) error {
	for _, c := range all {
		if slices.Contains(c.Bases, name) {
			return fmt.Errorf("calendar %s is a base of calendar %s: %w", dispatcher.Echo(name), dispatcher.Echo(c.Name), dispatcher.ErrInUse)
		}
	}
	// $1 app, $2 calendar
	const users = `SELECT j.name, t.name FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
		WHERE t.app_id = $1 AND t.calendar = $2 AND t.calendar <> '' AND t.deleted_at IS NULL ORDER BY j.name, t.name LIMIT 1`
	user, used, err := first(ctx, t, func(row scanner) (names [2]string, err error) {
		return names, row.Scan(&names[0], &names[1])
	}, users, dispatcher.AppID(app), name)
	if err != nil || !used {
		return err
	}
	return fmt.Errorf("calendar %s is used by job %s, trigger %s: %w",
		dispatcher.Echo(name), dispatcher.Echo(user[0]), dispatcher.Echo(user[1]), dispatcher.ErrInUse)
}
