package chores

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/failpoint"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Bounds of a round: how many states, jobs and late fires a portion has, and how many portions. More is left for the next round,
// which goes on where this one ended.
const (
	alertPage     = 200
	alertPortions = 100
)

// watchAlerts looks at the conditions of alerts that time decides about, and lets jobs follow changes of alerts.
func (c *Chores) watchAlerts(ctx context.Context, _ time.Time) error {
	late := &alert.LateFire{}
	return portions(ctx, alertPortions, func() (bool, error) {
		done, last, err := c.Store.WatchAlerts(ctx, late, alertPage, time.Time{})
		if err != nil {
			return false, fmt.Errorf("watch alerts: %w", err)
		}
		if done.Notified > 0 {
			failpoint.Hit(failpoint.AfterAlertWatch)
			c.Log.InfoContext(ctx, "alerts notified", "node", c.Fleet.ID().String(), "count", done.Notified)
			c.Wakes.Adopt.Notify()
		}
		late = last
		return done.More, nil
	})
}

// portions makes a step after the other until there is no more to do, but no more than most. A round begins where the one
// before ended, on whichever node.
func portions(ctx context.Context, most int, step func() (more bool, err error)) error {
	for range most {
		loop.Turned(ctx)
		if more, err := step(); err != nil || !more {
			return err
		}
	}
	return nil
}

// expirePages is how many pages of endpoints a round removes at most.
const expirePages = 10

// expireEndpoints removes the endpoints of groups that stopped registering. Nodes route by when an endpoint expires, so
// none gets a fire meanwhile.
func (c *Chores) expireEndpoints(ctx context.Context, _ time.Time) error {
	expired := 0
	err := portions(ctx, expirePages, func() (bool, error) {
		page, err := c.Store.ExpireEndpoints(ctx, handlerPage, time.Time{})
		expired += page
		return page >= handlerPage, err
	})
	if err == nil && expired > 0 {
		c.Log.InfoContext(ctx, "endpoints expired", "node", c.Fleet.ID().String(), "count", expired)
	}
	return err
}

// A round counts the fires of at most so many pages of jobs, each of so many jobs. Jobs whose objective is new, or has
// another bound, are counted from the beginning of the window on, an hour in each step.
const (
	objectivePages = 20
	objectivePage  = 50
)

// rollUpObjectives counts the fires of jobs with an objective.
func (c *Chores) rollUpObjectives(ctx context.Context, _ time.Time) error {
	return portions(ctx, objectivePages, func() (bool, error) {
		rolled, err := c.Store.RollUpObjectives(ctx, objectivePage, time.Time{})
		return rolled.More, err
	})
}

// statisticsPortions bounds what a round counts for statistics. A node that finds the portions of a week counts them in some
// minutes.
const statisticsPortions = 20

// rollUpStatistics counts the runs of each day.
func (c *Chores) rollUpStatistics(ctx context.Context, _ time.Time) error {
	return portions(ctx, statisticsPortions, func() (bool, error) {
		rolled, err := c.Store.RollUpStatistics(ctx, time.Time{})
		return rolled.More, err
	})
}

// expirePauses ends the pauses whose time is over. Those that are left for the next round are as many as a page, so none
// waits long.
func (c *Chores) expirePauses(ctx context.Context, _ time.Time) error {
	loop.Turned(ctx)
	ended, err := c.Store.ExpirePauses(ctx, handlerPage, time.Time{})
	if ended > 0 {
		c.Log.InfoContext(ctx, "pauses ended", "node", c.Fleet.ID().String(), "count", ended)
	}
	return err
}

// removeCutOffImports removes imports that did not come to their end.
func (c *Chores) removeCutOffImports(ctx context.Context, _ time.Time) error {
	loop.Turned(ctx)
	removed, err := c.Store.RemoveCutOffImports(ctx, time.Time{})
	if removed > 0 {
		c.Log.InfoContext(ctx, "imports removed that were cut off", "node", c.Fleet.ID().String(), "count", removed)
	}
	return err
}

// followSwitches lets triggers follow the switch and the pauses of their app, and whether a node has the labels that their
// job requires. The change itself took some thousand along; the others follow here, a page at a time, each in a
// transaction of its own. After half of an interval it leaves the rest to the next round, of whichever node, because
// the handler has other steps, and other nodes wait for its locks.
func (c *Chores) followSwitches(ctx context.Context, _ time.Time) error {
	total, begun := 0, time.Now()
	for more := true; more && time.Since(begun) < c.Options.Handler/2; {
		loop.Turned(ctx)
		followed, left, err := c.Store.FollowSwitches(ctx, handlerPage)
		if err != nil {
			return err
		}
		total, more = total+followed, left
	}
	if total > 0 {
		c.Log.InfoContext(ctx, "triggers follow switches", "node", c.Fleet.ID().String(), "triggers", total)
	}
	return nil
}

// rollUpPages is how many pages of jobs a round rolls up at most, so that its cost is bounded however
// many jobs there are.
const rollUpPages = 5

// rollUpStates keeps the states of jobs up to date.
func (c *Chores) rollUpStates(ctx context.Context, _ time.Time) error {
	return portions(ctx, rollUpPages, func() (bool, error) {
		rolled, err := c.Store.RollUp(ctx, handlerPage)
		if err == nil && rolled.Changed > 0 {
			c.Log.DebugContext(ctx, "job states changed", "count", rolled.Changed)
		}
		return rolled.More, err
	})
}

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
