package terraform_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

// awsVersion is what the stand-in of the AWS provider says it is.
const awsVersion = "6.47.0"

// workbench holds what is found, built or computed once for all tests.
type workbench struct {
	dir      string
	binaries func() (string, error)                       // folder of carillon and terraform-provider-carillon
	standIn  func() (path string, err error)              // the AWS stand-in; no path: use the registry
	clients  map[string]func() (client, error)            // by name
	mu       sync.Mutex                                   // guards tests
	tests    map[[2]string]func() (map[string]run, error) // by client and folder: its runs by name
}

// client is terraform or tofu, with a copy of the repository's modules to work in.
type client struct {
	name, path string
	tree       string // holds terraform/ and examples/
	config     string // TF_CLI_CONFIG_FILE
}

var errMissing = errors.New("not installed")

func newWorkbench(dir string) *workbench {
	b := &workbench{dir: dir, tests: map[[2]string]func() (map[string]run, error){}}
	b.binaries = sync.OnceValues(func() (string, error) {
		bin := filepath.Join(dir, "bin")
		return bin, build(bin, "./dispatcher/cmd/carillon", "./provider/cmd/terraform-provider-carillon")
	})
	b.standIn = sync.OnceValues(b.buildStandIn)
	b.clients = map[string]func() (client, error){
		"terraform": sync.OnceValues(func() (client, error) { return b.client("terraform") }),
		"tofu":      sync.OnceValues(func() (client, error) { return b.client("tofu") }),
	}
	return b
}

// buildStandIn builds the AWS stand-in from its sources, which are kept outside of this repository.
func (b *workbench) buildStandIn() (string, error) {
	sources := os.Getenv("CARILLON_AWS_PROVIDER_STUB")
	if sources == "" {
		sources = filepath.Join("..", "..", "shared", "aws-provider-stub")
	}
	if _, err := os.Stat(filepath.Join(sources, "go.mod")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, "terraform-provider-aws")
	command := exec.CommandContext(context.Background(), "go", "build", "-buildvcs=false", "-o", path, ".")
	command.Dir, command.Env = sources, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the stand-in of the AWS provider: %w\n%s", err, out)
	}
	return path, nil
}

// client finds a program, and prepares its tree and mirror.
func (b *workbench) client(name string) (client, error) {
	c := client{name: name, tree: filepath.Join(b.dir, name), config: filepath.Join(b.dir, name+".rc")}
	var err error
	if c.path, err = need.FindClient(context.Background(), name); err != nil {
		return c, err
	}
	if c.path == "" {
		return c, errMissing
	}
	if err := copyTree(c.tree); err != nil {
		return c, err
	}
	return c, b.writeConfig(c)
}

// writeConfig makes a mirror of the two providers, and the file that tells the client of it.
func (b *workbench) writeConfig(c client) error {
	bin, err := b.binaries()
	if err != nil {
		return err
	}
	aws, err := b.standIn()
	if err != nil {
		return err
	}
	host := map[string]string{"terraform": "registry.terraform.io", "tofu": "registry.opentofu.org"}[c.name]
	mirror := filepath.Join(b.dir, "mirror-"+c.name)
	providers := map[string]string{"carillon-dev/carillon/0.0.1": filepath.Join(bin, "terraform-provider-carillon")}
	direct := "direct { exclude = [\"carillon-dev/carillon\"] }"
	if aws != "" {
		providers["hashicorp/aws/"+awsVersion] = aws
		direct = ""
	}
	for provider, binary := range providers {
		dir := filepath.Join(mirror, host, provider, runtime.GOOS+"_"+runtime.GOARCH)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		file := "terraform-provider-" + strings.Split(provider, "/")[1] + "_v" + filepath.Base(provider)
		if err := os.Symlink(binary, filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("provider_installation {\n  filesystem_mirror { path = %q }\n  %s\n}\n", mirror, direct)
	return os.WriteFile(c.config, []byte(text), 0o600)
}

// published is the address under which people use a module; the tests use the one of this tree.
var published = regexp.MustCompile(`"git::https://github\.com/carillon-dev/carillon\.git//(terraform/[a-z/-]+)\?ref=[^"]+"`)

// copyTree copies terraform/ and examples/: init writes into the folders, and differs between clients.
func copyTree(to string) error {
	for _, root := range []string{"terraform", "examples"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if strings.HasPrefix(entry.Name(), ".terraform") {
				if entry.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			target := filepath.Join(to, strings.TrimPrefix(path, ".."+string(filepath.Separator)))
			if entry.IsDir() {
				return os.MkdirAll(target, 0o755)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			up, err := filepath.Rel(filepath.Dir(target), to)
			if err != nil {
				return err
			}
			text = published.ReplaceAll(text, []byte(`"`+filepath.ToSlash(up)+`/$1"`))
			// What a test creates, it destroys.
			text = bytes.ReplaceAll(text, []byte("prevent_destroy = true"), []byte("prevent_destroy = false"))
			return os.WriteFile(target, text, 0o600)
		})
		if err != nil {
			return fmt.Errorf("copy %s: %w", root, err)
		}
	}
	return nil
}

// eachClient runs a test with terraform and with tofu.
func eachClient(t *testing.T, test func(t *testing.T, c client)) {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need.Client(t, name)
			c, err := bench.clients[name]()
			if err != nil {
				t.Fatal(err)
			}
			test(t, c)
		})
	}
}

// command runs the client in a folder of its tree, such as terraform/ecs, and returns what it prints.
func (c client) command(ctx context.Context, dir string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, c.path, arguments...)
	command.Dir = filepath.Join(c.tree, dir)
	command.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+c.config, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1",
		"TF_INPUT=0", "TF_CLI_ARGS=-no-color")
	out, err := command.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s in %s: %w\n%s", c.name, strings.Join(arguments, " "), dir, err, out)
	}
	return string(out), nil
}

// must is command, but a failure ends the test.
func (c client) must(t *testing.T, dir string, arguments ...string) string {
	t.Helper()
	out, err := c.command(t.Context(), dir, arguments...)
	skipWithoutProvider(t, err)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// skipWithoutProvider skips a test that has neither the stand-in of the AWS provider nor a registry that is
// reachable. Under CI=true that is a failure.
func skipWithoutProvider(t *testing.T, err error) {
	t.Helper()
	if standIn, _ := bench.standIn(); err == nil || standIn != "" || need.CI() {
		return
	}
	if strings.Contains(err.Error(), "could not connect to registry") || strings.Contains(err.Error(), "no such host") {
		t.Skip("SKIPPED: NO AWS PROVIDER; the registry is unreachable, and CARILLON_AWS_PROVIDER_STUB names no stand-in") // not CI=true
	}
}

// copy copies the tree to break it: the folders that init prepared stay usable.
func (c client) copy(t *testing.T) client {
	t.Helper()
	c.tree = t.TempDir()
	if err := copyTree(c.tree); err != nil {
		t.Fatal(err)
	}
	return c
}

// edit replaces a text that a file of the tree holds exactly once.
func (c client) edit(t *testing.T, file, old, replacement string) {
	t.Helper()
	path := filepath.Join(c.tree, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%s holds %q %d times, want once", file, old, n)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}
