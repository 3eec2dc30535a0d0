package plan

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// warned remembers which warnings a command of Terraform has shown, so that it shows each of them once.
//
// A command plans each change twice: when it plans, and again when it applies, in another process of the
// provider. The protocol does not tell the two apart, but they are children of one process. So a process
// leaves what it has told in a file that is named after its parent, and the next one does not repeat it. A
// plan that is applied from a file belongs to two commands, and each of them shows the warnings.
//
// Without such a file, as in a debugger, or where nothing can be written, both processes show them.
type warned struct {
	file string // "" if there is none

	mu      sync.Mutex
	keys    map[string]bool
	nearest map[string][]string // by kind, the days of the nearest warnings that this process has told in full, in order
}

// newWarned returns what processes of the same command have left in a file; "" is none.
func newWarned(file string) *warned {
	w := &warned{file: file, keys: map[string]bool{}, nearest: map[string][]string{}}
	f, err := os.Open(file)
	if err != nil {
		return w
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		w.keys[lines.Text()] = true
	}
	return w
}

// first reports whether nothing of that kind and key was told before, and then whether it is to be told in full: it is
// among the first of its kind, as many as inFull, or comes true on an earlier day than one of the nearest of these.
//
// Terraform asks about one job after the other, and shows what the provider has said of each. So nobody knows the
// nearest warnings before the last one, but all that are nearer than those before them include them. Their days, not
// their times, are compared: otherwise jobs with different minutes of one night would all be told in full.
func (w *warned) first(kind, key, day string, inFull int) (full, first bool) {
	sum := sha256.Sum256([]byte(kind + "\x00" + key))
	line := hex.EncodeToString(sum[:12])
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[line] {
		return false, false
	}
	w.keys[line] = true
	w.leave(line)
	days := w.nearest[kind]
	if len(days) == inFull {
		if days[inFull-1] <= day {
			return false, true
		}
		days = days[:inFull-1]
	}
	at, _ := slices.BinarySearch(days, day)
	w.nearest[kind] = slices.Insert(days, at, day)
	return true, true
}

// leave writes a line for the next process. If that fails, the next process repeats the warning.
func (w *warned) leave(line string) {
	if w.file == "" {
		return
	}
	f, err := os.OpenFile(w.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// WarnedFile returns the file of this command of Terraform; "" if it is not known which one that is. It
// removes those of commands that have ended.
func WarnedFile() string {
	// Terraform sets the variable for processes that it starts. One that it finds running, as in a debugger
	// or a test, has another parent and serves many commands.
	if os.Getenv("TF_PLUGIN_MAGIC_COOKIE") == "" {
		return ""
	}
	name, err := commandFile(os.Getppid())
	cache, noCache := os.UserCacheDir()
	if err != nil || noCache != nil {
		return ""
	}
	dir := filepath.Join(cache, "terraform-provider-carillon")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	if former, err := os.ReadDir(dir); err == nil {
		for _, entry := range former {
			if ended(entry.Name()) {
				_ = os.Remove(filepath.Join(dir, entry.Name()))
			}
		}
	}
	return filepath.Join(dir, name)
}

// commandFile returns the name of the file of a process. Its number alone would come again.
func commandFile(pid int) (string, error) {
	started, err := startOf(pid)
	return fmt.Sprintf("told-%d-%s", pid, started), err
}

// ended reports whether the process is gone that a file is named after.
func ended(file string) bool {
	var pid int
	if n, err := fmt.Sscanf(file, "told-%d-", &pid); n != 1 || err != nil {
		return false // it is not ours
	}
	running, err := commandFile(pid)
	return err != nil || running != file
}
