package store

import (
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// checkAdvance refuses an advance without the job of its trigger: the run would be stored as one of no job, which no list
// shows and no retention ends.
func checkAdvance(one dispatcher.Advance) error {
	if one.JobID == 0 {
		return fmt.Errorf("advance of trigger %d: JobID is 0; it must be the id of the trigger's job, see TriggersByID", one.TriggerID)
	}
	return nil
}
