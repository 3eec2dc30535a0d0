package definitions

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// DeleteCalendar deletes a calendar that nothing uses.
func (s *Store) DeleteCalendar(ctx context.Context, app, name string, change input.Change) error {
	_, err := s.deleteCalendar(ctx, app, name, false, change)
	return err
}

// DeleteCalendarWhenUnused deletes a calendar, or marks it until its last use is dropped.
func (s *Store) DeleteCalendarWhenUnused(ctx context.Context, app, name string, change input.Change) (*dispatcher.Calendar, error) {
	return s.deleteCalendar(ctx, app, name, true, change)
}

// deleteCalendar deletes a calendar, and what goes with it, or marks it if it may wait. The lock of the app holds off others that
// change calendars and jobs of the app.
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

// markCalendar lets a calendar go with its last use.
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

// removeCalendars deletes calendars that nothing uses.
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

// dropCalendar deletes a calendar, also one that jobs or other calendars use.
func dropCalendar(ctx context.Context, t *dispatch.Tx, calendar dispatcher.Calendar) error {
	app, name := calendar.App, calendar.Name
	// $1 now, $2 app, $3 name
	const remove = `UPDATE calendars SET deleted_at = $1, updated_at = $1, removal_requested_at = NULL WHERE app_id = $2 AND name = $3`
	if _, err := t.ExecContext(ctx, remove, t.At.UnixMilli(), run.AppID(app), name); err != nil {
		return fmt.Errorf("delete calendar %s/%s: %w", app, name, err)
	}
	_, err := rememberCalendar(ctx, t, app, name, nil)
	return err
}

// removeUnused deletes those of some calendars, which a change uses no more, that are to go with their last use. The lock of
// the app makes a request to delete one of them wait: it would mark it after this has looked.
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

// loadCalendarUses locks an app and returns its calendars, with the triggers that name one that is asked for, and those of some, and of
// their bases, that are to go with their last use.
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

// usedCalendars returns the names of the calendars that the triggers of a job name; nil has none.
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

// triggersOfCalendar returns which triggers name a calendar.
func triggersOfCalendar(ctx context.Context, q db.Querier, app, name string) (users dispatcher.Users, err error) {
	// $1 app, $2 calendar
	const byTriggers = `SELECT j.name, t.name, COUNT(*) OVER () FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
		WHERE t.app_id = $1 AND t.calendar = $2 AND t.calendar <> '' AND t.deleted_at IS NULL ORDER BY j.name, t.name LIMIT 1`
	users, _, err = db.First(ctx, q, func(row db.Scanner) (u dispatcher.Users, err error) {
		var job, trigger string
		err = row.Scan(&job, &trigger, &u.Count)
		u.First = "job " + input.Echo(job) + " trigger " + input.Echo(trigger)
		return u, err
	}, byTriggers, run.AppID(app), name)
	return users, err
}
