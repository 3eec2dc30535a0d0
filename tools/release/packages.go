package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

const (
	maintainer = "The Carillon Authors <carillon-dev@users.noreply.github.com>"
	homepage   = "https://github.com/carillon-dev/carillon"
	summary    = "call webhooks and Lambda functions on schedule"
	// description is wrapped for both formats.
	description = `A Carillon node calls the targets of jobs when their triggers are due, and
keeps a record of every fire. Jobs are declared in Terraform or OpenTofu.

One node needs no more than this package: it stores its data in SQLite. Over
PostgreSQL, any number of nodes share the work.`
)

// packages builds the .deb and .rpm of each Linux platform into dist.
func (r *release) packages(ctx context.Context) error {
	for _, p := range r.linux() {
		binary, err := r.binary(ctx, p, carillonProgram())
		if err != nil {
			return err
		}
		licenses, err := r.licenses(ctx, carillonProgram(), binary)
		if err != nil {
			return err
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.pack(format, p, binary, licenses); err != nil {
				return err
			}
		}
	}
	return nil
}

// pack writes one package.
func (r *release) pack(format string, p platform, binary, licenses string) error {
	contents, err := r.packageContents(format, binary, licenses)
	if err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info := r.packageInfo(format, p, contents)
	if format == "rpm" {
		if info.Changelog, err = r.rpmChangelog(); err != nil {
			return err
		}
	}
	info = nfpm.WithDefaults(info)
	return r.create(r.packageName(format, p), func(w io.Writer) error { return packager.Package(info, w) })
}

// packageName keeps the version as it is. Inside the packages, the first hyphen becomes a tilde,
// which some download servers do not accept in names.
func (r *release) packageName(format string, p platform) string {
	if format == "rpm" {
		arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[p.arch]
		return fmt.Sprintf("carillon-%s-1.%s.rpm", r.version, arch)
	}
	return fmt.Sprintf("carillon_%s_%s.deb", r.version, p.arch)
}

// packageInfo returns the metadata and contents of a package.
func (r *release) packageInfo(format string, p platform, contents files.Contents) *nfpm.Info {
	version, prerelease := r.packageVersion()
	info := &nfpm.Info{
		Name: "carillon", Arch: p.arch, Platform: p.os,
		Version: version, Prerelease: prerelease, VersionSchema: "none",
		Section: "admin", Priority: "optional", Maintainer: maintainer, Vendor: "The Carillon Authors",
		Homepage: homepage,
		MTime:    r.created, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Depends:  []string{"ca-certificates"},
		},
	}
	script := func(name string) string { return r.packaging(filepath.Join(format, name)) }
	if format == "deb" {
		info.Scripts = nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")}
		info.Description = summary + "\n" + description
		info.Deb.Compression = "xz"
		return info
	}
	info.Scripts = nfpm.Scripts{PostInstall: script("post"), PreRemove: script("preun"), PostRemove: script("postun")}
	info.Description, info.License = description, "Apache-2.0" // a .deb names its licence in the file copyright
	info.Release = "1"
	info.RPM.Summary, info.RPM.Packager, info.RPM.Group = strings.ToUpper(summary[:1])+summary[1:], maintainer, "System/Daemons"
	info.RPM.BuildHost = "localhost" // not the machine that builds
	info.RPM.Compression = "zstd"
	return info
}

// packageVersion splits the version. A hyphen in a part would begin the revision in both formats.
func (r *release) packageVersion() (version, prerelease string) {
	version, prerelease, _ = strings.Cut(r.version, "-")
	return version, strings.ReplaceAll(prerelease, "-", ".")
}

// packaging is the path of a file that is packed.
func (r *release) packaging(name string) string {
	return filepath.Join(r.root, "tools", "release", "packaging", name)
}

// packageContents lists what a package holds; each file belongs to root.
func (r *release) packageContents(format, binary, licenses string) (files.Contents, error) {
	man, err := r.manPage()
	if err != nil {
		return nil, err
	}
	const doc = "/usr/share/doc/carillon/"
	documentation := map[string]string{"deb": files.TypeFile, "rpm": files.TypeRPMDoc}[format]
	contents := files.Contents{
		packed(binary, "/usr/bin/carillon", files.TypeFile, 0o755),
		packed(r.packaging("carillon.service"), "/usr/lib/systemd/system/carillon.service", files.TypeFile, 0o644),
		packed(r.packaging("carillon-lifecycle.service"), "/usr/lib/systemd/system/carillon-lifecycle.service", files.TypeFile, 0o644),
		packed("", "/etc/carillon", files.TypeDir, 0o755),
		packed("", "/etc/carillon/credentials", files.TypeDir, 0o700),
		packed(r.packaging("carillon.env"), "/etc/carillon/carillon.env", files.TypeConfigNoReplace, 0o640),
		packed(man, "/usr/share/man/man1/carillon.1.gz", documentation, 0o644),
		packed("", doc, files.TypeDir, 0o755),
		packed(r.packaging("README"), doc+"README", documentation, 0o644),
		packed(filepath.Join(r.root, "NOTICE"), doc+"NOTICE", documentation, 0o644),
		packed(licenses, doc+thirdParty, documentation, 0o644),
	}
	if format == "rpm" {
		return append(contents,
			packed("", "/usr/share/licenses/carillon", files.TypeDir, 0o755),
			packed(filepath.Join(r.root, "LICENSE"), "/usr/share/licenses/carillon/LICENSE", files.TypeRPMLicense, 0o644),
		), nil
	}
	changelog, err := r.debianChangelog()
	if err != nil {
		return nil, err
	}
	return append(contents,
		packed(changelog, doc+"changelog.gz", files.TypeFile, 0o644),
		packed(r.packaging("copyright"), doc+"copyright", files.TypeFile, 0o644),
		packed(r.packaging("deb/lintian-overrides"), "/usr/share/lintian/overrides/carillon", files.TypeFile, 0o644),
	), nil
}

func packed(source, destination, kind string, mode os.FileMode) *files.Content {
	return &files.Content{
		Source: source, Destination: destination, Type: kind,
		FileInfo: &files.ContentFileInfo{Mode: mode, Owner: "root", Group: "root"},
	}
}

// changes is the whole changelog of a package: a link to ours.
const changes = "See " + homepage + "/blob/main/CHANGELOG.md."

// debianChangelog writes the changelog of a .deb, and returns its path.
func (r *release) debianChangelog() (string, error) {
	version, prerelease := r.packageVersion()
	if prerelease != "" {
		version += "~" + prerelease
	}
	return r.gzipped("changelog.gz", fmt.Sprintf("carillon (%s) stable; urgency=medium\n\n  * %s\n\n -- %s  %s\n",
		version, changes, maintainer, r.created.Format(time.RFC1123Z)))
}

// rpmChangelog writes the changelog of an .rpm as nfpm reads it, and returns its path.
func (r *release) rpmChangelog() (string, error) {
	path := filepath.Join(r.work, "changelog.yaml")
	entry := fmt.Sprintf("- semver: %s\n  date: %s\n  packager: %s\n  changes:\n    - note: %s\n",
		r.version+"-1", r.created.Format(time.RFC3339), maintainer, changes)
	return path, os.WriteFile(path, []byte(entry), 0o644)
}

// commandRow is a row of the table of commands in docs/reference/cli.md.
var commandRow = regexp.MustCompile("(?m)^\\| \\[`carillon ([a-z0-9 -]+)`\\]\\([^)]*\\) \\| (.+) \\|$")

// manPage writes the man page, with the commands of the reference.
func (r *release) manPage() (string, error) {
	page, err := os.ReadFile(r.packaging("carillon.1"))
	if err != nil {
		return "", err
	}
	reference, err := os.ReadFile(filepath.Join(r.root, "docs", "reference", "cli.md"))
	if err != nil {
		return "", err
	}
	rows := commandRow.FindAllSubmatch(reference, -1)
	if len(rows) == 0 {
		return "", errors.New("docs/reference/cli.md: no table of commands")
	}
	roff := strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "")
	var commands strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&commands, ".TP\n.B carillon %s\n%s\n", roff.Replace(string(row[1])), roff.Replace(string(row[2])))
	}
	fill := strings.NewReplacer("@DATE@", r.created.Format(time.DateOnly), "@VERSION@", roff.Replace(r.version),
		"@COMMANDS@\n", commands.String())
	return r.gzipped("carillon.1.gz", fill.Replace(string(page)))
}

// gzipped writes a compressed file without a name or time in it, and returns its path.
func (r *release) gzipped(name, text string) (string, error) {
	var b bytes.Buffer
	zw, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(zw, text)
	if err := errors.Join(err, zw.Close()); err != nil {
		return "", err
	}
	path := filepath.Join(r.work, name)
	return path, os.WriteFile(path, b.Bytes(), 0o644)
}
