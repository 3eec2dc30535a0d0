package engine

// inLine is where the queued runs of a trigger wait.
type inLine struct {
	lane lane
	runs int
}

// enqueue queues a run behind the others of its trigger. They wait in one lane, for lanes overtake
// each other: a trigger whose job has become slow takes along what it has waiting, and one that has
// recovered stays in the slow share until nothing of it waits there. What catches up is taken
// along by what is on time. p.mu is held.
func (p *pool) enqueue(run *heldRun) {
	at := p.inLine[run.TriggerID]
	if at == nil {
		at = &inLine{lane: run.lane}
		p.inLine[run.TriggerID] = at
	}
	to := run.lane
	to.slow, to.late = run.lane.slow || at.lane.slow, run.lane.late && at.lane.late
	if at.lane != to {
		at.lane = to
		for _, one := range p.queue.remove(func(one *heldRun) bool { return one.TriggerID == run.TriggerID }) {
			p.move(one, to)
			p.queue.push(one, one.lane, one.weight)
		}
	}
	if run.lane != to {
		p.move(run, to)
	}
	at.runs++
	p.queue.push(run, run.lane, run.weight)
}

// move gives a run its place among the claimed in another lane. p.mu is held.
func (p *pool) move(run *heldRun, to lane) {
	p.claimed.force(to)
	if p.claimed.release(run.lane) {
		wake(p.freed)
	}
	run.lane = to
}

// left notes that runs have left the queue. p.mu is held.
func (p *pool) left(runs ...*heldRun) {
	for _, run := range runs {
		at := p.inLine[run.TriggerID]
		if at.runs--; at.runs == 0 {
			delete(p.inLine, run.TriggerID)
		}
	}
}
