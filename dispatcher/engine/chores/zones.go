package chores

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// followedZones are the time zone data of the installation, as the node follows them.
type followedZones struct {
	sum string // of the data that it computes with; empty: with its own
	// unnoted tells that other nodes do not know yet that it has switched.
	unnoted bool
}

// switchZones makes the node compute with the time zone data that the installation has for all nodes, and a round later
// tells the others. Until all have, no fire is moved: a node whose claims are under way may still write fire times by the data of
// before, and rescheduleForZones waits for it. That is as it is while nodes are upgraded. A claim is a compare-and-swap against
// the scheduled time, whichever data gave it, so no fire is lost or done twice.
func (c *Chores) switchZones(ctx context.Context, _ time.Time) error {
	if c.zones.unnoted {
		if err := c.Store.NoteZones(ctx, c.Fleet.ID(), schedule.ZonesVersion()); err != nil {
			return err
		}
		c.zones.unnoted, c.zonesAt = false, time.Time{} // who notes last finds that all compute with one release
	}
	switched, err := c.FollowZones(ctx)
	c.zones.unnoted = c.zones.unnoted || switched
	return err
}

// FollowZones computes with the data of the installation from now on, or with the node's own.
func (c *Chores) FollowZones(ctx context.Context) (switched bool, err error) {
	setting, err := c.Store.ZoneSetting(ctx)
	if err != nil {
		return false, fmt.Errorf("read which time zone data the installation has: %w", err)
	}
	if setting.Sum == c.zones.sum {
		return false, nil
	}
	var zones *schedule.Zones
	if setting.Sum != "" {
		archive, err := c.Store.ZoneArchive(ctx, setting.Sum)
		if err == nil {
			zones, err = schedule.ReadZones(archive)
		}
		if err != nil {
			return false, fmt.Errorf("read time zone data %s of the installation: %w", setting.Release, err)
		}
	}
	before := schedule.ZonesVersion()
	schedule.FollowZones(zones)
	c.zones.sum = setting.Sum
	c.Plan.Jobs.Clear() // their templates have zones
	c.Plan.LostFires.Store(true)
	c.Log.InfoContext(ctx, "node computes with other time zone data", "node", c.Fleet.ID().String(), "before", before,
		"zones", schedule.ZonesVersion(), "of_installation", zones != nil)
	return true, nil
}

// zonesInterval is how often a node looks whether other time zone data are in use. They change with programs.
const zonesInterval = time.Minute

// rescheduleForZones works out again the fire times that another version of the time zone database
// may have given, for example after an upgrade of the fleet. Fires go on meanwhile: each change is a
// compare-and-swap against the claim of the trigger.
func (c *Chores) rescheduleForZones(ctx context.Context, now time.Time) error {
	changed, err := c.Store.ZonesChanged(ctx)
	if err != nil {
		return err
	}
	if !changed {
		c.zonesAt = now
		return nil
	}
	return c.withLock(ctx, dispatcher.LockZones, func(ctx context.Context) error {
		moved := 0
		for after, more := int64(0), true; more; {
			loop.Turned(ctx)
			done, err := c.Store.RescheduleForZones(ctx, after, handlerPage, time.Time{})
			if err != nil {
				return err
			}
			moved, after, more = moved+done.Moved, done.Last, done.More
		}
		c.Log.InfoContext(ctx, "triggers rescheduled for this program's time zones", "node", c.Fleet.ID().String(), "moved", moved)
		return nil
	})
}
