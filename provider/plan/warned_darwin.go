package plan

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// startOf returns the start of a process in a form that distinguishes it from other processes with its number.
func startOf(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), nil
}
