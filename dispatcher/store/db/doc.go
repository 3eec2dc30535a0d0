// Package db is the kernel of the store: how PostgreSQL and SQLite are opened and watched, the SQL in which they
// differ, how statements are run and rows scanned, the columns of batches and tables, and notifications. It knows the
// tables of runs, but no definitions, claims or alerts.
package db
