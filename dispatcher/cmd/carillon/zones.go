package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// zonesFlag names time zone data next to those that the program was built with.
type zonesFlag struct {
	Zoneinfo []string `name:"zoneinfo" env:"CARILLON_ZONEINFO" placeholder:"DIR|FILE" help:"Time zone data that are used if they are newer than the program's: a zoneinfo directory, such as /usr/share/zoneinfo, or an archive made by make zones. They are read once, at the start."`
}

// use makes the process compute with the newest of the data that it has. Equal releases give equal instants, so a copy of
// the release that the program was built with is not needed.
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

// warnOfZones says that a command computes fires with other data than the node that it asks.
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
