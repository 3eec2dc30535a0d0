package definitions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/dispatcher/store/dispatch"
)

// DeleteCalendar deletes a calendar that nothing uses.
func (s *Store) DeleteCalendar(ctx context.Context, app, name string, change input.Change) error {
	return s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		all, calendar, err := calendarToDelete(ctx, t, app, name)
		if err == nil {
			err = unused(ctx, t, all, app, name)
		}
		if err != nil {
			return err
		}
		return removeCalendar(ctx, t, calendar)
	})
}

// DeleteCalendarWhenUnused deletes a calendar, or marks it until its last use is dropped.
func (s *Store) DeleteCalendarWhenUnused(ctx context.Context, app, name string,
	change input.Change) (marked *dispatcher.Calendar, err error) {
	err = s.dispatch.Change(ctx, change, func(ctx context.Context, t *dispatch.Tx) error {
		marked = nil
		all, calendar, err := calendarToDelete(ctx, t, app, name)
		if err != nil {
			return err
		}
		switch err := unused(ctx, t, all, app, name); {
		case err == nil:
			return removeCalendar(ctx, t, calendar)
		case !errors.Is(err, dispatcher.ErrInUse):
			return err
		}
		stored := calendar
		if calendar.RemovalRequestedAt == nil {
			// $1 now, $2 app, $3 name
			const mark = `UPDATE calendars SET removal_requested_at = $1, updated_at = $1, revision = revision + 1
				WHERE app_id = $2 AND name = $3 RETURNING ` + calendarColumns
			stored, _, err = db.First(ctx, t, scanCalendar(app), mark, t.At.UnixMilli(), run.AppID(app), name)
			if err != nil {
				return fmt.Errorf("mark calendar %s/%s: %w", app, name, err)
			}
			err = auditCalendar(ctx, t, dispatch.AuditEntry{Action: "delete when unused", App: app, Subject: "calendar " + name,
				Revision: stored.Revision},
				calendar, stored)
		}
		marked = &stored
		return err
	})
	return marked, err
}

// calendarToDelete returns the calendars of an app and the one that is to be deleted, and holds off others that change
// calendars and jobs of the app.
func calendarToDelete(ctx context.Context, t *dispatch.Tx, app, name string) (all []dispatcher.Calendar, one dispatcher.Calendar,
	err error) {
	if _, err := LockApp(ctx, t, app); err != nil {
		return nil, one, err
	}
	if _, all, err = appCalendars(ctx, t, app); err != nil {
		return nil, one, err
	}
	i := slices.IndexFunc(all, func(c dispatcher.Calendar) bool { return c.Name == name })
	if i < 0 {
		return nil, one, dispatcher.NotFound("calendar", app+"/"+name)
	}
	return all, all[i], t.Allow(all[i].Revision)
}

// removeCalendar deletes a calendar that nothing uses, and those that were kept only because it is built on them.
func removeCalendar(ctx context.Context, t *dispatch.Tx, calendar dispatcher.Calendar) error {
	app := calendar.App
	err := dropCalendar(ctx, t, calendar)
	if err == nil {
		err = auditCalendar(ctx, t, dispatch.AuditEntry{Action: "delete", App: app, Subject: "calendar " + calendar.Name,
			Revision: calendar.Revision},
			calendar, dispatcher.Calendar{})
	}
	if err != nil {
		return err
	}
	return removeUnused(ctx, t, app, calendar.Bases)
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
	if _, err := LockApp(ctx, t, app); err != nil {
		return err
	}
	for _, name := range names {
		_, all, err := appCalendars(ctx, t, app)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(c dispatcher.Calendar) bool { return c.Name == name && c.RemovalRequestedAt != nil })
		if i < 0 {
			continue
		}
		switch err := unused(ctx, t, all, app, name); {
		case errors.Is(err, dispatcher.ErrInUse):
			continue
		case err != nil:
			return err
		}
		if err := removeCalendar(ctx, t, all[i]); err != nil {
			return err
		}
	}
	return nil
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

// unused returns an error that is ErrInUse, and names a user, while calendar name, one of
// all of its app, has users.
func unused(ctx context.Context, t *dispatch.Tx, all []dispatcher.Calendar, app, name string) error {
	var user string
	users := 0
	for _, c := range all {
		if slices.Contains(c.Bases, name) {
			if users++; users == 1 {
				user = "calendar " + input.Echo(c.Name)
			}
		}
	}
	// $1 app, $2 calendar
	const byTriggers = `SELECT j.name, t.name, COUNT(*) OVER () FROM triggers AS t JOIN jobs AS j ON j.id = t.job_id
		WHERE t.app_id = $1 AND t.calendar = $2 AND t.calendar <> '' AND t.deleted_at IS NULL ORDER BY j.name, t.name LIMIT 1`
	_, _, err := db.First(ctx, t, func(row db.Scanner) (struct{}, error) {
		var job, trigger string
		var count int
		err := row.Scan(&job, &trigger, &count)
		user = "job " + input.Echo(job) + " trigger " + input.Echo(trigger)
		users += count
		return struct{}{}, err
	}, byTriggers, run.AppID(app), name)
	if err != nil || users == 0 {
		return err
	}
	if users > 1 {
		user += fmt.Sprintf(" and %d more", users-1)
	}
	return fmt.Errorf("calendar %s is used by %s: %w", input.Echo(name), user, dispatcher.ErrInUse)
}
