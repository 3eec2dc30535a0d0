package pool

// shares count the places of a pool that are taken, and decide which may be taken. See the package comment for the
// rule.
type shares struct {
	most   [uses]float64   // places of the whole pool
	part   [levels]float64 // of a share's own places and the free ones of its parent
	all    share           // the whole pool
	late   share           // runs that catch up, a share next to those of the apps
	byPath map[path]*share
	// refused means that a run found no place when this much of the pool was free.
	refused   bool
	refusedAt float64
}

// use is the purpose of a place.
type use int

const (
	claimed   use = iota // to hold a run
	attempted            // to make an attempt
	uses
)

// level is the depth of a share in the pool.
type level int

const (
	ofPool level = iota
	ofApp
	ofHost
	ofJob
	levels
)

const (
	// jobPart is the part of a job in its host, lateShare the part of catching up in the pool.
	jobPart, lateShare = 0.75, 0.25
	// batchPart of a share has to be free again before a full share takes more claims, so that waiting
	// fires leave in batches and not one by one.
	batchPart = 0.125
	// mostIdle is how many shares there may be before unused ones are removed. Making a share again for each fire would
	// cost more than it saves.
	mostIdle = 1000
)

// share is a part of a pool: an app, a host of an app, or a job at that host.
type share struct {
	path
	up     [levels]*share // its ancestors, the pool first, and itself
	parts  int
	taken  [uses]int
	closed bool // to claims
}

// path names a share.
type path struct {
	level
	app, host string
	job       int64
}

// Admission is the answer to a request for a place: granted, or the share that is full.
type Admission int

// The full share: no run of that app, host or job gets a place now. For a full host, no run on time may wait if a run
// that catches up was refused.
const (
	Admitted Admission = iota
	JobFull
	HostFull
	AppFull
	PoolFull
)

var fullAt = [levels]Admission{ofPool: PoolFull, ofApp: AppFull, ofHost: HostFull, ofJob: JobFull}

func newShares(o Options) *shares {
	ratio := func(part, whole int) float64 { return min(float64(part)/float64(whole), 1) }
	s := &shares{
		most: [uses]float64{claimed: float64(o.Workers + o.Queue), attempted: float64(o.Workers)},
		part: [levels]float64{
			ofPool: 1, ofApp: ratio(o.AppWorkers, o.Workers), ofHost: ratio(o.HostWorkers, o.AppWorkers), ofJob: jobPart,
		},
		byPath: map[path]*share{},
	}
	s.all.up[ofPool] = &s.all
	return s
}

func (s *shares) of(in QueueKey) *share { return s.find(path{ofJob, in.App, in.Host, in.Job}) }

// find returns a share, and makes it if it is missing.
func (s *shares) find(at path) *share {
	if at.level == ofPool {
		return &s.all
	}
	if found, ok := s.byPath[at]; ok {
		return found
	}
	parent := path{level: at.level - 1, app: at.app, host: at.host}
	if at.level == ofHost {
		parent.host = ""
	}
	made, above := &share{path: at}, s.find(parent)
	made.up, above.parts = above.up, above.parts+1
	made.up[at.level] = made
	s.byPath[at] = made
	return made
}

// admit takes a place in a queue, unless one of its shares is full.
func (s *shares) admit(in QueueKey, purpose use) Admission {
	job := s.of(in)
	full := s.full(job, in, purpose)
	if full == Admitted {
		s.count(job, in.Late, purpose, 1)
		return Admitted
	}
	if purpose == claimed {
		s.refused, s.refusedAt = true, s.left(claimed)
	}
	s.dropIdle(job)
	return full
}

func (s *shares) count(job *share, late bool, purpose use, n int) {
	for _, one := range job.up {
		one.taken[purpose] += n
	}
	if late {
		s.late.taken[purpose] += n
	}
}

// left returns how many places of the pool are free.
func (s *shares) left(purpose use) float64 { return s.most[purpose] - float64(s.all.taken[purpose]) }

// full returns the largest full share of a queue's job.
func (s *shares) full(job *share, in QueueKey, purpose use) Admission {
	left := s.left(purpose)
	for level, one := range job.up {
		left = one.leftOf(left, s.part[level], purpose)
		if one.full(left, purpose) {
			return fullAt[level]
		}
	}
	switch {
	case in.Late && s.late.full(s.late.leftOf(s.left(purpose), lateShare, purpose), purpose):
		return HostFull
	case purpose == attempted && in.AtOnce > 0 && job.taken[attempted] >= in.AtOnce:
		return JobFull
	}
	return Admitted
}

// leftOf returns how many places a share may still take if its parent may take this many.
func (s *share) leftOf(parent, part float64, purpose use) float64 {
	taken := float64(s.taken[purpose])
	return part*(parent+taken) - taken
}

// full reports whether a share with so many places left is full. It opens to claims in batches.
func (s *share) full(left float64, purpose use) bool {
	const rounding = 1e-6
	full := left < rounding
	if purpose == claimed {
		s.closed = full || s.closed && left < batchPart*(left+float64(s.taken[claimed]))
		return s.closed
	}
	return full
}

// release gives a place back and reports whether a run that was refused may get one now.
func (s *shares) release(job *share, late bool, purpose use) (opened bool) {
	s.count(job, late, purpose, -1)
	s.dropIdle(job)
	if purpose != claimed || !s.refused {
		return false
	}
	all := s.left(claimed)
	left := all
	for level, one := range job.up {
		was := one.closed
		left = one.leftOf(left, s.part[level], claimed)
		opened = was && !one.full(left, claimed) || opened
	}
	if late {
		was := s.late.closed
		opened = was && !s.late.full(s.late.leftOf(all, lateShare, claimed), claimed) || opened
	}
	// Places that others free open full shares, too.
	if opened || all > 1.25*s.refusedAt {
		s.refused = false
		return true
	}
	return false
}

// dropIdle removes an unused share, and its unused ancestors, if many are kept.
func (s *shares) dropIdle(job *share) {
	for level := ofJob; level > ofPool && len(s.byPath) > mostIdle; level-- {
		one := job.up[level]
		if one.parts > 0 || one.taken != [uses]int{} {
			return
		}
		delete(s.byPath, one.path)
		job.up[level-1].parts--
	}
}
