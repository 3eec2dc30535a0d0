package store_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
)

// Headers, payloads and responses are in the file, so other users of the machine must not read it.
func TestFilesOfSQLiteAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	database := newFile(t)
	s := openAs(t, database, store.Options{})
	if _, _, err := s.PutApp(t.Context(), access.App{Name: "demo", AppSpec: access.AppSpec{Enabled: true}}, input.Change{}); err != nil {
		t.Fatal(err)
	}
	file := strings.TrimPrefix(database, "sqlite:")
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(file + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("the file %q of the database has mode %o, want 600", suffix, mode)
		}
	}
	if exposed := db.ExposedFiles(database); len(exposed) != 0 {
		t.Errorf("exposed files are %v, want none", exposed)
	}
}

func TestFilesThatOthersCanReadAreNamed(t *testing.T) {
	t.Parallel()
	database := newFile(t)
	openAs(t, database, store.Options{})
	file := strings.TrimPrefix(database, "sqlite:")
	for name, mode := range map[string]os.FileMode{file: 0o640, file + "-wal": 0o604, file + "-shm": 0o600} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{file, file + "-wal"}, db.ExposedFiles(database)); diff != "" {
		t.Errorf("exposed files (-want +got):\n%s", diff)
	}
	if exposed := db.ExposedFiles("postgres://localhost/x"); exposed != nil {
		t.Errorf("exposed files of PostgreSQL are %v", exposed)
	}
}

// A start that fails leaves no file that the next one would take for a database of which everything was lost.
func TestDatabaseThatCannotBeMadeLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	begun := t.Context()
	ended, end := context.WithCancel(begun)
	end()
	for name, tt := range map[string]struct {
		path string
		want string
	}{
		"a directory":       {dir, "is a directory; name a file in it, such as " + filepath.Join(dir, "carillon.db")},
		"a socket":          {filepath.Join(dir, "socket"), "is not a regular file"},
		"no such directory": {filepath.Join(dir, "missing", "carillon.db"), "no such file or directory"},
		"a start that ends": {filepath.Join(dir, "carillon.db"), "context canceled"},
	} {
		ctx := begun
		if name == "a start that ends" {
			ctx = ended
		}
		if err := store.Migrate(ctx, "sqlite:"+tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Migrate = %v, want %q", name, err, tt.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "carillon.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the start that was ended left a database: %v", err)
	}
	if _, err := os.Stat(dir + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("next to the directory is a lock file: %v", err)
	}
	if got := db.ExposedFiles("sqlite:" + dir); got != nil {
		t.Errorf("ExposedFiles of a directory = %v, want none", got)
	}
}
