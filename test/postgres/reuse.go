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

// kept is a program that never outlives this process, however that ends.
type kept struct {
	lifeline io.Closer
	keeper   int  // the process that was started last, which ends with the program
	ended    bool // it is known to have
}

// keeper runs a program until its standard input ends, which the kernel sees to when the
// process that holds the other end dies, even by kill -9; then it stops the program. It ends with
// the program. $0 is what is to be removed then, $1 the signal that stops the program, the rest the command.
const keeper = `stop=$1; shift; "$@" & program=$!; exec 3<&0; { read _ <&3; kill -$stop $program 2>/dev/null; } & wait $program; test -z "$0" || rm -rf "$0"`

// run starts a program that works in dir, where its log is, and that a signal stops. The program
// outlives ctx.
func (k *kept) run(ctx context.Context, dir, remove, signal string, command ...string) error {
	as, err := credential(dir)
	if err != nil {
		return err
	}
	run := exec.CommandContext(context.WithoutCancel(ctx), "sh", append([]string{"-c", keeper, remove, signal}, command...)...)
	// A group of its own: Ctrl-C at the terminal reaches this process only, which ends the program.
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
		_ = k.lifeline.Close() // that of a program which has stopped
	}
	k.lifeline, k.keeper, k.ended = lifeline, run.Process.Pid, false
	return nil
}

// Started tells whether Start got so far as to run something, which ends with this process.
func (k *kept) Started() bool { return k.lifeline != nil }

// await waits until the program, which works in dir, answers a statement.
func (k *kept) await(ctx context.Context, dir, database, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := execute(ctx, database, statement)
		if err == nil {
			return nil
		}
		if !k.Running() {
			cancel()
		}
		select {
		case <-ctx.Done():
			log, logErr := os.ReadFile(filepath.Join(dir, "log"))
			return fmt.Errorf("it does not answer: %w: %s", errors.Join(err, logErr), log)
		case <-tick.C:
		}
	}
}

// stop stops the program by a signal, and waits for its end. The first line of pidFile, which the
// program keeps, is the process.
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

// Close lets go of a program that has ended, or ends it, as the end of this process would.
func (k *kept) Close() error { return k.lifeline.Close() }

// Running tells whether the program has not ended.
func (k *kept) Running() bool {
	if k.lifeline == nil || k.ended {
		return false
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(k.keeper, &status, syscall.WNOHANG, nil)
	k.ended = pid == k.keeper || errors.Is(err, syscall.ECHILD)
	return !k.ended
}

// credential gives dir to the user who is to run a program: PostgreSQL and its poolers refuse to
// run as root, so that is then postgres or nobody. It returns nil if that is who we are.
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
