// Package sqlitetest gives tests migrated SQLite databases.
package sqlitetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store"
)

// template is a migrated database. Each test process migrates one and copies it: that takes a hundredth of the time.
type template struct {
	file     []byte
	identity [][]byte // the random texts by which one installation differs from another, in hexadecimal digits
}

// shared is the template of this process, made by the first test that needs it.
var shared struct { //nolint:gochecknoglobals // tests share one
	once sync.Once
	template
	err error
}

func (t *template) migrate(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "carillon-sqlitetest-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "template.db")
	if err := store.Migrate(ctx, "sqlite:"+file); err != nil {
		return err
	}
	if t.identity, err = identityIn(ctx, file); err != nil {
		return err
	}
	t.file, err = os.ReadFile(file)
	return err
}

func identityIn(ctx context.Context, file string) ([][]byte, error) {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return nil, err
	}
	identity := make([][]byte, 2)
	err = db.QueryRowContext(ctx, `SELECT id, audit_key FROM installation`).Scan(&identity[0], &identity[1])
	return identity, errors.Join(err, db.Close())
}

// New returns the URL of a migrated database in a directory that is removed when the test ends.
func New(t testing.TB) (databaseURL string) {
	t.Helper()
	return At(t, filepath.Join(t.TempDir(), "carillon.db"))
}

// At writes a migrated database to a new file and returns its URL. Each is an installation of its own.
func At(t testing.TB, file string) (databaseURL string) {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.migrate(t.Context()) })
	if shared.err != nil {
		t.Fatalf("migrate a template: %v", shared.err)
	}
	content := bytes.Clone(shared.file)
	for _, text := range shared.identity {
		own := make([]byte, hex.DecodedLen(len(text)))
		_, _ = rand.Read(own) // it never fails
		at := bytes.Index(content, text)
		hex.Encode(content[at:], own) // pages have no checksums
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + file
}
