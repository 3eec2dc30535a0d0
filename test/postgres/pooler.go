package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Pooler is a PgBouncer in front of one database, running or not. It is in transaction mode: each
// transaction may use a different connection to the server.
type Pooler struct {
	kept
	program, dir   string
	settings       []string
	user, database string // of the connections
}

// FindPooler returns the program from PATH, or else from Debian's directory, which may not be in PATH.
func FindPooler() (string, bool) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// NewPooler returns a pooler that keeps its configuration, socket and log in dir. Settings have the form
// name=value. NewPooler starts nothing; call Lead, then Start.
func NewPooler(program, dir string, settings ...string) *Pooler {
	return &Pooler{program: program, dir: dir, settings: settings}
}

// Lead makes connections lead to a database. A running pooler switches after the command RELOAD.
// Clients connect with the user and the database name of that URL.
func (p *Pooler) Lead(database string) error {
	to, err := pgx.ParseConfig(database)
	if err != nil {
		return err
	}
	p.user, p.database = to.User, to.Database
	as := "user=" + to.User
	if to.Password != "" {
		as += " password='" + strings.ReplaceAll(to.Password, "'", "''") + "'"
	}
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%d %s
[pgbouncer]
pool_mode = transaction
auth_type = any
admin_users = %s
unix_socket_dir = %s
listen_port = %s
pidfile = %s
`, p.database, to.Host, to.Port, as, p.user, p.dir, poolerPort, p.pidFile())
	for _, setting := range p.settings {
		config += setting + "\n"
	}
	return os.WriteFile(p.configuration(), []byte(config), 0o644) //nolint:gosec // the pooler reads it as another user
}

const poolerPort = "6432"

func (p *Pooler) configuration() string { return filepath.Join(p.dir, "ini") }
func (p *Pooler) pidFile() string       { return filepath.Join(p.dir, "pid") }

// Start starts the pooler and waits until it responds; the database may be unreachable. The pooler outlives ctx.
func (p *Pooler) Start(ctx context.Context) error {
	if err := p.run(ctx, p.dir, "", "TERM", p.program, p.configuration()); err != nil {
		return err
	}
	return p.await(ctx, p.dir, p.url("pgbouncer"), "SHOW VERSION")
}

// Stop stops the pooler by a signal, SIGTERM for an immediate shutdown, and waits until it has ended.
func (p *Pooler) Stop(ctx context.Context, by syscall.Signal) error {
	return p.stop(ctx, p.pidFile(), by)
}

// Order sends the pooler a command such as RELOAD, PAUSE or RESUME.
func (p *Pooler) Order(ctx context.Context, command string) error {
	return Execute(ctx, p.url("pgbouncer"), command)
}

// URL returns the URL of the database through the pooler.
func (p *Pooler) URL() string { return p.url(p.database) }

func (p *Pooler) url(name string) string {
	return "postgres://" + p.user + "@/" + name + "?host=" + p.dir + "&port=" + poolerPort
}
