package pool

// places are those of a pool: for the runs that are claimed, and for the attempts in flight.
type places struct {
	claimed, attempted shares
	// reserved and reservedLate are places of the fast share that Reserve has set aside.
	reserved, reservedLate int
}

// slowShare is how many slow attempts there may be for each worker. They only wait.
const slowShare = 2

func newPlaces(o Options) places {
	// The limits of the workers apply in proportion to the claimed runs and to the slow share.
	limitsOf := func(total int, inBatches bool) *limits {
		return newLimits(total, max(total*o.AppWorkers/o.Workers, 1), max(total*o.HostWorkers/o.Workers, 1), inBatches)
	}
	slow := slowShare * o.Workers
	return places{
		claimed:   shares{limitsOf(o.Workers+o.Queue, true), limitsOf(slow+o.Queue/4, true)},
		attempted: shares{limitsOf(o.Workers, false), limitsOf(slow, false)},
	}
}

// Reservation is places that were set aside. Late ones are in the part for catching up.
type Reservation struct {
	Places int
	late   bool
}

func (p *places) reserve(limit int, late bool) Reservation {
	fast := p.claimed.fast
	if fast.total.closed || late && fast.late.closed {
		return Reservation{}
	}
	n := min(limit, fast.total.most-fast.total.n-p.reserved-p.reservedLate)
	if late {
		n = min(n, fast.late.most-fast.late.n-p.reservedLate)
	}
	n = max(n, 0)
	if late {
		p.reservedLate += n
	} else {
		p.reserved += n
	}
	return Reservation{n, late}
}

func (p *places) redeem(r Reservation) {
	if r.late {
		p.reservedLate -= r.Places
	} else {
		p.reserved -= r.Places
	}
}

// shares are the limits of two shares of the pool. Fast and slow jobs do not wait for each other.
type shares struct{ fast, slow *limits }

func (s shares) of(in QueueKey) *limits {
	if in.Slow {
		return s.slow
	}
	return s.fast
}

func (s shares) admit(in QueueKey) bool   { return s.of(in).admit(in) }
func (s shares) force(in QueueKey)        { s.of(in).force(in) }
func (s shares) release(in QueueKey) bool { return s.of(in).release(in) }

// total returns how many places are taken.
func (s shares) total() int { return s.fast.total.n + s.slow.total.n }

// limits bound what is under way, so that no app, no host and no catching up takes everything.
type limits struct {
	total, late     bound
	perApp, perHost int // most of one
	inBatches       bool
	apps, hosts     map[string]*bound
}

// newLimits returns limits that open again with each place that is given back. With inBatches, they
// open when an eighth is free, so that waiting fires leave in batches and not one by one.
func newLimits(total, perApp, perHost int, inBatches bool) *limits {
	l := &limits{
		inBatches: inBatches, perApp: min(perApp, total), perHost: min(perHost, total),
		apps: map[string]*bound{}, hosts: map[string]*bound{},
	}
	l.total, l.late = l.bound(total), l.bound(max(total/lateShare, 1))
	return l
}

// lateShare is the part of all places that catching up may take. Fires on time find the others.
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

// use returns how much of the bound is taken. Runs that moved here may have taken more than there is.
func (b *bound) use() float64 { return min(float64(b.n)/float64(b.most), 1) }

// release counts down and reports whether that opened the bound.
func (b *bound) release() bool {
	b.n--
	if b.closed && b.n <= b.most-b.slack {
		b.closed = false
		return true
	}
	return false
}

// admit takes a place in a queue, unless one of its bounds is closed.
func (l *limits) admit(in QueueKey) bool {
	app, host := l.named(l.apps, in.App, l.perApp), l.host(in)
	if l.total.closed || app.closed || host.closed || in.Late && l.late.closed {
		return false
	}
	l.force(in)
	return true
}

// force takes a place in a queue, even beyond its bounds.
func (l *limits) force(in QueueKey) {
	l.total.add()
	l.named(l.apps, in.App, l.perApp).add()
	l.host(in).add()
	if in.Late {
		l.late.add()
	}
}

// release gives a place back and reports whether something that waits may have one now.
func (l *limits) release(in QueueKey) bool {
	opened := l.total.release()
	opened = free(l.apps, in.App) || opened
	if in.Late {
		opened = l.late.release() || opened
	}
	return free(l.hosts, in.Host) || opened
}

// mostIdle is how many apps or hosts are kept that have nothing under way. Making a bound again for
// each fire would cost more than it saves.
const mostIdle = 1000

func free(bounds map[string]*bound, name string) (opened bool) {
	b := bounds[name]
	opened = b.release()
	if b.n == 0 && len(bounds) > mostIdle {
		delete(bounds, name)
	}
	return opened
}

// host returns the bound of a queue's host. A job's own bound applies to attempts only: more of its
// runs may be claimed and wait here.
func (l *limits) host(in QueueKey) *bound {
	if in.AtOnce == 0 || l.inBatches {
		return l.named(l.hosts, in.Host, l.perHost)
	}
	b := l.named(l.hosts, in.Host, in.AtOnce)
	b.most = min(in.AtOnce, l.perHost) // the job may have changed
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
