package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// jobRenameCommand renames a job.
type jobRenameCommand struct {
	jobFlags
	Name    string            `arg:"" optional:"" help:"The new name of the job, such as bills. Default: it stays."`
	Trigger map[string]string `mapsep:"," placeholder:"OLD=NEW,..." help:"New names of triggers. Two of them can swap their names."`
}

// Validate checks the names.
func (r *jobRenameCommand) Validate() error {
	if r.Name == "" && len(r.Trigger) == 0 {
		return errors.New("nothing is to be renamed; give the new name of the job, or --trigger OLD=NEW")
	}
	return r.rename().Validate()
}

func (r *jobRenameCommand) rename() dispatcher.JobRename {
	return dispatcher.JobRename{Name: r.Name, Triggers: r.Trigger}
}

// Run renames it, and prints the job, or for people what was done.
func (r *jobRenameCommand) Run(ctx context.Context, c console) error {
	api, app, name, err := r.open(ctx)
	if err != nil {
		return err
	}
	job, err := api.Job(ctx, app, name)
	if err != nil {
		return err
	}
	if job, err = api.RenameJob(ctx, app, name, r.rename(), client.Condition{Revision: job.Revision}); err != nil {
		return err
	}
	if r.Output != outputTable {
		return printObject(r.outputFlags, c, job, nil)
	}
	if r.Name != "" {
		if _, err := fmt.Fprintf(c.out, "%s is now %s\n", plain(r.Job), plain(app+"/"+job.Name)); err != nil {
			return err
		}
	}
	for _, old := range slices.Sorted(maps.Keys(r.Trigger)) {
		if _, err := fmt.Fprintf(c.out, "trigger %s is now %s\n", plain(r.Job+"/"+old), plain(app+"/"+job.Name+"/"+r.Trigger[old])); err != nil {
			return err
		}
	}
	return nil
}
