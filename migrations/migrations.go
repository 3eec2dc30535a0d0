// Package migrations holds the schema of both databases as numbered goose scripts.
//
// The two say the same thing. What a column means is explained once, in the PostgreSQL
// scripts. Instants are Unix milliseconds; ids are hashes of names or drawn by nodes, so
// there are no sequences, and nothing here needs triggers, functions or extensions.
package migrations

import "embed"

// Postgres holds the scripts for PostgreSQL, under "postgres".
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite holds the scripts for SQLite, under "sqlite".
//
//go:embed sqlite/*.sql
var SQLite embed.FS
