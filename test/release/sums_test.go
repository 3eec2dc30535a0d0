package release_test

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
	"github.com/carillon-dev/carillon/test/program"
)

func TestSumsVerify(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	for _, sums := range []string{"SHA256SUMS", "terraform-provider-carillon_" + version + "_SHA256SUMS"} {
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums)
		check.Dir = dist
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("sha256sum -c %s: %v\n%s", sums, err, out)
		}
	}
}

func TestSumsCoverEveryFileToDownload(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	want := map[string]bool{}
	for _, entry := range must[[]os.DirEntry](t)(os.ReadDir(dist)) {
		if !entry.IsDir() && entry.Name() != "SHA256SUMS" {
			want[entry.Name()] = true
		}
	}
	if diff := cmp.Diff(want, names(t, filepath.Join(dist, "SHA256SUMS"))); diff != "" {
		t.Errorf("files of SHA256SUMS (-dist +got):\n%s", diff)
	}
	prefix := "terraform-provider-carillon_" + version
	want = map[string]bool{prefix + "_linux_" + runtime.GOARCH + ".zip": true, prefix + "_manifest.json": true}
	if diff := cmp.Diff(want, names(t, filepath.Join(dist, prefix+"_SHA256SUMS"))); diff != "" {
		t.Errorf("files of the provider's sums (-want +got):\n%s", diff)
	}
}

// names returns the file names in a list of sums.
func names(t *testing.T, file string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	f := must[*os.File](t)(os.Open(file))
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		all[strings.Fields(lines.Text())[1]] = true
	}
	return all
}

func TestArchiveHoldsProgramAndDocuments(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	for _, program := range []string{"carillon", "carillon-bench"} {
		dir := program + "_" + version + "_linux_" + runtime.GOARCH
		var got []string
		for _, e := range readTarGz(t, filepath.Join(dist, dir+".tar.gz")) {
			got = append(got, e.Name)
			want := int64(0o644)
			if e.Name == dir+"/"+program {
				want = 0o755
			}
			if e.Mode != want || e.Uid != 0 || e.Gid != 0 {
				t.Errorf("%s: mode %o of %d:%d, want %o of 0:0", e.Name, e.Mode, e.Uid, e.Gid, want)
			}
		}
		slices.Sort(got)
		want := []string{dir + "/CHANGELOG.md", dir + "/LICENSE", dir + "/NOTICE", dir + "/README.md",
			dir + "/THIRD_PARTY_LICENSES", dir + "/" + program}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", dir, diff)
		}
	}
}

// bill is the tested part of a bill of materials.
type bill struct {
	Metadata struct {
		Component struct{ Name, Version string }
	}
	Components []struct {
		Name, Version string
		Hashes        []struct{ Content string }
	}
}

func TestBillOfMaterialsMatchesGoVersion(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	name := "carillon_" + version + "_linux_" + runtime.GOARCH
	var b bill
	if err := json.Unmarshal(must[[]byte](t)(os.ReadFile(filepath.Join(dist, name+".cdx.json"))), &b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range b.Components {
		if c.Name == "std" {
			got = append(got, "go"+c.Version)
			continue
		}
		if len(c.Hashes) != 1 {
			t.Fatalf("%s has %d hashes", c.Name, len(c.Hashes))
		}
		hash := must[[]byte](t)(hex.DecodeString(c.Hashes[0].Content))
		got = append(got, c.Name+" "+c.Version+" h1:"+base64.StdEncoding.EncodeToString(hash))
	}
	if diff := cmp.Diff(goVersion(t, programOf(t, dist, "carillon")), got); diff != "" {
		t.Errorf("components (-go version -m +bill):\n%s", diff)
	}
	if c := b.Metadata.Component; c.Name != "carillon" || c.Version != version {
		t.Errorf("the bill is of %s %s, want carillon %s", c.Name, c.Version, version)
	}
}

func TestEveryModuleComesWithItsLicence(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	dir := "carillon_" + version + "_linux_" + runtime.GOARCH
	var licences string
	for _, e := range readTarGz(t, filepath.Join(dist, dir+".tar.gz")) {
		if e.Name == dir+"/THIRD_PARTY_LICENSES" {
			licences = string(e.content)
		}
	}
	for _, line := range goVersion(t, programOf(t, dist, "carillon")) {
		module := strings.Join(strings.Fields(line)[:min(2, len(strings.Fields(line)))], " ")
		if !strings.Contains(licences, module+" (") {
			t.Errorf("no licence of %s", module)
		}
	}
	if got := string(readImage(t, dist).file(t, "THIRD_PARTY_LICENSES")); got != licences {
		t.Error("the image and the archive hold different licences")
	}
}

// goVersion returns the output of "go version -m" for a program: Go's own version, then each module.
func goVersion(t *testing.T, program string) (lines []string) {
	t.Helper()
	out := must[[]byte](t)(exec.CommandContext(t.Context(), "go", "version", "-m", program).Output())
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(lines) == 0 {
			lines = append(lines, fields[1])
		} else if fields[0] == "dep" {
			lines = append(lines, strings.Join(fields[1:], " "))
		}
	}
	return lines
}

// programOf unpacks an archive and returns the path of its program.
func programOf(t *testing.T, dist, name string) string {
	t.Helper()
	dir := name + "_" + version + "_linux_" + runtime.GOARCH
	for _, e := range readTarGz(t, filepath.Join(dist, dir+".tar.gz")) {
		if e.Name != dir+"/"+name {
			continue
		}
		path := filepath.Join(t.TempDir(), name)
		if err := program.Write(path, e.content); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Fatalf("%s.tar.gz holds no %s", dir, name)
	return ""
}

// tarEntry is an entry of an archive with its content.
type tarEntry struct {
	*tar.Header
	content []byte
}

func readTarGz(t *testing.T, path string) (entries []tarEntry) {
	t.Helper()
	f := must[*os.File](t)(os.Open(path))
	defer f.Close()
	zr := must[*gzip.Reader](t)(gzip.NewReader(f))
	tr := tar.NewReader(zr)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		entries = append(entries, tarEntry{h, must[[]byte](t)(io.ReadAll(tr))})
	}
}
