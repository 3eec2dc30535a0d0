package main

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
)

// A node with an invalid configuration exits at once, with a specific exit code and a message that
// names the flag or variable and its value.
func TestInvalidConfigurationEndsAtOnceAndIsNamed(t *testing.T) {
	t.Parallel()
	database := "--database=sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	missing := filepath.Join(t.TempDir(), "nothing.pem")
	for name, tt := range map[string]struct {
		env, args, says []string
	}{
		"no database":       {nil, []string{"serve"}, []string{"--database"}},
		"an empty variable": {[]string{"CARILLON_DATABASE="}, []string{"serve"}, []string{"database"}},
		"a database of other kind": {[]string{"DATABASE_URL=mysql://me:hunter2@host/db"}, []string{"serve"},
			[]string{"mysql://me:***@host/db", "postgres://"}},
		"a password in the query": {nil,
			[]string{"serve", "--database=mysql://me@host/db?sslpassword=hunter2&password=hunter2"},
			[]string{"mysql://me@host/db?password=***&sslpassword=***"}},
		"a password in pairs": {nil, []string{"serve", "--database=host=db password=hunter2 sslpassword=hunter2"},
			[]string{"host=db password=*** sslpassword=***"}},
		"a password in quotes": {nil, []string{"serve", "--database=host=db password='hunter2 hunter2'"},
			[]string{"--database", "not shown"}},
		"a password that breaks it": {nil, []string{"serve", "--database=mysql://me:1/hunter2@host/db"}, []string{"--database", "not shown"}},
		"a password and no scheme":  {nil, []string{"serve", "--database=me:hunter2@host/db"}, []string{"--database", "not shown"}},
		"a wrong mode of TLS": {nil,
			[]string{"serve", "--listen=127.0.0.1:0", "--database=postgres://me@127.0.0.1:1/db?password=hunter2&sslmode=bogus"},
			[]string{"--database", "password=***", "sslmode"}},
		"an invalid port": {nil,
			[]string{"serve", "--listen=127.0.0.1:0", "--database=postgres://me:hunter2@127.0.0.1:x/db?sslpassword=hunter2"},
			[]string{"--database"}},
		"notified by a file": {nil, []string{"serve", database, "--notify-database=sqlite:x"},
			[]string{"--notify-database", "leave it out"}},
		"notified by a password": {nil,
			[]string{"serve", "--database=postgres://h/d", "--notify-database=postgres://me:hunter2@h/d?port=x"},
			[]string{"--notify-database", "cannot be read"}},
		"a window out of range":   {nil, []string{"serve", database, "--poll-window=1h"}, []string{"--poll-window", "1h0m0s", "1m0s"}},
		"a window of zero":        {nil, []string{"serve", database, "--poll-window=0s"}, []string{"--poll-window", "100ms"}},
		"a negative window":       {nil, []string{"serve", database, "--poll-window=-1s"}, []string{"--poll-window", "-1s"}},
		"a duration without unit": {[]string{"CARILLON_POLL_WINDOW=5"}, []string{"serve", database}, []string{"poll-window", `"5"`, "unit"}},
		"death before two rounds": {nil, []string{"serve", database, "--dead-after=20s"}, []string{"--dead-after", "20s", "30s"}},
		"no workers":              {nil, []string{"serve", database, "--workers=0"}, []string{"--workers", "0"}},
		"workers that are a word": {[]string{"CARILLON_WORKERS=ten"}, []string{"serve", database}, []string{"workers", "ten"}},
		"a billion workers":       {nil, []string{"serve", database, "--workers=1000000000"}, []string{"--workers", "1000000000", "10000"}},
		"an invalid level": {[]string{"CARILLON_LOG_LEVEL=verbose"}, []string{"serve", database},
			[]string{"log-level", "verbose", "debug"}},
		"an app that has no name":   {nil, []string{"serve", database, "--apps=Billing"}, []string{"--apps", "Billing"}},
		"a certificate without key": {nil, []string{"serve", database, "--tls-cert=" + missing}, []string{"--tls-cert", "--tls-key"}},
		"a certificate not there":   {nil, []string{"serve", database, "--tls-cert=" + missing, "--tls-key=" + missing}, []string{"nothing.pem"}},
		"an invalid address":        {nil, []string{"serve", database, "--listen=256.0.0.1:80"}, []string{"--listen", "256.0.0.1:80"}},
		"a key of 31 bytes": {[]string{"CARILLON_SECRET_KEYS=aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMmh1bg=="},
			[]string{"serve", database}, []string{"CARILLON_SECRET_KEYS", "31 bytes", "32"}},
		"an invalid key": {[]string{"CARILLON_SECRET_KEYS=hunter2!"}, []string{"serve", database},
			[]string{"CARILLON_SECRET_KEYS", "base64"}},
		"a file of keys not there": {nil, []string{"serve", database, "--secret-keys-file=" + missing},
			[]string{"--secret-keys-file", "nothing.pem"}},
		"a key twice over": {[]string{"CARILLON_SECRET_KEYS=x"},
			[]string{"serve", database, "--secret-keys-file=" + missing}, []string{"exclude each other"}},
		"two passwords": {[]string{"CARILLON_DATABASE_PASSWORD=hunter2"},
			[]string{"serve", "--check", "--database=postgres://me:hunter2@h/d"},
			[]string{"CARILLON_DATABASE_PASSWORD", "the password in --database", "exclude each other"}},
		"a password and a passfile": {[]string{"CARILLON_DATABASE_PASSWORD=hunter2"},
			[]string{"serve", "--check", "--database=postgres://me@h/d?passfile=x"}, []string{"passfile in --database"}},
		"a password and a file of it": {[]string{"CARILLON_DATABASE_PASSWORD=hunter2"},
			[]string{"token", "create", "--name=a", "--database=postgres://me@h/d", "--database-password-file=x"},
			[]string{"--database-password ", "--database-password-file", "exclude each other"}},
		"a password for a file": {[]string{"CARILLON_DATABASE_PASSWORD=hunter2"}, []string{"serve", "--check", database},
			[]string{"CARILLON_DATABASE_PASSWORD", "only PostgreSQL"}},
		"a password file not there": {nil,
			[]string{"token", "create", "--name=a", "--database=postgres://me@h/d", "--database-password-file=" + missing},
			[]string{"--database-password-file", "nothing.pem"}},
		"an empty password file": {nil,
			[]string{"serve", "--check", "--database=postgres://me@h/d", "--database-password-file=/dev/null"},
			[]string{"--database-password-file", "holds no password"}},
		"two passwords for notifications": {[]string{"CARILLON_DATABASE_PASSWORD=hunter2"},
			[]string{"serve", "--check", "--database=postgres://me@h/d", "--notify-database=postgres://me:hunter2@h/d"},
			[]string{"the password in --notify-database"}},
		"a login of no kind": {nil, []string{"migrate", "--database=postgres://me@h/d", "--database-auth=iam"},
			[]string{"--database-auth", "iam", "rds-iam"}},
		"tokens for a file": {nil, []string{"serve", "--check", database, "--database-auth=rds-iam"},
			[]string{"--database-auth", "only PostgreSQL"}},
		"tokens and a password": {nil,
			[]string{"serve", "--check", "--database=postgres://me:hunter2@h/d", "--database-auth=rds-iam"},
			[]string{"--database-auth", "exclude each other"}},
		"tokens for a socket": {nil,
			[]string{"serve", "--check", "--database=postgres://me@/d?host=/run/postgresql", "--database-auth=rds-iam"},
			[]string{"--database", "/run/postgresql", "socket"}},
		"tokens without a user": {nil, []string{"serve", "--check", "--database=postgres://h/d", "--database-auth=rds-iam"},
			[]string{"--database", "USER"}},
		"tokens for any server": {nil,
			[]string{"serve", "--check", "--database=postgres://me@h/d?sslmode=require", "--database-auth=rds-iam"},
			[]string{"--database", "sslmode=require", "verify-full"}},
		"tokens for any server of notifications": {nil, []string{"serve", "--check", "--database=postgres://me@h/d",
			"--database-auth=rds-iam", "--notify-database=postgres://me@h/d?sslmode=disable"},
			[]string{"--notify-database", "sslmode=disable", "verify-full"}},
		"a drain that would be cut off": {nil,
			[]string{"serve", "--check", database, "--stop-timeout=120s", "--drain-timeout=116s"},
			[]string{"--drain-timeout", "1m56s", "--stop-timeout", "2m0s", "1m55s at most"}},
		"no time to stop": {nil, []string{"serve", "--check", database, "--stop-timeout=3s", "--drain-timeout=1s"},
			[]string{"--drain-timeout", "0s at most"}},
		"a negative time to stop": {nil, []string{"serve", "--check", database, "--stop-timeout=-1s"}, []string{"--stop-timeout", "-1s"}},
		"several variables that cannot be read": {[]string{"CARILLON_WORKERS=ten", "CARILLON_QUEUE=x", "CARILLON_POLL_WINDOW=5"},
			[]string{"serve", "--check", database}, []string{"CARILLON_WORKERS", "CARILLON_QUEUE", "CARILLON_POLL_WINDOW"}},
		"a file of settings not there": {[]string{"CARILLON_ENV_FILE=" + missing}, []string{"serve", "--check", database},
			[]string{"CARILLON_ENV_FILE", "nothing.pem"}},
		"nothing to rewrap by": {nil, []string{"secret", "rewrap", database}, []string{"--secret-keys-file"}},
		"several faults at once": {nil, []string{"serve", "--database=x", "--workers=0", "--queue=0"},
			[]string{"--database", "--workers", "--queue"}},
		"a token of no name": {nil, []string{"token", "create", database, "--name=A B"}, []string{"--name", "A B"}},
		"a token of no scope": {nil, []string{"token", "create", database, "--name=a", "--scope=everything"},
			[]string{"--scope", "admin", "write"}},
		"a wrong expression":   {nil, []string{"schedule", "next", "60 * * * *"}, []string{"minute", "60"}},
		"an unknown zone":      {nil, []string{"schedule", "next", "0 * * * *", "--timezone=Mars/Olympus"}, []string{"Mars/Olympus"}},
		"a count out of range": {nil, []string{"schedule", "next", "0 * * * *", "--count=0"}, []string{"--count", "0"}},
		"an instant without zone": {nil, []string{"schedule", "next", "0 * * * *", "--from=2026-01-01T00:00:00"},
			[]string{"--from", "2026-01-01T00:00:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, errs, code := carillon(t, tt.env, tt.args...)
			if code != exitUsage {
				t.Errorf("exit code %d, want %d\n%s%s", code, exitUsage, out, errs)
			}
			for _, want := range tt.says {
				if !strings.Contains(errs, want) {
					t.Errorf("message does not name %q:\n%s", want, errs)
				}
			}
			if strings.Contains(out+errs, "hunter2") {
				t.Errorf("message shows the password:\n%s", errs)
			}
		})
	}
}

func TestLogsAreInUTC(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("", 3600))
	for _, format := range []string{"json", "text"} {
		var log strings.Builder
		record := slog.NewRecord(at, slog.LevelInfo, "x", 0)
		record.AddAttrs(slog.Time("due", at))
		if err := node.NewLogger(&log, "info", format).Handler().Handle(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		if got := log.String(); strings.Count(got, "2026-01-01T00:00:00") != 2 || strings.Contains(got, "+01:00") {
			t.Errorf("%s: %s, want both instants in UTC", format, got)
		}
	}
}

func TestSecondProcessOnOneSQLiteFileIsRefused(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	holder := fmt.Sprintf("carillon.db.lock is locked: another process (pid %d)", n.command.Process.Pid)
	_, errs, code := carillon(t, nil, "serve", "--database", database, "--listen=127.0.0.1:0")
	if code != exitUsage || !strings.Contains(errs, holder) {
		t.Errorf("exit code %d with %q, want %d and %q", code, errs, exitUsage, holder)
	}
}

// A supervisor restarts a node that exits with 1, but not one with an invalid configuration.
func TestAddressInUseIsATemporaryFailure(t *testing.T) {
	t.Parallel()
	taken := must[net.Listener](t)((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	defer taken.Close()
	database := "--database=sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	for address, want := range map[string]int{
		taken.Addr().String(): exitFailure, "192.0.2.1:8080": exitUsage, "127.0.0.1:08080": exitUsage, "127.0.0.1:": exitUsage,
		"127.0.0.1": exitUsage, ":http": exitUsage, "127.0.0.1:65536": exitUsage, "127.0.0.1:-1": exitUsage, "": exitUsage,
	} {
		_, errs, code := carillon(t, nil, "serve", database, "--listen="+address)
		if code != want || !strings.Contains(errs, "--listen") {
			t.Errorf("--listen=%s: exit %d, %q; want %d naming the flag", address, code, errs, want)
		}
	}
}

func TestTokenIsCreatedWhileANodeRuns(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		n := startNode(t, database, newToken(t, database))
		out, errs, code := carillon(t, nil, "token", "create", "--database", database, "--name", "late")
		if code != 0 {
			t.Fatalf("token create: exit %d: %s", code, errs)
		}
		late := must[*client.Client](t)(client.New(n.endpoint, strings.TrimSpace(out), client.Options{}))
		if _, err := late.Nodes(t.Context()); err != nil {
			t.Errorf("the new token is not accepted: %v", err)
		}
	})
}

func TestMigrateMayBeRepeated(t *testing.T) {
	t.Parallel()
	for _, database := range []string{pgtest.New(t), "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")} {
		for range 2 {
			if out, errs, code := carillon(t, nil, "migrate", "--database", database); code != 0 {
				t.Errorf("migrate: exit %d\n%s%s", code, out, errs)
			}
		}
	}
}

func TestNodesAreListedPausedAndResumed(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNode(t, database, newToken(t, database))
	list, errs, code := n.commandWith("", "node", "list")
	lines := strings.Split(strings.TrimSpace(list), "\n")
	if code != 0 || len(lines) != 2 || !strings.Contains(lines[0], "SHARE") || !strings.Contains(lines[1], "active") {
		t.Fatalf("list: exit %d, %s\n%s", code, errs, list)
	}
	id := strings.Fields(lines[1])[0]
	for _, step := range []struct{ verb, state string }{
		{"pause", "paused"}, {"resume", "active"}, {"drain", "draining"}, {"resume", "active"},
	} {
		if out, errs, code := n.commandWith("", "node", step.verb, id); code != 0 || !strings.Contains(out, step.state) {
			t.Errorf("%s: exit %d, %q, %s", step.verb, code, out, errs)
		}
	}
	_, errs, code = n.commandWith("", "node", "pause", "node-1")
	if code != exitUsage || !strings.Contains(errs, "16 hexadecimal digits") {
		t.Errorf("a name in place of an id: exit %d, %q", code, errs)
	}
}

func TestScheduleNextPrintsFireTimes(t *testing.T) {
	t.Parallel()
	out, errs, code := carillon(t, nil, "schedule", "next", "--count=2", "--timezone=Europe/Berlin",
		"--from=2026-05-01T00:00:00Z", "0 0 6 1 * ?")
	want := "2026-05-01T04:00:00.000Z  Fri 2026-05-01 06:00:00 +02:00 CEST\n2026-06-01T04:00:00.000Z  Mon 2026-06-01 06:00:00 +02:00 CEST\n"
	if code != 0 || out != want {
		t.Errorf("exit %d, output\n%s%s, want\n%s", code, out, errs, want)
	}
}

func TestUnknownVariableIsLoggedWithTheNearestName(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "carillon.db")
	n := startNodeWith(t, database, newToken(t, database), []string{"CARILLON_POLL_WIDOW=5s"})
	if log := n.logs.String(); !strings.Contains(log, "CARILLON_POLL_WIDOW") || !strings.Contains(log, "CARILLON_POLL_WINDOW") {
		t.Errorf("log does not say that CARILLON_POLL_WIDOW is unknown:\n%s", log)
	}
}
