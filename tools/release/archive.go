package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// file is an entry of an archive: its path there, and the file with its content.
type file struct {
	name string
	path string
	mode int64
}

// archives packs the programs for each platform, with their documents.
func (r *release) archives(ctx context.Context) error {
	for _, p := range r.builds() {
		for _, prog := range r.programs(p) {
			if prog == r.providerProgram() {
				continue // packed as a zip, as Terraform expects
			}
			if err := r.archive(ctx, p, prog); err != nil {
				return err
			}
		}
	}
	return nil
}

// archiveName returns the name of a program's archive, without its extension.
func (r *release) archiveName(p platform, prog program) string {
	return fmt.Sprintf("%s_%s_%s_%s", prog.title(), r.version, p.os, p.arch)
}

// archive packs one program as NAME_VERSION_OS_ARCH.tar.gz, in a directory of that name.
func (r *release) archive(ctx context.Context, p platform, prog program) error {
	binary, err := r.binary(ctx, p, prog)
	if err != nil {
		return err
	}
	licenses, err := r.licenses(ctx, prog, binary)
	if err != nil {
		return err
	}
	dir := r.archiveName(p, prog)
	files := []file{{dir + "/" + prog.name, binary, 0o755}, {dir + "/" + thirdParty, licenses, 0o644}}
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md"} {
		files = append(files, file{dir + "/" + name, filepath.Join(r.root, name), 0o644})
	}
	return r.create(dir+".tar.gz", func(w io.Writer) error { return writeTarGz(w, r.created, files) })
}

// writeTarGz writes a compressed tar of files.
func writeTarGz(w io.Writer, modified time.Time, files []file) error {
	zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(zw, modified, files), zw.Close())
}

// writeTar writes a tar of files that belong to root and share one modification time.
func writeTar(w io.Writer, modified time.Time, files []file) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(data)), ModTime: modified,
			Uname: "root", Gname: "root"}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(data); err != nil {
			return err
		}
	}
	return tw.Close()
}

// writeZip packs files.
func writeZip(w io.Writer, modified time.Time, files []file) error {
	zw := zip.NewWriter(w)
	for _, f := range files {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: modified}
		h.SetMode(os.FileMode(f.mode))
		fw, err := zw.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := fw.Write(data); err != nil {
			return err
		}
	}
	return zw.Close()
}
