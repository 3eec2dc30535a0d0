package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// notes prints the section of the changelog for the version. It fails if the section does not suffice for a release.
func (r *release) notes(ctx context.Context) error {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	section, err := changelogSection(string(changelog), r.version)
	if err != nil {
		return err
	}
	reasons, err := r.upgradeReasons(ctx)
	if err != nil {
		return err
	}
	if len(reasons) > 0 && !hasUpgradeNotes(section) {
		return fmt.Errorf("%s\nSo the section of %s in CHANGELOG.md has to say under \"### Upgrade notes\" "+
			"what to do before and after, and whether one can go back", strings.Join(reasons, "\n"), r.version)
	}
	_, err = fmt.Fprintln(r.out, absoluteLinks(section, r.page("blob"), "."))
	return err
}

// page returns the address of this version's tree, of its pages (blob) or files (raw).
func (r *release) page(kind string) string {
	return "https://github.com/carillon-dev/carillon/" + kind + "/v" + r.version
}

// changelogSection returns the text under the heading of a version, such as "## [1.2.3] - 2026-11-22".
func changelogSection(changelog, version string) (string, error) {
	heading := regexp.MustCompile(`^## \[?` + regexp.QuoteMeta(version) + `\]? - \d{4}-\d{2}-\d{2}$`)
	lines := strings.Split(changelog, "\n")
	for i, line := range lines {
		if !heading.MatchString(line) {
			continue
		}
		end := i + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "## ") {
			end++
		}
		section := strings.TrimSpace(strings.Join(lines[i+1:end], "\n"))
		if section == "" {
			return "", fmt.Errorf("CHANGELOG.md: the section of %s is empty", version)
		}
		return section, nil
	}
	return "", fmt.Errorf("CHANGELOG.md has no section of %s; write \"## [%s] - YYYY-MM-DD\" over its changes", version, version)
}

var (
	upgradeNotes = regexp.MustCompile(`(?m)^### Upgrade notes$`)
	nextHeading  = regexp.MustCompile(`(?m)^##`)
)

// hasUpgradeNotes reports whether a section has non-empty upgrade notes.
func hasUpgradeNotes(section string) bool {
	at := upgradeNotes.FindStringIndex(section)
	if at == nil {
		return false
	}
	text := section[at[1]:]
	if next := nextHeading.FindStringIndex(text); next != nil {
		text = text[:next[0]]
	}
	return strings.TrimSpace(text) != ""
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// absoluteLinks makes the relative links of a page absolute. base is the address of the
// repository's files, and dir the directory of the page.
func absoluteLinks(text, base, dir string) string {
	return link.ReplaceAllStringFunc(text, func(match string) string {
		target := match[2 : len(match)-1]
		if strings.Contains(target, ":") || strings.HasPrefix(target, "#") {
			return match
		}
		file, fragment, found := strings.Cut(target, "#")
		if found {
			fragment = "#" + fragment
		}
		return "](" + base + "/" + path.Join(dir, file) + fragment + ")"
	})
}

// previousTag returns the tag that users upgrade from: the nearest one before the version, and for
// a final version the nearest final one. It is empty for the first version.
func (r *release) previousTag(ctx context.Context) (string, error) {
	shallow, err := git(ctx, r.root, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(shallow) == "true" {
		return "", errors.New("this checkout has no history, so the version before is unknown; run git fetch --unshallow --tags")
	}
	only := []string{"--exclude", "v" + r.version}
	if !strings.Contains(r.version, "-") {
		only = append(only, "--exclude", "v*-*")
	}
	tag, err := git(ctx, r.root, append([]string{"describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"}, only...)...)
	if err != nil && strings.Contains(err.Error(), "No names found") || err != nil && strings.Contains(err.Error(), "No tags can describe") {
		return "", nil
	}
	return strings.TrimSpace(tag), err
}
