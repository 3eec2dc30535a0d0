package dispatcher

// A chain begins with a run that follows no other. How many runs may follow it is carried along: each follower gets an equal
// part of what is left. So the bound holds on all nodes, after any crash, and however often an end is recorded, and no row is
// shared by the runs of a chain.

// FanOut is what may follow a run of a job.
type FanOut struct {
	// Runs are as many as ChainRuns must be, so that all of them follow: the followers of an event, each with as many after it as
	// the one with the most. At most mostFanOut. Depth is how many follow one after another.
	Runs, Depth int
	// Next is the follower with the most, 0 if there is none.
	Next int64
}

// mostFanOut keeps FanOut.Runs from overflowing.
const mostFanOut = 1 << 40

// Add returns f, or what follows if count jobs follow an event, of which one is followed by next, if that is more.
func (f FanOut) Add(count int, follower int64, next FanOut) FanOut {
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
