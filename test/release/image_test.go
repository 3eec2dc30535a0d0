package release_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
)

// image is one platform's image in an OCI layout, read without the library that wrote it.
type image struct {
	layout  string
	digest  string // of the index
	arch    string
	config  imageConfig
	entries []tarEntry
}

// imageConfig is the tested part of an image's configuration.
type imageConfig struct {
	Architecture, OS string
	Created          time.Time
	Config           struct {
		User            string
		Entrypoint, Cmd []string
		Env             []string
		ExposedPorts    map[string]struct{}
		Labels          map[string]string
	}
}

type descriptor struct {
	Digest    string
	MediaType string
	Platform  struct{ Architecture, OS string }
}

// readImage reads the only image of a layout, and requires that each blob has the digest in its name.
func readImage(t *testing.T, dist string) image {
	t.Helper()
	m := image{layout: filepath.Join(dist, "image")}
	var top, index struct{ Manifests []descriptor }
	decode(t, must[[]byte](t)(os.ReadFile(filepath.Join(m.layout, "index.json"))), &top)
	if len(top.Manifests) != 1 {
		t.Fatalf("index.json names %d manifests, want one index", len(top.Manifests))
	}
	m.digest = top.Manifests[0].Digest
	decode(t, m.blob(t, m.digest), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("the index names %d images, want one", len(index.Manifests))
	}
	m.arch = index.Manifests[0].Platform.Architecture
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(t, m.blob(t, index.Manifests[0].Digest), &manifest)
	decode(t, m.blob(t, manifest.Config.Digest), &m.config)
	for _, layer := range manifest.Layers {
		m.blob(t, layer.Digest)
		m.entries = append(m.entries, readTarGz(t, m.path(layer.Digest))...)
	}
	return m
}

func (m image) path(digest string) string {
	return filepath.Join(m.layout, "blobs", strings.Replace(digest, ":", "/", 1))
}

func (m image) blob(t *testing.T, digest string) []byte {
	t.Helper()
	content := must[[]byte](t)(os.ReadFile(m.path(digest)))
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != digest {
		t.Fatalf("blob %s has the digest %s", digest, got)
	}
	return content
}

func (m image) file(t *testing.T, name string) []byte {
	t.Helper()
	for _, e := range m.entries {
		if e.Name == name {
			return e.content
		}
	}
	t.Fatalf("the image has no %s", name)
	return nil
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func TestImageHasNoUnexpectedFiles(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	var got []string
	for _, e := range readImage(t, directory(t, built.snapshot)).entries {
		kind := map[byte]string{tar.TypeReg: "-", tar.TypeDir: "d"}[e.Typeflag]
		got = append(got, fmt.Sprintf("%s%04o %d:%d /%s", kind, e.Mode, e.Uid, e.Gid, e.Name))
	}
	want := []string{
		"d0755 0:0 /etc/",
		"-0644 0:0 /etc/group",
		"-0644 0:0 /etc/passwd",
		"d0755 0:0 /etc/ssl/",
		"d0755 0:0 /etc/ssl/certs/",
		"-0644 0:0 /etc/ssl/certs/ca-certificates.crt",
		"d1777 0:0 /tmp/",
		"d0755 0:0 /var/",
		"d0755 0:0 /var/lib/",
		"d0750 65532:65532 /var/lib/carillon/",
		"-0644 0:0 /LICENSE",
		"-0644 0:0 /NOTICE",
		"-0644 0:0 /THIRD_PARTY_LICENSES",
		"-0755 0:0 /carillon",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("content of the image (-want +got):\n%s", diff)
	}
}

func TestImageHasTheExpectedConfiguration(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	dist := directory(t, built.snapshot)
	m := readImage(t, dist)
	c := m.config.Config
	for name, tt := range map[string]struct{ got, want any }{
		"user":         {c.User, "65532:65532"},
		"entrypoint":   {c.Entrypoint, []string{"/carillon"}},
		"cmd":          {c.Cmd, []string{"serve"}},
		"port":         {c.ExposedPorts, map[string]struct{}{"8080/tcp": {}}},
		"environment":  {c.Env, []string(nil)},
		"platform":     {m.config.OS + "/" + m.config.Architecture, "linux/" + runtime.GOARCH},
		"version":      {c.Labels["org.opencontainers.image.version"], version},
		"source":       {c.Labels["org.opencontainers.image.source"], "https://github.com/carillon-dev/carillon"},
		"license":      {c.Labels["org.opencontainers.image.licenses"], "Apache-2.0"},
		"created":      {c.Labels["org.opencontainers.image.created"], m.config.Created.Format(time.RFC3339)},
		"image.digest": {string(must[[]byte](t)(os.ReadFile(filepath.Join(dist, "image.digest")))), m.digest + "\n"},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDockerfileMakesTheSameImage(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	got := string(must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "Dockerfile"))))
	c := readImage(t, directory(t, built.snapshot)).config.Config
	for _, want := range []string{
		"USER " + c.User, fmt.Sprintf("ENTRYPOINT [%q]", c.Entrypoint[0]), fmt.Sprintf("CMD [%q]", c.Cmd[0]), "EXPOSE 8080",
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("Dockerfile has no line %q", want)
		}
	}
}

func TestImageTrustsTheUsualAuthorities(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	m := readImage(t, directory(t, built.snapshot))
	text := m.file(t, "etc/ssl/certs/ca-certificates.crt")
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatal("no certificate in the bundle")
	}
	if got := bytes.Count(text, []byte("BEGIN CERTIFICATE")); got < 100 {
		t.Errorf("%d authorities, want those of Mozilla, over 100", got)
	}
}

func TestSecondBuildHasTheSameDigest(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	first, second := directory(t, built.snapshot), directory(t, built.again)
	if got, want := readImage(t, second).digest, readImage(t, first).digest; got != want {
		t.Errorf("digest of the second build: %s, of the first %s", got, want)
	}
}

func TestImageHoldsAProgramForItsProcessor(t *testing.T) {
	need.Step(t, "packages")
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			t.Parallel()
			build := built.other
			if arch == runtime.GOARCH {
				build = built.snapshot
			}
			m := readImage(t, directory(t, build))
			program := must[*elf.File](t)(elf.NewFile(bytes.NewReader(m.file(t, "carillon"))))
			if m.arch != arch || m.config.Architecture != arch || program.Machine != machine {
				t.Errorf("platform %s, configuration %s, program %v; want %s and %v",
					m.arch, m.config.Architecture, program.Machine, arch, machine)
			}
			for _, section := range program.Progs {
				if section.Type == elf.PT_INTERP {
					t.Error("the program wants a dynamic linker, and the image has none")
				}
			}
		})
	}
}
