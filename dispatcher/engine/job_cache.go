package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/engine/pool"
)

// jobCache caches the jobs of what is due. It keeps those used since the poll before last, so that
// its size follows the window and not the database.
type jobCache struct {
	store        Store
	installation string

	mu     sync.Mutex
	recent map[int64]*preparedJob
	older  map[int64]*preparedJob
}

// preparedJob is a job as runs need it.
type preparedJob struct {
	dispatcher.JobVersion
	triggers map[int64]string // names by trigger id
	host     string           // of the target
	atOnce   int              // how many of its attempts may be in flight; 0: as to any host
	// templates are those of the target, parsed once for all its calls; nil: it has none.
	templates *dispatcher.Templates
}

func newJobCache(store Store) *jobCache {
	return &jobCache{store: store, recent: map[int64]*preparedJob{}, older: map[int64]*preparedJob{}}
}

// dropUnused forgets the jobs that were not used since it was last called.
func (j *jobCache) dropUnused() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.older, j.recent = j.recent, map[int64]*preparedJob{}
}

// get returns a cached job of at least a revision.
func (j *jobCache) get(id, revision int64) (*preparedJob, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, generation := range []map[int64]*preparedJob{j.recent, j.older} {
		if d, ok := generation[id]; ok && d.Revision >= revision {
			j.recent[id] = d
			return d, true
		}
	}
	return nil, false
}

// load reads those of the wanted jobs (revision by id) that are not cached.
func (j *jobCache) load(ctx context.Context, wanted map[int64]int64) error {
	var missing []int64
	for id, revision := range wanted {
		if _, ok := j.get(id, revision); !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return j.read(ctx, missing)
}

// read reads jobs into the cache, in place of what it has. A job that was deleted is absent
// afterwards.
func (j *jobCache) read(ctx context.Context, ids []int64) error {
	versions, err := j.store.JobsByID(ctx, ids)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		delete(j.recent, id)
		delete(j.older, id)
	}
	for _, v := range versions {
		j.recent[v.ID] = prepare(v)
	}
	return nil
}

func prepare(v dispatcher.JobVersion) *preparedJob {
	d := &preparedJob{JobVersion: v, triggers: make(map[int64]string, len(v.TriggerNames))}
	d.host, d.atOnce = v.Target.Host()
	var err error
	if d.templates, err = v.Target.Templates(); err != nil && d.Err == nil {
		d.Err = fmt.Errorf("job %s/%s: stored target: %w", v.App, v.Name, err)
	}
	for _, name := range v.TriggerNames {
		d.triggers[dispatcher.TriggerID(v.App, v.Name, name)] = name
	}
	return d
}

// queue returns the queue in which fires and runs of the job wait.
func (d *preparedJob) queue() pool.QueueKey {
	return pool.QueueKey{App: d.App, Host: d.host, AtOnce: d.atOnce, Priority: d.Priority}
}

// call returns what an attempt of run needs: by the job that it was claimed with or, for an adopted
// run, as the job is now. The error is errGone if the job or trigger is not there, or says why the
// stored job cannot be read.
func (j *jobCache) call(run heldRun) (dispatcher.Call, error) {
	d := run.Detail.job
	if d == nil {
		var cached bool
		if d, cached = j.get(run.JobID, run.Revision); !cached {
			return dispatcher.Call{}, errGone
		}
	}
	if d.Err != nil {
		return dispatcher.Call{}, d.Err
	}
	name := ""
	if run.TriggerID != run.JobID {
		var there bool
		if name, there = d.triggers[run.TriggerID]; !there {
			return dispatcher.Call{}, errGone
		}
	}
	return dispatcher.Call{
		App: d.App, Job: d.Name, Trigger: name, Key: run.RunKey, Attempt: run.Attempt,
		EventID: dispatcher.EventID(j.installation, d.App, d.Name, name, run.ScheduledAt, run.Kind),
		Target:  d.Target, Templates: d.templates, Payload: d.Payload, Delivery: d.Delivery, Retry: d.Retry, Slots: d.Slots(),
	}, nil
}

var errGone = errors.New("the job or its trigger was deleted before this attempt began")
