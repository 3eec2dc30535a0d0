package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

type explainCommand struct {
	apiFlags
	outputFlags
	Trigger string   `arg:"" name:"app/job/trigger" help:"The trigger, such as billing/invoices/berlin, or a job for all its triggers."`
	Time    []string `arg:"" help:"The scheduled time: in RFC 3339, as a local time of the trigger (06:00, yesterday 06:00, 2026-05-01 06:00), a day (yesterday) for all its fires, or -2h for the first one since then."`
}

// Run prints the chain of decisions. It fails if the ledger should know a scheduled time but does not.
func (e *explainCommand) Run(ctx context.Context, c console) error {
	names, err := cutPath(e.Trigger, "APP/JOB[/TRIGGER]", 2)
	if err != nil {
		return err
	}
	api, err := e.ProvideClient(ctx)
	if err != nil {
		return err
	}
	text := strings.Join(e.Time, " ")
	job, err := findJob(ctx, c, api, names[0], names[1])
	if err != nil {
		return err
	}
	zones, err := job.zonesOf(names, text)
	if err != nil {
		return err
	}
	var all []verify.Explanation
	for _, trigger := range slices.Sorted(maps.Keys(zones)) {
		periods, err := periodsOf(text, time.Now(), zones[trigger])
		if err != nil {
			return &usageError{err}
		}
		for _, asked := range periods {
			found, err := explain(asked, func(at time.Time) (verify.Explanation, error) {
				return api.Explain(ctx, names[0], job.Name, trigger, at)
			})
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
	}
	if err := e.print(c, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(one verify.Explanation) bool { return one.Verdict == verify.VerdictMissing }) {
		return &negativeError{errors.New("the scheduled time has neither a run nor a decision")}
	}
	return nil
}

// formerJob is a job as it is, or as it was when it was deleted.
type formerJob struct {
	Name     string
	Triggers map[string]struct{ Timezone string }
}

// findJob reads a job. If none has the name, it looks in the audit log for the one that had it, and says what became of that.
func findJob(ctx context.Context, c console, api *client.Client, app, name string) (found formerJob, err error) {
	for range 10 { // renames
		job, err := api.Job(ctx, app, name)
		if !errors.Is(err, dispatcher.ErrNotFound) {
			found = formerJob{name, map[string]struct{ Timezone string }{}}
			for trigger, t := range job.Triggers {
				found.Triggers[trigger] = struct{ Timezone string }{t.Timezone}
			}
			return found, err
		}
		log, auditErr := api.Audit(ctx, access.AuditQuery{Apps: []string{app}, Subject: "job " + name, Refused: new(false),
			Page: input.Page{Limit: 1}})
		if auditErr != nil || len(log.Items) == 0 {
			return found, err
		}
		last := log.Items[0]
		from := fmt.Sprintf("carillon: job %s/%s was", plain(app), plain(name))
		by := fmt.Sprintf("by %s at %s\n", plain(last.Actor), input.FormatInstant(last.At))
		if last.Before != nil && strings.HasPrefix(last.Action, "delete") {
			fmt.Fprint(c.err, from, " deleted ", by)
			return found, json.Unmarshal(last.Before, &found)
		}
		if last.After == nil || last.Action != string(dispatcher.CauseRename) || json.Unmarshal(last.After, &found) != nil {
			return found, err
		}
		fmt.Fprint(c.err, from, " renamed to ", plain(found.Name), " ", by)
		name = found.Name
	}
	return found, dispatcher.NotFound("job", app+"/"+name)
}

// zonesOf returns the zones of the named triggers of a job, by name. A trigger that was removed needs a time with a zone.
func (job formerJob) zonesOf(names []string, text string) (map[string]string, error) {
	zones := map[string]string{}
	for name, t := range job.Triggers {
		if names[2] == "" || name == names[2] {
			zones[name] = t.Timezone
		}
	}
	_, err := input.ParseInstant(text)
	switch {
	case len(zones) > 0:
		return zones, nil
	case err == nil && names[2] != "":
		return map[string]string{names[2]: ""}, nil
	}
	return nil, dispatcher.NotFound("trigger", strings.Join(names, "/"))
}

// period is what the time of a command asks for: fires from one time until another, at most some of them. If both are the same,
// what happened at this time is asked for, whether or not a fire was due.
type period struct {
	from, until time.Time
	most        int
}

// periodsOf parses the time of a command by the clock of a zone, as schedules do. All fires of a day are meant, the first one since
// some time ago, or what happened at a time. A local time that daylight saving skips is the end of the gap, when a schedule with
// gap = "next" fires; one that it repeats is two periods, one for each pass.
func periodsOf(text string, now time.Time, zone string) ([]period, error) {
	if at, err := input.ParseInstant(text); err == nil {
		return []period{{at, at, 1}}, nil
	}
	if at, err := moment(text, now); err == nil && text != "" {
		return []period{{at, dispatcher.EndOfTime, 1}}, nil
	}
	zone = cmp.Or(zone, "UTC")
	location, err := locationOf(zone)
	if err != nil {
		return nil, err
	}
	day, clock, allDay, err := localTime(text, now.In(location))
	if err != nil {
		return nil, err
	}
	first, last, err := passesOf(day, clock, zone)
	if err == nil && allDay {
		last, _, err = passesOf(day.AddDate(0, 0, 1), clock, zone)
		return []period{{first, last, 24}}, err
	}
	return slices.Compact([]period{{first, first, 1}, {last, last, 1}}), err
}

// localTime parses a day, a time of a day, or both. They are as if they were UTC. allDay is true without a time.
func localTime(text string, now time.Time) (named, at time.Time, allDay bool, err error) {
	day, clock, _ := strings.Cut(strings.Replace(text, "T", " ", 1), " ")
	if strings.Contains(day, ":") {
		day, clock = "today", day
	}
	year, month, date := now.Date()
	named = time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
	if day == "yesterday" {
		named = named.AddDate(0, 0, -1)
	} else if day != "today" {
		named, err = time.Parse(time.DateOnly, day)
	}
	at, errClock := time.Parse(time.TimeOnly, (clock + ":00:00:00")[:max(len(clock), len(time.TimeOnly))])
	if err != nil || clock != "" && errClock != nil {
		return named, at, false, fmt.Errorf("time %s is unknown; write it as 2026-05-01T06:00:00Z, 06:00, yesterday 06:00, 2026-05-01 or -2h",
			input.Echo(text))
	}
	return named, at, clock == "", nil
}

// passesOf returns when the clock of a zone first and last shows a time of a day, or when the gap ends if it skips this time.
func passesOf(day, clock time.Time, zone string) (first, last time.Time, err error) {
	of := func(overlap schedule.Overlap) (time.Time, error) {
		once, err := schedule.Parse(schedule.Spec{Expression: day.Format("2006-01-02T") + clock.Format("15:04:05.999"),
			Dialect: schedule.DialectAt, Timezone: zone, Overlap: overlap})
		if err != nil {
			return time.Time{}, err
		}
		at, _ := once.Next(time.Time{})
		return at, nil
	}
	if first, err = of(schedule.OverlapFirst); err == nil {
		last, err = of(schedule.OverlapLast)
	}
	return first, last, err
}

// explain explains the fires in a period, or its beginning if it has none.
func explain(asked period, find func(time.Time) (verify.Explanation, error)) (all []verify.Explanation, err error) {
	for from := asked.from; ; {
		found, err := find(from)
		if err != nil {
			return nil, err
		}
		more := found.NextAt != nil && found.NextAt.Before(asked.until)
		if found.Verdict != verify.VerdictNone || !more && len(all) == 0 {
			all = append(all, found)
		}
		if !more || len(all) == asked.most {
			return all, nil
		}
		from = *found.NextAt
	}
}

func (e *explainCommand) print(c console, all []verify.Explanation) error {
	if e.Output != outputTable && len(all) == 1 {
		return printObject(e.outputFlags, c, all[0], nil)
	} else if e.Output != outputTable {
		return printList(e.outputFlags, c, all, "", nil)
	}
	for i, found := range all {
		fmt.Fprintf(c.out, "%s%s/%s/%s at %s\n%s: %s\n", strings.Repeat("\n", min(i, 1)), plain(found.App), plain(found.Job),
			plain(found.Trigger), input.FormatInstant(found.At), found.Verdict, plain(found.Reason))
		for _, step := range found.Steps {
			fmt.Fprintf(c.out, "  %s  %s\n", input.FormatInstant(step.At), plain(step.What))
		}
		if found.NextAt != nil {
			fmt.Fprintf(c.out, "next fire: %s\n", input.FormatInstant(*found.NextAt))
		}
	}
	return nil
}

// verifyCommand compares the ledger with the schedules.
type verifyCommand struct {
	apiFlags
	outputFlags
	App string `arg:"" help:"Name of the app."`
	periodFlags
}

// verifyPage is the number of jobs per request.
const verifyPage = 200

// Run prints one line per trigger, and fails if schedule and ledger disagree at a scheduled time,
// or if ended runs still hold resources.
func (v *verifyCommand) Run(ctx context.Context, c console) error {
	from, to, err := v.period(time.Now())
	if err != nil {
		return err
	}
	query := verify.Query{App: v.App, From: from, To: to, Page: input.Page{Limit: verifyPage}}
	api, err := v.ProvideClient(ctx)
	if err != nil {
		return err
	}
	totals, seen := map[string]*verify.Trigger{}, newProgress(c, "triggers compared")
	var leaks []dispatcher.Leak
	for {
		page, err := api.Verify(ctx, query)
		if err != nil {
			return err
		}
		for _, part := range page.Items {
			if sum, known := totals[part.Job+"/"+part.Trigger]; known { // on an earlier page
				sum.Extend(part)
			} else {
				totals[part.Job+"/"+part.Trigger] = &part
			}
		}
		leaks = append(leaks, page.Leaks...)
		seen.say(len(totals))
		if query.Page.Cursor = page.Next; page.Next == "" {
			return errors.Join(v.print(c, totals), v.printLeaks(c, leaks))
		}
	}
}

func (v *verifyCommand) print(c console, totals map[string]*verify.Trigger) error {
	all := make([]verify.Trigger, 0, len(totals))
	unexplained := 0
	for _, one := range totals {
		all = append(all, *one)
		unexplained += one.Unexplained
	}
	slices.SortFunc(all, func(a, b verify.Trigger) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Trigger, b.Trigger))
	})
	const columns = "TRIGGER\tSCHEDULED\tRUNS\tMISFIRED\tOPEN\tUNEXPLAINED\tBACKFILLED\tNOTE"
	err := printList(v.outputFlags, c, all, columns, func(one verify.Trigger) []any {
		return []any{one.Job + "/" + one.Trigger, one.Scheduled, one.Runs, one.Misfired, one.Open, one.Unexplained, one.Backfilled,
			one.Unchecked}
	})
	if err != nil {
		return err
	}
	for _, one := range all {
		for _, d := range one.Discrepancies {
			if v.Output == outputTable {
				fmt.Fprintf(c.out, "%s  %s  %s\n", d.Kind, input.FormatInstant(d.At), plain(v.App+"/"+one.Job+"/"+one.Trigger))
			}
		}
	}
	if unexplained > 0 {
		return &negativeError{fmt.Errorf("discrepancies between schedules and ledger: %d; "+
			"carillon explain %s/JOB/TRIGGER INSTANT says more about each", unexplained, v.App)}
	}
	return nil
}

// printLeaks prints the resources that ended runs still hold.
func (v *verifyCommand) printLeaks(c console, leaks []dispatcher.Leak) error {
	if len(leaks) == 0 {
		return nil
	}
	for _, leak := range leaks {
		if v.Output != outputTable {
			break
		}
		line := string(leak.Kind) + "  " + v.App + "/" + leak.Job
		for _, more := range []string{leak.Run, leak.Of} {
			if more != "" {
				line += "  " + more
			}
		}
		if leak.Node != nil {
			line += "  on node " + leak.Node.String()
		}
		if leak.Since != nil {
			line += "  since " + input.FormatInstant(*leak.Since)
		}
		fmt.Fprintln(c.out, plain(line))
	}
	return &negativeError{fmt.Errorf("held for runs that have ended: %d, the first a %s of job %s/%s", len(leaks), leaks[0].Kind, v.App,
		leaks[0].Job)}
}

type misfireCommand struct {
	List misfireListCommand `cmd:"" aliases:"ls" help:"List missed fires and what was decided about them, the latest first." example:"carillon misfire list billing --since 24h"`
}

type misfireListCommand struct {
	apiFlags
	outputFlags
	ledgerFlags
}

func (m *misfireListCommand) Run(ctx context.Context, c console) error {
	query, err := m.query(time.Now())
	if err != nil {
		return err
	}
	api, err := m.ProvideClient(ctx)
	if err != nil {
		return err
	}
	misfires := newest[dispatcher.Misfire]{"misfires", m.Limit, func(one dispatcher.Misfire) time.Time { return one.DecidedAt },
		func(app string, page input.Page) (client.List[dispatcher.Misfire], error) {
			query.App, query.Page = app, page
			return api.Misfires(ctx, query)
		}}
	all, err := misfires.ofApps(ctx, c, api, query.App)
	if err != nil {
		return err
	}
	return printList(m.outputFlags, c, all, "TRIGGER\tMISSED\tFROM\tTO\tDECISION\tDECIDED AT\tRUN\tREASON", func(m dispatcher.Misfire) []any {
		return []any{fmt.Sprintf("%s/%s/%s", m.App, m.Job, m.Trigger), m.Count, m.From, m.To, m.Decision,
			m.DecidedAt, m.Run, m.Reason}
	})
}
