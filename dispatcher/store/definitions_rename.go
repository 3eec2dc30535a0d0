package store

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher"
)

// RenameJob renames a job and triggers of it.
func (s *store) RenameJob(_ context.Context, app, name string, _ dispatcher.JobRename, _ dispatcher.Change) (dispatcher.Job, error) {
	return dispatcher.Job{}, fmt.Errorf("rename of job %s/%s is not there yet: %w", app, name, dispatcher.ErrConflict)
}
