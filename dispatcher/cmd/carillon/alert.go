package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alertCommand shows alerts, and acknowledges, mutes and tests them.
type alertCommand struct {
	List          alertListCommand          `cmd:"" aliases:"ls" help:"List the alerts of an app." example:"carillon alert list billing"`
	Show          alertShowCommand          `cmd:"" aliases:"describe" help:"Show an alert as it is declared, and whether it is muted." example:"carillon alert show billing/on-call"`
	Firing        alertFiringCommand        `cmd:"" help:"List what holds now: the conditions of jobs that alerts tell of." example:"carillon alert firing billing/invoices"`
	Events        alertEventsCommand        `cmd:"" help:"List transitions of alerts, the latest first." example:"carillon alert events billing --since 24h"`
	Acknowledge   alertAcknowledgeCommand   `cmd:"" help:"Say that you know: nobody is told again until it ends." example:"carillon alert acknowledge billing/on-call invoices --reason 'the bank is down'"`
	Unacknowledge alertUnacknowledgeCommand `cmd:"" help:"Take an acknowledgement back." example:"carillon alert unacknowledge billing/on-call invoices"`
	Mute          alertMuteCommand          `cmd:"" help:"Notify nobody for a time; transitions are recorded." example:"carillon alert mute billing/on-call --until 8h --reason migration"`
	Unmute        alertUnmuteCommand        `cmd:"" help:"Lift a mute." example:"carillon alert unmute billing/on-call"`
	Test          alertTestCommand          `cmd:"" help:"Send a test notification." example:"carillon alert test billing/on-call --wait"`
	Delete        deleteCommand             `cmd:"" hidden:""`
}

type alertListCommand struct{ appListFlags }

func (l *alertListCommand) Run(ctx context.Context, c console) error {
	titles := "ALERT\tJOBS\tWATCHES\tNOTIFIES\tFIRING\tMUTED UNTIL\tREVISION"
	return listBy((*client.Client).Alerts).show(ctx, c, l.appListFlags, titles, func(a alert.Alert) []any {
		return []any{a.App + "/" + a.Name, selectionOf(a), strings.Join(watchedBy(a), ", "), a.Destination.Name(), a.Firing, mutedUntil(a.Muted),
			a.Revision}
	})
}

func selectionOf(a alert.Alert) string {
	if a.IsDefault() {
		return "all others"
	}
	words := append([]string{}, a.Jobs...)
	if len(a.Labels) > 0 {
		words = append(words, "those with "+strings.Join(a.Labels.Pairs(), " and "))
	}
	return strings.Join(words, ", ")
}

func watchedBy(a alert.Alert) []string {
	var all []string
	if f := a.Failure; f != nil {
		text := "failure"
		if f.After > 1 {
			text = input.Count(f.After, "failure")
		}
		if f.RepeatEvery > 0 {
			text += fmt.Sprintf(", then every %d", f.RepeatEvery)
		}
		all = append(all, text)
	}
	if a.Missed {
		all = append(all, "missed")
	}
	for _, bound := range []struct {
		name string
		of   input.Duration
	}{{"late", a.LateAfter}, {"overrun", a.OverrunAfter}, {"no success", a.NoSuccessFor}} {
		if bound.of > 0 {
			all = append(all, bound.name+" "+bound.of.String())
		}
	}
	if a.Objective {
		all = append(all, "objective")
	}
	if a.Blocked {
		all = append(all, "blocked")
	}
	return all
}

// mutedUntil describes the end of a mute, or is empty without one.
func mutedUntil(m *alert.Mute) any {
	switch {
	case m == nil:
		return ""
	case m.Until == nil:
		return "unmuted"
	}
	return m.Until
}

type alertFlags struct {
	apiFlags
	outputFlags
	Alert string `arg:"" name:"app/alert" help:"The alert, such as billing/on-call."`
}

// open returns a client, and the names of app and alert.
func (a *alertFlags) open(ctx context.Context) (api *client.Client, app, alert string, err error) {
	return a.named(ctx, a.Alert, "APP/ALERT")
}

// print prints an alert as JSON, or the text said for people.
func (a *alertFlags) print(c console, alert alert.Alert, said string) error {
	return printSaid(a.outputFlags, c, alert, plain(a.Alert)+" "+said)
}

type alertShowCommand struct{ alertFlags }

func (s *alertShowCommand) Run(ctx context.Context, c console) error {
	return printNamed(ctx, c, s, (*client.Client).Alert, func(l *lines, a alert.Alert) {
		l.add("alert", a.App+"/"+a.Name)
		l.add("description", a.Description)
		l.add("jobs", selectionOf(a))
		l.add("watches", strings.Join(watchedBy(a), "; "))
		l.add("recovery", map[bool]string{true: "is told", false: "is not told"}[a.Recovery])
		l.add("notifies", a.Destination.Name())
		for _, m := range a.Mutes {
			l.add("mute", windowOf(m))
		}
		if m := a.Muted; m != nil {
			l.add("muted until", mutedUntil(m))
			l.add("muted by", m.By)
			l.add("reason", m.Reason)
		}
		l.add("firing", a.Firing)
		l.add("revision", fmt.Sprintf("%d of %s", a.Revision, input.FormatInstant(a.UpdatedAt)))
		for _, warning := range a.Warnings {
			l.add("warning", strings.TrimSpace(warning.Path+" "+warning.Message))
		}
	})
}

func windowOf(m alert.MuteWindow) string {
	if m.From != nil && m.To != nil {
		return input.FormatInstant(*m.From) + " to " + input.FormatInstant(*m.To)
	}
	text := fmt.Sprintf("%s for %s", m.Schedule, m.Duration)
	if m.Timezone != "" {
		text += " in " + m.Timezone
	}
	return text
}

type alertStateFlags struct {
	apiFlags
	outputFlags
	ofJobFlags
	Alert string `placeholder:"ALERT" help:"Only of this alert."`
}

// alertFiringCommand lists active conditions.
type alertFiringCommand struct{ alertStateFlags }

func (f *alertFiringCommand) Run(ctx context.Context, c console) error {
	app, job, err := f.names()
	if err != nil {
		return err
	}
	states := listOf[alert.State](func(api *client.Client, ctx context.Context, app string, page input.Page) (
		client.List[alert.State], error) {
		return api.AlertStates(ctx, alert.StateQuery{App: app, Alert: f.Alert, Job: job, Firing: true, Page: page})
	})
	return states.show(ctx, c, appListFlags{f.apiFlags, f.outputFlags, app}, stateTitles, stateRow)
}

const stateTitles = "ALERT\tJOB\tCONDITION\tSINCE\tCOUNT\tNOTIFICATION\tACKNOWLEDGED BY\tRUN\tERROR"

func stateRow(s alert.State) []any {
	by := "-"
	if s.Acknowledged != nil {
		by = s.Acknowledged.By
	}
	return []any{s.App + "/" + s.Alert, s.Job, s.Condition, s.Since, s.Count, notificationOf(s), by, s.Run, s.Error}
}

// notificationOf describes the outcome of the latest notification of a state.
func notificationOf(s alert.State) string {
	switch n := s.Notification; {
	case s.MutedUntil != nil:
		return "muted"
	case n == nil:
		return "-"
	case n.State == "":
		return "sent"
	default:
		return string(n.State)
	}
}

type alertEventsCommand struct {
	alertStateFlags
	periodFlags
	Limit int `default:"100" help:"How many of the latest to show, 0 to 100000. 0: all."`
}

func (e *alertEventsCommand) Run(ctx context.Context, c console) error {
	from, to, err := e.period(time.Now())
	if err != nil {
		return err
	}
	app, job, err := e.names()
	if err != nil {
		return err
	}
	api, err := e.ProvideClient(ctx)
	if err != nil {
		return err
	}
	events := newest[alert.Event]{"events", e.Limit, func(one alert.Event) time.Time { return one.At },
		func(app string, page input.Page) (client.List[alert.Event], error) {
			return api.AlertEvents(ctx, alert.EventQuery{App: app, Alert: e.Alert, Job: job, From: from, To: to, Page: page})
		}}
	all, err := events.ofApps(ctx, c, api, app)
	if err != nil {
		return err
	}
	titles := "AT\tALERT\tJOB\tCONDITION\tTRANSITION\tCOUNT\tNOTIFIED\tBY\tRUN\tERROR"
	return printList(e.outputFlags, c, all, titles, func(one alert.Event) []any {
		notified := "yes"
		switch {
		case one.Kept != "":
			notified = "no, " + strings.ReplaceAll(string(one.Kept), "_", " ")
		case !one.Notified:
			notified = "no, " + string(cmp.Or(one.Notification.State, "unknown"))
		}
		return []any{one.At, one.Alert, one.Job, one.Condition, one.Transition, one.Count, notified, one.By, one.Run, one.Error}
	})
}

// untilFlags set the end of a mute or an acknowledgement.
type untilFlags struct {
	Until  string `placeholder:"TIME" help:"When it ends: a duration from now such as 8h, or an instant in RFC 3339. Default: it does not end by itself."`
	Reason string `help:"Why; people see it."`
}

// end parses --until; nil if it is not given.
func (u untilFlags) end(now time.Time) (*time.Time, error) {
	if u.Until == "" {
		return nil, nil
	}
	if at, err := input.ParseInstant(u.Until); err == nil {
		return &at, nil
	}
	var left input.Duration
	if err := left.UnmarshalText([]byte(u.Until)); err != nil || left <= 0 {
		return nil, &usageError{fmt.Errorf("--until: %s is neither a duration such as 8h nor an instant such as 2026-05-01T06:00:00+02:00",
			input.Echo(u.Until))}
	}
	at := now.Add(left.Std()).UTC().Truncate(time.Millisecond)
	return &at, nil
}

// conditionFlags name a condition of an alert for a job.
type conditionFlags struct {
	alertFlags
	Job       string `arg:"" help:"Name of the job."`
	Condition string `placeholder:"CONDITION" help:"Only this one: failure, missed, late, overrun, no_success, objective, blocked. Default: all that hold for the job."`
}

// alertAcknowledgeCommand acknowledges active conditions of a job.
type alertAcknowledgeCommand struct {
	conditionFlags
	untilFlags
}

// Run acknowledges them, and prints them.
func (a *alertAcknowledgeCommand) Run(ctx context.Context, c console) error {
	until, err := a.end(time.Now())
	if err != nil {
		return err
	}
	api, app, one, err := a.open(ctx)
	if err != nil {
		return err
	}
	states, err := api.AcknowledgeAlert(ctx, app, one, alert.Acknowledgement{
		Job: a.Job, Condition: target.AlertCondition(a.Condition), Until: until, Reason: a.Reason,
	})
	if err != nil {
		return err
	}
	return printList(a.outputFlags, c, states, stateTitles, stateRow)
}

type alertUnacknowledgeCommand struct{ conditionFlags }

// Run withdraws them, and prints their conditions.
func (a *alertUnacknowledgeCommand) Run(ctx context.Context, c console) error {
	api, app, alert, err := a.open(ctx)
	if err != nil {
		return err
	}
	states, err := api.WithdrawAcknowledgement(ctx, app, alert, a.Job, target.AlertCondition(a.Condition))
	if err != nil {
		return err
	}
	return printList(a.outputFlags, c, states, stateTitles, stateRow)
}

type alertMuteCommand struct {
	alertFlags
	untilFlags
}

func (m *alertMuteCommand) Run(ctx context.Context, c console) error {
	until, err := m.end(time.Now())
	if err != nil {
		return err
	}
	api, app, name, err := m.open(ctx)
	if err != nil {
		return err
	}
	alert, err := api.MuteAlert(ctx, app, name, alert.Mute{Until: until, Reason: m.Reason})
	if err != nil {
		return err
	}
	said := "is muted until you unmute it"
	if until != nil {
		said = "is muted until " + input.FormatInstant(*until)
	}
	return m.print(c, alert, said)
}

type alertUnmuteCommand struct{ alertFlags }

func (u *alertUnmuteCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := u.open(ctx)
	if err != nil {
		return err
	}
	before, err := api.Alert(ctx, app, name)
	if err != nil {
		return err
	}
	alert, err := api.UnmuteAlert(ctx, app, name)
	if err != nil {
		return err
	}
	if before.Muted == nil {
		return u.print(c, alert, "had no mute to lift; windows of mute that it declares stay")
	}
	return u.print(c, alert, "notifies again, also of what began meanwhile and still holds")
}

type alertTestCommand struct {
	alertFlags
	waitFlags
}

// Run queues a test notification, and waits for its delivery if asked to.
func (t *alertTestCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := t.open(ctx)
	if err != nil {
		return err
	}
	run, err := api.TestAlert(ctx, app, name)
	if err != nil {
		return err
	}
	return t.finish(ctx, c, api, t.outputFlags, run)
}
