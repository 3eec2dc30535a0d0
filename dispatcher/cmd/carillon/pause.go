package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// pauseCommand adds, lists and removes pauses of apps.
type pauseCommand struct {
	Add    pauseAddCommand    `cmd:"" help:"Pause an app, or its jobs with some labels, also those that come later." example:"carillon pause add billing --label team=payments --reason \"the ledger is being migrated\" --until 2h"`
	List   pauseListCommand   `cmd:"" help:"List the pauses of apps." example:"carillon pause list billing"`
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
	api, err := p.client(ctx)
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
	if p.Output != outputTable {
		return printObject(p.outputFlags, c, pause, nil)
	}
	_, err = fmt.Fprintf(c.out, "%s; their fires are owed until you run carillon pause remove %s %s\n", plain(pause.String()),
		plain(pause.App), plain(pause.ID))
	return err
}

type pauseListCommand struct{ appListFlags }

func (l *pauseListCommand) Run(ctx context.Context, c console) error {
	pauses := listOf[dispatcher.AppPause](func(api *client.Client, ctx context.Context, app string, _ input.Page) (
		client.List[dispatcher.AppPause], error) {
		return api.AppPauses(ctx, app)
	})
	return pauses.show(ctx, c, l.appListFlags, "APP\tPAUSE\tJOBS\tPAUSED BY\tSINCE\tUNTIL\tREASON", func(p dispatcher.AppPause) []any {
		until := any("it is removed")
		if p.Until != nil {
			until = *p.Until
		}
		return []any{p.App, p.ID, cmp.Or(p.Labels.String(), "all"), p.PausedBy, p.PausedAt, until, p.Reason}
	})
}

type pauseRemoveCommand struct {
	apiFlags
	App   string `arg:"" help:"Name of the app."`
	Pause string `arg:"" help:"Id of the pause, as carillon pause list shows it."`
}

func (r *pauseRemoveCommand) Run(ctx context.Context, c console) error {
	api, err := r.client(ctx)
	if err != nil {
		return err
	}
	if err := api.EndAppPause(ctx, r.App, r.Pause); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "pause %s of app %s is over; fires that were missed follow the misfire_policy of their triggers\n",
		plain(r.Pause), plain(r.App))
	return err
}
