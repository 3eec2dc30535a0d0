package dispatcher

import "github.com/carillon-dev/carillon/dispatcher/input"

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
