package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// bytesKept keeps the responses of apps within their quotas. It is an estimate: the node knows what all nodes have
// stored as of its latest report, and what it has stored itself since.
type bytesKept struct {
	mu     sync.Mutex
	stored map[string]int64 // by app, since the latest report
	kept   map[string]int64 // by app, as of that report
	over   map[string]bool  // apps whose responses were dropped since; they are reported to learn when there is room again
}

func newBytesKept() *bytesKept {
	return &bytesKept{stored: map[string]int64{}, kept: map[string]int64{}, over: map[string]bool{}}
}

// take returns what is to be stored of a response: all of it, or a note that the app has no room for it.
func (b *bytesKept) take(app string, most int64, response *run.Response) *run.Response {
	size := int64(sizeOf(response))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept[app]+b.stored[app]+size <= most {
		b.stored[app] += size
		return response
	}
	b.over[app] = true
	return &run.Response{
		Endpoint: response.Endpoint, Addresses: response.Addresses, Omitted: target.BytesKeptReached(app, most),
	}
}

// sizeOf is about how many bytes a response takes in the history.
func sizeOf(r *run.Response) int {
	size := 100 + len(r.Body) + len(r.LogTail) + len(r.State)
	for name, value := range r.Headers {
		size += len(name) + len(value)
	}
	return size
}

// reportBytes tells the database what the node has stored, and learns what all have. A report whose outcome is unknown
// counts again: the estimate is too high then, by what one node stores between two reports.
func (e *Engine) reportBytes(ctx context.Context, _ time.Time) error {
	b := e.bytes
	b.mu.Lock()
	added := make(map[string]int64, len(b.stored)+len(b.over))
	for app := range b.over {
		added[app] = 0
	}
	for app, bytes := range b.stored {
		added[app] = bytes
	}
	b.mu.Unlock()
	if len(added) == 0 {
		return nil
	}
	kept, err := e.store.KeepBytes(ctx, added, time.Time{})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for app, bytes := range added {
		if b.stored[app] -= bytes; b.stored[app] == 0 {
			delete(b.stored, app)
		}
		b.kept[app] = kept[app]
		delete(b.over, app)
	}
	return nil
}

// omitResponse leaves the response out of an outcome if the app keeps as many bytes as it may.
func (e *Engine) omitResponse(a *attempt) {
	if a.outcome.Response == nil {
		return
	}
	job := a.run.Detail.job
	if job == nil {
		job, _ = e.jobs.get(a.run.JobID, 0)
	}
	if job != nil && job.Bounds != nil {
		a.outcome.Response = e.bytes.take(job.App, job.Bounds.Quotas.BytesKept, a.outcome.Response)
	}
}
