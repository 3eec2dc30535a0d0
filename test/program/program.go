// Package program builds, writes and starts the programs of long test runs.
package program

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// Build builds a package of the repository in dir; empty means the working directory.
func Build(ctx context.Context, dir, to string, args ...string) error {
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-o", to}, args...)...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", args[len(args)-1], err, out)
	}
	return nil
}

// Spawner starts programs that end with this one, however it ends. A single thread starts them, because the
// kernel kills a program when the thread that started it ends. The spawner's thread ends with the process.
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

// Start starts a command in a separate process group, or as its SysProcAttr says.
func (s Spawner) Start(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	}
	started := make(chan error)
	s <- func() { started <- command.Start() }
	return <-started
}
