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

import (
	"embed"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Postgres has the scripts for PostgreSQL, under "postgres".
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite has the scripts for SQLite, under "sqlite".
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// plainMark begins a comment at the end of a line of a script. Its text replaces the line in a database without
// partitions.
const plainMark = "-- plain:"

// Plain returns scripts for a database without partitions.
func Plain(scripts fs.FS) fs.FS { return plainScripts{scripts} }

type plainScripts struct{ fs.FS }

// Open opens a script.
func (p plainScripts) Open(name string) (fs.File, error) {
	file, err := p.FS.Open(name)
	if err != nil || path.Ext(name) != ".sql" {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return plainScript{file, strings.NewReader(plain(string(text)))}, nil
}

// plainScript is a file with a replaced text.
type plainScript struct {
	fs.File
	text *strings.Reader
}

// Read reads the text.
func (p plainScript) Read(into []byte) (int, error) { return p.text.Read(into) }

// plain returns the text of a script without partitions.
func plain(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if _, instead, marked := strings.Cut(line, plainMark); marked {
			line = strings.TrimSpace(instead) + "\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
