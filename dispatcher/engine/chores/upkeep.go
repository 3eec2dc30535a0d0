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

// Bounds of a round: how many states, jobs and late fires a portion has, and how many portions. The next round goes on
// with the rest.
const (
	alertPage     = 200
	alertPortions = 100
)

// watchAlerts evaluates the alert conditions that depend on time, and queues the jobs that follow changes of alerts.
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

// portions repeats a step until it has no more to do, at most most times. A round begins where the one before ended, on
// whichever node.
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

// expireEndpoints removes the endpoints of groups that stopped registering. Nodes route by the time at which an
// endpoint expires, so an expired one gets no fire meanwhile.
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

// A round counts the fires of at most so many pages of jobs, each of so many jobs. If an objective is new or has
// another bound, its job is counted from the beginning of the window on, an hour in each step.
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

// statisticsPortions bounds how many portions a round counts for statistics. The portions of a week take some minutes.
const statisticsPortions = 20

// rollUpStatistics counts the runs of each day.
func (c *Chores) rollUpStatistics(ctx context.Context, _ time.Time) error {
	return portions(ctx, statisticsPortions, func() (bool, error) {
		rolled, err := c.Store.RollUpStatistics(ctx, time.Time{})
		return rolled.More, err
	})
}

// expirePauses ends the pauses that are over, a page in each round. What remains does not wait long.
func (c *Chores) expirePauses(ctx context.Context, _ time.Time) error {
	loop.Turned(ctx)
	ended, err := c.Store.ExpirePauses(ctx, handlerPage, time.Time{})
	if ended > 0 {
		c.Log.InfoContext(ctx, "pauses ended", "node", c.Fleet.ID().String(), "count", ended)
	}
	return err
}

// removeCutOffImports removes imports that were never finished.
func (c *Chores) removeCutOffImports(ctx context.Context, _ time.Time) error {
	loop.Turned(ctx)
	removed, err := c.Store.RemoveCutOffImports(ctx, time.Time{})
	if removed > 0 {
		c.Log.InfoContext(ctx, "imports removed that were cut off", "node", c.Fleet.ID().String(), "count", removed)
	}
	return err
}

// followSwitches lets triggers follow the switch and the pauses of their app, and the labels of the live nodes. The
// change itself applied to some thousand triggers; the others follow here, a page at a time, each in its own
// transaction. After half of an interval it leaves the rest to the next round, on whichever node, because the handler
// has other steps, and other nodes wait for its locks.
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

// rollUpPages is how many pages of jobs a round rolls up at most. It bounds the cost of a round.
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

// followedZones is the time zone data of the installation, as the node follows it.
type followedZones struct {
	sum string // of the data in use; empty: the node's own
	// unnoted is true until the other nodes can know that this one has switched.
	unnoted bool
}

// switchZones makes the node use the time zone data of the installation, and tells the other nodes a round later. No
// fire is moved until all nodes have switched: a node with claims under way may still write fire times by the old data,
// and rescheduleForZones waits for it. The same happens during an upgrade of the nodes. A claim is a compare-and-swap
// against the scheduled time, whichever data gave it, so no fire is lost or done twice.
func (c *Chores) switchZones(ctx context.Context, _ time.Time) error {
	if c.zones.unnoted {
		if err := c.Store.NoteZones(ctx, c.Fleet.ID(), schedule.ZonesVersion()); err != nil {
			return err
		}
		c.zones.unnoted, c.zonesAt = false, time.Time{} // the last node to note it finds that all use one release
	}
	switched, err := c.FollowZones(ctx)
	c.zones.unnoted = c.zones.unnoted || switched
	return err
}

// FollowZones uses the data of the installation from now on, or the node's own if the installation has none.
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

// zonesInterval is how often a node checks for other time zone data. They change with programs.
const zonesInterval = time.Minute

// rescheduleForZones computes the fire times again that another version of the time zone database may have given, for
// example after an upgrade of the fleet. Fires go on meanwhile: each change is a compare-and-swap against the claim of
// the trigger.
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
