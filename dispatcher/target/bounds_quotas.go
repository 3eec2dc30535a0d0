package target

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// ImportCounts are how much of its quotas an import would use.
type ImportCounts struct {
	Jobs, Triggers, WaitingRuns int
}

// CheckImport returns the quotas that an import into app would exceed, as Problems with JSON pointers in the Export, or nil.
func (q Quotas) CheckImport(app string, counts ImportCounts) error {
	var problems input.Problems
	for _, one := range []struct {
		at, what, name string
		count, most    int
	}{
		{"/jobs", "jobs", "jobs", counts.Jobs, q.Jobs},
		{"/jobs", "triggers", "triggers", counts.Triggers, q.Triggers},
		{"/waiting_runs", "runs that wait", "waiting_runs", counts.WaitingRuns, q.WaitingRuns},
	} {
		if one.count > one.most {
			problems.Add(one.at, input.CodeBoundQuota,
				"the import has %d %s, and the bounds of app %s allow %d (quotas.%s); an operator may import it with wider bounds",
				one.count, one.what, app, one.most, one.name)
		}
	}
	return problems.Err()
}

// Link returns the place of the runs that follow a run, of which there are count. of is why that run exists; nil: its kind says
// all. shards are those that it had. The error is a Problem: these runs would be outside the quotas.
func (q Quotas) Link(of *run.Cause, shards, count int) (run.ChainLink, error) {
	depth, left := 0, q.ChainRuns
	if of != nil && of.Depth > 0 {
		depth, left = of.Depth, min(of.MayFollow, q.ChainRuns)
	}
	left -= shards
	switch {
	case depth >= q.ChainDepth:
		return run.ChainLink{}, &input.Problem{Code: input.CodeBoundQuota,
			Message: fmt.Sprintf("%d runs follow one another, and the bounds of the app "+
				"allow %d (quotas.chain_depth); make the chain shorter, or ask an operator for more", depth+1, q.ChainDepth)}
	case count > left:
		return run.ChainLink{}, &input.Problem{Code: input.CodeBoundQuota,
			Message: fmt.Sprintf("%d runs would follow, and %d are left of the %d that may "+
				"follow the first run of the chain, directly and through others (quotas.chain_runs); let fewer jobs follow, or ask an "+
				"operator for more", count, max(left, 0), q.ChainRuns)}
	}
	return run.ChainLink{Depth: depth + 1, MayFollow: (left - count) / max(count, 1)}, nil
}
