package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// layoutOf writes an image for two platforms with text as the program, and returns its directory and digest.
func layoutOf(t *testing.T, version string) (dist, digest string) {
	t.Helper()
	dir := t.TempDir()
	r := &release{dist: filepath.Join(dir, "dist"), version: version, created: time.Unix(1_000_000_000, 0).UTC(), out: io.Discard}
	system, err := layer(systemEntries(), time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	images := map[platform]v1.Image{}
	for _, p := range r.linux() {
		program := filepath.Join(dir, p.arch)
		if err := os.WriteFile(program, []byte(p.arch), 0o600); err != nil {
			t.Fatal(err)
		}
		if images[p], err = r.imageOf(p, system, []file{{"carillon", program, 0o755}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeLayout(r.index(images)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.dist, imageDigest))
	if err != nil {
		t.Fatal(err)
	}
	return r.dist, strings.TrimSpace(string(text))
}

func TestPushedImageHasTheDigestOfTheBuild(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/carillon"
	dist, digest := layoutOf(t, "1.2.3")
	var out bytes.Buffer
	if err := run(t.Context(), []string{"push", "-version", "1.2.3", "-dist", dist, "-repository", repository}, &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), repository+"@"+digest+"\n"; got != want {
		t.Errorf("push prints %q, want %q", got, want)
	}
	for _, tag := range []string{"1.2.3", "1.2"} {
		for _, p := range []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}} {
			ref, err := name.ParseReference(repository + ":" + tag)
			if err != nil {
				t.Fatal(err)
			}
			image, err := remote.Image(ref, remote.WithPlatform(p))
			if err != nil {
				t.Fatal(err)
			}
			config, err := image.ConfigFile()
			if err != nil || config.Architecture != p.Architecture {
				t.Errorf("%s for %s: %+v, %v", ref, p, config, err)
			}
			if head, err := remote.Head(ref); err != nil || head.Digest.String() != digest {
				t.Errorf("%s is %v, %v, want %s", ref, head, err, digest)
			}
		}
	}
}

func TestTagsOfAnImage(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][]string{"1.2.3": {"1.2.3", "1.2"}, "1.10.0": {"1.10.0", "1.10"}, "1.3.0-rc.1": {"1.3.0-rc.1"}} {
		if got := imageTags(version); !slices.Equal(got, want) {
			t.Errorf("tags of %s: %v, want %v", version, got, want)
		}
	}
}

func TestSystemLayerStaysTheSameBetweenVersions(t *testing.T) {
	t.Parallel()
	layers := map[string][]string{}
	for _, version := range []string{"1.2.3", "1.2.4"} {
		dist, _ := layoutOf(t, version)
		index, err := readLayout(filepath.Join(dist, imageDir))
		if err != nil {
			t.Fatal(err)
		}
		list, err := index.IndexManifest()
		if err != nil || len(list.Manifests) != 2 {
			t.Fatalf("%+v, %v, want two platforms", list, err)
		}
		for _, m := range list.Manifests {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := image.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			layers[m.Platform.Architecture] = append(layers[m.Platform.Architecture], manifest.Layers[0].Digest.String())
		}
	}
	if a, b := layers["amd64"], layers["arm64"]; a[0] != a[1] || a[0] != b[0] || a[0] != b[1] {
		t.Errorf("layers of the system: %v", layers)
	}
}
