package dispatcher

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// A chain begins with a run that follows no other. Each run carries the number of runs that may still follow it, and
// each follower gets an equal part of the rest. So the bound holds on all nodes, after any crash, and however often
// an end is recorded, and the runs of a chain share no row.

// fanOut counts the runs that may follow a run of a job.
type fanOut struct {
	// Runs is the least value of ChainRuns with which all of them follow: the followers of an event, each counted with
	// as many runs after it as the one with the most; at most mostFanOut. Depth is how many follow one after another.
	Runs, Depth int
	// Next is the follower with the most runs after it; 0 if there is none.
	Next int64
}

// mostFanOut keeps fanOut.Runs from overflowing.
const mostFanOut = 1 << 40

// Add returns f, raised to the fan-out of an event that count jobs follow, one of them followed by next.
func (f fanOut) add(count int, follower int64, next fanOut) fanOut {
	runs := mostFanOut
	if count > 0 && next.Runs < mostFanOut/count {
		runs = count * (1 + next.Runs)
	}
	if runs > f.Runs {
		f.Runs, f.Next = runs, follower
	}
	f.Depth = max(f.Depth, 1+next.Depth)
	return f
}

// Follower is a job, by its key, that runs after an event of another job, in a run of kind chain or follow.
type Follower struct {
	Job    int64 // the job that is followed
	Event  run.FollowMask
	ID     int64
	Kind   run.Kind
	Result bool // it gets a FollowDocument
}

// Leader is a job that another one follows, both by their keys, after an event that Count jobs and deliveries follow.
type Leader struct {
	Job, Follower int64
	Count         int
}

// FollowGraph is the graph of followers in an app before a job changes, limited to jobs before and after that job.
type FollowGraph struct {
	IDs     map[string]int64     // keys of the existing jobs among its FollowNames, by their names
	Names   map[int64]string     // of all jobs in the graph
	After   map[int64][]Follower // of jobs, by event and follower
	Leaders map[int64][]Leader   // by their follower; needed only if Grows
	// Awaited is true if other jobs name the job and it gets this name only now: its runs are new behind theirs.
	Awaited bool
}

// AwaitedKey is the key of a Follower whose name no job of the app has. The job that gets the name replaces it.
func AwaitedKey(app, name string) int64 { return run.HashID("awaited-follower", app, name) }

// FollowersOf returns the followers of a job of an app with these quotas. The error is Problems: a job that it names
// leads back to it, or more runs would follow than allowed.
func (g FollowGraph) FollowersOf(job Job, quotas target.Quotas) ([]Follower, error) {
	all, err := g.followers(job)
	if err == nil {
		err = g.checkFanOut(job, all, quotas)
	}
	return all, err
}

// warn warns of names that no job of the app has: nothing follows until one does.
func (g FollowGraph) warn(job Job) error {
	var problems input.Problems
	for event, follow := range job.EachFollow() {
		for i, name := range follow.Jobs {
			if g.IDs[name] == 0 {
				problems.Add(input.Pointer(string(event), "jobs", strconv.Itoa(i)), input.CodeFollowUnknown,
					"app %s has no job %s; no run follows under this name until it has one", input.Echo(job.App), input.Echo(name))
			}
		}
		if follow.Alert != "" && g.IDs[follow.Alert+AlertSuffix] == 0 {
			problems.Add(input.Pointer(string(event), "alert"), input.CodeFollowUnknown,
				"app %s has no alert %s; nothing is delivered to it until it has one", input.Echo(job.App), input.Echo(follow.Alert))
		}
	}
	return problems.Err()
}

// Grows reports whether more runs may follow job, as declared, than before. Only then do the jobs before it matter.
func (g FollowGraph) Grows(job Job) bool {
	all, err := g.followers(job)
	if err != nil {
		return false
	}
	was, is, _ := g.fanOut(job, all)
	return is.Runs > was.Runs || is.Depth > was.Depth
}

// followers returns the followers of a job, as declared. The error is Problems: a job that it names leads back to it.
func (g FollowGraph) followers(job Job) ([]Follower, error) {
	var problems input.Problems
	var all []Follower
	next := map[int64]bool{}
	for event, follow := range job.EachFollow() {
		for _, name := range follow.Jobs {
			id, exists := g.IDs[name]
			if !exists {
				id = AwaitedKey(job.App, name)
			}
			next[id] = true
			all = append(all, Follower{job.Key(), event.Mask(), id, run.KindChain, follow.Payload == FollowResult})
		}
		if follow.Alert != "" {
			deliveries := Job{App: job.App, Name: follow.Alert + AlertSuffix}
			all = append(all, Follower{job.Key(), event.Mask(), deliveries.Key(), run.KindFollow, true})
		}
		if follow.Target() != nil {
			all = append(all, Follower{job.Key(), event.Mask(), job.Attached(event).Key(), run.KindFollow, true})
		}
	}
	problems.AddError("", g.checkChain(job, next))
	return all, problems.Err()
}

// checkChain returns a problem if a job would follow itself through next, or if too many jobs would follow it.
func (g FollowGraph) checkChain(job Job, next map[int64]bool) error {
	var problems input.Problems
	from := map[int64]int64{} // the job before each job on the way
	level := []int64{}
	for id := range next {
		from[id] = job.Key()
		level = append(level, id)
	}
	for len(level) > 0 && from[job.Key()] == 0 {
		if len(from) > MostFollowing {
			problems.Add("", input.CodeTooMany, "more than %d jobs would follow job %s, directly and through others; make the chain shorter",
				MostFollowing, input.Echo(job.Name))
			return problems
		}
		slices.Sort(level)
		var below []int64
		for _, id := range level {
			for _, one := range g.After[id] {
				if _, seen := from[one.ID]; !seen && one.Kind == run.KindChain {
					from[one.ID] = id
					below = append(below, one.ID)
				}
			}
		}
		level = below
	}
	if from[job.Key()] != 0 {
		return g.circle(job, from)
	}
	return nil
}

// circle names the circle of jobs that leads back to a job.
func (g FollowGraph) circle(job Job, from map[int64]int64) error {
	names := []string{job.Name}
	for at := from[job.Key()]; at != job.Key(); at = from[at] {
		names = append(names, g.Names[at])
	}
	names = append(names, job.Name)
	slices.Reverse(names)
	for event, follow := range job.EachFollow() {
		if i := slices.Index(follow.Jobs, names[1]); i >= 0 {
			var problems input.Problems
			problems.Add(input.Pointer(string(event), "jobs", strconv.Itoa(i)), input.CodeFollowCycle,
				"the jobs would follow each other in a circle: %s; take one of them out", strings.Join(names, " -> "))
			return problems
		}
	}
	return errors.New("a circle of jobs begins with no job that is named")
}

// checkFanOut returns a problem if more runs would follow a run of the job, or of one before it, than quotas allow. A
// chain that was over the quota before may stay.
func (g FollowGraph) checkFanOut(job Job, after []Follower, quotas target.Quotas) error {
	was, is, now := g.fanOut(job, after)
	if is.Runs <= was.Runs && is.Depth <= was.Depth {
		return nil
	}
	first, most := g.most(job.Key(), is, quotas)
	if most.Runs <= quotas.ChainRuns && most.Depth <= quotas.ChainDepth {
		return nil
	}
	path := g.path(append(first, job.Key()), job, now)
	var problems input.Problems
	if most.Runs > quotas.ChainRuns {
		problems.Add("", input.CodeBoundQuota, "up to %d runs would follow one run of job %s, directly and through others, by way of "+
			"%s; the bounds of app %s allow %d (quotas.chain_runs); let fewer jobs follow, or ask an operator for more", most.Runs, path[0],
			strings.Join(path, " -> "), job.App, quotas.ChainRuns)
	}
	if most.Depth > quotas.ChainDepth {
		problems.Add("", input.CodeBoundQuota, "%d runs would follow one after another on a run of job %s, by way of %s; the bounds of "+
			"app %s allow %d (quotas.chain_depth); make the chain shorter, or ask an operator for more", most.Depth, path[0],
			strings.Join(path, " -> "), job.App, quotas.ChainDepth)
	}
	return problems.Err()
}

// fanOut returns the fan-out of a job before and after a change of its followers, which do not lead back to it.
func (g FollowGraph) fanOut(job Job, after []Follower) (was, is fanOut, now fanOuts) {
	before := fanOuts{after: g.After, known: map[int64]fanOut{}}
	now = fanOuts{after: g.After, of: job.Key(), instead: after, known: map[int64]fanOut{}}
	if !g.Awaited {
		was = before.at(job.Key())
	}
	return was, now.at(job.Key()), now
}

// fanOuts computes the fan-out of jobs when the followers of one of them are replaced.
type fanOuts struct {
	after   map[int64][]Follower
	of      int64 // the job with the new followers; 0 if none
	instead []Follower
	known   map[int64]fanOut
}

// at returns the fan-out of a job.
func (f fanOuts) at(id int64) (out fanOut) {
	if out, known := f.known[id]; known {
		return out
	}
	after := f.after[id]
	if id == f.of {
		after = f.instead
	}
	for _, event := range run.FollowEvents {
		followers := slices.DeleteFunc(slices.Clone(after), func(one Follower) bool { return one.Event != event.Mask() })
		for _, one := range followers {
			out = out.add(len(followers), one.ID, f.at(one.ID))
		}
	}
	f.known[id] = out
	return out
}

// most returns the path to a job with the largest fan-out of its first job, and that fan-out. It stops once quotas
// are exceeded. It ends, because jobs do not follow each other in circles.
func (g FollowGraph) most(id int64, out fanOut, quotas target.Quotas) (path []int64, most fanOut) {
	next, found := map[int64]int64{}, map[int64]fanOut{id: out}
	first, most := id, out
	for level := []int64{id}; len(level) > 0 && most.Runs <= quotas.ChainRuns && most.Depth <= quotas.ChainDepth; {
		leaders := g.leadersOf(level)
		level = level[:0]
		for _, one := range leaders {
			was := found[one.Job]
			is := was.add(one.Count, one.Follower, found[one.Follower])
			if is == was {
				continue
			}
			found[one.Job], next[one.Job] = is, one.Follower
			level = append(level, one.Job)
			if is.Runs > most.Runs || is.Depth > most.Depth {
				first, most = one.Job, is
			}
		}
	}
	for at := first; at != id; at = next[at] {
		path = append(path, at)
	}
	return path, most
}

// leadersOf returns the leaders of some jobs, in a fixed order.
func (g FollowGraph) leadersOf(jobs []int64) (all []Leader) {
	slices.Sort(jobs)
	for _, id := range slices.Compact(jobs) {
		all = append(all, g.Leaders[id]...)
	}
	slices.SortFunc(all, func(a, b Leader) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Follower, b.Follower)) })
	return all
}

// mostNamedOfPath bounds the jobs of a path that an error names.
const mostNamedOfPath = 10

// path returns the names of the jobs of ids, which end with job, and then of those with the largest fan-out.
func (g FollowGraph) path(ids []int64, job Job, out fanOuts) []string {
	for at := out.at(job.Key()).Next; at != 0; at = out.at(at).Next {
		ids = append(ids, at)
	}
	var names []string
	for _, id := range ids {
		if len(names) == mostNamedOfPath {
			return append(names, "...")
		}
		name := g.Names[id]
		switch {
		case id == job.Key():
			name = job.Name
		case name == "":
			return names // a delivery that this change declares
		}
		names = append(names, input.Echo(name))
	}
	return names
}
