// Package program builds, writes and starts the programs that long runs test.
package program

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// Build builds a package of the repository in dir; empty: the working directory.
func Build(ctx context.Context, dir, to string, args ...string) error {
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-o", to}, args...)...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", args[len(args)-1], err, out)
	}
	return nil
}

// Spawner starts programs that end with this one, however it ends. One thread starts them all, because the kernel
// kills a program when the thread that started it ends, and this one ends with the process.
type Spawner chan<- func()

// NewSpawner returns a spawner.
func NewSpawner() Spawner {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for one := range work {
			one()
		}
	}()
	return work
}

// Start starts a command in a process group of its own, or as its SysProcAttr says.
func (s Spawner) Start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	}
	started := make(chan error)
	s <- func() { started <- command.Start() }
	return <-started
}
