package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// mostKnownTriggers bounds the triggers whose definitions a node remembers. Each takes some 500 bytes. A
// trigger that fires again while it is remembered is not read again.
const mostKnownTriggers = 100_000

// knownTrigger is the definition of a trigger, as firing it needs it. It is shared and never changed.
type knownTrigger struct {
	JobID    int64
	revision int64 // of the job
	// calendars is the revision of the app's calendars that the schedule is of; 0: it uses none.
	calendars int64
	schedule  *schedule.Schedule
	// zones are the time zone data that the schedule was parsed with.
	zones         *schedule.Zones
	jitter        time.Duration
	misfirePolicy dispatcher.MisfirePolicy
	catchUpWindow time.Duration
}

// current reports whether k is what due was scheduled by.
func (k *knownTrigger) current(due dispatcher.DueTrigger) bool {
	return k.revision == due.Revision && k.calendars >= due.CalendarRevision && k.zones == schedule.CurrentZones()
}

// triggerCache remembers definitions of triggers by id.
type triggerCache struct {
	mu    sync.Mutex
	known generations[*knownTrigger]
}

func newTriggerCache(most int) *triggerCache {
	return &triggerCache{known: newGenerations(most, func(*knownTrigger) int { return 1 })}
}

// get returns what is remembered of a trigger, unless it is outdated.
func (c *triggerCache) get(due dispatcher.DueTrigger) (*knownTrigger, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known.get(due.ID)
	if !ok || !k.current(due) {
		return nil, false
	}
	return k, true
}

func (c *triggerCache) put(id int64, k *knownTrigger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.put(id, k)
}

// clear forgets everything: a database that lost commits may give a revision away a second time.
func (c *triggerCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.dropIf(func(*knownTrigger) bool { return true })
}

// candidate is a trigger on the way into the timeline: known, or with its definition as it was read.
type candidate struct {
	dispatcher.DueTrigger
	known   *knownTrigger
	version dispatcher.TriggerVersion // if known is nil
}

func (c *candidate) jobID() int64 {
	if c.known != nil {
		return c.known.JobID
	}
	return c.version.JobID
}

// recognize adds to triggers what they are, from memory or, in one statement, from the database. It leaves
// out those that were deleted or changed since they were read: a claim of them would be lost, and the
// change notifies the nodes.
func (e *Engine) recognize(ctx context.Context, triggers []dispatcher.DueTrigger) ([]candidate, error) {
	all := make([]candidate, 0, len(triggers))
	unknown := map[int64]dispatcher.DueTrigger{}
	var ids []int64
	for _, trigger := range triggers {
		if known, ok := e.triggers.get(trigger); ok {
			all = append(all, candidate{DueTrigger: trigger, known: known})
			continue
		}
		unknown[trigger.ID] = trigger
		ids = append(ids, trigger.ID)
	}
	if len(ids) == 0 {
		return all, nil
	}
	versions, err := e.store.TriggersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		if trigger := unknown[version.ID]; trigger.Revision == version.Revision {
			all = append(all, candidate{DueTrigger: trigger, version: version})
		}
	}
	return all, nil
}
