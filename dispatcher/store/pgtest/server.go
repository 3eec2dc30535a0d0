package pgtest

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
	"syscall"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/store"
)

// server is a throwaway PostgreSQL.
type server struct {
	dir      string // holds the data directory and the socket
	template string // a migrated database to copy
	lifeline io.Closer
}

// keeper runs PostgreSQL until its standard input ends, which the kernel sees to when the
// process that holds the other end dies, even by kill -9; then it stops the server and removes
// the directory. $0 is the directory, the rest is the command.
const keeper = `"$@" & server=$!; read _; kill -QUIT $server; wait $server; cd /; rm -rf "$0"`

// findBin returns the directory of initdb: that in PATH, or the newest of Debian's.
func findBin() (string, bool) {
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

// start makes and starts a server, and migrates its template database.
func start(ctx context.Context, bin string, durable bool) (*server, error) {
	parent := ""
	if len(os.TempDir()) > 60 {
		parent = "/tmp" // the path of a socket is at most 107 bytes
	}
	dir, err := os.MkdirTemp(parent, "carillon-pg-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, template: "carillon_template"}
	if err := s.boot(ctx, bin, durable); err != nil {
		if s.lifeline == nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	if err := createNamed(ctx, s.url("postgres"), s.template, ""); err != nil {
		return nil, err
	}
	return s, store.Migrate(ctx, s.url(s.template))
}

func (s *server) boot(ctx context.Context, bin string, durable bool) error {
	as, err := credential(s.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(s.dir, "data")
	// The server outlives the test that happens to start it, so its context must not stop it.
	ctx = context.WithoutCancel(ctx)
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	initdb.Dir, initdb.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	sync := "off"
	if durable {
		sync = "on"
	}
	run := exec.CommandContext(ctx, "sh", "-c", keeper, s.dir, filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir,
		"-c", "listen_addresses=", "-c", "max_connections=200", "-c", "shared_buffers=256MB", "-c", "max_wal_size=2GB",
		"-c", "fsync="+sync, "-c", "full_page_writes="+sync, "-c", "synchronous_commit="+sync)
	// A group of its own: Ctrl-C at the terminal reaches the tests only, which end the server.
	run.Dir, run.SysProcAttr = s.dir, &syscall.SysProcAttr{Credential: as, Setpgid: true}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	run.Stdout, run.Stderr = log, log
	if s.lifeline, err = run.StdinPipe(); err != nil {
		return err
	}
	if err := run.Start(); err != nil {
		return err
	}
	return s.await(ctx)
}

// await waits until the server answers.
func (s *server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := execute(ctx, s.url("postgres"), "SELECT 1")
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

// url returns the URL of one of the server's databases.
func (s *server) url(database string) string {
	return "postgres://postgres@/" + database + "?host=" + s.dir
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
