package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mirrored writes the provider's repository from this tree.
func mirrored(t *testing.T) fs.FS {
	t.Helper()
	dir := t.TempDir()
	if err := run(t.Context(), []string{"mirror", "-version", "1.2.3", "-dist", dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	return os.DirFS(filepath.Join(dir, mirrorDir))
}

func TestMirrorHasTheLayoutOfTheRegistry(t *testing.T) {
	t.Parallel()
	tree := mirrored(t)
	// https://developer.hashicorp.com/terraform/registry/providers/docs
	allowed := regexp.MustCompile(`^(LICENSE|README\.md|terraform-registry-manifest\.json|` +
		`docs/(index|(resources|data-sources|functions|guides)/[a-z_-]+)\.md)$`)
	pages := 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !allowed.MatchString(name) {
			t.Errorf("%s is not of the registry's layout", name)
		}
		if strings.HasPrefix(name, "docs/") {
			pages++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := filepath.Glob("../../docs/provider/*/*.md")
	if err != nil || pages != len(ours)+1 {
		t.Errorf("%d pages, want %d, %v", pages, len(ours)+1, err)
	}
}

func TestPagesOfTheMirrorHaveFrontMatter(t *testing.T) {
	t.Parallel()
	tree := mirrored(t)
	for name, title := range map[string]string{
		"docs/index.md":              `page_title: "The Carillon provider"`,
		"docs/resources/job.md":      `page_title: "carillon_job resource - Carillon"`,
		"docs/data-sources/nodes.md": `page_title: "carillon_nodes data source - Carillon"`,
	} {
		page, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(page), "\n")
		if lines[0] != "---" || lines[1] != title || lines[2] != `subcategory: ""` || lines[3] != "description: |-" || lines[5] != "---" {
			t.Errorf("%s begins with\n%s", name, strings.Join(lines[:6], "\n"))
		}
		if !strings.HasPrefix(lines[7], "# ") || strings.Contains(string(page), "Generated from") {
			t.Errorf("%s: %q, want the title and no comment for those who edit it here", name, lines[7])
		}
	}
}

func TestLinksOfPagesWorkElsewhere(t *testing.T) {
	t.Parallel()
	const base = "https://example.com/tree"
	for from, want := range map[string]string{
		"[a](b.md)":              "[a](https://example.com/tree/docs/provider/b.md)",
		"[a](../x/b.md#part)":    "[a](https://example.com/tree/docs/x/b.md#part)",
		"[a](https://b.example)": "[a](https://b.example)",
		"[a](#part)":             "[a](#part)",
	} {
		if got := absoluteLinks(from, base, "docs/provider"); got != want {
			t.Errorf("%s becomes %s, want %s", from, got, want)
		}
	}
}

func TestManifestNamesTheProtocolOfTheProvider(t *testing.T) {
	t.Parallel()
	var m struct {
		Version  int
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		}
	}
	if err := json.Unmarshal([]byte(manifest), &m); err != nil {
		t.Fatal(err)
	}
	if m.Version != 1 || len(m.Metadata.ProtocolVersions) != 1 || m.Metadata.ProtocolVersions[0] != "6.0" {
		t.Errorf("manifest = %+v", m)
	}
	source, err := os.ReadFile("../../provider/cmd/terraform-provider-carillon/main.go")
	if err != nil || !strings.Contains(string(source), "tf6server.Serve(") {
		t.Errorf("the provider's main does not serve version 6 of the protocol: %v", err)
	}
}
