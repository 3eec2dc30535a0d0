package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// runCommand shows a run, directly from the database.
type runCommand struct {
	Show runShowCommand `cmd:"" help:"Show a run with its attempts, the time of each phase, and the responses."`
}

// runShowCommand shows a run.
type runShowCommand struct {
	databaseFlag
	ID   string `arg:"" help:"Id of the run."`
	Body bool   `help:"Print the stored response bodies in full, not only their first lines."`
}

// Run prints the run, with a paragraph for each attempt.
func (r *runShowCommand) Run(ctx context.Context, c console) error {
	s, err := r.open(ctx, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	run, err := s.Run(ctx, r.ID)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, value)
		}
	}
	line("run", run.ID)
	line("job", run.App+"/"+run.Job)
	line("trigger", run.Trigger)
	line("kind", string(run.Kind))
	line("scheduled at", dispatcher.FormatInstant(run.ScheduledAt))
	line("state", string(run.State))
	line("event id", run.EventID)
	if run.NextAttemptAt != nil {
		line("next attempt at", dispatcher.FormatInstant(*run.NextAttemptAt))
	}
	line("held", plain(run.Held))
	if run.Held == "" && run.WaitsFor != "" {
		line("waits", strings.TrimPrefix(run.Waiting(), "waits "))
	}
	if run.State == dispatcher.RunRetrying {
		line("because", run.Error)
	}
	for _, a := range run.Attempts {
		fmt.Fprintln(table)
		line(fmt.Sprint("attempt ", a.Attempt), string(a.State))
		line("  node", a.Node.String())
		line("  started at", dispatcher.FormatInstant(a.StartedAt))
		line("  took", a.EndedAt.Sub(a.StartedAt).String())
		if a.HTTPStatus != 0 {
			line("  status", fmt.Sprint(a.HTTPStatus))
		}
		line("  class", string(a.Class))
		line("  error", plain(a.Error))
		if a.Late != nil {
			line("  late result", fmt.Sprintf("%s, %s", a.Late.State, plain(a.Late.Error)))
		}
		if a.Response != nil {
			showResponse(line, *a.Response, r.Body)
		}
	}
	return table.Flush()
}

// showResponse prints a stored response, with the first lines of its body or all of it.
func showResponse(line func(name, value string), a dispatcher.Response, body bool) {
	line("  phases", phases(a.Phases))
	line("  omitted", a.Omitted)
	line("  request id", plain(a.RequestID))
	line("  version", plain(a.ExecutedVersion))
	line("  function error", plain(a.FunctionError))
	for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
		line("  "+plain(name), plain(a.Headers[name]))
	}
	const most = 5
	text := strings.Split(strings.TrimRight(a.Body, "\r\n"), "\n")
	more := a.BodyTruncated
	if !body && len(text) > most {
		text, more = text[:most], true
	}
	for _, one := range text {
		line("  body", plain(one))
	}
	if more {
		line("  body", "…")
	}
	if a.LogTail != "" {
		for one := range strings.SplitSeq(strings.TrimRight(a.LogTail, "\r\n"), "\n") {
			line("  log", plain(one))
		}
	}
}

// phases formats the phases that took any time.
func phases(p dispatcher.Phases) string {
	var parts []string
	for _, one := range []struct {
		name string
		took dispatcher.Duration
	}{{"dns", p.DNS}, {"connect", p.Connect}, {"tls", p.TLS}, {"first byte", p.FirstByte}, {"last byte", p.LastByte}} {
		if one.took != 0 {
			parts = append(parts, one.name+" "+one.took.Std().Round(10*time.Microsecond).String())
		}
	}
	return strings.Join(parts, ", ")
}

// plain makes foreign text safe for a terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, text)
}

// slotCommand shows the slots of jobs, directly from the database.
type slotCommand struct {
	List slotListCommand `cmd:"" help:"List the runs that hold a slot of a job, with their nodes."`
}

// slotListCommand lists the slots of one job.
type slotListCommand struct {
	databaseFlag
	App string `arg:"" help:"Name of the app."`
	Job string `arg:"" help:"Name of the job."`
}

// Run prints one line a slot.
func (l *slotListCommand) Run(ctx context.Context, c console) error {
	return l.in(ctx, func(s dispatcher.Store) error {
		slots, err := s.Slots(ctx, l.App, l.Job)
		if err != nil {
			return err
		}
		table := newTable(c, "RUN\tNODE\tSINCE")
		for _, slot := range slots {
			node := "-" // between two attempts
			if slot.Node != nil {
				node = slot.Node.String()
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", slot.Run, node, slot.Since.Format(time.RFC3339))
		}
		return table.Flush()
	})
}
