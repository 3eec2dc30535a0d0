package pgtest

import (
	"os"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// NewPooler returns a running PgBouncer in transaction mode before a database. It ends with the
// test. Without PgBouncer on the machine the test is skipped; with CI=true it fails.
func NewPooler(t testing.TB, database string, settings ...string) *postgres.Pooler {
	t.Helper()
	program, ok := postgres.FindPooler()
	if !ok {
		need.Missing(t, "no pgbouncer on this machine; install it: apt-get install -y pgbouncer")
	}
	dir, err := os.MkdirTemp("", "carillon-pgbouncer-")
	if err != nil {
		t.Fatal(err)
	}
	p := postgres.NewPooler(program, dir, settings...)
	if err := p.Lead(database); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close()
		_ = os.RemoveAll(dir)
	})
	return p
}
