package definitions

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
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// calendarDefinition is the JSON in a calendar's row: all settings that affect fires.
type calendarDefinition struct {
	Timezone string                  `json:"timezone,omitempty"`
	Rules    []schedule.CalendarRule `json:"rules,omitempty"`
	Bases    []string                `json:"bases,omitempty"`
}

// encodeCalendar returns the JSON of the exclusions of c.
func encodeCalendar(c dispatcher.Calendar) (string, error) {
	text, err := json.Marshal(calendarDefinition{c.Timezone, c.Rules, c.Bases})
	return string(text), err
}

// decodeCalendar sets the exclusions of c. A definition of a newer version, such as a rule of an unknown kind, must not
// count as empty: it puts the calendar in error.
func decodeCalendar(c *dispatcher.Calendar, text string) {
	var d calendarDefinition
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		c.Err = fmt.Errorf("calendar %s/%s: stored definition: %w", c.App, c.Name, err)
		// Its bases are probably still readable, and others depend on them.
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

// calendarColumns are the columns of a calendar without the name of its app.
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
	found, ok, err := db.First(ctx, s.db.Read, scanCalendar(app), one, run.AppID(app), name)
	if err = db.OrNotFound(ok, err, "calendar", app+"/"+name); err != nil {
		return dispatcher.Calendar{}, err
	}
	return found, found.Err
}

// Calendars returns a page of the calendars of an app, by name.
func (s *Store) Calendars(ctx context.Context, app string, page input.Page) ([]dispatcher.Calendar, error) {
	ctx, cancel := db.Bound(ctx, db.OtherTimeout)
	defer cancel()
	if _, err := ReadApp(ctx, s.db.Read, app, ""); err != nil {
		return nil, err
	}
	// $1 app, $2 last name of the page before, $3 limit
	const list = `SELECT ` + calendarColumns + ` FROM calendars
		WHERE app_id = $1 AND name > $2 AND deleted_at IS NULL ORDER BY name LIMIT $3`
	all, err := db.CollectPage(ctx, s.db.Read, page, scanCalendar(app), nil, list, run.AppID(app), page.Cursor, page.Limit)
	for i, c := range all {
		if c.Err != nil { // it must not hide the other calendars of its app, nor look like one without rules
			all[i].Description = c.Err.Error()
		}
	}
	return all, err
}

// appCalendars returns all calendars of an app and their common revision, read at one moment.
func appCalendars(ctx context.Context, q db.Querier, app string) (revision int64, all []dispatcher.Calendar, err error) {
	// $1 app. An app without calendars has one row, with nothing in it.
	const list = `SELECT a.calendar_revision, c.name IS NOT NULL, COALESCE(c.name, ''), COALESCE(c.description, ''),
			COALESCE(c.definition, '{}'), COALESCE(c.revision, 0), COALESCE(c.created_at, 0), COALESCE(c.updated_at, 0),
			c.removal_requested_at
		FROM apps AS a LEFT JOIN calendars AS c ON c.app_id = a.id AND c.deleted_at IS NULL
		WHERE a.id = $1 AND a.deleted_at IS NULL ORDER BY c.name`
	found := false
	scan := scanCalendar(app)
	err = db.EachRow(ctx, q, func(row db.Scanner) error {
		var there bool
		calendar, err := scan(db.WiderRow{Scanner: row, Before: []any{&revision, &there}})
		if found = true; there {
			all = append(all, calendar)
		}
		return err
	}, list, run.AppID(app))
	return revision, all, db.OrNotFound(found, err, "app", app)
}

// AppCalendars returns all calendars of an app, and their common revision.
func (s *Store) AppCalendars(ctx context.Context, app string) (int64, []dispatcher.Calendar, error) {
	return appCalendars(ctx, s.db.Read, app)
}

// calendarsOf returns the calendars of the app of jobs, and their common revision, if one of the jobs names any.
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

// putCalendarTimeout is the time limit for a change of a calendar.
const putCalendarTimeout = time.Minute

// calendarsBefore are the calendars of an app at a revision.
type calendarsBefore struct {
	dispatcher.CalendarBefore
	revision int64
}

// Replacement is a change of the calendars of an app.
type Replacement struct {
	dispatcher.CalendarChange
	app, name string
	revision  int64 // of the app's calendars before
}

// PutCalendar creates or replaces a calendar, and reschedules the triggers that depend on it. It returns the calendar
// as stored, and whether it was created. A calendar put unchanged stays as it is.
func (s *Store) PutCalendar(ctx context.Context, calendar dispatcher.Calendar, change input.Change) (dispatcher.Calendar, bool, error) {
	if err := calendar.Validate(); err != nil {
		return dispatcher.Calendar{}, false, err
	}
	ctx, cancel := db.Bound(ctx, putCalendarTimeout)
	defer cancel()
	stored, before, err := Redefine(ctx, s, change, s.CalendarPut(calendar, change))
	if err != nil {
		return stored, false, err
	}
	return stored, before.Current(calendar.Name).Revision == 0, nil
}

// CalendarPut is PutCalendar in steps.
func (s *Store) CalendarPut(calendar dispatcher.Calendar, by input.Change) Redefinition[calendarsBefore, Replacement, dispatcher.Calendar] {
	var plan movePlan
	of := calendar.App + "/" + calendar.Name
	return Redefinition[calendarsBefore, Replacement, dispatcher.Calendar]{
		Load: func(ctx context.Context, from Source) (b calendarsBefore, err error) {
			if from.tx != nil { // writers of one app's calendars and jobs queue at its row
				if _, err := LockApp(ctx, from.tx, calendar.App); err != nil {
					return b, err
				}
			}
			if b.revision, b.All, err = appCalendars(ctx, from, calendar.App); err == nil {
				err = dispatch.Allow(by, b.Current(calendar.Name).Revision)
			}
			return b, err
		},
		Unchanged: func(b calendarsBefore) (dispatcher.Calendar, bool) {
			current := b.Current(calendar.Name)
			return current, current.Revision != 0 && current.Declares(calendar)
		},
		Decide: func(b calendarsBefore, _ time.Time) (Replacement, error) {
			change, err := b.Put(calendar)
			return Replacement{change, calendar.App, calendar.Name, b.revision}, err
		},
		Prepare: func(ctx context.Context, q db.Querier, next Replacement, now time.Time) (err error) {
			if plan, err = s.planPut(ctx, q, next, now); err != nil {
				err = fmt.Errorf("put calendar %s: %w", of, err)
			}
			return err
		},
		Write: func(ctx context.Context, t *dispatch.Tx, _ calendarsBefore, next Replacement) (stored dispatcher.Calendar, err error) {
			definition, err := encodeCalendar(calendar)
			if err == nil {
				stored, err = writeCalendar(ctx, t, calendar, definition)
			}
			if err != nil {
				return stored, fmt.Errorf("put calendar %s: %w", of, err)
			}
			if len(next.Changed) > 0 {
				if err := s.rescheduleForCalendar(ctx, t, next, definition, plan); err != nil {
					return stored, fmt.Errorf("put calendar %s: move triggers: %w", of, err)
				}
			}
			t.Notify(dispatcher.Notification{App: calendar.App})
			err = auditCalendar(ctx, t, dispatch.AuditEntry{Action: "put", App: calendar.App, Subject: "calendar " + calendar.Name,
				Revision: stored.Revision}, next.Current, stored)
			if err != nil {
				return stored, err
			}
			return stored, removeUnused(ctx, t, calendar.App, dropped(next.Current.Bases, stored.Bases))
		},
	}
}

func writeCalendar(ctx context.Context, t *dispatch.Tx, c dispatcher.Calendar, definition string) (dispatcher.Calendar, error) {
	// $1 app, $2 name, $3 description, $4 definition, $5 now. A deleted calendar's revision goes on.
	const put = `INSERT INTO calendars (app_id, name, description, definition, revision, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 1, $5, $5)
		ON CONFLICT (app_id, name) DO UPDATE SET description = excluded.description, definition = excluded.definition,
			revision = calendars.revision + 1, updated_at = excluded.updated_at, deleted_at = NULL, removal_requested_at = NULL,
			created_at = CASE WHEN calendars.deleted_at IS NULL THEN calendars.created_at ELSE excluded.created_at END
		RETURNING ` + calendarColumns
	stored, _, err := db.First(ctx, t, scanCalendar(c.App), put, run.AppID(c.App), c.Name, c.Description, definition, t.At.UnixMilli())
	return stored, err
}

// DeleteCalendar deletes an unused calendar.
func (s *Store) DeleteCalendar(ctx context.Context, app, name string, change input.Change) error {
	_, err := s.deleteCalendar(ctx, app, name, false, change)
	return err
}

// DeleteCalendarWhenUnused deletes a calendar, or marks it for deletion after its last use.
func (s *Store) DeleteCalendarWhenUnused(ctx context.Context, app, name string, change input.Change) (*dispatcher.Calendar, error) {
	return s.deleteCalendar(ctx, app, name, true, change)
}

// deleteCalendar deletes a calendar with its unused bases, or marks it if wait allows. The lock of the app excludes
// other changes of its calendars and jobs.
func (s *Store) deleteCalendar(ctx context.Context, app, name string, wait bool, by input.Change) (marked *dispatcher.Calendar, err error) {
	type before = dispatcher.CalendarBefore
	marked, _, err = directly(ctx, s, by, Redefinition[before, []dispatcher.Calendar, *dispatcher.Calendar]{
		Load: func(ctx context.Context, from Source) (b before, err error) {
			b, err = loadCalendarUses(ctx, from.tx, app, name, name)
			if current := b.Current(name); err == nil && current.Revision != 0 {
				err = dispatch.Allow(by, current.Revision)
			}
			return b, err
		},
		Decide: func(b before, _ time.Time) ([]dispatcher.Calendar, error) { return b.Delete(app, name, wait) },
		Write: func(ctx context.Context, t *dispatch.Tx, b before, gone []dispatcher.Calendar) (*dispatcher.Calendar, error) {
			if len(gone) == 0 {
				return markCalendar(ctx, t, b.Current(name))
			}
			return nil, removeCalendars(ctx, t, gone)
		},
	})
	return marked, err
}

// markCalendar marks a calendar for deletion after its last use.
func markCalendar(ctx context.Context, t *dispatch.Tx, calendar dispatcher.Calendar) (*dispatcher.Calendar, error) {
	if calendar.RemovalRequestedAt != nil {
		return &calendar, nil
	}
	app, name := calendar.App, calendar.Name
	// $1 now, $2 app, $3 name
	const mark = `UPDATE calendars SET removal_requested_at = $1, updated_at = $1, revision = revision + 1
				WHERE app_id = $2 AND name = $3 RETURNING ` + calendarColumns
	stored, _, err := db.First(ctx, t, scanCalendar(app), mark, t.At.UnixMilli(), run.AppID(app), name)
	if err != nil {
		return nil, fmt.Errorf("mark calendar %s/%s: %w", app, name, err)
	}
	return &stored, auditCalendar(ctx, t, dispatch.AuditEntry{Action: "delete when unused", App: app, Subject: "calendar " + name,
		Revision: stored.Revision}, calendar, stored)
}

func removeCalendars(ctx context.Context, t *dispatch.Tx, gone []dispatcher.Calendar) error {
	for _, c := range gone {
		err := dropCalendar(ctx, t, c)
		if err == nil {
			err = auditCalendar(ctx, t, dispatch.AuditEntry{Action: "delete", App: c.App, Subject: "calendar " + c.Name, Revision: c.Revision},
				c, dispatcher.Calendar{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dropCalendar deletes a calendar, even if jobs or other calendars use it.
func dropCalendar(ctx context.Context, t *dispatch.Tx, calendar dispatcher.Calendar) error {
	app, name := calendar.App, calendar.Name
	// $1 now, $2 app, $3 name
	const remove = `UPDATE calendars SET deleted_at = $1, updated_at = $1, removal_requested_at = NULL WHERE app_id = $2 AND name = $3`
	if err := t.Exec(ctx, remove, t.At.UnixMilli(), run.AppID(app), name); err != nil {
		return fmt.Errorf("delete calendar %s/%s: %w", app, name, err)
	}
	_, err := rememberCalendar(ctx, t, app, name, nil)
	return err
}

// removeUnused deletes the calendars among names that a change stopped using and that are marked for deletion. The lock
// of the app makes a request to delete one of them wait: otherwise it could mark the calendar after this check.
func removeUnused(ctx context.Context, t *dispatch.Tx, app string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	before, err := loadCalendarUses(ctx, t, app, "", names...)
	if err != nil {
		return err
	}
	return removeCalendars(ctx, t, before.Unused(names))
}

// loadCalendarUses locks an app and returns its calendars. It also reads the triggers that name the asked calendar, or
// one of names or their bases that is marked for deletion.
func loadCalendarUses(ctx context.Context, t *dispatch.Tx, app, asked string, names ...string) (b dispatcher.CalendarBefore, err error) {
	if _, err := LockApp(ctx, t, app); err != nil {
		return b, err
	}
	if _, b.All, err = appCalendars(ctx, t, app); err != nil {
		return b, err
	}
	b.Triggers = map[string]dispatcher.Users{}
	for i := 0; i < len(names); i++ {
		calendar := b.Current(names[i])
		if _, read := b.Triggers[names[i]]; read || calendar.RemovalRequestedAt == nil && names[i] != asked {
			continue
		}
		if b.Triggers[names[i]], err = triggersOfCalendar(ctx, t, app, names[i]); err != nil {
			return b, err
		}
		names = append(names[:len(names):len(names)], calendar.Bases...)
	}
	return b, nil
}

// usedCalendars returns the names of the calendars that the triggers of a job use; none for nil.
func usedCalendars(job *dispatcher.Job) (names []string) {
	if job == nil {
		return nil
	}
	for _, t := range job.Triggers {
		if t.Calendar != "" {
			names = append(names, t.Calendar)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// dropped returns the names in old that are not in others.
func dropped(old, others []string) []string {
	return slices.DeleteFunc(slices.Clone(old), func(name string) bool { return slices.Contains(others, name) })
}

func triggersOfCalendar(ctx context.Context, q db.Querier, app, name string) (users dispatcher.Users, err error) {
	// $1 app, $2 calendar
	const byTriggers = `SELECT j.name, t.name, COUNT(*) OVER () FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
		WHERE t.app_id = $1 AND t.calendar = $2 AND t.calendar <> '' AND t.deleted_at IS NULL ORDER BY j.name, t.name LIMIT 1`
	var job, trigger string
	found, err := db.ReadRow(ctx, q, []any{&job, &trigger, &users.Count}, byTriggers, run.AppID(app), name)
	if found {
		users.First = "job " + input.Echo(job) + " trigger " + input.Echo(trigger)
	}
	return users, err
}
