// Package migrations has the schema of both databases as numbered goose scripts.
//
// Both define the same tables. The PostgreSQL scripts explain the columns. Instants are Unix milliseconds; ids are
// hashes of names or drawn by nodes, so there are no sequences. The schema needs no triggers, functions or extensions.
//
// Nodes of the previous version keep working while a script runs and after it, and may come back. So
// a script takes the number after the last one only if it adds tables, indexes, or columns that have a
// default. A script that changes existing ones begins the next thousand; versions that do not know it
// refuse to start with it.
package migrations

import "embed"

// Postgres has the scripts for PostgreSQL, under "postgres".
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite has the scripts for SQLite, under "sqlite".
//
//go:embed sqlite/*.sql
var SQLite embed.FS
