package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/cache"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// mostJobBytes bounds the jobs that a node remembers, by an estimate of their memory.
	mostJobBytes = 32 << 20
	// jobMaxAge is how old a cached job may be before a fire of it reads it again. Each change of its definition has a
	// new revision. The weight of its app has none, and is at most so old if the notification of its change was lost.
	jobMaxAge = 15 * time.Minute
)

type jobReader interface {
	JobsByID(ctx context.Context, ids []int64) ([]dispatcher.JobVersion, error)
}

// jobCache remembers jobs of triggers that are due and of runs.
type jobCache struct {
	store        jobReader
	Installation string

	mu   sync.Mutex
	jobs *cache.Cache[int64, *preparedJob]
	// changed is when an app was last dropped, by its name: a job that was read before may have other bounds now.
	changed map[string]time.Time
}

// preparedJob is a job in the form that runs need.
type preparedJob struct {
	dispatcher.JobVersion
	triggers map[int64]string // names by trigger id
	Host     string           // of the target
	atOnce   int              // attempts that may be in flight; 0: as to any host
	// templates are those of the target, parsed once for all its calls; nil: none.
	templates *target.Templates
	readAt    time.Time // local
	outside   error     // how the job exceeds the bounds of its app; nil: not at all
}

// size is an estimate of the memory that a job takes.
func (d *preparedJob) size() int {
	const fixed, perTrigger = 2000, 100
	return fixed + perTrigger*len(d.triggers) + len(d.Payload) + len(d.Description)
}

// Get returns a cached job of at least a revision.
func (j *jobCache) Get(id, revision int64) (*preparedJob, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if d, ok := j.jobs.Get(id); ok && d.Revision >= revision {
		return d, true
	}
	return nil, false
}

// Load returns the wanted jobs (revision by id), and reads those that are not cached or too old. A job
// that was deleted is absent.
func (j *jobCache) Load(ctx context.Context, wanted map[int64]int64) (map[int64]*preparedJob, error) {
	found, oldest := make(map[int64]*preparedJob, len(wanted)), time.Now().Add(-jobMaxAge)
	var missing []int64
	for id, revision := range wanted {
		if d, ok := j.Get(id, revision); ok && d.readAt.After(oldest) {
			found[id] = d
		} else {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	read, err := j.fetch(ctx, missing)
	if err != nil {
		return nil, err
	}
	for _, d := range read {
		if d.Revision >= wanted[d.ID] {
			found[d.ID] = d
		}
	}
	return found, nil
}

// Read reads jobs into the cache, in place of the cached ones. A job that was deleted is absent afterwards.
func (j *jobCache) Read(ctx context.Context, ids []int64) error {
	_, err := j.fetch(ctx, ids)
	return err
}

func (j *jobCache) fetch(ctx context.Context, ids []int64) ([]*preparedJob, error) {
	slices.Sort(ids) // in the order of the index
	now := time.Now()
	versions, err := j.store.JobsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	jobs := make([]*preparedJob, len(versions))
	for i, v := range versions {
		d := &preparedJob{JobVersion: v, triggers: make(map[int64]string, len(v.TriggerNames))}
		d.Host, d.atOnce = v.Target.Host()
		err := dispatcher.WithoutPanic(func() (err error) {
			d.templates, err = v.Target.Templates()
			return err
		})
		if err != nil && d.Err == nil {
			d.Err = fmt.Errorf("job %s/%s: stored target: %w", v.App, v.Name, err)
		}
		if v.Bounds != nil && d.Err == nil {
			d.outside = outsideOf(*v.Bounds, v.Job)
		}
		for _, name := range v.TriggerNames {
			d.triggers[v.TriggerKey(name)] = name
		}
		d.readAt = now
		jobs[i] = d
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		j.jobs.Delete(id)
	}
	for _, d := range jobs {
		j.jobs.Put(d.ID, d)
	}
	return jobs, nil
}

// DropApp drops the jobs of an app after a change that is not in their revisions.
func (j *jobCache) DropApp(app string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs.DeleteFunc(func(d *preparedJob) bool { return d.App == app })
	j.changed[app] = time.Now()
}

// outdated reports whether the app of a job changed after the job was read.
func (j *jobCache) outdated(d *preparedJob) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed[d.App].After(d.readAt)
}

// Drop drops a job that changed.
func (j *jobCache) Drop(id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs.Delete(id)
}

// Clear drops everything, as Definitions.Forget does.
func (j *jobCache) Clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs.Clear()
}

// Queue returns the queue of the job's fires and runs.
func (d *preparedJob) Queue() pool.QueueKey {
	return pool.QueueKey{App: d.App, Host: d.Host, Job: d.ID, AtOnce: d.atOnce, Priority: d.Priority}
}

// Call returns the call of an attempt, by the job with which the run was claimed or, for an adopted run, by the current
// job. The error is ErrGone if the job or trigger does not exist, or did not when the run was adopted, or explains why the
// stored job cannot be read.
func (j *jobCache) Call(r Held) (target.Call, error) {
	if r.Revision < 0 {
		return target.Call{}, ErrGone
	}
	d := r.Detail.Job
	if d == nil {
		var cached bool
		if d, cached = j.Get(r.JobID, r.Revision); !cached {
			return target.Call{}, ErrGone
		}
	}
	if d.Err != nil {
		return target.Call{}, d.Err
	}
	bounds, err := j.boundsOf(r, d)
	if err != nil {
		return target.Call{}, err
	}
	name := ""
	if r.Kind.OfTrigger() {
		var there bool
		if name, there = d.triggers[r.TriggerID]; !there {
			return target.Call{}, ErrGone
		}
	}
	var carried *run.CarriedState
	if d.CarryState {
		carried = &run.CarriedState{} // to be read once the run has its slot
	}
	return target.Call{
		App: d.App, Job: d.Name, Trigger: name, Key: r.Key, Attempt: r.Attempt,
		EventID: r.EventOf(d.EventID(j.Installation, name, r.ScheduledAt, r.Kind)),
		Target:  d.Target, Templates: d.templates, Payload: d.Payload, Delivery: d.Delivery, Retry: d.Retry, Slots: d.Slots(),
		Bounds: bounds, AWSExternalID: d.AWSExternalID, Carried: carried, Installation: j.Installation,
	}, nil
}

// boundsOf returns the bounds of the app of a job, and refuses an attempt of a job that exceeds them. The definition
// may be that of the claim; the bounds are the current ones.
func (j *jobCache) boundsOf(run Held, d *preparedJob) (*target.Bounds, error) {
	bounds, outside := d.Bounds, d.outside
	if j.outdated(d) {
		latest, cached := j.Get(run.JobID, 0)
		if !cached || j.outdated(latest) {
			return nil, ErrOutdated
		}
		if bounds = latest.Bounds; bounds != nil {
			outside = outsideOf(*bounds, d.Job)
		}
	}
	if bounds != nil && bounds.Suspended {
		return nil, ErrSuspended
	}
	return bounds, outside
}

// OutsideError explains how a job exceeds the bounds of its app.
type OutsideError struct{ problems input.Problems }

func outsideOf(bounds target.Bounds, job dispatcher.Job) error {
	var problems input.Problems
	if problems.AddError("", bounds.CheckTarget(job.App, job.Target)); problems == nil {
		return nil
	}
	return &OutsideError{problems}
}

// Error names the first bound and how many more there are.
func (e *OutsideError) Error() string {
	more := ""
	if n := len(e.problems) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return "the job is outside the bounds of its app: " + e.problems[0].Message + more
}

// Reasons for which a job is not attempted now.
var (
	ErrOutdated  = errors.New("the app of the job changed, and the job is not read again yet")
	ErrSuspended = errors.New("the app of the job is suspended")
	ErrGone      = errors.New("the job or its trigger was deleted before this attempt began")
)

const (
	// mostGroupBytes bounds the endpoint groups that a node remembers, by an estimate of their memory.
	mostGroupBytes = 16 << 20
	// groupMaxAge is how old a group may become before a fire reads it again: a notification may be lost, and an
	// endpoint that expires sends none.
	groupMaxAge = 15 * time.Second
	// A group that changes all the time, because endpoints register and leave, is read once every groupPause, and not
	// for each fire. One that changes now and then is read at once: groupBurst reads may come together. So a node knows
	// of a change well within a second.
	groupPause = 250 * time.Millisecond
	groupBurst = 4
)

// GroupReader reads a group as nodes route to it.
type GroupReader interface {
	GroupVersion(ctx context.Context, app, name string, now time.Time) (target.GroupVersion, error)
}

// groupCache remembers endpoint groups that jobs call. Only jobs with a group as target use it.
type groupCache struct {
	store GroupReader

	mu     sync.Mutex
	groups *cache.Cache[int64, *knownGroup] // by id
	// reads are those under way, by the id of the group: fires wait for the current one. A change of the group takes
	// reads that began earlier out of the map.
	reads map[int64]*groupRead
}

type knownGroup struct {
	*target.GroupVersion
	readAt  time.Time // local
	changed bool      // since it was read
	pace    time.Time // when the past reads would all be due, at one every groupPause
}

// fresh reports whether a fire may use the group as it was read, or has to for now.
func (k *knownGroup) fresh(now time.Time) bool {
	switch age := now.Sub(k.readAt); {
	case age >= groupMaxAge:
		return false
	case k.changed:
		return now.Before(k.pace.Add(-(groupBurst - 1) * groupPause))
	}
	return true
}

// groupRead is a read that any number of fires wait for.
type groupRead struct {
	app   string
	began time.Time
	pace  time.Time
	// changed means that the group changed since the read began, forgotten that the result must not be remembered.
	changed, forgotten bool
	done               chan struct{} // closed when the rest is set
	version            *target.GroupVersion
	err                error
	void               bool // the attempt that read was cut off
}

// size is an estimate of the memory that a group takes.
func (k *knownGroup) size() int {
	const fixed, perEndpoint = 4000, 1000
	return fixed + perEndpoint*(len(k.Endpoints)+len(k.Live))
}

// Get returns a group, at most some seconds old. now is the database's. It returns ErrNotFound for a group that does
// not exist.
func (g *groupCache) Get(ctx context.Context, app, name string, now time.Time) (*target.GroupVersion, error) {
	id := run.GroupID(app, name)
	for {
		g.mu.Lock()
		known, ok := g.groups.Get(id)
		if ok && known.fresh(time.Now()) {
			g.mu.Unlock()
			return known.GroupVersion, nil
		}
		read, underWay := g.reads[id]
		if !underWay {
			read = g.begin(id, app, known)
		}
		g.mu.Unlock()
		if !underWay {
			g.read(ctx, id, read, name, now)
			return read.version, read.err
		}
		select {
		case <-read.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !read.void {
			return read.version, read.err
		}
	}
}

// begin notes that a group is read; known is nil if it is not remembered. g.mu is held.
func (g *groupCache) begin(id int64, app string, known *knownGroup) *groupRead {
	read := &groupRead{app: app, began: time.Now(), done: make(chan struct{})}
	read.pace = read.began.Add(groupPause)
	if known != nil {
		if known.pace.After(read.began) {
			read.pace = known.pace.Add(groupPause)
		}
		known.pace = read.pace
	}
	g.reads[id] = read
	return read
}

// read reads a group for all that wait for it, and remembers it unless it was forgotten meanwhile.
func (g *groupCache) read(ctx context.Context, id int64, read *groupRead, name string, now time.Time) {
	version, err := g.store.GroupVersion(ctx, read.app, name, now)
	if read.err = err; err == nil {
		read.version = &version
	}
	read.void = err != nil && ctx.Err() != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reads[id] == read {
		delete(g.reads, id)
	}
	if known, ok := g.groups.Get(id); !read.forgotten && (!ok || !known.readAt.After(read.began)) {
		if g.groups.Delete(id); err == nil {
			g.groups.Put(id, &knownGroup{GroupVersion: &version, readAt: read.began, changed: read.changed, pace: read.pace})
		}
	}
	close(read.done)
}

// Change notes that the definition or an endpoint of a group changed. From now on, fires wait for no read that began
// before.
func (g *groupCache) Change(app, name string) {
	id := run.GroupID(app, name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.groups.Get(id); ok {
		known.changed = true
	}
	if read, underWay := g.reads[id]; underWay {
		read.changed = true
		delete(g.reads, id)
	}
}

func (g *groupCache) dropIf(match func(app string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups.DeleteFunc(func(k *knownGroup) bool { return match(k.App) })
	for id, read := range g.reads {
		if match(read.app) {
			read.forgotten = true
			delete(g.reads, id)
		}
	}
}

func (g *groupCache) DropApp(name string) { g.dropIf(func(app string) bool { return app == name }) }

// Clear drops everything.
func (g *groupCache) Clear() { g.dropIf(func(string) bool { return true }) }
