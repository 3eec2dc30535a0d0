package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/store"
	"github.com/carillon-dev/carillon/dispatcher/store/db"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
)

// A node behind the login of RDS migrates, fires, listens and is operated with tokens, a new one
// for each connection and each host. No token appears in a log.
func TestNodeLogsInToRDSByTokens(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, server, "postgres", `CREATE DATABASE carillon`)
	certificate, roots := certificateFor(t, "127.0.0.1", "localhost")
	first := newRDSStub(t, "127.0.0.1", socketOf(t, server), certificate)
	second := newRDSStub(t, "localhost", socketOf(t, server), certificate)
	database := "postgres://fleet@" + first.address() + "," + second.address() + "/carillon?connect_timeout=300&sslrootcert=" + roots
	env := append(stubEnv(), "CARILLON_DATABASE_AUTH=rds-iam")

	out, errs, code := carillon(t, env, "token", "create", "--name=e2e", "--database", database)
	if code != 0 {
		t.Fatalf("token create: exit %d: %s", code, errs)
	}
	r := newReceiver(t, nil)
	n := startNodeWith(t, database, strings.TrimSpace(out), env, append(quick(), "--log-level=debug")...)
	n.tick("tokens", r.URL)
	r.awaitFires(t, "fires", 3)
	awaitListener(t, server, "true")
	if first.count() < 5 || second.count() != 0 {
		t.Errorf("%d logins at the first host and %d at the second, want all of them at the first", first.count(), second.count())
	}

	first.cut() // existing tokens are too old for a new connection
	r.awaitFires(t, "fires with new tokens", 3)
	awaitListener(t, server, "true")

	first.stop()
	r.awaitFires(t, "fires at the second host", 4)
	awaitListener(t, server, "true")
	if second.count() < 3 {
		t.Errorf("%d logins at the second host, want one for each connection", second.count())
	}
	if _, errs, code := carillon(t, env, "token", "create", "--name=late", "--database", database); code != 0 {
		t.Errorf("token create: exit %d, %s", code, errs)
	}
	n.terminate()
	for _, s := range []*rdsStub{first, second} {
		s.checkSecret("the log", n.logs.String())
	}
}

func TestRDSErrorsSayWhatToDoAndShowNoToken(t *testing.T) {
	t.Parallel()
	certificate, roots := certificateFor(t, "127.0.0.1")
	_, otherRoots := certificateFor(t, "127.0.0.1")
	refusing := newRDSStub(t, "127.0.0.1", "", certificate)
	refusing.refuse = true
	at := "--database=postgres://fleet@" + refusing.address() + "/carillon"
	for name, tt := range map[string]struct {
		database string
		says     []string
	}{
		"a user that RDS refuses":  {at + "?sslrootcert=" + roots, []string{"PAM authentication failed", "GRANT rds_iam", "rds-db:connect"}},
		"a server of another root": {at + "?sslrootcert=" + otherRoots, []string{"certificate"}},
		"a server outside of RDS":  {at, []string{"certificate signed by unknown authority"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// No variable weakens TLS or makes the node trust another root.
			env := append(stubEnv(), "PGSSLMODE=disable", "PGSSLROOTCERT="+roots, "PGPASSWORD=x")
			out, errs, code := carillon(t, env, "token", "create", "--name=a", "--database-auth=rds-iam", tt.database)
			for _, want := range tt.says {
				if code != exitUsage || !strings.Contains(errs, want) {
					t.Errorf("exit %d, %q, want %d and %q", code, errs, exitUsage, want)
				}
			}
			refusing.checkSecret("the error", out+errs)
		})
	}
}

// A node without credentials waits for them, as for a database, and reports that.
func TestNodeWaitsForCredentials(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	for name, tt := range map[string]struct {
		env  []string
		says []string
	}{
		"none":      {nil, []string{"get AWS credentials"}},
		"no region": {append(stubEnv(), "AWS_REGION="), []string{"no region is known", "AWS_REGION"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := append([]string{"AWS_EC2_METADATA_DISABLED=true", "AWS_REGION=eu-west-1", "AWS_CONFIG_FILE=" + os.DevNull,
				"AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, tt.env...)
			n := launchNode(t, "postgres://fleet@127.0.0.1:1/carillon", "", env, "--database-auth=rds-iam")
			until(t, "the node to say what it waits for", func() bool {
				return strings.Count(n.logs.String(), "waiting for the database") > 1
			})
			for _, want := range tt.says {
				if !strings.Contains(n.logs.String(), want) {
					t.Errorf("log does not say %q", want)
				}
			}
			n.terminate()
		})
	}
}

// With different passwords for two hosts, and without TLS to verify the hosts, no password is sent.
func TestPasswordsByHostNeedTLS(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), "postgres://fleet@127.0.0.1:1,localhost:2/carillon?sslmode=disable", store.Options{
		Options: db.Options{Login: db.Login{
			Password: func(_ context.Context, at db.Server) (string, error) { return at.Host, nil },
		}}})
	if err == nil || !strings.Contains(err.Error(), "need TLS") || !db.Unreachable(err) {
		t.Errorf("open: got %v, want an error about TLS", err)
	}
}
