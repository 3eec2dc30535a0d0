package engine

// limits bound what is under way, so that no app, no host and no catching up takes all of it.
type limits struct {
	total, late     bound
	perApp, perHost int // most of one
	inBatches       bool
	apps, hosts     map[string]*bound
}

// newLimits returns limits that open again with each place that is given back or, inBatches,
// when an eighth is free: then what had to wait leaves in batches and not one by one.
func newLimits(total, perApp, perHost int, inBatches bool) *limits {
	l := &limits{
		inBatches: inBatches, perApp: min(perApp, total), perHost: min(perHost, total),
		apps: map[string]*bound{}, hosts: map[string]*bound{},
	}
	l.total, l.late = l.bound(total), l.bound(max(total/lateShare, 1))
	return l
}

// lateShare is which part of all places catching up may take: fires on time find the others.
const lateShare = 4

func (l *limits) bound(most int) bound {
	if l.inBatches {
		return bound{most: most, slack: max(most/8, 1)}
	}
	return bound{most: most, slack: 1}
}

// bound counts up to a most. Once full it stays closed until the slack is free.
type bound struct {
	n, most, slack int
	closed         bool
}

func (b *bound) add() {
	if b.n++; b.n >= b.most {
		b.closed = true
	}
}

// release counts down, and tells whether that opened the bound.
func (b *bound) release() bool {
	b.n--
	if b.closed && b.n <= b.most-b.slack {
		b.closed = false
		return true
	}
	return false
}

// admit takes a place in a lane, unless a bound of it is closed.
func (l *limits) admit(in lane) bool {
	app, host := l.named(l.apps, in.app, l.perApp), l.host(in)
	if l.total.closed || app.closed || host.closed || in.late && l.late.closed {
		return false
	}
	l.force(in)
	return true
}

// force takes a place in a lane whether there is one or not.
func (l *limits) force(in lane) {
	l.total.add()
	l.named(l.apps, in.app, l.perApp).add()
	l.host(in).add()
	if in.late {
		l.late.add()
	}
}

// release gives a place back, and tells whether what has to wait may have one now.
func (l *limits) release(in lane) bool {
	opened := l.total.release()
	opened = free(l.apps, in.app) || opened
	if in.late {
		opened = l.late.release() || opened
	}
	return free(l.hosts, in.host) || opened
}

// mostIdle is how many apps or hosts are remembered of which nothing is under way: making a
// bound again for each fire would cost more than it keeps.
const mostIdle = 1000

func free(bounds map[string]*bound, name string) (opened bool) {
	b := bounds[name]
	opened = b.release()
	if b.n == 0 && len(bounds) > mostIdle {
		delete(bounds, name)
	}
	return opened
}

// host returns the bound of a lane's host. One of its own concerns what is executed: more may be
// claimed, and wait here.
func (l *limits) host(in lane) *bound {
	if in.atOnce == 0 || l.inBatches {
		return l.named(l.hosts, in.host, l.perHost)
	}
	b := l.named(l.hosts, in.host, in.atOnce)
	b.most = min(in.atOnce, l.perHost) // a change of the job
	return b
}

func (l *limits) named(bounds map[string]*bound, name string, most int) *bound {
	b, ok := bounds[name]
	if !ok {
		made := l.bound(most)
		b = &made
		bounds[name] = b
	}
	return b
}

// shares are the limits of two shares of the pool: fast and slow jobs do not wait for each other.
type shares struct{ fast, slow *limits }

func (s shares) of(in lane) *limits {
	if in.slow {
		return s.slow
	}
	return s.fast
}

func (s shares) admit(in lane) bool   { return s.of(in).admit(in) }
func (s shares) force(in lane)        { s.of(in).force(in) }
func (s shares) release(in lane) bool { return s.of(in).release(in) }

// total returns how many places are taken.
func (s shares) total() int { return s.fast.total.n + s.slow.total.n }
