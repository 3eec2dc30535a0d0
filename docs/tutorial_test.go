package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/program"
)

// patience is how long what the tutorial shows may take to come.
const patience = 2 * time.Minute

// terminal is what a reader of the tutorial sees in one terminal.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *terminal) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// reader follows the tutorial in an empty directory that has what "make dev" builds.
type reader struct {
	t             *testing.T
	dir           string
	terraform     string
	first, second terminal
	node          *exec.Cmd
	// environment is what the tutorial exports in the second terminal.
	environment string
}

func newReader(t *testing.T) *reader {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "tools", "terraform.sh")).Output()
	if err != nil {
		need.Missing(t, "no terraform; tools/terraform.sh: "+err.Error())
	}
	r := &reader{t: t, dir: t.TempDir(), terraform: strings.TrimSpace(string(out))}
	for _, one := range []string{"./dispatcher/cmd/carillon", "./provider/cmd/terraform-provider-carillon"} {
		if err := program.Build(t.Context(), root, filepath.Join(r.dir, "bin", filepath.Base(one)), one); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []string{"tools", "examples"} {
		if err := os.CopyFS(filepath.Join(r.dir, one), os.DirFS(filepath.Join(root, one))); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// start does what "make dev" does after it has built the programs, in the first terminal.
func (r *reader) start() {
	r.t.Helper()
	r.node = exec.Command("bin/carillon", "dev", "--provider", "bin/terraform-provider-carillon", "--prepare", "echo "+r.terraform)
	r.node.Dir, r.node.Stdout, r.node.Stderr = r.dir, &r.first, &r.first
	r.node.Env = append(os.Environ(), "CARILLON_ENV_FILE=")
	if err := r.node.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.node.Process.Kill() })
}

// interrupt types Ctrl-C in the first terminal.
func (r *reader) interrupt() {
	r.t.Helper()
	if err := r.node.Process.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	if err := r.node.Wait(); err != nil {
		r.t.Errorf("Ctrl-C ends the node with %v:\n%s", err, r.first.String())
	}
}

// listens finds where a part of the node listens, which the tutorial calls 127.0.0.1 and a port.
func (r *reader) listens(part string) string {
	r.t.Helper()
	line := regexp.MustCompile(part + ` on http://127\.0\.0\.1:(\d+)`)
	r.waitFor(part+" on http://", func() bool { return line.MatchString(r.first.String()) })
	return line.FindStringSubmatch(r.first.String())[1]
}

// enter types a block of commands in the second terminal, with ports, times and ids as they are here.
func (r *reader) enter(block string) {
	r.t.Helper()
	block = strings.NewReplacer(":8080", ":"+r.listens("API"), "8089", r.listens("receiver")).Replace(block)
	block = scheduledAt.ReplaceAllStringFunc(block, func(string) string { return r.failedTime() })
	block = runID.ReplaceAllStringFunc(block, func(string) string {
		all := runID.FindAllString(r.second.String(), -1)
		if len(all) == 0 {
			r.t.Fatalf("no id of a run has been shown before\n%s\n\n%s", block, r.second.String())
		}
		return all[len(all)-1]
	})
	if strings.HasPrefix(block, "export ") {
		r.environment = block
	}
	command := exec.CommandContext(r.t.Context(), "bash", "-ec", "shopt -s expand_aliases\n"+r.environment+block)
	command.Dir, command.Stdout, command.Stderr = r.dir, &r.second, &r.second
	command.Stdin = strings.NewReader("yes\n") // which the tutorial says to answer
	command.Env = append(os.Environ(), "CARILLON_ENV_FILE=", "XDG_CONFIG_HOME="+filepath.Join(r.dir, "config"))
	if err := command.Run(); err != nil {
		r.t.Fatalf("%v:\n%s\n\nsecond terminal:\n%s", err, block, r.second.String())
	}
}

var (
	scheduledAt = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	runID       = regexp.MustCompile(`\b[0-9a-v]{24}\b`)
	failedLine  = regexp.MustCompile(`tutorial/hello/often +scheduled (\d\d:\d\d:\d\d)\.000 .* failed `)
)

// failedTime is a scheduled time of which the first terminal has shown three failed attempts, as the tutorial says to
// write it.
func (r *reader) failedTime() string {
	r.t.Helper()
	found := ""
	r.waitFor("three failed attempts of a run", func() bool {
		attempts := map[string]int{}
		for _, m := range failedLine.FindAllStringSubmatch(r.first.String(), -1) {
			if attempts[m[1]]++; attempts[m[1]] == 3 {
				found = m[1]
				return true
			}
		}
		return false
	})
	now := time.Now().UTC()
	at, err := time.Parse(time.RFC3339, now.Format("2006-01-02T")+found+"Z")
	if err != nil {
		r.t.Fatal(err)
	}
	if at.After(now) { // midnight has passed since
		at = at.AddDate(0, 0, -1)
	}
	return at.Format(time.RFC3339)
}

// see waits for each line of a block of output. Times, ids and durations are others here.
func (r *reader) see(block string) {
	r.t.Helper()
	for line := range strings.Lines(block) {
		line = strings.TrimSpace(line)
		var parts []string
		for part := range strings.SplitSeq(line, "...") { // what the tutorial leaves out
			parts = append(parts, regexp.QuoteMeta(strings.TrimSpace(shape(part))))
		}
		want := regexp.MustCompile(strings.Join(parts, ".*"))
		r.waitFor(line, func() bool { return want.MatchString(shape(r.first.String() + r.second.String())) })
	}
}

func (r *reader) waitFor(what string, there func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !there(); r.pause(100 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not seen in %s: %s\n\nfirst terminal:\n%s\n\nsecond terminal:\n%s", patience, what, r.first.String(), r.second.String())
		}
	}
}

// pause lets time pass in the real world.
func (r *reader) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.t.Context().Done():
	}
}

// changing is what differs from one time to another, and how shape writes it.
var changing = []struct {
	pattern *regexp.Regexp
	shape   string
}{
	{regexp.MustCompile(`\x1b\[[0-9;]*m`), ""},
	{regexp.MustCompile(`evt_[0-9a-v]+`), "EVENT"},
	{runID, "RUN"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "NODE"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`with \S+/(terraform|tofu)\b`), "with TERRAFORM"},
	{regexp.MustCompile(`\d+`), "0"},
	{regexp.MustCompile(`\s+`), " "},
}

func shape(text string) string {
	for _, one := range changing {
		text = one.pattern.ReplaceAllString(text, one.shape)
	}
	return text
}

var (
	block    = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	typed    = regexp.MustCompile(`^(export|mkdir|sed|terraform|curl|bin/carillon|rm) `)
	numbered = regexp.MustCompile(`(?m)^## \d+\. `)
)

// The tutorial, word by word, but for what "make dev" builds.
func TestTutorial(t *testing.T) {
	need.Step(t, "processes")
	t.Parallel()
	r := newReader(t)
	steps := numbered.Split(page(t, "docs/start.md"), -1)
	for _, step := range steps[1:] {
		title, _, _ := strings.Cut(step, "\n")
		t.Log(title)
		if strings.Contains(step, "Press Ctrl-C") && strings.Contains(step, "wait for two minutes") {
			r.interrupt()
			r.pause(2 * time.Minute)
			r.start()
		}
		for _, m := range block.FindAllStringSubmatch(step, -1) {
			switch text := m[1]; {
			case text == "make dev\n":
				r.start()
			case typed.MatchString(text):
				r.enter(text)
			default:
				r.see(text)
			}
		}
	}
	r.interrupt()
}
