package plan

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/loop"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Planner plans the fires of this node. Loops call its steps.
type Planner struct {
	*Definitions
	store     Store
	Timeline  *timeline
	Ahead     *ahead
	Floors    floors
	LabelSets labelSets
	Overdue   overdue
	// wakePoll makes the poll read the window again.
	wakePoll loop.Signal
	// LostFires is true if own fires were lost since the last sweep.
	LostFires atomic.Bool
	sweeps    int
}

// Options are the engine's options that its packages share; package engine documents them.
type Options struct {
	Apps                   []string
	Labels                 input.Labels
	Window, Handler        time.Duration
	DeadAfter, ClockMargin time.Duration
	Lead, Grace            time.Duration
	Batch                  int
}

// Store is the part of a store that a planner uses.
type Store interface {
	definitionStore
	Due(ctx context.Context, query dispatcher.DueQuery) ([]dispatcher.DueTrigger, error)
	LabelSets(ctx context.Context) ([]input.Labels, error)
	EndedDelays(ctx context.Context, ids []int64, limit int) ([]dispatcher.EndedDelay, error)
	ScheduleNext(ctx context.Context, fires []dispatcher.DelayedFire) error
}

// Node is the part of the node that the packages of the engine share.
type Node struct {
	Options Options
	Log     Log
	Fleet   *Fleet
	Clock   *Clock
}

// New returns a planner by definitions. wakePoll makes the poll read the window.
func New(store Store, of *Definitions, wakePoll loop.Signal) *Planner {
	p := &Planner{Definitions: of, store: store, Timeline: newTimeline(), Ahead: newAhead(wakePoll), Floors: newFloors(of.Options),
		wakePoll: wakePoll}
	p.Timeline.refill = p.Ahead.Wake
	return p
}

// Held is a run that the pool holds, with the node's knowledge of it.
type Held = pool.Run[Detail]

// Detail is the node's knowledge of a run that it has won.
type Detail struct {
	// Job is the job as it was claimed here; nil: the run was not claimed here.
	Job *preparedJob
	// Schedule is the schedule by which the fire was claimed or settled here; nil: it was not.
	Schedule *schedule.Schedule
	// Missed is the range that a catch-up run stands for, if it is known.
	Missed *run.MissedRange
	// Delayed means that the end of the run schedules the next fire of a fixed delay. For a run that was not claimed
	// here, it means that it may.
	Delayed bool
}

// CatchesUp reports whether runs of a kind go after those on time.
func CatchesUp(kind run.Kind) bool {
	return kind == run.KindCatchUp || kind == run.KindBackfill
}

// HeldBy returns runs that node holds and that were not claimed here, each due at its scheduled time.
func (d *Definitions) HeldBy(node run.NodeID, runs []run.HeldRun) []*Held {
	held := make([]*Held, len(runs))
	for i, r := range runs {
		delayed := r.Shard == 0 && (r.Kind == run.KindSchedule || r.Kind == run.KindCatchUp)
		held[i] = &Held{HeldRun: r, Node: node, Due: r.ScheduledAt, Detail: Detail{Delayed: delayed}}
		if job, ok := d.Jobs.Get(r.JobID, 0); ok {
			held[i].Queue, held[i].Weight = job.Queue(), job.Bounds.Weight
		}
		held[i].Queue.Job, held[i].Queue.Late = r.JobID, CatchesUp(r.Kind)
	}
	return held
}

// overdue is the oldest fire that was due when the node last read the database: in its window, among the fires of other
// nodes, and among those that the handler settles. Together with the timeline it gives the longest time that a fire
// waits.
type overdue struct {
	window, others, misses atomic.Pointer[sighting] // nil: none was made
}

// sighting is the oldest due fire that a read of the database found.
type sighting struct {
	due time.Time // zero: none
	at  time.Time // of the read, by the database's clock
}

// Settling notes the oldest fire that is still to be settled by this node; zero: none.
func (o *overdue) Settling(due, now time.Time) {
	o.misses.Store(&sighting{due, now})
}

// wait returns how long the fire had been due when it was seen. If no read has succeeded for a while, it assumes that
// the fire still waits. A fire that was due for less than the grace belonged to its preferred node.
func (s *sighting) wait(now time.Time, fresh, grace time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	switch seen := s.at.Sub(s.due); {
	case s.due.IsZero() || seen < grace:
		return 0
	case now.Sub(s.at) < fresh:
		return seen
	}
	return now.Sub(s.due)
}

// OldestOverdue returns how long the oldest unclaimed due fire has waited, as far as this node knows; 0 if none is due
// for longer than the grace, or while the node is paused. It counts
//   - the fires that this node has planned, whether the node is saturated or the database unreachable;
//   - those that the latest poll found, and those of other nodes that the latest sweep found;
//   - those that are too late, while this node settles them.
//
// Fires of jobs that require labels which this node lacks do not count: more nodes like this one would not help them.
func (p *Planner) OldestOverdue(now time.Time) time.Duration {
	if !p.Fleet.claims() {
		return 0
	}
	wait := max(
		p.Overdue.window.Load().wait(now, 3*p.Options.Window, p.Options.Grace),
		p.Overdue.others.Load().wait(now, 3*farSweep*p.Options.Grace, p.Options.Grace),
		p.Overdue.misses.Load().wait(now, 3*p.Options.Handler, p.Options.Grace))
	for _, oldest := range []func() (time.Time, bool){p.Timeline.Oldest, p.Ahead.Head} {
		if planned, ok := oldest(); ok && now.Sub(planned) >= p.Options.Grace {
			wait = max(wait, now.Sub(planned))
		}
	}
	return wait
}

// OldestServed returns when the first fire of a page was due whose labels this node has; zero: none.
func (p *Planner) OldestServed(page []dispatcher.DueTrigger) time.Time {
	for i := range page {
		if p.Options.Labels.Have(page[i].NodeLabels) {
			return page[i].DueAt
		}
	}
	return time.Time{}
}
