// Command release cross-builds Carillon and writes archives and their checksums to dist/:
//
//	carillon_VERSION_OS_ARCH.tar.gz        the dispatcher and command line, the benchmark, the licence
//	mirror/HOST/carillon-dev/carillon/...  the provider, as "terraform init" reads it from a
//	                                       filesystem_mirror, for Terraform and for OpenTofu
//	SHA256SUMS                             of all of them
//
// Two runs over one tree with one Go version give the same bytes.
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	carillon = "./dispatcher/cmd/carillon"
	bench    = "./test/bench"
	provider = "./provider/cmd/terraform-provider-carillon"
)

func main() {
	version := flag.String("version", "0.0.0-dev", "the version stamped into binaries and file names")
	root := flag.String("root", "../..", "the root of the repository")
	flag.Parse()

	r := release{version: *version, root: *root, dist: filepath.Join(*root, "dist")}
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type release struct {
	version, root, dist string
	archives            []string // relative to dist, in the order they were made
}

func (r *release) run() error {
	if err := os.RemoveAll(r.dist); err != nil {
		return err
	}
	for _, goos := range []string{"linux", "darwin"} {
		for _, goarch := range []string{"amd64", "arm64"} {
			if err := r.platform(goos, goarch); err != nil {
				return fmt.Errorf("%s/%s: %w", goos, goarch, err)
			}
		}
	}
	return r.checksums()
}

// platform builds the programs for one platform and packs them.
func (r *release) platform(goos, goarch string) error {
	bin, err := os.MkdirTemp("", "carillon-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bin)

	providerName := "terraform-provider-carillon_v" + r.version
	for pkg, name := range map[string]string{carillon: "carillon", bench: "carillon-bench", provider: providerName} {
		if err := r.build(goos, goarch, pkg, filepath.Join(bin, name)); err != nil {
			return err
		}
	}

	files := []string{filepath.Join(bin, "carillon"), filepath.Join(bin, "carillon-bench")}
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md"} {
		files = append(files, filepath.Join(r.root, name))
	}
	name := fmt.Sprintf("carillon_%s_%s_%s", r.version, goos, goarch)
	if err := r.write(name+".tar.gz", func(w io.Writer) error { return tarball(w, name, files) }); err != nil {
		return err
	}

	// Each client looks under its own registry's host; the archive is the same.
	name = fmt.Sprintf("terraform-provider-carillon_%s_%s_%s.zip", r.version, goos, goarch)
	for _, host := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		path := filepath.Join("mirror", host, "carillon-dev", "carillon", name)
		err := r.write(path, func(w io.Writer) error { return zipball(w, filepath.Join(bin, providerName)) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *release) build(goos, goarch, pkg, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+r.version, "-o", out, pkg)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// write makes one archive in dist and notes it for the checksums.
func (r *release) write(name string, pack func(io.Writer) error) error {
	path := filepath.Join(r.dist, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(pack(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.archives = append(r.archives, name)
	fmt.Println(filepath.Join("dist", name))
	return nil
}

func (r *release) checksums() error {
	var sums strings.Builder
	for _, name := range r.archives {
		data, err := os.ReadFile(filepath.Join(r.dist, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.ToSlash(name))
	}
	fmt.Println(filepath.Join("dist", "SHA256SUMS"))
	return os.WriteFile(filepath.Join(r.dist, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// epoch stands for every modification time: the clock must not change the bytes.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tarball packs files, without their directories, under dir.
func tarball(w io.Writer, dir string, files []string) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(zw)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: dir + "/" + filepath.Base(file), Mode: mode(file), Size: int64(len(data)), ModTime: epoch}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

// zipball packs one program, as Terraform wants a provider: alone, at the top.
func zipball(w io.Writer, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	zw := zip.NewWriter(w)
	h := &zip.FileHeader{Name: filepath.Base(file), Method: zip.Deflate, Modified: epoch}
	h.SetMode(0o755)
	fw, err := zw.CreateHeader(h)
	if err != nil {
		return err
	}
	if _, err := fw.Write(data); err != nil {
		return err
	}
	return zw.Close()
}

func mode(file string) int64 {
	if strings.HasPrefix(filepath.Base(file), "carillon") {
		return 0o755
	}
	return 0o644
}
