package program

import (
	"os"
	"syscall"
)

// Write writes a program that this process runs afterwards. A plain os.WriteFile now and then lets the run fail with "text
// file busy" (https://go.dev/issue/22315): a process that another goroutine forks meanwhile has the open file, too, until
// it executes its own program. So nothing is forked while the file is open.
func Write(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755) //nolint:gosec // it is a program
}
