package provider_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/test/need"
)

var (
	// fenced is a piece of configuration in a guide.
	fenced = regexp.MustCompile("(?s)```(terraform|hcl)\n(.*?)```")
	// ownFile is the first line of a piece that is a separate file.
	ownFile = regexp.MustCompile(`\A# (\S+\.tftest\.hcl)\n`)
)

// guides returns the pages of the guides by name.
func guides(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(docsDir, "guides", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("guides: %v, %v", files, err)
	}
	pages := map[string]string{}
	for _, file := range files {
		pages[strings.TrimSuffix(filepath.Base(file), ".md")] = contents(t, file)
	}
	return pages
}

func TestGuidesWorkWordByWord(t *testing.T) {
	need.Step(t, "terraform")
	t.Parallel()
	story(t, func(t *testing.T, f *fixture) {
		for name, page := range guides(t) {
			followGuide(t, f, name, page)
		}
	})
}

// followGuide follows the steps of a guide in an empty directory.
func followGuide(t *testing.T, f *fixture, name, page string) {
	t.Helper()
	said := map[string][]string{
		"endpoint-groups":  {"3 added", `workers = "0 workers"`},
		"getting-started":  {"2 added", "next_greeting = "},
		"from-eventbridge": {"3 added", `"2030-01-01T06:00:00+01:00"`, `"2030-02-01T06:00:00+01:00"`},
		"renaming":         {`invoices = "finance/invoices"`},
		"testing-a-change": {`report_schedule = "at 07:30 on Monday to Friday; Europe/Berlin"`, `"2030-01-01T07:30:00+01:00"`},
	}
	if len(said[name]) == 0 {
		t.Errorf("guide %s: the test does not know what its configuration says", name)
	}
	var files []string
	tests := map[string]string{}
	for _, piece := range fenced.FindAllStringSubmatch(page, -1) {
		if file := ownFile.FindStringSubmatch(piece[2]); file != nil {
			tests[file[1]] = piece[2]
		} else {
			files = append(files, piece[2])
		}
	}
	d := f.directory(t, files...)
	for file, text := range tests {
		write(t, filepath.Join(d.path, file), text)
	}
	mustSay(t, d.must(t, "apply", "-auto-approve"), said[name]...)
	if len(tests) > 0 {
		mustSay(t, d.must(t, "test"), "2 passed, 0 failed")
	}
	d.must(t, "plan", "-detailed-exitcode")
}

func TestGuidesBeginWithATitleAndASentence(t *testing.T) {
	t.Parallel()
	opening := regexp.MustCompile(`\A# [A-Z][^\n]+\n\n[A-Z][^\n]+\.\n\n`) // the release makes front matter from it
	for name, page := range guides(t) {
		if !opening.MatchString(page) {
			t.Errorf("guide %s begins with %.80q", name, page)
		}
	}
}
