package main

import (
	"context"
	"crypto/sha256"
	_ "embed" // embeds the manifest
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// manifest tells the Terraform registry which protocol the provider speaks.
//
//go:embed terraform-registry-manifest.json
var manifest string

// registries are the hosts under which Terraform and OpenTofu look for a provider without a host in its address.
func registries() []string { return []string{"registry.terraform.io", "registry.opentofu.org"} }

// providerArchives packs the provider as the registry expects it: one zip for each platform, the manifest,
// and separate sums. mirror/ has the same zips in the layout of a filesystem_mirror for "terraform init".
func (r *release) providerArchives(ctx context.Context) error {
	prog := r.providerProgram()
	var sums strings.Builder
	for _, p := range r.builds() {
		binary, err := r.binary(ctx, p, prog)
		if err != nil {
			return err
		}
		licenses, err := r.licenses(ctx, prog, binary)
		if err != nil {
			return err
		}
		files := []file{
			{prog.name, binary, 0o755},
			{thirdParty, licenses, 0o644},
			{"LICENSE", filepath.Join(r.root, "LICENSE"), 0o644},
		}
		name := r.archiveName(p, prog) + ".zip"
		hash := sha256.New()
		pack := func(w io.Writer) error {
			return writeZip(io.MultiWriter(w, hash), r.created, files)
		}
		if err := r.create(name, pack); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", hash.Sum(nil), name)
		for _, host := range registries() {
			copied := path.Join("mirror", host, "carillon-dev", "carillon", name)
			if err := r.create(copied, pack); err != nil {
				return err
			}
		}
	}
	prefix := prog.title() + "_" + r.version
	name := prefix + "_manifest.json"
	fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(manifest)), name)
	if err := r.create(name, text(manifest)); err != nil {
		return err
	}
	return r.create(prefix+"_SHA256SUMS", text(sums.String()))
}

// text returns a function that writes s.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}
