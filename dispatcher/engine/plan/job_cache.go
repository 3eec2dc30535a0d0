package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	// mostJobBytes bounds the jobs that a node remembers, by an estimate of what they take.
	mostJobBytes = 32 << 20
	// jobMaxAge is how old a job may become before a fire of it reads it again. Its revision tells of each
	// change of its definition; what is not in it, the weight of its app, is at most so old if the
	// notification of the change was lost.
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
	jobs Generations[*preparedJob]
	// changed is when an app was last forgotten, by its name: a job that was read before may have other bounds now.
	changed map[string]time.Time
}

// preparedJob is a job as runs need it.
type preparedJob struct {
	dispatcher.JobVersion
	triggers map[int64]string // names by trigger id
	Host     string           // of the target
	atOnce   int              // how many of its attempts may be in flight; 0: as to any host
	// templates are those of the target, parsed once for all its calls; nil: it has none.
	templates *target.Templates
	readAt    time.Time // local
	outside   error     // what of the job is outside the bounds of its app; nil: nothing
}

func newJobCache(store jobReader) *jobCache {
	return &jobCache{store: store, jobs: NewGenerations(mostJobBytes, (*preparedJob).size), changed: map[string]time.Time{}}
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

// Read reads jobs into the cache, in place of what it has. A job that was deleted is absent
// afterwards.
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
		jobs[i] = prepare(v)
		jobs[i].readAt = now
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		j.jobs.drop(id)
	}
	for _, d := range jobs {
		j.jobs.Put(d.ID, d)
	}
	return jobs, nil
}

// DropApp forgets the jobs of an app, of which something changed that is not in their revisions.
func (j *jobCache) DropApp(app string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs.dropIf(func(d *preparedJob) bool { return d.App == app })
	j.changed[app] = time.Now()
}

// outdated tells whether the app of a job changed after the job was read.
func (j *jobCache) outdated(d *preparedJob) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed[d.App].After(d.readAt)
}

// Drop forgets a job that changed.
func (j *jobCache) Drop(id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs.drop(id)
}

// Clear forgets everything, as triggerCache.Clear does.
func (j *jobCache) Clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.jobs.dropIf(func(*preparedJob) bool { return true })
}

func prepare(v dispatcher.JobVersion) *preparedJob {
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
	return d
}

// Queue returns the queue in which fires and runs of the job wait.
func (d *preparedJob) Queue() pool.QueueKey {
	return pool.QueueKey{App: d.App, Host: d.Host, Job: d.ID, AtOnce: d.atOnce, Priority: d.Priority}
}

// Call returns what an attempt of run needs: by the job that it was claimed with or, for an adopted
// run, as the job is now. The error is errGone if the job or trigger is not there, or says why the
// stored job cannot be read.
func (j *jobCache) Call(r Held) (target.Call, error) {
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

// boundsOf returns the bounds of the app of a job, and refuses an attempt of a job that is outside of them. The definition
// may be that of the claim; the bounds are those of now.
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

// OutsideError says what of a job is outside the bounds of its app.
type OutsideError struct{ problems input.Problems }

// outsideOf returns an outsideError, or nil.
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

// Why a job is not attempted now.
var (
	ErrOutdated  = errors.New("the app of the job changed, and the job is not read again yet")
	ErrSuspended = errors.New("the app of the job is suspended")
	ErrGone      = errors.New("the job or its trigger was deleted before this attempt began")
)
