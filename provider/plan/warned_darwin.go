package plan

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// startOf returns when a process started, in a form that only serves to tell it from others of its number.
func startOf(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), nil
}
