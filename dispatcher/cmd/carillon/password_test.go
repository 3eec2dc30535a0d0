package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// After the password file changes, new connections use the new password.
func TestPasswordFileIsReadForEachConnection(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	for name, tt := range map[string]struct {
		entry string // in the file, with a password
		login func(file string) (parameter, variable string)
	}{
		"passfile in the URL": {"*:*:carillon:carillon:%s\n", func(file string) (parameter, variable string) {
			return "&passfile=" + file, "CARILLON_DATABASE_PASSWORD_FILE="
		}},
		"--database-password-file": {"%s\r\n", func(file string) (parameter, variable string) {
			return "", "CARILLON_DATABASE_PASSWORD_FILE=" + file
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testRotation(t, tt.entry, tt.login)
		})
	}
}

func testRotation(t *testing.T, entry string, login func(file string) (parameter, variable string)) {
	t.Helper()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	file := filepath.Join(t.TempDir(), "passwords")
	change := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, fmt.Appendf(nil, entry, password), 0o600); err != nil {
			t.Fatal(err)
		}
		sqlIn(t, server, "postgres", `ALTER ROLE carillon PASSWORD '`+password+`'`)
	}
	sqlIn(t, server, "postgres", `CREATE ROLE carillon LOGIN`, `CREATE DATABASE carillon OWNER carillon`,
		`COPY (VALUES ('local all carillon scram-sha-256'), ('local all all trust')) TO '`+
			filepath.Join(socketOf(t, server), "data", "pg_hba.conf")+`'`,
		`SELECT pg_reload_conf()`)
	change("hunter2")
	parameter, variable := login(file)
	database := "postgres://carillon@/carillon?host=" + socketOf(t, server) + parameter
	out, errs, code := carillon(t, []string{variable}, "token", "create", "--name=e2e", "--database", database)
	if code != 0 {
		t.Fatal(errs)
	}
	r := newReceiver(t, nil)
	n := startNodeWith(t, database, strings.TrimSpace(out), []string{variable}, quick()...)
	n.tick("rotated", r.URL)
	r.awaitFires(t, "fires", 3)
	change("hunter3")
	sqlIn(t, server, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'carillon'`)
	r.awaitFires(t, "fires with the new password", 3)
	awaitListener(t, server, "usename = 'carillon'")
	// A file that is missing for a while does not stop the node.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	sqlIn(t, server, "postgres", `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'carillon'`)
	until(t, "the node to miss its password", func() bool { return n.status("/readyz") == http.StatusServiceUnavailable })
	change("hunter3")
	r.awaitFires(t, "fires with the file back", 3)
	n.checkVerify("rotated")
	n.terminate()
	without := "postgres://carillon@/carillon?host=" + socketOf(t, server)
	for password, want := range map[string]int{"hunter3": 0, "hunter2": exitUsage} {
		out, errs, code := carillon(t, []string{"CARILLON_DATABASE_PASSWORD=" + password},
			"token", "create", "--name=late", "--database", without)
		if code != want || strings.Contains(out+errs+n.logs.String(), password) {
			t.Errorf("password %s in the variable: exit %d, want %d: %s%s", password, code, want, out, errs)
		}
	}
}
