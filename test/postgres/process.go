package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// kept is a program that ends with this process, however that ends.
type kept struct {
	lifeline io.Closer
	keeper   int  // pid of the latest keeper, which ends with the program
	ended    bool // it is known to have ended
}

// keeper runs a program until its standard input ends, then stops it. The kernel ends the input
// when the process at the other end dies, even by kill -9. keeper ends with the program, and then
// removes $0; $1 is the signal that stops the program, the rest is the command.
const keeper = `stop=$1; shift; "$@" & program=$!; exec 3<&0; { read _ <&3; kill -$stop $program 2>/dev/null; } &
wait $program; test -z "$0" || rm -rf "$0"`

// run starts a program that works in dir, with its log there; signal is the signal that stops it.
// The program outlives ctx.
func (k *kept) run(ctx context.Context, dir, remove, signal string, command ...string) error {
	as, err := credential(dir)
	if err != nil {
		return err
	}
	run := exec.CommandContext(context.WithoutCancel(ctx), "sh", append([]string{"-c", keeper, remove, signal}, command...)...)
	// A separate process group: Ctrl-C at the terminal reaches only this process, which ends the program.
	run.Dir, run.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as, Setpgid: true}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
	if k.lifeline != nil {
		_ = k.lifeline.Close() // for a stopped program
	}
	k.lifeline, k.keeper, k.ended = lifeline, run.Process.Pid, false
	return nil
}

// Started reports whether Start has run a program; the program ends with this process.
func (k *kept) Started() bool { return k.lifeline != nil }

// await waits until the program in dir responds to a statement.
func (k *kept) await(ctx context.Context, dir, database, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := Execute(ctx, database, statement)
		if err == nil {
			return nil
		}
		if !k.Running() {
			cancel()
		}
		select {
		case <-ctx.Done():
			log, logErr := os.ReadFile(filepath.Join(dir, "log"))
			return fmt.Errorf("no response: %w: %s", errors.Join(err, logErr), log)
		case <-tick.C:
		}
	}
}

// stop stops the program by a signal, and waits until it has ended. The first line of pidFile,
// which the program writes, is its process id.
func (k *kept) stop(ctx context.Context, pidFile string, by syscall.Signal) error {
	text, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, by); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for k.Running() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Close ends the program, like the end of this process, or cleans up after one that has ended.
func (k *kept) Close() error { return k.lifeline.Close() }

// Running reports whether the program runs.
func (k *kept) Running() bool {
	if k.lifeline == nil || k.ended {
		return false
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(k.keeper, &status, syscall.WNOHANG, nil)
	k.ended = pid == k.keeper || errors.Is(err, syscall.ECHILD)
	return !k.ended
}

// credential makes the user of a program the owner of dir. PostgreSQL and its poolers refuse to run
// as root, so for root that user is postgres or nobody. For other users it returns nil.
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
	return nil, errors.New("running as root, but there is neither a user postgres nor a user nobody")
}
