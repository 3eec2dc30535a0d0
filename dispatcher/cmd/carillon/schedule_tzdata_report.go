package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// zonesReportCommand lists the triggers that other time zone data would move, before nodes use them.
type zonesReportCommand struct {
	To string `required:"" placeholder:"DIR|FILE" help:"The other time zone data: a zoneinfo directory or an archive, as for --zoneinfo."`
	examinedFlags
}

// mostCompared bounds the fires of a trigger that are compared. A trigger of every half hour has as many in a year.
const mostCompared = 20_000

// yearOfFires are the fires of a trigger in the next 12 months by some time zone data, mostCompared at most.
type yearOfFires struct {
	namedSpec
	at  []time.Time
	err error
}

// Run prints one line for each trigger that moves, with its first fire that differs by both data.
func (z *zonesReportCommand) Run(ctx context.Context, c console) error {
	other, err := readZones(z.To)
	if err != nil {
		return &usageError{fmt.Errorf("--to: %s: %w", z.To, err)}
	}
	return reportMoves(ctx, c, other, z.triggers)
}

// reportMoves prints the triggers that other data move. read reads them by the data in use, because calendars have zones, too.
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

// firstDifference returns the first fires in which two lists differ; "none" is that a list has ended.
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
