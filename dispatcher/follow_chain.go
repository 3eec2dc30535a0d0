package dispatcher

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// A chain begins with a run that follows no other. How many runs may follow it is carried along: each follower gets an equal
// part of what is left. So the bound holds on all nodes, after any crash, and however often an end is recorded, and no row is
// shared by the runs of a chain.

// ChainLink is the place of runs in a chain; see run.Cause.
type ChainLink struct{ Depth, MayFollow int }

// Link returns the place of the runs that follow a run, of which there are count. of is why that run exists; nil: its kind says
// all. shards are those that it had. The error is a Problem: these runs would be outside the quotas.
func (q Quotas) Link(of *run.Cause, shards, count int) (ChainLink, error) {
	depth, left := 0, q.ChainRuns
	if of != nil && of.Depth > 0 {
		depth, left = of.Depth, min(of.MayFollow, q.ChainRuns)
	}
	left -= shards
	switch {
	case depth >= q.ChainDepth:
		return ChainLink{}, &input.Problem{Code: input.CodeBoundQuota,
			Message: fmt.Sprintf("%d runs follow one another, and the bounds of the app "+
				"allow %d (quotas.chain_depth); make the chain shorter, or ask an operator for more", depth+1, q.ChainDepth)}
	case count > left:
		return ChainLink{}, &input.Problem{Code: input.CodeBoundQuota,
			Message: fmt.Sprintf("%d runs would follow, and %d are left of the %d that may "+
				"follow the first run of the chain, directly and through others (quotas.chain_runs); let fewer jobs follow, or ask an "+
				"operator for more", count, max(left, 0), q.ChainRuns)}
	}
	return ChainLink{Depth: depth + 1, MayFollow: (left - count) / max(count, 1)}, nil
}

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
