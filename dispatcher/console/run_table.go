package console

import (
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
)

// runTable is what the table of runs needs of its page.
type runTable struct{ zones map[string]string }

// Zone returns the zone of a trigger; empty: it is not known.
func (t runTable) Zone(trigger string) string { return t.zones[trigger] }

// Took returns how long the latest attempt of a run took, nil if it is not over.
func (runTable) Took(run run.Run) *time.Duration {
	if run.StartedAt == nil || run.EndedAt == nil {
		return nil
	}
	took := run.EndedAt.Sub(*run.StartedAt)
	return &took
}
