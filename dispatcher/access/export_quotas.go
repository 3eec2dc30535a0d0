package access

import "github.com/carillon-dev/carillon/dispatcher/target"

// Counts returns how much of its quotas e would use.
func (e Export) Counts() target.ImportCounts {
	counts := target.ImportCounts{Jobs: len(e.Jobs), WaitingRuns: len(e.Waiting)}
	for _, one := range e.Jobs {
		counts.Triggers += len(one.Job.Triggers)
	}
	return counts
}
