// Package pgserver runs PostgreSQL servers that nobody but this process needs: in a directory
// of their own, as a user who may, and never longer than the process, however that ends.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is one server, running or not.
type Server struct {
	bin, dir string
	settings []string
	lifeline io.Closer
	keeper   int  // the process that was started last, which ends with the server
	ended    bool // it is known to have
}

// Find returns the directory of initdb: that in PATH, or the newest of Debian's.
func Find() (string, bool) {
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
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // not a number: last
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), true
}

// New returns a server of the programs in bin that keeps its data, socket and log in dir.
// settings are written as name=value. It starts nothing; call Init once, then Start.
func New(bin, dir string, settings ...string) *Server {
	return &Server{bin: bin, dir: dir, settings: settings}
}

// Init makes the data directory.
func (s *Server) Init(ctx context.Context) error {
	as, err := credential(s.dir)
	if err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	initdb.Dir, initdb.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// Follow makes the data directory as a copy of that of another server, which runs, and whose standby
// this one is to be. Call it instead of Init.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	as, err := credential(s.dir)
	if err != nil {
		return err
	}
	backup := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_basebackup"), "-d", primary.URL("postgres"), "-D", s.data(), "-R", "-X", "stream", "-c", "fast", "-N")
	backup.Dir, backup.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// keeper runs PostgreSQL until its standard input ends, which the kernel sees to when the
// process that holds the other end dies, even by kill -9; then it stops the server. It ends with
// the server. $0 is what is to be removed then, the rest is the command.
const keeper = `"$@" & server=$!; exec 3<&0; { read _ <&3; kill -QUIT $server 2>/dev/null; } & wait $server; test -z "$0" || rm -rf "$0"`

// Start starts the server and waits until it answers. remove is what is to be removed once the
// server has ended, empty for nothing. The server outlives ctx.
func (s *Server) Start(ctx context.Context, remove string) error {
	as, err := credential(s.dir)
	if err != nil {
		return err
	}
	args := []string{"-c", keeper, remove, filepath.Join(s.bin, "postgres"), "-D", s.data(), "-k", s.dir}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	run := exec.CommandContext(context.WithoutCancel(ctx), "sh", args...)
	// A group of its own: Ctrl-C at the terminal reaches this process only, which ends the server.
	run.Dir, run.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as, Setpgid: true}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	run.Stdout, run.Stderr = log, log
	lifeline, err := run.StdinPipe()
	if err != nil {
		return err
	}
	if err := run.Start(); err != nil {
		return err
	}
	if s.lifeline != nil {
		_ = s.lifeline.Close() // that of a server which has stopped
	}
	s.lifeline, s.keeper, s.ended = lifeline, run.Process.Pid, false
	return s.await(ctx)
}

// await waits until the server answers.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.Execute(ctx, "postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			log, logErr := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("it does not answer: %w: %s", errors.Join(err, logErr), log)
		case <-tick.C:
		}
	}
}

// Started tells whether Start got so far as to run something, which ends with this process.
func (s *Server) Started() bool { return s.lifeline != nil }

// Stop stops the server by a signal, SIGINT for a fast and SIGQUIT for an immediate shutdown, and
// waits for its end.
func (s *Server) Stop(ctx context.Context, by syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, by); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for s.Running() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Close lets go of a server that has ended, or ends it, as the end of this process would.
func (s *Server) Close() error { return s.lifeline.Close() }

// Running tells whether the server has not ended.
func (s *Server) Running() bool {
	if s.lifeline == nil || s.ended {
		return false
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(s.keeper, &status, syscall.WNOHANG, nil)
	s.ended = pid == s.keeper || errors.Is(err, syscall.ECHILD)
	return !s.ended
}

// pid returns the postmaster's, which is the first line of a file that it keeps.
func (s *Server) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}

// Execute runs a statement in a database of the server.
func (s *Server) Execute(ctx context.Context, database, statement string) error {
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// URL returns the URL of one of the server's databases, by its socket.
func (s *Server) URL(database string) string {
	url := "postgres://postgres@/" + database + "?host=" + s.dir
	for _, setting := range s.settings {
		if strings.HasPrefix(setting, "port=") {
			url += "&" + setting // the socket's name holds it
		}
	}
	return url
}

// credential gives dir to the user who is to run the server: PostgreSQL refuses to run as root,
// so that is then postgres or nobody. It returns nil if that is who we are.
func credential(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
	}
	return nil, errors.New("running as root, and there is neither a user postgres nor nobody")
}
