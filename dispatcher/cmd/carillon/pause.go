package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/view"
)

// pauseCommand adds, lists and removes pauses of apps.
type pauseCommand struct {
	Add    pauseAddCommand    `cmd:"" help:"Pause an app, or its jobs with some labels, also those that come later." example:"carillon pause add billing --label team=payments --reason \"the ledger is being migrated\" --until 2h"`
	List   pauseListCommand   `cmd:"" aliases:"ls" help:"List the pauses of apps and jobs." example:"carillon pause list billing"`
	Remove pauseRemoveCommand `cmd:"" help:"End a pause of an app." example:"carillon pause remove billing 7k3v2q5x7abc"`
}

// pauseFor has the reason and the end of a pause.
type pauseFor struct {
	Reason string `help:"Why; shown with the pause."`
	Until  string `placeholder:"TIME" help:"When the pause ends by itself: a duration from now such as 2h, or an instant in RFC 3339. Default: somebody has to end it."`
}

// until returns the time of --until; nil without it.
func (p pauseFor) until(now time.Time) (*time.Time, error) {
	if p.Until == "" {
		return nil, nil
	}
	if d, err := input.ParseDuration(p.Until); err == nil {
		return new(now.Add(d.Std())), nil
	}
	at, err := input.ParseInstant(p.Until)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--until %s is neither a duration such as 2h nor an instant in RFC 3339 such as "+
			"2026-05-01T06:00:00+02:00", input.Echo(p.Until))}
	}
	return &at, nil
}

type pauseAddCommand struct {
	apiFlags
	outputFlags
	pauseFor
	App   string            `arg:"" help:"Name of the app."`
	Label map[string]string `mapsep:"," placeholder:"NAME=VALUE,..." help:"Only jobs that have all of these labels. Default: every job of the app."`
}

func (p *pauseAddCommand) Validate() error {
	if err := input.Labels(p.Label).Validate(); err != nil {
		return fmt.Errorf("--label: %w", err)
	}
	return nil
}

// Run adds the pause, and prints it.
func (p *pauseAddCommand) Run(ctx context.Context, c console) error {
	until, err := p.until(time.Now())
	if err != nil {
		return err
	}
	api, err := p.ProvideClient(ctx)
	if err != nil {
		return err
	}
	pause, err := api.PauseApp(ctx, p.App, dispatcher.AppPauseRequest{Labels: p.Label, Reason: p.Reason, Until: until})
	if err != nil {
		return err
	}
	if pause.Pending {
		fmt.Fprintln(c.err, "carillon: the node was interrupted: the last jobs follow the pause within 15 s")
	}
	return printSaid(p.outputFlags, c, pause, plain(fmt.Sprintf(
		"%s; their fires are owed until you run carillon pause remove %s %s", pause, pause.App, pause.ID)))
}

type pauseListCommand struct{ appListFlags }

// Run prints the pauses of apps, and of single jobs.
func (l *pauseListCommand) Run(ctx context.Context, c console, api *client.Client) error {
	apps, err := appsOr(ctx, api, l.App)
	if err != nil {
		return err
	}
	var all []view.StandingPause
	for _, app := range apps {
		found, err := api.AppPauses(ctx, app)
		if err != nil {
			return err
		}
		for _, p := range found.Items {
			all = append(all, view.StandingPause{App: p.App, AppPause: p.ID, Labels: p.Labels, Pause: dispatcher.Pause{
				PausedBy: p.PausedBy, PausedAt: &p.PausedAt, PauseReason: p.Reason, PausedUntil: p.Until}})
		}
		jobs, err := summaries(ctx, c, api, dispatcher.JobQuery{Apps: []string{app}})
		if err != nil {
			return err
		}
		for _, job := range jobs {
			if job.Paused {
				all = append(all, view.StandingPause{App: app, Job: job.Name, Pause: job.Pause})
			}
		}
	}
	titles := "APP\tPAUSE\tJOBS\tPAUSED BY\tSINCE\tUNTIL\tREASON"
	return printList(l.outputFlags, c, all, titles, func(p view.StandingPause) []any {
		until := any(map[bool]string{true: "it is removed", false: "it is resumed"}[p.Job == ""])
		if p.PausedUntil != nil {
			until = *p.PausedUntil
		}
		return []any{p.App, cmp.Or(p.AppPause, "-"), cmp.Or(p.Job, p.Labels.String(), "all"), p.PausedBy, p.PausedAt, until, p.PauseReason}
	})
}

type pauseRemoveCommand struct {
	apiFlags
	App   string `arg:"" help:"Name of the app."`
	Pause string `arg:"" help:"Id of the pause, as carillon pause list shows it."`
}

func (r *pauseRemoveCommand) Run(ctx context.Context, c console, api *client.Client) error {
	if err := api.EndAppPause(ctx, r.App, r.Pause); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "pause %s of app %s is over; fires that were missed follow the misfire_policy of their triggers\n",
		plain(r.Pause), plain(r.App))
	return err
}
