// Package docs_test keeps the pages true: their links lead somewhere, and what they list is all there is.
package docs_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// root is the directory of the repository.
const root = ".."

// page reads a page by its path in the repository.
func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages returns the paths of all Markdown pages in the repository.
func pages(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		relative, err := filepath.Rel(root, all[i])
		if err != nil {
			t.Fatal(err)
		}
		all[i] = filepath.ToSlash(relative)
	}
	return all
}

var (
	// link is an inline link, or the target of a reference.
	link     = regexp.MustCompile(`(?m)\]\(([^()\s]+)\)|^\[[^\]]+\]: (\S+)$`)
	code     = regexp.MustCompile("(?s)```.*?```")
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	unslug   = regexp.MustCompile("[^a-z0-9 _-]")
	markdown = regexp.MustCompile("`|\\*|\\[|\\]\\([^)]*\\)")
)

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		title := strings.ToLower(markdown.ReplaceAllString(match[1], ""))
		found[strings.ReplaceAll(unslug.ReplaceAllString(title, ""), " ", "-")] = true
	}
	return found
}

func TestEveryLinkLeadsToAFileAndAHeading(t *testing.T) {
	t.Parallel()
	for _, path := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(page(t, path), ""), -1) {
			target, anchor, _ := strings.Cut(match[1]+match[2], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(path), target))
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, target)
				continue
			}
			if anchor != "" && filepath.Ext(file) == ".md" && !anchors(page(t, file))[anchor] {
				t.Errorf("%s links to %s#%s, which has no such heading", path, target, anchor)
			}
		}
	}
}

// section returns the part of a page below a heading, up to the next heading of any level.
func section(t *testing.T, text, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+title+"\n")
	if !found {
		t.Fatalf("there is no heading %q", title)
	}
	part, _, _ := strings.Cut(rest, "\n#")
	return part
}

func TestWalkInREADMENamesEachFileOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, match := range link.FindAllStringSubmatch(section(t, page(t, "README.md"), "## The walk of a fire"), -1) {
		file := match[1]
		if filepath.Ext(file) != ".go" {
			continue
		}
		if seen[file] {
			t.Errorf("the walk names %s twice", file)
		}
		seen[file] = true
	}
	if len(seen) < 15 {
		t.Errorf("the walk names %d files; it leads from Terraform to history in some twenty", len(seen))
	}
}

func TestCONTRIBUTINGAnswersTenQuestionsWithAFile(t *testing.T) {
	t.Parallel()
	found := link.FindAllString(section(t, page(t, "CONTRIBUTING.md"), "## How to find things"), -1)
	if len(found) < 10 {
		t.Errorf("%d files answer the questions, want ten or more", len(found))
	}
}

func TestIndexListsEveryPage(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{"docs/README.md": true}
	for _, match := range link.FindAllStringSubmatch(page(t, "docs/README.md"), -1) {
		listed["docs/"+match[1]] = true
	}
	for _, path := range pages(t) {
		if strings.HasPrefix(path, "docs/") && !strings.HasPrefix(path, "docs/provider/") && !listed[path] {
			t.Errorf("docs/README.md does not list %s", path)
		}
	}
}

func TestAPIReferenceListsEveryRouteAndCode(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Enum []string `json:"enum"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(page(t, "dispatcher/api/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	reference := page(t, "docs/reference/api.md")
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method := range doc.Paths[path] {
			if route := "`" + strings.ToUpper(method) + " " + path + "`"; method != "parameters" && !strings.Contains(reference, route) {
				t.Errorf("docs/reference/api.md does not list %s", route)
			}
		}
	}
	codes := doc.Components.Schemas["Code"].Enum
	if len(codes) == 0 {
		t.Error("openapi.json has no codes")
	}
	for _, code := range codes {
		if !strings.Contains(reference, "`"+code+"`") {
			t.Errorf("docs/reference/api.md does not explain the code `%s`", code)
		}
	}
}

func TestScheduleReferenceNamesTheReleaseOfTheZones(t *testing.T) {
	t.Parallel()
	want := "release " + schedule.BuiltInZones().Release() + " of the IANA database"
	if !strings.Contains(page(t, "docs/reference/schedules.md"), want) {
		t.Errorf("docs/reference/schedules.md does not say %q", want)
	}
}
