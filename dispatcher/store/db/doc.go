// Package db is the kernel of the store: PostgreSQL and SQLite as they are opened and watched, the SQL in which they differ, how
// statements are run and rows scanned, the columns of batches and tables, and notifications. It knows the tables of runs, and
// nothing of definitions, claims or alerts.
package db
