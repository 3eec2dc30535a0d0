package plan

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// startOf returns the start of a process in a form that distinguishes it from other processes with its number.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name of the program, in parentheses, may contain spaces. The start is the 20th field after it.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	const start = 19
	fields := strings.Fields(rest)
	if len(fields) <= start {
		return "", errors.New("the status of the process has too few fields")
	}
	return fields[start], nil
}
