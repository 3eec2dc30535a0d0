// Package zonestest creates time zone data for tests.
package zonestest

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Archive returns the built-in data as another release, in which noon in Tokyo is noon in UTC, without the named
// zones.
func Archive(t testing.TB, release string, released time.Time, without ...string) []byte {
	t.Helper()
	built := schedule.BuiltInArchive()
	from, err := zip.NewReader(bytes.NewReader(built), int64(len(built)))
	if err != nil {
		t.Fatal(err)
	}
	dir := fstest.MapFS{}
	for _, file := range from.File {
		data, err := fs.ReadFile(from, file.Name)
		if err != nil {
			t.Fatal(err)
		}
		dir[file.Name] = &fstest.MapFile{Data: data, Mode: 0o600}
	}
	dir["+VERSION"].Data, dir["Asia/Tokyo"].Data = []byte(release+"\n"), dir["UTC"].Data
	for _, name := range without {
		delete(dir, name)
	}
	archive, err := schedule.PackZones(dir, released)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}
