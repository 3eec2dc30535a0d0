package client

import (
	"context"
	"encoding/base64"

	"github.com/carillon-dev/carillon/dispatcher"
)

// Zones gets which time zone data the installation has for its nodes, and what these compute with.
func (c *Client) Zones(ctx context.Context) (dispatcher.ZoneStatus, error) {
	return get(ctx, c, path("zones"), isZones)
}

// UseZones makes all nodes compute with an archive of time zone data, as schedule.PackZones makes it.
func (c *Client) UseZones(ctx context.Context, archive []byte) (dispatcher.ZoneStatus, error) {
	return post(ctx, c, path("zones", "use"), dispatcher.ZoneData{Archive: base64.StdEncoding.EncodeToString(archive)}, isZones)
}

// ResetZones makes each node compute with its own time zone data.
func (c *Client) ResetZones(ctx context.Context) (dispatcher.ZoneStatus, error) {
	return post(ctx, c, path("zones", "reset"), nil, isZones)
}

func isZones(zones dispatcher.ZoneStatus) bool { return zones.Nodes != nil }
