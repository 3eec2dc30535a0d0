package engine

import (
	"context"
	"errors"
	"fmt"
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
	host     string           // which the target is on
	atOnce   int              // how many of its attempts may be under way; 0: as to any host
	// templates are those of the target, read once for all its calls; nil: it has none.
	templates *dispatcher.Templates
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

// at returns what a job was at a revision; nil if that is not cached.
func (j *jobs) at(id, revision int64) *definition {
	if d, ok := j.get(id, revision); ok && d.Revision == revision {
		return d
	}
	return nil
}

// load reads the definitions of wanted (revision by job id) that are not cached.
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
	return j.read(ctx, missing)
}

// read reads definitions into the cache, in place of what it has. A job that was deleted is
// absent afterwards.
func (j *jobs) read(ctx context.Context, ids []int64) error {
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
		j.recent[v.ID] = define(v)
	}
	return nil
}

func define(v dispatcher.JobVersion) *definition {
	d := &definition{JobVersion: v, triggers: make(map[int64]string, len(v.TriggerNames))}
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

// identity returns the name of a trigger that H and jitter hash, and its app; false if the
// trigger is gone.
func (j *jobs) identity(trigger dispatcher.DueTrigger) (identity, app string, ok bool) {
	d, ok := j.get(trigger.JobID, trigger.Revision)
	if !ok {
		return "", "", false
	}
	name, ok := d.triggers[trigger.ID]
	return dispatcher.Identity(d.App, d.Name, name), d.App, ok
}

// call returns what an attempt of run needs: by the definition that it was claimed with, or, of a
// run that was adopted, as it is now. The error is errGone if its job or trigger is not there, or why
// its definition cannot be read.
func (j *jobs) call(run heldRun) (dispatcher.Call, error) {
	d := run.definition
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
