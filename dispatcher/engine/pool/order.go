package pool

// queuedTrigger is where the queued runs of a trigger wait.
type queuedTrigger struct {
	queue QueueKey
	runs  int
}

// pushInOrder queues a run behind the others of its trigger. All of them wait in one queue, because
// queues overtake each other:
//   - a trigger whose job becomes slow takes its waiting runs along;
//   - a trigger whose job recovers stays in the slow share until none of its runs waits there;
//   - a run on time takes along the runs of its trigger that catch up.
//
// p.mu is held.
func (p *Pool[T]) pushInOrder(run *Run[T]) {
	at := p.order[run.TriggerID]
	if at == nil {
		at = &queuedTrigger{queue: run.Queue}
		p.order[run.TriggerID] = at
	}
	to := run.Queue
	to.Slow, to.Late = run.Queue.Slow || at.queue.Slow, run.Queue.Late && at.queue.Late
	if at.queue != to {
		at.queue = to
		for _, one := range p.queue.Remove(func(one *Run[T]) bool { return one.TriggerID == run.TriggerID }) {
			p.move(one, to)
			p.queue.Push(one, one.Queue, one.Weight)
		}
	}
	if run.Queue != to {
		p.move(run, to)
	}
	at.runs++
	p.queue.Push(run, run.Queue, run.Weight)
}

// move moves the place of a claimed run to another queue. p.mu is held.
func (p *Pool[T]) move(run *Run[T], to QueueKey) {
	p.places.claimed.force(to)
	p.releaseClaimed(run.Queue)
	run.Queue = to
}

// dequeued notes that runs have left the queue. p.mu is held.
func (p *Pool[T]) dequeued(runs ...*Run[T]) {
	for _, run := range runs {
		at := p.order[run.TriggerID]
		if at.runs--; at.runs == 0 {
			delete(p.order, run.TriggerID)
		}
	}
}
