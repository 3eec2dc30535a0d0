package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// checksums writes SHA256SUMS over the files at the top of dist, which a release offers for
// download. Directories hold copies of them (mirror), or are addressed by digest (image).
func (r *release) checksums(context.Context) error {
	entries, err := os.ReadDir(r.dist) // sorted by name
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		if e.IsDir() || e.Name() == "SHA256SUMS" {
			continue
		}
		sum, err := sum(filepath.Join(r.dist, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
	}
	return r.create("SHA256SUMS", text(sums.String()))
}

// sum returns the SHA-256 of a file in hexadecimal.
func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, bufio.NewReaderSize(f, 1<<20))
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}
