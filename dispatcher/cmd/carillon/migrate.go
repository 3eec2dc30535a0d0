package main

import (
	"context"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/store"
)

// migrateCommand updates the schema of a database.
type migrateCommand struct {
	databaseFlag
}

// Validate checks the database's URL.
func (m *migrateCommand) Validate() error { return m.check() }

// Run migrates. Several processes may do so at once, and repeatedly.
func (m *migrateCommand) Run(ctx context.Context, c console) error {
	if err := store.Migrate(ctx, m.Database); err != nil {
		return databaseError(m.Database, err)
	}
	_, err := fmt.Fprintln(c.out, "the schema is up to date")
	return err
}
