package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mirrorDir is the tree of github.com/carillon-dev/terraform-provider-carillon: the registries read
// a provider from a repository with this name.
const mirrorDir = "terraform-provider-carillon"

const mirrorReadme = `# Terraform provider of Carillon

This repository holds releases of the provider for the Terraform and OpenTofu registries. A release of
[Carillon](https://github.com/carillon-dev/carillon) writes it.

- [How to use the provider](docs/index.md)
- [How to run Carillon](https://github.com/carillon-dev/carillon#readme)
- Source, issues and pull requests: [carillon-dev/carillon](https://github.com/carillon-dev/carillon)
`

// mirror writes the tree that a release commits to the provider's repository.
func (r *release) mirror(context.Context) error {
	if err := os.RemoveAll(filepath.Join(r.dist, mirrorDir)); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	files := map[string]string{
		"LICENSE":                          string(license),
		"README.md":                        mirrorReadme,
		"terraform-registry-manifest.json": manifest,
	}
	docs := os.DirFS(filepath.Join(r.root, "docs", "provider"))
	err = fs.WalkDir(docs, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		page, err := fs.ReadFile(docs, name)
		if err != nil {
			return err
		}
		text := absoluteLinks(string(page), r.page("blob"), path.Join("docs/provider", path.Dir(name)))
		files["docs/"+name], err = registryPage(text)
		if err != nil {
			return fmt.Errorf("docs/provider/%s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := r.create(path.Join(mirrorDir, name), text(files[name])); err != nil {
			return err
		}
	}
	return nil
}

var (
	generated = regexp.MustCompile(`(?s)\A<!--.*?-->\s*`)
	opening   = regexp.MustCompile(`\A# (.+)\n\n(.+)\n`)
)

// registryPage gives a page of docs/provider the front matter that the registries read: the title
// for the list of pages, and the description for searches.
func registryPage(page string) (string, error) {
	page = generated.ReplaceAllString(page, "")
	found := opening.FindStringSubmatch(page)
	if found == nil {
		return "", fmt.Errorf("it does not begin with a title and a sentence")
	}
	title := found[1]
	if name, kind, ok := strings.Cut(title, " ("); ok { // carillon_app (resource)
		title = name + " " + strings.TrimSuffix(kind, ")") + " - Carillon"
	}
	return fmt.Sprintf("---\npage_title: %q\nsubcategory: \"\"\ndescription: |-\n  %s\n---\n\n%s", title, found[2], page), nil
}
