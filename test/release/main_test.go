package release_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// version will never be released. It has no suffix, because clients accept a version with a suffix
// only on request.
const version = "987.6.5"

// nextVersion follows it, for upgrades.
const nextVersion = "987.6.6"

// built are the results of tools/release for these tests, each built once.
var built *buildings

type buildings struct {
	dir string
	// tool is the compiled release command.
	tool func() (string, error)
	// snapshot is a whole release for this machine's architecture.
	snapshot func() (string, error)
	// again is the same image, built from scratch a second time.
	again func() (string, error)
	// other is the image for the other architecture.
	other func() (string, error)
	// packagesAgain are the packages for this architecture, built a second time; packagesOther are
	// those for the other one, and newer those of the next version.
	packagesAgain, packagesOther, newer func() (string, error)
	// debian is a bare Debian as a directory, which machines share read-only.
	debian func() (string, error)
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "carillon-release-")
		if err == nil {
			err = os.Chmod(dir, 0o755) // the user of the image traverses it
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		need.NoSettings()
		built = newBuildings(dir)
		return m.Run()
	}())
}

func newBuildings(dir string) *buildings {
	b := &buildings{dir: dir}
	b.tool = sync.OnceValues(func() (string, error) {
		program := filepath.Join(dir, "release")
		return program, output(exec.Command("go", "build", "-o", program, "."))
	})
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	b.snapshot = b.run("snapshot", version, runtime.GOARCH)
	b.again = b.run("image", version, runtime.GOARCH)
	b.other = b.run("image", version, other)
	b.packagesAgain = b.run("packages", version, runtime.GOARCH)
	b.packagesOther = b.run("packages", version, other)
	b.newer = b.run("packages", nextVersion, runtime.GOARCH)
	b.debian = sync.OnceValues(func() (string, error) {
		root := filepath.Join(dir, "debian")
		return root, output(exec.Command("mmdebstrap", debianFlags(root)...))
	})
	return b
}

// run returns a function that runs a command of the tool once, and returns its output directory.
func (b *buildings) run(command, version, arch string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		program, err := b.tool()
		if err != nil {
			return "", err
		}
		dist := filepath.Join(b.dir, command+"-"+version+"-"+arch)
		return dist, output(exec.Command(program, command, "-version", version, "-platforms", "linux/"+arch, "-dist", dist))
	})
}

// output runs a command of tools/release. Its output is in the error.
func output(command *exec.Cmd) error {
	command.Dir = filepath.Join("..", "..", "tools", "release")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command.Args, err, out)
	}
	return nil
}

// directory returns the result of one of the functions of built.
func directory(t *testing.T, build func() (string, error)) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: these tests run what is built for Linux") // also with CI=true
	}
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// must returns the value of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
