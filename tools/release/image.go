package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageDir    = "image"
	imageDigest = "image.digest"
	imageUser   = 65532 // as in "nonroot" images; strict clusters refuse 0
)

// image builds dist/image from scratch: no base image, no Docker. Next to the program it holds the
// system files that a program needs, and mount points.
func (r *release) image(ctx context.Context) error {
	if len(r.linux()) == 0 {
		return errors.New("-platforms names no Linux, and images are for Linux; write linux/amd64 or linux/arm64")
	}
	system, err := layer(systemEntries(), time.Unix(0, 0))
	if err != nil {
		return err
	}
	images := map[platform]v1.Image{}
	for _, p := range r.linux() {
		binary, err := r.binary(ctx, p, carillonProgram())
		if err != nil {
			return err
		}
		licenses, err := r.licenses(ctx, carillonProgram(), binary)
		if err != nil {
			return err
		}
		images[p], err = r.imageOf(p, system, []file{
			{"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
			{"NOTICE", filepath.Join(r.root, "NOTICE"), 0o644},
			{thirdParty, licenses, 0o644},
			{"carillon", binary, 0o755},
		})
		if err != nil {
			return fmt.Errorf("image for %s: %w", p, err)
		}
	}
	return r.writeLayout(r.index(images))
}

// index returns an index of the images of all platforms.
func (r *release) index(images map[platform]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.linux() {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        images[p],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	return mutate.Annotations(index, r.labels()).(v1.ImageIndex)
}

// imageOf returns the image of one platform. The layer of the system comes first: it stays the same
// between versions, so it is pulled once.
func (r *release) imageOf(p platform, system v1.Layer, files []file) (v1.Image, error) {
	entries, err := programEntries(files)
	if err != nil {
		return nil, err
	}
	program, err := layer(entries, r.created)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: r.created}
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: system, History: v1.History{Created: created, CreatedBy: "certificates, user, mount points"}},
		mutate.Addendum{Layer: program, History: v1.History{Created: created, CreatedBy: "carillon " + r.version}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", imageUser, imageUser),
		Entrypoint:   []string{"/carillon"},
		Cmd:          []string{"serve"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		WorkingDir:   "/",
		Labels:       r.labels(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// labels describe the image with the annotation keys of the OCI.
func (r *release) labels() map[string]string {
	const source = "https://github.com/carillon-dev/carillon"
	labels := map[string]string{
		"org.opencontainers.image.title":       "carillon",
		"org.opencontainers.image.description": "Calls webhooks and Lambda functions on schedule",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.url":         source,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.vendor":      "The Carillon Authors",
	}
	if r.revision != "" {
		labels["org.opencontainers.image.revision"] = r.revision
	}
	return labels
}

// entry is a file of a layer, or a directory if its name ends in a slash.
type entry struct {
	name    string
	mode    int64
	owner   int // and group
	content []byte
}

// systemEntries returns the system files that a program needs: root certificates, a name for its user, and
// two places to mount something writable. A volume takes owner and mode from the directory below it.
func systemEntries() []entry {
	return []entry{
		{"etc/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "carillon:x:%d:\n", imageUser)},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "carillon:x:%d:%d::/var/lib/carillon:/sbin/nologin\n", imageUser, imageUser)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, rootCertificates()},
		{"tmp/", 0o1777, 0, nil},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/carillon/", 0o750, imageUser, nil},
	}
}

// programEntries reads the files of a layer.
func programEntries(files []file) ([]entry, error) {
	var entries []entry
	for _, f := range files {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{f.name, f.mode, 0, content})
	}
	return entries, nil
}

// rootCertificates returns the authorities that Mozilla trusts, as a Go module pins them: those of
// the building machine would change the image. A file cannot express that an authority is trusted
// only for its older certificates, so such authorities are left out.
func rootCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer accepts every write
	}
	return out.Bytes()
}

// layer packs entries with one modification time.
func layer(entries []entry, modified time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		kind := byte(tar.TypeReg)
		if e.content == nil {
			kind = tar.TypeDir
		}
		h := &tar.Header{Typeflag: kind, Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.content)),
			ModTime: modified}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching,
		tarball.WithCompressionLevel(gzip.BestCompression))
}

// writeLayout replaces dist/image, and writes the digest for use in deployments.
func (r *release) writeLayout(index v1.ImageIndex) error {
	dir := filepath.Join(r.dist, imageDir)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	at, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})
	if err := at.AppendIndex(index, name); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "dist/%s %s\n", imageDir, digest)
	return r.create(imageDigest, text(digest.String()+"\n"))
}

// imageArchive packs dist/image into one file, for machines without a registry.
func (r *release) imageArchive(context.Context) error {
	dir := filepath.Join(r.dist, imageDir)
	var files []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var name string
			name, err = filepath.Rel(dir, path)
			files = append(files, file{filepath.ToSlash(name), path, 0o644})
		}
		return err
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("carillon_%s_image.tar", r.version)
	return r.create(name, func(w io.Writer) error { return writeTar(w, r.created, files) })
}
