package engine

import (
	"context"
	"sync"

	"github.com/carillon-dev/carillon/dispatcher"
)

// jobs caches the definitions of what is due. It keeps those used since the turn before
// last, so that its size follows the window and not the database.
type jobs struct {
	store        dispatcher.Store
	installation string

	mu     sync.Mutex
	recent map[int64]*definition
	older  map[int64]*definition
}

// definition is a job as runs need it.
type definition struct {
	dispatcher.JobVersion
	triggers map[int64]string // names by trigger id
}

func newJobs(store dispatcher.Store) *jobs {
	return &jobs{store: store, recent: map[int64]*definition{}, older: map[int64]*definition{}}
}

// turn forgets what was not used since the turn before.
func (j *jobs) turn() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.older, j.recent = j.recent, map[int64]*definition{}
}

// get returns a cached definition of at least a revision.
func (j *jobs) get(id, revision int64) (*definition, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, generation := range []map[int64]*definition{j.recent, j.older} {
		if d, ok := generation[id]; ok && d.Revision >= revision {
			j.recent[id] = d
			return d, true
		}
	}
	return nil, false
}

// load reads the definitions of wanted (revision by job id) that are not cached. A job that
// was deleted meanwhile is absent afterwards.
func (j *jobs) load(ctx context.Context, wanted map[int64]int64) error {
	var missing []int64
	for id, revision := range wanted {
		if _, ok := j.get(id, revision); !ok {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	versions, err := j.store.JobsByID(ctx, missing)
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, v := range versions {
		d := &definition{JobVersion: v, triggers: make(map[int64]string, len(v.Triggers))}
		for name := range v.Triggers {
			d.triggers[dispatcher.TriggerID(v.App, v.Name, name)] = name
		}
		j.recent[v.ID] = d
	}
	return nil
}

// stale returns a revision that the cached definition of a job does not satisfy, so that
// load reads it anew.
func (j *jobs) stale(id int64) int64 {
	if d, ok := j.get(id, 0); ok {
		return d.Revision + 1
	}
	return 0
}

// call returns what an attempt of run needs; ok is false when its job or trigger is gone.
func (j *jobs) call(run dispatcher.HeldRun) (call dispatcher.Call, ok bool) {
	d, ok := j.get(run.JobID, 0)
	if !ok {
		return dispatcher.Call{}, false
	}
	name := ""
	if run.TriggerID != run.JobID {
		if name, ok = d.triggers[run.TriggerID]; !ok {
			return dispatcher.Call{}, false
		}
	}
	return dispatcher.Call{
		App: d.App, Job: d.Name, Trigger: name, Key: run.RunKey, Attempt: run.Attempt,
		EventID: dispatcher.EventID(j.installation, d.App, d.Name, name, run.ScheduledAt, run.Kind),
		Target:  d.Target, Payload: d.Payload,
	}, true
}
