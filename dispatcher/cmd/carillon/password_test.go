package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-dev/carillon/test/postgres"
)

// A password that is changed where it is kept is used from the next connection on.
func TestPasswordFileIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	file := filepath.Join(t.TempDir(), "passwords")
	change := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("*:*:carillon:carillon:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		sqlIn(t, server, "postgres", `ALTER ROLE carillon PASSWORD '`+password+`'`)
	}
	sqlIn(t, server, "postgres", `CREATE ROLE carillon LOGIN`, `CREATE DATABASE carillon OWNER carillon`,
		`COPY (VALUES ('local all carillon scram-sha-256'), ('local all all trust')) TO '`+
			filepath.Join(socketOf(t, server), "data", "pg_hba.conf")+`'`,
		`SELECT pg_reload_conf()`)
	change("hunter2")
	database := "postgres://carillon@/carillon?host=" + socketOf(t, server) + "&passfile=" + file
	if _, errs, code := carillon(t, nil, "migrate", "--database", database); code != 0 {
		t.Fatal(errs)
	}
	token, r := newToken(t, database), newReceiver(t, nil)
	n := startNode(t, database, token, quick()...)
	n.tick("rotated", r.URL)
	r.awaitFires(t, "fires", 3)
	change("hunter3")
	sqlIn(t, server, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'carillon'`)
	r.awaitFires(t, "fires with the new password", 3)
	awaitListener(t, server, "usename = 'carillon'")
	n.checkVerify("rotated")
	n.terminate()
}
