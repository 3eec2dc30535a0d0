package migrations

import (
	"io"
	"io/fs"
	"path"
	"strings"
)

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
