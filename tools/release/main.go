// Command release builds what a release of Carillon consists of, in dist/:
//
//	image     dist/image, an OCI layout for linux/amd64 and linux/arm64, its digest in dist/image.digest
//	packages  the .deb and .rpm of each Linux platform
//	snapshot  all of it: archives, packages, provider, image, bills of materials and SHA256SUMS
//	notes     print the section of CHANGELOG.md, or say why this version cannot be released
//	mirror    the tree of the repository from which the Terraform registry serves the provider
//	sign      sign the sums of the provider with gpg
//	push      push dist/image to the repository that -repository names
//
// A person needs "make release-snapshot", which is snapshot; the workflow of a release runs the others as well.
// Two runs over one commit with one Go version give the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(os.Stderr, "release:", line)
		}
		os.Exit(1)
	}
}

const usage = "write: release image|packages|snapshot|notes|mirror|sign|push -version VERSION"

// run executes one command line.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return errors.New("no command; " + usage)
	}
	command, known := commands()[args[0]]
	if !known {
		return fmt.Errorf("unknown command %q; %s", args[0], usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	o := options{}
	flags.StringVar(&o.version, "version", "0.0.0-dev", "the version stamped into binaries and file names, without v")
	flags.StringVar(&o.root, "root", "../..", "the root of the repository")
	flags.StringVar(&o.dist, "dist", "", "where to write (default: dist in the root)")
	flags.StringVar(&o.platforms, "platforms", "", "such as linux/amd64,linux/arm64 (default: all that the command builds)")
	flags.StringVar(&o.repository, "repository", "", "of push: where to, such as ghcr.io/carillon-dev/carillon")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; %s", flags.Arg(0), usage)
	}
	r, err := newRelease(ctx, o, out)
	if err != nil {
		return err
	}
	return errors.Join(command(r, ctx), r.close())
}

// commands returns the functions of the commands by name.
func commands() map[string]func(*release, context.Context) error {
	return map[string]func(*release, context.Context) error{
		"image":    (*release).image,
		"packages": (*release).packages,
		"snapshot": (*release).snapshot,
		"notes":    (*release).notes,
		"mirror":   (*release).mirror,
		"sign":     (*release).sign,
		"push":     (*release).push,
	}
}

// snapshot builds everything from scratch.
func (r *release) snapshot(ctx context.Context) error {
	if err := r.empty(); err != nil {
		return err
	}
	steps := []func(context.Context) error{r.archives, r.providerArchives, r.billsOfMaterials, r.mirror}
	if len(r.linux()) > 0 {
		steps = append(steps, r.packages, r.image, r.imageArchive)
	}
	for _, step := range append(steps, r.checksums) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the output of an earlier run in the repository's dist. A directory that a person
// names must already be empty, because it may hold anything.
func (r *release) empty() error {
	if r.dist == filepath.Join(r.root, "dist") {
		return os.RemoveAll(r.dist)
	}
	entries, err := os.ReadDir(r.dist)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("-dist %s is not empty; name an empty or a new directory", r.dist)
	}
	return nil
}

// create makes a file in dist, and its directory.
func (r *release) create(name string, write func(io.Writer) error) error {
	path := filepath.Join(r.dist, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintln(r.out, filepath.Join("dist", name))
	return nil
}
