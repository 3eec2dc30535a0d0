package program

import (
	"os"
	"syscall"
)

// Write writes a program that this process then runs. After a plain os.WriteFile, the run sometimes fails
// with "text file busy" (https://go.dev/issue/22315): a process that another goroutine forks at that time
// inherits the open file until it executes its own program. So Write prevents forks while the file is open.
func Write(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755) //nolint:gosec // programs are executable
}
