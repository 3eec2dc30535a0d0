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

// scene is the state that a step must leave unchanged: the files of the checkout, and an empty
// directory for temporary files.
type scene struct {
	root, dir, files string
	alone            bool // no other process changes the checkout meanwhile
}

func newScene(ctx context.Context, root string, alone bool) (*scene, error) {
	// A short path, because paths of sockets are limited.
	dir, err := os.MkdirTemp("", "check-")
	if err != nil {
		return nil, err
	}
	// Like /tmp: servers of the tests run as another user if the step runs as root, and remove their files.
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { //nolint:gosec // as /tmp
		return nil, err
	}
	files, err := filesOf(ctx, root)
	return &scene{root: root, dir: dir, files: files, alone: alone}, err
}

// leave ends leftover processes after a grace period, removes leftover files, and returns an error that names them.
func (s *scene) leave(ctx context.Context, grace time.Duration) error {
	var problems []error
	if left := reapOrphans(ctx, grace); len(left) > 0 {
		problems = append(problems, fmt.Errorf("left running: %s", strings.Join(left, ", ")))
	}
	ctx = context.WithoutCancel(ctx) // clean up after an interrupt, too
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

// runReaping runs a command and reaps orphans meanwhile: the first process of a machine in a
// namespace ends only when all its children have ended and were waited for.
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

// filesOf lists the files that git would add or ignores, except the folders where make keeps built
// and downloaded files. Outside of git it lists nothing.
func filesOf(ctx context.Context, root string) (string, error) {
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	out, err := exec.CommandContext(ctx, "git", "-C", root, "status", "--porcelain", "--ignored", "--untracked-files=all", "--",
		".", ":!.cache", ":!bin").Output()
	return string(out), err
}
