package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// warnOfZones warns once if the dispatcher computes with other time zone data than this provider, whose plans foretell fires.
// Whether it can be reached is for the requests to say that matter.
func (c *connection) warnOfZones(ctx context.Context, diags *diag.Diagnostics) {
	c.zones.Do(func() {
		server, err := c.Version(ctx)
		if ours := schedule.ZonesVersion(); err == nil && server.Zones != "" && server.Zones != ours {
			c.warn(diags, warning{
				kind: "zones", title: "Other time zone data", thing: c.endpoint, inFull: 1,
				detail: fmt.Sprintf("The dispatcher computes fires with release %s of the time zone database, and this provider with %s. "+
					"In zones with rules that differ, fires are not when this plan says. Use versions of both with the same release.",
					server.Zones, ours),
			}, "")
		}
	})
}
