package dispatcher

import (
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// CheckBounds returns what of j is outside the bounds of its app, as Problems with JSON pointers in the job, or nil: of its own
// target, and of those of what follows it.
func (j Job) CheckBounds(bounds *target.Bounds) error {
	var problems input.Problems
	problems.AddError("", bounds.CheckTarget(j.App, j.Target))
	for event, follow := range j.EachFollow() {
		if follow.Target != nil {
			problems.AddError("/"+string(event), bounds.CheckTarget(j.App, *follow.Target))
		}
	}
	return problems.Err()
}
