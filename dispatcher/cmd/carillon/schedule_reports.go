package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// dstReportCommand lists the effects of daylight saving on triggers in a year, or in the next 12 months.
type dstReportCommand struct {
	Year int `placeholder:"YEAR" help:"Year to examine, 1970 to 2099. Default: the next 12 months."`
	examinedFlags
}

// examinedFlags name the triggers to examine.
type examinedFlags struct {
	Database string `env:"CARILLON_DATABASE,DATABASE_URL" placeholder:"URL" help:"Database whose triggers are examined."`
	node.LoginFlags
	File string `placeholder:"FILE" help:"File with triggers to examine instead: lines of name, dialect, expression and zone, then key=value columns as in next --batch, separated by tabs."`
}

// namedSpec is a trigger to examine.
type namedSpec struct {
	name string
	spec schedule.Spec
}

// Run prints one line for each transition that affects a trigger.
func (d *dstReportCommand) Run(ctx context.Context, c console) error {
	if d.Year != 0 && (d.Year < 1970 || d.Year > 2099) {
		return &usageError{fmt.Errorf("--year: %d is not between 1970 and 2099", d.Year)}
	}
	triggers, err := d.triggers(ctx)
	if err != nil {
		return err
	}
	from, year := time.Now(), ""
	until := from.AddDate(1, 0, 0)
	if d.Year != 0 { // a transition belongs to its local year, which may begin a day before or after UTC's
		from, year = time.Date(d.Year, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -1), fmt.Sprint(d.Year)
		until = from.AddDate(1, 0, 2)
	}
	table := newTable("TRIGGER\tEXPRESSION\tZONE\tLOCAL TIME\tEFFECT\tTRANSITION")
	problems := 0
	for _, t := range triggers {
		parsed, err := schedule.Parse(t.spec)
		if err != nil {
			problems++
			fmt.Fprintf(c.err, "carillon: %s: %v\n", t.name, err)
			continue
		}
		for _, shift := range parsed.Shifts(from, until) {
			if strings.HasPrefix(shift.Local, year) {
				table.add(t.name, t.spec.Expression, parsed.Spec().Timezone, shift.Local, shift.Effect, shift.At)
			}
		}
	}
	if err := table.show(c); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("%d of %d triggers could not be examined", problems, len(triggers))
	}
	return nil
}

// triggers reads the triggers of the file, or of the database.
func (d *examinedFlags) triggers(ctx context.Context) (found []namedSpec, err error) {
	if d.File != "" {
		file, err := os.Open(d.File)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--file: %w", err)}
		}
		defer file.Close()
		var found []namedSpec
		lines := bufio.NewScanner(file)
		for n := 1; lines.Scan(); n++ {
			columns := strings.Split(lines.Text(), "\t")
			if lines.Text() == "" || strings.HasPrefix(lines.Text(), "#") {
				continue
			}
			if len(columns) < 4 {
				return nil, &usageError{fmt.Errorf(
					"--file %s, line %d: columns: %d; write name, dialect, expression and zone, separated by tabs", d.File, n, len(columns))}
			}
			// The columns of a batch query; time and count have no effect.
			spec, _, _, err := parseQuery(slices.Concat(columns[1:4], []string{"2000-01-01T00:00:00Z", "1"}, columns[4:]))
			if err != nil {
				return nil, &usageError{fmt.Errorf("--file %s, line %d: %w", d.File, n, err)}
			}
			found = append(found, namedSpec{columns[0], spec})
		}
		return found, lines.Err()
	}
	database := node.DatabaseFlag{Database: d.Database, LoginFlags: d.LoginFlags}
	if err := database.Check(); err != nil {
		return nil, &usageError{errors.Join(err, errors.New("set --database or --file"))}
	}
	err = database.In(ctx, func(s *store.Store) error {
		found, err = triggersOfStore(ctx, s)
		return err
	})
	return found, err
}

func triggersOfStore(ctx context.Context, s *store.Store) ([]namedSpec, error) {
	var found []namedSpec
	readApps := func(page input.Page) ([]access.App, error) { return s.Apps(ctx, page) }
	apps, err := everyPage(readApps, func(a access.App) string { return a.Name })
	if err != nil {
		return nil, err
	}
	for _, app := range apps {
		readJobs := func(page input.Page) ([]dispatcher.Job, error) { return s.Jobs(ctx, app.Name, page) }
		jobs, err := everyPage(readJobs, func(j dispatcher.Job) string { return j.Name })
		if err != nil {
			return nil, err
		}
		_, all, err := s.AppCalendars(ctx, app.Name)
		if err != nil {
			return nil, err
		}
		if found, err = addTriggers(found, jobs, all); err != nil {
			return nil, err
		}
	}
	return sortedByName(found), nil
}

func addTriggers(found []namedSpec, jobs []dispatcher.Job, all []dispatcher.Calendar) (_ []namedSpec, err error) {
	calendars := dispatcher.CompileCalendars(all)
	for _, job := range jobs {
		for name, trigger := range job.Triggers {
			shown := dispatcher.Identity(job.App, job.Name, name)
			spec := trigger.Spec(job.Identity(name), trigger.AnchorAt)
			// Without its calendar, the report would show fires that do not happen.
			if trigger.Calendar != "" {
				if spec.Calendar, err = calendars.Find(trigger.Calendar); err != nil {
					return nil, fmt.Errorf("trigger %s: %w", shown, err)
				}
			}
			found = append(found, namedSpec{shown, spec})
		}
	}
	return found, nil
}

func sortedByName(found []namedSpec) []namedSpec {
	slices.SortFunc(found, func(a, b namedSpec) int { return strings.Compare(a.name, b.name) })
	return found
}

// everyPage reads all pages of a list.
func everyPage[T any](read func(input.Page) ([]T, error), key func(T) string) ([]T, error) {
	var all []T
	page := input.Page{Limit: 1000}
	for {
		items, err := read(page)
		all = append(all, items...)
		if err != nil || len(items) < page.Limit {
			return all, err
		}
		page.Cursor = key(items[len(items)-1])
	}
}

// zonesReportCommand lists the triggers that other time zone data would move, before nodes use the data.
type zonesReportCommand struct {
	To string `required:"" placeholder:"DIR|FILE" help:"The other time zone data: a zoneinfo directory or an archive, as for --zoneinfo."`
	examinedFlags
}

// mostCompared bounds the compared fires of a trigger. A trigger every half hour has fewer in a year.
const mostCompared = 20_000

// yearOfFires are the fires of a trigger in the next 12 months with some time zone data, at most mostCompared.
type yearOfFires struct {
	namedSpec
	at  []time.Time
	err error
}

// Run prints one line for each trigger that moves, with its first differing fire in both data.
func (z *zonesReportCommand) Run(ctx context.Context, c console) error {
	other, err := readZones(z.To)
	if err != nil {
		return &usageError{fmt.Errorf("--to: %s: %w", z.To, err)}
	}
	return reportMoves(ctx, c, other, z.triggers)
}

// reportMoves prints the triggers that other data move. read uses the data in use, because calendars have zones, too.
func reportMoves(ctx context.Context, c console, other *schedule.Zones, read func(context.Context) ([]namedSpec, error)) error {
	now, from := time.Now(), schedule.CurrentZones().Release()
	before, err := firesOf(ctx, read, now)
	if err != nil {
		return err
	}
	schedule.UseZones(other)
	after, err := firesOf(ctx, read, now)
	if err != nil {
		return err
	}
	then := map[string]yearOfFires{}
	for _, t := range after {
		then[t.name] = t
	}
	table, problems := newTable("TRIGGER\tEXPRESSION\tZONE\tWITH "+from+"\tWITH "+other.Release()), 0
	for _, t := range before {
		later, still := then[t.name]
		if err := errors.Join(t.err, later.err); err != nil {
			problems++
			fmt.Fprintf(c.err, "carillon: %s: %v\n", t.name, err)
			continue
		}
		if was, is, differ := firstDifference(t.at, later.at); differ && still {
			table.add(t.name, t.spec.Expression, t.spec.Timezone, was, is)
		}
	}
	if err := table.show(c); err != nil {
		return err
	}
	if problems > 0 {
		return fmt.Errorf("%d of %d triggers could not be examined", problems, len(before))
	}
	return nil
}

// firesOf computes the fires of all triggers with the data in use.
func firesOf(ctx context.Context, read func(context.Context) ([]namedSpec, error), now time.Time) ([]yearOfFires, error) {
	triggers, err := read(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]yearOfFires, 0, len(triggers))
	until := now.AddDate(1, 0, 0)
	for _, t := range triggers {
		found := yearOfFires{namedSpec: t}
		var parsed *schedule.Schedule
		if parsed, found.err = schedule.Parse(t.spec); found.err == nil {
			at, fires := parsed.Next(now)
			for ; fires && at.Before(until) && len(found.at) < mostCompared; at, fires = parsed.Next(at) {
				found.at = append(found.at, at)
			}
		}
		all = append(all, found)
	}
	return all, nil
}

// firstDifference returns the first fires in which two lists differ; "none" stands for the end of a list.
func firstDifference(before, after []time.Time) (was, is string, differ bool) {
	at := func(list []time.Time, i int) string {
		if i >= len(list) {
			return "none"
		}
		return input.FormatInstant(list[i])
	}
	for i := range max(len(before), len(after)) {
		if was, is = at(before, i), at(after, i); was != is {
			return was, is, true
		}
	}
	return "", "", false
}
