package engine

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A long attempt is one that may outlast the drain of its node: its job's timeout is longer. Its node asks
// for protection meanwhile, and what replaces nodes waits until an old node has no long attempt. If they
// are frequent, it would wait for ever, because the old node goes on to claim its share of them. So while new
// nodes come, old ones leave them long attempts: see yielding.

// longAttempts are the long attempts of this node.
type longAttempts struct {
	protection Protector // nil: none

	mu       sync.Mutex
	inFlight int
	began    time.Time // of the spell; zero: there is none
	ended    time.Time // when the last of them ended
}

// spellPause is how long a node has no long attempt until its spell of them is over. What replaces nodes
// has that time to stop it while it is free, and the node takes no new ones as long as new nodes do.
const spellPause = 2 * time.Minute

// begin asks for protection, and notes when the spell began by the database's clock.
func (l *longAttempts) begin(now time.Time) (release func()) {
	l.since(now) // ends a spell that is over
	release = l.protection.Hold()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight++; l.began.IsZero() {
		l.began = now
	}
	return release
}

// end notes the end of an attempt.
func (l *longAttempts) end(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.ended = now
}

// since returns when the spell of long attempts began that lasts; nil: there is none.
func (l *longAttempts) since(now time.Time) *time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight == 0 && now.Sub(l.ended) >= spellPause {
		l.began = time.Time{}
	}
	if l.began.IsZero() {
		return nil
	}
	began := l.began
	return &began
}

// protect asks for the protection of the node during a long attempt. It does not wait for it: a fire is
// never late because of its platform. It is a step of an attempt.
func (e *Engine) protect(_ context.Context, a *attempt) result {
	if e.long.protection == nil || a.call.Target.Timeout() <= e.opts.Drain {
		return proceed
	}
	release := e.long.begin(e.clock.now())
	a.release = func() {
		e.long.end(e.clock.now())
		release()
	}
	return proceed
}

// yielding returns the live nodes that leave long attempts to newer nodes. A node does while it has a spell
// of them, and at least half of the live nodes started after that began: a deployment starts as many new
// nodes as there are old ones. A single node that is added to a fleet does not get all the long attempts. It is
// not enough to prefer nodes that have none: the new ones soon have some, too, and then all would be equal.
//
// The newest node never yields, so somebody always takes a fire. A node whose spell is over takes its share
// again, so nodes that are not replaced become equal. If nodes differ about who yields, because one of them
// has older news, a fire waits for a grace at most, or the first of them claims it.
func yielding(live []dispatcher.Node) map[run.NodeID]bool {
	var yields map[run.NodeID]bool
	for i := range live {
		if live[i].LongSince == nil {
			continue
		}
		newer := 0
		for j := range live {
			if live[j].StartedAt.After(*live[i].LongSince) {
				newer++
			}
		}
		if newer > 0 && 2*newer >= len(live) {
			if yields == nil {
				yields = map[run.NodeID]bool{}
			}
			yields[live[i].ID] = true
		}
	}
	return yields
}

// yields reports whether this node leaves long attempts to newer nodes.
func (f *fleet) yields() bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.roster.yielding[f.node]
}

// letNewerAdopt gives newer nodes a head start with runs that nobody works on and retries, if this node
// leaves long attempts to them. Which of these runs are long is not known before they are adopted.
func (e *Engine) letNewerAdopt(ctx context.Context, graces int) {
	if e.fleet.yields() {
		sleep(ctx, time.Duration(graces)*e.opts.Grace)
	}
}
