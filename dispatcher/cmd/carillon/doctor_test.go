package main

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/postgres"
	"github.com/carillon-dev/carillon/test/postgres/pgtest"
	"github.com/carillon-dev/carillon/test/program"
	"github.com/carillon-dev/carillon/test/servers"
)

// healthy returns an environment in which no check fails: it has no AWS.
func healthy() []string {
	return []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
		"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}
}

// doctor runs the examination and returns the findings. It requires a matching exit code, and no
// secret in the output; all secrets contain "hunter2".
func doctor(t *testing.T, env []string, args ...string) []node.Finding {
	t.Helper()
	out, errs, code := carillon(t, append(healthy(), env...), append([]string{"doctor", "--output=json"}, args...)...)
	if strings.Contains(out+errs, "hunter2") {
		t.Errorf("the output shows a secret: %s%s", out, errs)
	}
	var result struct {
		Checks []node.Finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("exit %d: %v: %s%s", code, err, out, errs)
	}
	want := 0
	for _, f := range result.Checks {
		if f.Health == node.HealthFail {
			want = exitFailure
		}
		if f.Detail == "" || (f.Health == node.HealthFail || f.Health == node.HealthWarn) != (f.Action != "") {
			t.Errorf("finding %+v: want a detail, and an action if and only if there is something to do", f)
		}
	}
	if code != want {
		t.Errorf("exit %d, want %d: %s%s", code, want, out, errs)
	}
	return result.Checks
}

// expect requires one finding of a check with this health and these texts in detail and action, and
// no failure of another check.
func expect(t *testing.T, findings []node.Finding, check string, found node.Health, says ...string) {
	t.Helper()
	contain(t, findings, check, found, says...)
	for _, f := range findings {
		if f.Health == node.HealthFail && f.Check != check {
			t.Errorf("%s fails, too: %s", f.Check, f.Detail)
		}
	}
}

// contain is expect, but permits failures of other checks.
func contain(t *testing.T, findings []node.Finding, check string, found node.Health, says ...string) {
	t.Helper()
	met := false
	for _, f := range findings {
		all := f.Check == check && f.Health == found
		for _, want := range says {
			all = all && strings.Contains(f.Detail+" -> "+f.Action, want)
		}
		met = met || all
	}
	if !met {
		t.Errorf("no finding %s of %s that says %q in %+v", found, check, says, findings)
	}
}

func TestDoctorFindsNothingWrongNextToAHealthyNode(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		expect(t, doctor(t, nil, "--database", database), "schema", node.HealthOK)
		n := startNode(t, database, newToken(t, database))
		findings := doctor(t, nil, "--database", database, "--notify-database=")
		for _, check := range []string{"configuration", "database", "rights", "schema", "set_aside", "clock", "secrets", "egress", "aws",
			"memory",
			"files"} {
			expect(t, findings, check, node.HealthOK)
		}
		out, errs, code := carillon(t, healthy(), "doctor", "--database", database)
		if code != 0 || !strings.Contains(out, "\nok    rights         ") || errs != "" {
			t.Errorf("exit %d, %s, %q, want a line for each check", code, out, errs)
		}
		n.terminate()
	})
}

func TestDoctorReportsAllProblemsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	findings := doctor(t, []string{"CARILLON_DATABASE_PASSWORD=hunter2", "CARILLON_WROKERS=1"},
		"--database=postgres://me:hunter2@127.0.0.1:1/x", "--workers=0", "--drain-timeout=10s", "--stop-timeout=10s")
	for _, want := range []string{"exclude each other", "--workers", "--drain-timeout"} {
		expect(t, findings, "configuration", node.HealthFail, want)
	}
	expect(t, findings, "configuration", node.HealthWarn, "CARILLON_WROKERS")
	for _, check := range []string{"database", "rights", "schema", "clock", "secrets"} {
		contain(t, findings, check, node.HealthSkip)
	}
	contain(t, findings, "egress", node.HealthOK)
}

func TestDoctorReportsProblemsOfPostgreSQL(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, server, "postgres", `CREATE ROLE weak LOGIN PASSWORD 'hunter2'`, `CREATE ROLE secret LOGIN PASSWORD 'hunter2'`,
		`COPY (VALUES ('local all secret scram-sha-256'), ('local all all trust')) TO '`+
			filepath.Join(socketOf(t, server), "data", "pg_hba.conf")+`'`, `SELECT pg_reload_conf()`)
	at := func(user, name string) string {
		return "--database=postgres://" + user + "@/" + name + "?host=" + socketOf(t, server)
	}
	for _, name := range []string{"empty", "lent", "lost", "newer"} {
		sqlIn(t, server, "postgres", `CREATE DATABASE `+name)
		if name != "empty" {
			newToken(t, server.URL(name))
		}
	}
	sqlIn(t, server, "empty", `REVOKE CREATE ON SCHEMA public FROM public`)
	sqlIn(t, server, "lent", `GRANT ALL ON SCHEMA public TO weak`, `GRANT ALL ON ALL TABLES IN SCHEMA public TO weak`)
	sqlIn(t, server, "lost", `DROP TABLE goose_db_version`)
	sqlIn(t, server, "newer", `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, TRUE)`)
	for name, tt := range map[string]struct {
		env, args []string
		check     string
		found     node.Health
		says      []string
	}{
		"a role that may create nothing": {nil, []string{at("weak", "empty")}, "rights", node.HealthFail,
			[]string{"permission denied for schema public", "GRANT CREATE"}},
		"a role that owns nothing": {nil, []string{at("weak", "lent")}, "rights", node.HealthFail,
			[]string{"runs (of postgres)", "goose_db_version (of postgres)", "REASSIGN OWNED"}},
		"a wrong password": {[]string{"CARILLON_DATABASE_PASSWORD=xhunter2"}, []string{at("secret", "empty")}, "database", node.HealthFail,
			[]string{"password authentication failed", "--database-password-file"}},
		"a missing database": {nil, []string{at("postgres", "nothing")}, "database", node.HealthFail,
			[]string{`"nothing" does not exist`, "create the database"}},
		"an unreachable server": {nil, []string{"--database=postgres://me@127.0.0.1:1/x"}, "database", node.HealthFail,
			[]string{"refused", "security group"}},
		"an unresolvable name": {nil, []string{"--database=postgres://me@db.invalid/x"}, "database", node.HealthFail,
			[]string{"db.invalid", "name resolution"}},
		"a newer schema": {nil, []string{at("postgres", "newer")}, "schema", node.HealthFail, []string{"version 1000", "newer version"}},
		"no schema": {nil, []string{at("postgres", "empty"), "--no-migrate"}, "schema", node.HealthFail,
			[]string{"none", "carillon migrate"}},
		"a schema to come": {nil, []string{at("postgres", "empty")}, "schema", node.HealthOK, []string{"first start creates"}},
		"another server for notifications": {nil, []string{at("postgres", "empty"), "--notify-database=postgres://me@127.0.0.1:1/x"},
			"notifications", node.HealthFail, []string{"refused"}},
		"the password that is right": {[]string{"CARILLON_DATABASE_PASSWORD=hunter2"}, []string{at("secret", "postgres")},
			"database", node.HealthOK, []string{"as user secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findings := doctor(t, tt.env, tt.args...)
			if name == "the password that is right" {
				expect(t, findings, "rights", node.HealthFail, "permission denied")
				return
			}
			expect(t, findings, tt.check, tt.found, tt.says...)
		})
	}
}

// The check covers all tables of the schema: it finds a role that owns all but one.
func TestDoctorKnowsEveryTable(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	server := startServer(t, func(s *postgres.Server) error { return s.Init(t.Context()) })
	sqlIn(t, server, "postgres", `CREATE ROLE weak LOGIN`, `CREATE DATABASE carillon`)
	newToken(t, server.URL("carillon"))
	sqlIn(t, server, "carillon", `GRANT ALL ON SCHEMA public TO weak`, `GRANT ALL ON ALL TABLES IN SCHEMA public TO weak`)
	findings := doctor(t, nil, "--database=postgres://weak@/carillon?host="+socketOf(t, server))
	for _, table := range rows(t, server.URL("carillon"), `SELECT relname FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition`) {
		expect(t, findings, "rights", node.HealthFail, table+" (of postgres)")
	}
}

func TestDoctorReportsEndedRunsThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	newToken(t, database)
	rows(t, database, `INSERT INTO pending_ends (ended_at, trigger_id, scheduled_at, kind, job_id, app_id, attempt, http_status, state, class,
		error, tries, try_at, problem) VALUES (1, 1, 1, 1, 1, 1, 1, 0, '', '', '', 3, 1795000000000, 'the response is no JSON') RETURNING 'done'`)
	expect(t, doctor(t, nil, "--database", database), "set_aside", node.HealthWarn, "1 of 1", "tried 3 times, again at 2026-11-18",
		"the response is no JSON")
}

func TestDoctorReportsAlertsWithoutLinks(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	newToken(t, database)
	expect(t, doctor(t, nil, "--database", database), "alerts", node.HealthOK, "alerts declared: 0")
	rows(t, database, `INSERT INTO apps (id, name, description, enabled, retention, revision, created_at, updated_at)
		VALUES (1, 'shop', '', TRUE, 86400000, 1, 1, 1) RETURNING 'done'`)
	rows(t, database, `INSERT INTO alerts (id, app_id, name, description, definition, job_id, revision, created_at, updated_at)
		VALUES (1, 1, 'night', '', '{}', 1, 1, 1, 1) RETURNING 'done'`)
	expect(t, doctor(t, nil, "--database", database), "alerts", node.HealthWarn, "alerts declared: 1", "give it to doctor, too")
	expect(t, doctor(t, nil, "--database", database, "--console-url=https://ops.example.com"), "alerts", node.HealthOK, "alerts declared: 1")
	rows(t, database, `INSERT INTO runs (scheduled_at, trigger_id, job_id, revision, node, ended_at, attempt, http_status, kind, state)
		VALUES (1, 1, 1, 1, 1, 1, 1, 404, 6, 'failed') RETURNING 'done'`)
	expect(t, doctor(t, nil, "--database", database), "alerts", node.HealthWarn, "shop/night (failed)", "carillon alert test")
}

func TestDoctorComparesTheClocks(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	set := clockOf(t, database)
	for ahead, found := range map[time.Duration]node.Health{
		0: node.HealthOK, 20 * time.Second: node.HealthWarn, -5 * time.Minute: node.HealthFail,
	} {
		set(ahead)
		expect(t, doctor(t, nil, "--database", database), "clock", found)
	}
}

func TestDoctorReportsProblemsOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	newer, damaged := filepath.Join(dir, "newer.db"), filepath.Join(dir, "damaged.db")
	newToken(t, "sqlite:"+newer)
	execSQLite(t, newer, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, TRUE)`)
	if err := os.WriteFile(damaged, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file, check string
		says        []string
	}{
		"a missing directory": {filepath.Join(dir, "nowhere", "x.db"), "database", []string{"nowhere", "create the directory"}},
		"a newer schema":      {newer, "schema", []string{"version 1000"}},
		"no database":         {damaged, "database", []string{"not a database", "backup"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, doctor(t, nil, "--database=sqlite:"+tt.file), tt.check, node.HealthFail, tt.says...)
		})
	}
	expect(t, doctor(t, nil, "--database=sqlite:"+filepath.Join(dir, "new.db")), "schema", node.HealthOK, "first start creates")
	if _, err := os.Stat(filepath.Join(dir, "new.db")); err == nil {
		t.Error("the doctor made a database")
	}
}

func TestDoctorNamesAFileThatItsUserMayNotWrite(t *testing.T) {
	t.Parallel()
	need.Root(t, "become another user")
	dir := must[string](t)(os.MkdirTemp("", "carillon-doctor-"))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "carillon")
	text := must[[]byte](t)(os.ReadFile(filepath.Join(binaries, "carillon")))
	for _, err := range []error{program.Write(path, text), os.Chmod(dir, 0o755)} { // another user runs it
		if err != nil {
			t.Fatal(err)
		}
	}
	newToken(t, "sqlite:"+filepath.Join(dir, "carillon.db"))
	command := exec.CommandContext(t.Context(), path, "doctor", "--database=sqlite:"+filepath.Join(dir, "other.db"))
	command.Env, command.Dir = append(os.Environ(), healthy()...), dir
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "fail  rights         write to directory "+dir+": permission denied") {
		t.Errorf("got %v, %s, want a failure of rights", err, out)
	}
}

func TestDoctorChecksThatSecretsCanBeRead(t *testing.T) {
	need.Step(t, "databases")
	t.Parallel()
	onBothDatabases(t, func(t *testing.T, database string) {
		key := newKey()
		n := startNodeWith(t, database, newToken(t, database), []string{"CARILLON_SECRET_KEYS=" + key})
		must[access.App](t)(n.PutApp(t.Context(), access.App{Name: "a", AppSpec: access.AppSpec{Enabled: true}}, client.Condition{}))
		job := webhookJob("a", "j", "http://127.0.0.1:1/", nil)
		job.Target.Webhook.Auth = &target.Auth{Bearer: &target.BearerAuth{
			Token: target.Secret{Value: input.NewSensitive("hunter2")},
		}}
		must[dispatcher.Job](t)(n.PutJob(t.Context(), job, client.Condition{}))
		at := "--database=" + database
		expect(t, doctor(t, []string{"CARILLON_SECRET_KEYS=" + key}, at), "secrets", node.HealthOK, "open all stored secrets: 1")
		expect(t, doctor(t, []string{"CARILLON_SECRET_KEYS=" + newKey()}, at), "secrets", node.HealthFail, "stored: 1",
			"CARILLON_SECRET_KEYS")
		expect(t, doctor(t, nil, at), "secrets", node.HealthFail, "lack")
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := "--database=sqlite:" + filepath.Join(t.TempDir(), "new.db")
	findings := doctor(t, []string{"SECRET_B=hunter2", "SECRET_A=hunter2", "SECRET_EMPTY="}, at, "--secret-dir="+file)
	expect(t, findings, "secrets", node.HealthFail, "not a directory", "--secret-dir")
	expect(t, findings, "secrets", node.HealthOK, "references: SECRET_A, SECRET_B")
}

func TestDoctorConnectsToTargetsAsAWebhookWould(t *testing.T) {
	t.Parallel()
	called := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	plainServer, tlsServer := httptest.NewServer(called), httptest.NewTLSServer(called)
	t.Cleanup(plainServer.Close)
	t.Cleanup(tlsServer.Close)
	at := "--database=sqlite:" + filepath.Join(t.TempDir(), "new.db")
	for name, tt := range map[string]struct {
		args  []string
		found node.Health
		says  []string
	}{
		"reached": {[]string{"--egress-loopback", "--egress-url=" + plainServer.URL + "/a?token=hunter2"}, node.HealthOK,
			[]string{"connected to 127.0.0.1:"}},
		"its own machine": {[]string{"--egress-url=" + plainServer.URL}, node.HealthFail, []string{"--egress-loopback allows it"}},
		"an unknown root": {[]string{"--egress-loopback", "--egress-url=" + tlsServer.URL}, node.HealthFail, []string{"certificate"}},
		"nobody there":    {[]string{"--egress-loopback", "--egress-url=http://127.0.0.1:1"}, node.HealthFail, []string{"refused", "firewall"}},
		"metadata":        {[]string{"--egress-url=http://169.254.169.254/latest"}, node.HealthFail, []string{"169.254.169.254"}},
		"an unknown name": {[]string{"--egress-url=https://target.invalid/x"}, node.HealthFail, []string{"target.invalid", "name servers"}},
		"a denied network": {[]string{"--egress-deny=9.9.9.0/24", "--egress-url=http://9.9.9.9/"}, node.HealthFail,
			[]string{"that --egress-deny lists"}},
		"no URL":    {[]string{"--egress-url=example"}, node.HealthFail, []string{"not the URL of a webhook"}},
		"no target": {nil, node.HealthOK, []string{"metadata of the machine is refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, doctor(t, nil, append(tt.args, at)...), "egress", tt.found, tt.says...)
		})
	}
}

func TestDoctorReadsSecretsOfManagers(t *testing.T) {
	t.Parallel()
	aws, vault := servers.NewAWS(t), servers.NewVault(t, "vault-token")
	aws.PutSecret("billing/api", `{"token":"hunter2"}`)
	aws.PutParameter("/billing/token", "hunter2")
	vault.Put("secret/data/billing", map[string]any{"token": "hunter2"})
	at := []string{"--database=sqlite:" + filepath.Join(t.TempDir(), "new.db"), "--vault-address=" + vault.URL, "--vault-token=vault-token"}
	for name, tt := range map[string]struct {
		args  []string
		found node.Health
		says  []string
	}{
		"none": {nil, node.HealthOK, []string{"no secret was read"}},
		"in AWS": {[]string{"--secret-reference=awssm:billing/api#token,ssm:/billing/token"}, node.HealthOK,
			[]string{"ssm:/billing/token: read"}},
		"in Vault":      {[]string{"--secret-reference=vault:secret/data/billing#token"}, node.HealthOK, []string{"read"}},
		"in clear text": {nil, node.HealthWarn, []string{"clear text", "https"}},
		"missing": {[]string{"--secret-reference=awssm:billing/none"}, node.HealthFail,
			[]string{"awssm:billing/none", "does not have it", "policy"}},
		"no such key": {[]string{"--secret-reference=awssm:billing/api#none"}, node.HealthFail,
			[]string{"awssm:billing/api#none", "cannot be used"}},
		"of the node":  {[]string{"--secret-reference=env:SECRET_A"}, node.HealthFail, []string{"kept by the node"}},
		"no reference": {[]string{"--secret-reference=hunter2"}, node.HealthFail, []string{"correct --secret-reference"}},
		"per app": {[]string{"--secret-reference=awssm:billing/api", "--secret-aws-role=arn:aws:iam::123456789012:role/{app}"}, node.HealthSkip,
			[]string{"a role of each app"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findings := doctor(t, aws.Environment(), append(tt.args, at...)...)
			contain(t, findings, "managers", tt.found, tt.says...)
			for _, f := range findings {
				if strings.Contains(f.Detail+f.Action, "hunter2") {
					t.Errorf("%s shows a secret: %s", f.Check, f.Detail)
				}
			}
		})
	}
}

func TestDoctorAsksAWSForItsIdentity(t *testing.T) {
	t.Parallel()
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=AKIDEXAMPLE/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
			<Arn>arn:aws:sts::123456789012:assumed-role/carillon/task</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`))
	}))
	t.Cleanup(sts.Close)
	at := "--database=sqlite:" + filepath.Join(t.TempDir(), "new.db")
	credentials := func(id string) []string {
		return []string{"AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=hunter2", "AWS_REGION=eu-west-1", "AWS_ENDPOINT_URL_STS=" + sts.URL}
	}
	expect(t, doctor(t, credentials("AKIDEXAMPLE"), at), "aws", node.HealthOK, "assumed-role/carillon/task", "EnvConfigCredentials",
		"eu-west-1")
	expect(t, doctor(t, credentials("AKIDOTHER"), at), "aws", node.HealthWarn, "EnvConfigCredentials", "403")
	expect(t, doctor(t, nil, at), "aws", node.HealthOK, "no credentials")
	findings := doctor(t, nil, "--database=postgres://fleet@db.invalid/x", "--database-auth=rds-iam")
	var failed []string
	for _, f := range findings {
		if f.Health == node.HealthFail {
			failed = append(failed, f.Check)
		}
	}
	if got := strings.Join(failed, " "); got != "database aws" {
		t.Errorf("%s fail, want the database and AWS: %+v", got, findings)
	}
}

// A node with too few files gets a warning. A shell lowers the limit.
func TestDoctorCountsFiles(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 500 && exec "$@"`, "sh", filepath.Join(binaries, "carillon"), "doctor",
		"--database=sqlite:"+filepath.Join(t.TempDir(), "new.db"))
	command.Env = append(os.Environ(), healthy()...)
	out, err := command.Output()
	if err != nil || !strings.Contains(string(out), "warn  files          this process may open 500 files") {
		t.Errorf("got %v, %s, want a warning about files", err, out)
	}
}

// rows returns the first column of a query's rows.
func rows(t *testing.T, database, query string) []string {
	t.Helper()
	conn := must[*pgx.Conn](t)(pgx.Connect(t.Context(), database))
	defer conn.Close(t.Context())
	found := must[pgx.Rows](t)(conn.Query(t.Context(), query))
	return must[[]string](t)(pgx.CollectRows(found, pgx.RowTo[string]))
}

// execSQLite runs a statement in a file.
func execSQLite(t *testing.T, file, statement string) {
	t.Helper()
	db := must[*sql.DB](t)(sql.Open("sqlite", file))
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
