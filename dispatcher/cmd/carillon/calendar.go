package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// calendarCommand shows calendars.
type calendarCommand struct {
	List calendarListCommand `cmd:"" help:"List the calendars of an app." example:"carillon calendar list billing"`
	Show calendarShowCommand `cmd:"" help:"Show a calendar with its rules." example:"carillon calendar show billing/holidays"`
}

// calendarListCommand lists calendars.
type calendarListCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" optional:"" help:"Name of the app. Default: all that the token may see."`
}

// Run prints the calendars.
func (l *calendarListCommand) Run(ctx context.Context, c console) error {
	api, err := l.client(ctx)
	if err != nil {
		return err
	}
	all, err := ofApps(ctx, api, l.App, func(app string) ([]dispatcher.Calendar, error) {
		calendars, _, err := allPages(0, func(page input.Page) (client.List[dispatcher.Calendar], error) {
			return api.Calendars(ctx, app, page)
		})
		return calendars, err
	})
	if err != nil {
		return err
	}
	return printList(l.outputFlags, c, all, "CALENDAR\tRULES\tBASES\tZONE\tREVISION\tUPDATED AT", func(one dispatcher.Calendar) []any {
		return []any{one.App + "/" + one.Name, len(one.Rules), strings.Join(one.Bases, ","), one.Timezone, one.Revision, one.UpdatedAt}
	})
}

// calendarShowCommand shows a calendar.
type calendarShowCommand struct {
	apiFlags
	outputFlags
	Calendar string `arg:"" name:"app/calendar" help:"The calendar, such as billing/holidays."`
}

// Run prints the calendar.
func (s *calendarShowCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := s.named(ctx, s.Calendar, "APP/CALENDAR")
	if err != nil {
		return err
	}
	calendar, err := api.Calendar(ctx, app, name)
	if err != nil {
		return err
	}
	return printObject(s.outputFlags, c, calendar, func(l *lines) {
		l.add("calendar", calendar.App+"/"+calendar.Name)
		l.add("description", calendar.Description)
		l.add("time zone", calendar.Timezone)
		l.add("bases", strings.Join(calendar.Bases, ", "))
		l.add("revision", fmt.Sprintf("%d of %s", calendar.Revision, input.FormatInstant(calendar.UpdatedAt)))
		for _, rule := range calendar.Rules {
			text, _ := json.Marshal(rule) // strings and numbers
			l.add("rule", string(text))
		}
	})
}
