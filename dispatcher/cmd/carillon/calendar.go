package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

type calendarCommand struct {
	List calendarListCommand `cmd:"" aliases:"ls" help:"List the calendars of an app." example:"carillon calendar list billing"`
	Show calendarShowCommand `cmd:"" aliases:"describe" help:"Show a calendar with its rules." example:"carillon calendar show billing/holidays"`

	Delete deleteCommand `cmd:"" hidden:""`
}

type calendarListCommand struct{ appListFlags }

func (l *calendarListCommand) Run(ctx context.Context, c console) error {
	titles := "CALENDAR\tRULES\tBASES\tZONE\tREVISION\tUPDATED AT"
	return listBy((*client.Client).Calendars).show(ctx, c, l.appListFlags, titles, func(one dispatcher.Calendar) []any {
		return []any{one.App + "/" + one.Name, len(one.Rules), strings.Join(one.Bases, ","), one.Timezone, one.Revision, one.UpdatedAt}
	})
}

type calendarShowCommand struct {
	apiFlags
	outputFlags
	Calendar string `arg:"" name:"app/calendar" help:"The calendar, such as billing/holidays."`
}

func (s *calendarShowCommand) open(ctx context.Context) (api *client.Client, app, calendar string, err error) {
	return s.named(ctx, s.Calendar, "APP/CALENDAR")
}

func (s *calendarShowCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, s, (*client.Client).Calendar, func(l *lines, calendar dispatcher.Calendar) {
		l.add("calendar", calendar.App+"/"+calendar.Name)
		l.add("description", calendar.Description)
		l.add("time zone", calendar.Timezone)
		l.add("bases", strings.Join(calendar.Bases, ", "))
		l.add("revision", fmt.Sprintf("%d of %s", calendar.Revision, input.FormatInstant(calendar.UpdatedAt)))
		for _, rule := range calendar.Rules {
			text, _ := json.Marshal(rule) // only strings and numbers
			l.add("rule", string(text))
		}
	})
}

// calendarFlags name the calendar of a schedule: a file, or a calendar of an app.
type calendarFlags struct {
	Calendar   string `placeholder:"FILE|NAME" help:"Calendar that excludes fires: a file with the JSON of the API or, if it ends in .ics, iCalendar; with --app, the name of a calendar of that app."`
	OnExcluded string `placeholder:"RULE" help:"What happens to fires that the calendar excludes: skip, next_day, previous_day or next_included. Default: skip."`
	App        string `placeholder:"APP" help:"App whose calendar --calendar names. Its default time zone replaces UTC."`
}

// apply sets the calendar of a schedule, and the default time zone of the app.
func (f calendarFlags) apply(ctx context.Context, api *apiFlags, spec *schedule.Spec, warnings io.Writer) error {
	spec.OnExcluded = schedule.OnExcluded(f.OnExcluded)
	switch {
	case f.App != "":
		return f.ofApp(ctx, api, spec, warnings)
	case f.Calendar != "":
		calendar, err := f.ofFile(spec.Timezone)
		if err != nil {
			return &usageError{fmt.Errorf("--calendar %s: %w", f.Calendar, err)}
		}
		spec.Calendar = calendar
		return nil
	case f.OnExcluded != "":
		return &usageError{errors.New("--on-excluded: needs --calendar, whose exclusions it is about")}
	}
	return nil
}

func (f calendarFlags) ofApp(ctx context.Context, flags *apiFlags, spec *schedule.Spec, warnings io.Writer) error {
	api, err := flags.ProvideClient(ctx)
	if err != nil {
		return err
	}
	app, err := api.App(ctx, f.App)
	if err != nil {
		return err
	}
	if err := warnOfZones(ctx, api, warnings); err != nil {
		return err
	}
	if app.Defaults != nil {
		spec.Timezone = cmp.Or(spec.Timezone, app.Defaults.Timezone)
	}
	if f.Calendar == "" {
		return nil
	}
	// A calendar may build on every other one of its app.
	all, err := listBy((*client.Client).Calendars).all(ctx, api, f.App)
	if err != nil {
		return err
	}
	if spec.Calendar, err = dispatcher.CompileCalendars(all).Find(f.Calendar); err != nil {
		return &usageError{fmt.Errorf("--calendar: app %s: %w", f.App, err)}
	}
	return nil
}

// ofFile reads a calendar from a file. Days of an iCalendar file are days in zone.
func (f calendarFlags) ofFile(zone string) (*schedule.Calendar, error) {
	text, err := os.ReadFile(f.Calendar)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(f.Calendar, `./\`) {
		return nil, fmt.Errorf("%w; if it is the name of a calendar, say of which app with --app", err)
	}
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(filepath.Ext(f.Calendar), ".ics") {
		return schedule.NewCalendar(schedule.CalendarSpec{Timezone: zone, Rules: []schedule.CalendarRule{{ICalendar: string(text)}}})
	}
	var declared dispatcher.Calendar
	if err := decodeStrictly(text, &declared); err != nil {
		return nil, fmt.Errorf("%w; give the JSON of a calendar as the API takes it, or a file that ends in .ics", err)
	}
	if len(declared.Bases) > 0 {
		return nil, errors.New("it has bases, which are calendars of an app; name it with --app instead")
	}
	return schedule.NewCalendar(schedule.CalendarSpec{Timezone: declared.Timezone, Rules: declared.Rules})
}
