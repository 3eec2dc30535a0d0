// Package postgres runs PostgreSQL servers for this process: in separate directories, as a user
// that PostgreSQL accepts, and never longer than the process, however that ends.
package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Server is one server, running or not.
type Server struct {
	kept
	bin, dir string
	settings []string
}

// Find returns the directory of initdb: CARILLON_POSTGRES if it is set, else from PATH, else
// Debian's newest version.
func Find() (string, bool) {
	if dir := os.Getenv("CARILLON_POSTGRES"); dir != "" {
		_, err := os.Stat(filepath.Join(dir, "initdb"))
		return dir, err == nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), true
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", false
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // not a number sorts last
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), true
}

// New returns a server of the programs in bin that keeps its data, socket and log in dir. Settings have the
// form name=value. New starts nothing; call Init once, then Start.
func New(bin, dir string, settings ...string) *Server {
	return &Server{bin: bin, dir: dir, settings: settings}
}

// Init creates the data directory.
func (s *Server) Init(ctx context.Context) error {
	as, err := credential(s.dir)
	if err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "-N")
	initdb.Dir, initdb.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// Follow creates the data directory as a copy of a running server's, so that this one becomes its
// standby. Call it instead of Init.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	as, err := credential(s.dir)
	if err != nil {
		return err
	}
	backup := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_basebackup"), "-d", primary.URL("postgres"), "-D",
		s.data(), "-R", "-X", "stream", "-c", "fast", "-N")
	backup.Dir, backup.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts the server and waits until it responds. The directory remove, if not empty, is
// removed after the server has ended. The server outlives ctx.
func (s *Server) Start(ctx context.Context, remove string) error {
	command := []string{filepath.Join(s.bin, "postgres"), "-D", s.data(), "-k", s.dir}
	for _, setting := range s.settings {
		command = append(command, "-c", setting)
	}
	if err := s.run(ctx, s.dir, remove, "QUIT", command...); err != nil {
		return err
	}
	return s.await(ctx, s.dir, s.URL("postgres"), "SELECT 1")
}

// Stop stops the server by a signal, SIGINT for a fast and SIGQUIT for an immediate shutdown, and waits until it
// has ended.
func (s *Server) Stop(ctx context.Context, by syscall.Signal) error {
	return s.stop(ctx, filepath.Join(s.data(), "postmaster.pid"), by)
}

// Execute runs a statement in a database of the server.
func (s *Server) Execute(ctx context.Context, database, statement string) error {
	return Execute(ctx, s.URL(database), statement)
}

// Execute runs a statement in the database of a URL.
func Execute(ctx context.Context, database, statement string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// URL returns the URL of one of the server's databases over its socket.
func (s *Server) URL(database string) string {
	url := "postgres://postgres@/" + database + "?host=" + s.dir
	for _, setting := range s.settings {
		if strings.HasPrefix(setting, "port=") {
			url += "&" + setting // the socket's name contains the port
		}
	}
	return url
}
