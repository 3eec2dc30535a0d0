package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// zonesFlag names time zone data in addition to the built-in ones.
type zonesFlag struct {
	Zoneinfo []string `name:"zoneinfo" env:"CARILLON_ZONEINFO" placeholder:"DIR|FILE" help:"Time zone data that are used if they are newer than the program's: a zoneinfo directory, such as /usr/share/zoneinfo, or an archive made by make zones. They are read once, at the start."`
}

// use makes the process use the newest available data. Equal releases give equal times, so a copy
// of the built-in release is not needed.
func (f zonesFlag) use() error {
	newest := schedule.BuiltInZones()
	for _, path := range f.Zoneinfo {
		zones, err := readZones(path)
		if err != nil {
			return fmt.Errorf("--zoneinfo (CARILLON_ZONEINFO): %s: %w", path, err)
		}
		if zones.Release() > newest.Release() {
			newest = zones
		}
	}
	schedule.UseZones(newest)
	return nil
}

func readZones(path string) (*schedule.Zones, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	var archive []byte
	if info.IsDir() {
		archive, err = schedule.PackZones(os.DirFS(path), time.Time{})
	} else {
		archive, err = os.ReadFile(path) //nolint:gosec // the file that the user names
	}
	if err != nil {
		return nil, err
	}
	return schedule.OpenZones(archive)
}

// warnOfZones warns if a command computes fires with other data than the node that it calls.
func warnOfZones(ctx context.Context, api *client.Client, to io.Writer) error {
	node, err := api.Version(ctx)
	if err != nil {
		return err
	}
	if ours := schedule.ZonesVersion(); node.Zones != ours {
		_, err = fmt.Fprintf(to, "carillon: warning: the node computes with time zone data %s, and this command with %s\n",
			plain(node.Zones), ours)
	}
	return err
}

// zonesCommand chooses the time zone data of all nodes.
type zonesCommand struct {
	Show  zonesShowCommand  `cmd:"" aliases:"describe" help:"Show which time zone data the installation has for its nodes, and what these compute with." example:"carillon zones show"`
	Use   zonesUseCommand   `cmd:"" help:"Make all nodes compute with one release, and list the triggers that it moves." example:"carillon zones use --plan /usr/share/zoneinfo"`
	Reset zonesResetCommand `cmd:"" help:"Make each node compute with its own data: those of its program, or newer ones of --zoneinfo." example:"carillon zones reset"`
}

type zonesFlags struct {
	apiFlags
	outputFlags
}

// call makes a request for the status, and prints it.
func (z *zonesFlags) call(ctx context.Context, c console, do func(*client.Client, context.Context) (dispatcher.ZoneStatus, error)) error {
	api, err := z.ProvideClient(ctx)
	if err != nil {
		return err
	}
	status, err := do(api, ctx)
	if err != nil {
		return err
	}
	return z.print(c, status)
}

func (z *zonesFlags) print(c console, status dispatcher.ZoneStatus) error {
	return printObject(z.outputFlags, c, status, func(l *lines) {
		if status.Release == "" {
			l.add("release", "that of each node")
		} else {
			l.add("release", status.Release)
			l.add("set at", status.SetAt)
			l.add("set by", status.SetBy)
		}
		for _, node := range status.Nodes {
			l.add("node "+node.ID.String(), node.Zones+" on "+node.Name)
		}
	})
}

type zonesShowCommand struct{ zonesFlags }

func (z *zonesShowCommand) Run(ctx context.Context, c console) error {
	return z.call(ctx, c, (*client.Client).Zones)
}

type zonesResetCommand struct{ zonesFlags }

func (z *zonesResetCommand) Run(ctx context.Context, c console) error {
	return z.call(ctx, c, (*client.Client).ResetZones)
}

// zonesUseCommand sets the data of all nodes.
type zonesUseCommand struct {
	zonesFlags
	Data string `arg:"" name:"dir|file|release" help:"A zoneinfo directory, an archive that make zones has written, or the release that this program has, such as 2026f."`
	Plan bool   `help:"Only list the triggers that it moves."`
}

// Run prints the triggers with fires that move in the next 12 months, and then sets the data.
func (z *zonesUseCommand) Run(ctx context.Context, c console) error {
	archive, err := z.archive()
	if err != nil {
		return &usageError{err}
	}
	zones, err := schedule.OpenZones(archive)
	if err != nil {
		return &usageError{fmt.Errorf("%s: %w", z.Data, err)}
	}
	api, err := z.ProvideClient(ctx)
	if err != nil {
		return err
	}
	if err := warnOfZones(ctx, api, c.err); err != nil {
		return err
	}
	moves := console{in: c.in, out: c.err, err: c.err} // because the result of the command is the status
	if z.Plan {
		moves = c
	}
	read := func(ctx context.Context) ([]namedSpec, error) { return triggersOfAPI(ctx, api) }
	if err := reportMoves(ctx, moves, zones, read); err != nil || z.Plan {
		return err
	}
	status, err := api.UseZones(ctx, archive)
	if err != nil {
		return err
	}
	return z.print(c, status)
}

func (z *zonesUseCommand) archive() ([]byte, error) {
	if z.Data == schedule.BuiltInZones().Release() {
		return schedule.BuiltInArchive(), nil
	}
	info, err := os.Stat(z.Data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s is neither a directory nor a file, nor the release that this program has, %s", z.Data,
			schedule.BuiltInZones().Release())
	case err != nil:
		return nil, err
	case info.IsDir():
		return schedule.PackZones(os.DirFS(z.Data), time.Time{})
	case info.Size() > schedule.MostZones:
		return nil, fmt.Errorf("%s has %d bytes; the most are %d", z.Data, info.Size(), schedule.MostZones)
	}
	return os.ReadFile(z.Data)
}

// triggersOfAPI reads all triggers that the token sees.
func triggersOfAPI(ctx context.Context, api *client.Client) ([]namedSpec, error) {
	apps, err := appsOr(ctx, api, "")
	if err != nil {
		return nil, err
	}
	var found []namedSpec
	for _, app := range apps {
		jobs, err := listBy((*client.Client).Jobs).all(ctx, api, app)
		if err != nil {
			return nil, err
		}
		calendars, err := listBy((*client.Client).Calendars).all(ctx, api, app)
		if err == nil {
			found, err = addTriggers(found, jobs, calendars)
		}
		if err != nil {
			return nil, err
		}
	}
	return sortedByName(found), nil
}
