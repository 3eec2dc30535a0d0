package store_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/store"
)

// Headers, payloads and responses are in the file, so other users of the machine must not read it.
func TestFilesOfSQLiteAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	database := newFile(t)
	s := openAs(t, database, store.Options{})
	if _, _, err := s.PutApp(t.Context(), dispatcher.App{Name: "demo", Enabled: true}, dispatcher.Change{}); err != nil {
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
	if exposed := store.ExposedFiles(database); len(exposed) != 0 {
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
	if diff := cmp.Diff([]string{file, file + "-wal"}, store.ExposedFiles(database)); diff != "" {
		t.Errorf("exposed files (-want +got):\n%s", diff)
	}
	if exposed := store.ExposedFiles("postgres://localhost/x"); exposed != nil {
		t.Errorf("exposed files of PostgreSQL are %v", exposed)
	}
}
