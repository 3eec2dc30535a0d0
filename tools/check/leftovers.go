package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// scene is what a step finds, and must leave as it was: the files of the checkout, and a directory for temporary files
// that is empty.
type scene struct {
	root, dir, files string
	alone            bool // nobody else changes files of the checkout meanwhile
}

func newScene(ctx context.Context, root string, alone bool) (*scene, error) {
	// A short path, because those of sockets are bounded.
	dir, err := os.MkdirTemp("", "check-")
	if err != nil {
		return nil, err
	}
	// As /tmp is: servers of the tests run as another user if the step runs as root, and remove their files.
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { //nolint:gosec // as /tmp
		return nil, err
	}
	files, err := filesOf(ctx, root)
	return &scene{root: root, dir: dir, files: files, alone: alone}, err
}

// leave ends what the step left running after a grace, removes its files, and returns an error that names them.
func (s *scene) leave(ctx context.Context, grace time.Duration) error {
	var problems []error
	if left := reapOrphans(ctx, grace); len(left) > 0 {
		problems = append(problems, fmt.Errorf("left running: %s", strings.Join(left, ", ")))
	}
	ctx = context.WithoutCancel(ctx) // what was interrupted is cleaned up, too
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		problems = append(problems, fmt.Errorf("left behind in the directory for temporary files: %s", entry.Name()))
	}
	// Throwaway databases are in memory, under the name of that directory; see test/postgres/pgtest.
	databases, _ := filepath.Glob("/dev/shm/*-" + filepath.Base(s.dir) + "-*") // the pattern is valid
	for _, database := range databases {
		problems = append(problems, fmt.Errorf("left behind in memory: %s", database), os.RemoveAll(database))
	}
	files, err := filesOf(ctx, s.root)
	if err != nil {
		return err
	}
	for line := range strings.Lines(files) {
		switch text := strings.TrimSpace(line); {
		case strings.Contains(s.files, line):
		case s.alone:
			problems = append(problems, fmt.Errorf("changed in the checkout: %s", text))
		default:
			fmt.Println("changed in the checkout, perhaps by the step:", text)
		}
	}
	return errors.Join(append(problems, os.RemoveAll(s.dir))...)
}

// runReaping runs a command, and meanwhile waits for orphans that have ended: the first process of a machine in a namespace ends
// only when nothing of it is left, not even what nobody has waited for.
func runReaping(command *exec.Cmd) error {
	if err := command.Start(); err != nil {
		return err
	}
	ended, reaped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reaped)
		tick := time.NewTicker(time.Second / 2)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				reapEnded(command.Process.Pid)
			}
		}
	}()
	err := command.Wait()
	close(ended)
	<-reaped
	return err
}

// filesOf lists what git would add or ignores, but for the folders in which make keeps what it builds and fetches.
// Outside of git it lists nothing.
func filesOf(ctx context.Context, root string) (string, error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	out, err := exec.CommandContext(ctx, "git", "-C", root, "status", "--porcelain", "--ignored", "--untracked-files=all", "--",
		".", ":!.cache", ":!bin").Output()
	return string(out), err
}
