package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guides returns the pages that tell people what to type.
func guides(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, path := range pages(t) {
		if strings.HasPrefix(path, "docs/how-to/") || path == "README.md" || path == "docs/start.md" {
			found[path] = page(t, path)
		}
	}
	return found
}

var (
	span     = regexp.MustCompile("`([^`\n]+)`")
	variable = regexp.MustCompile(`\bCARILLON_[A-Z_]+\b`)
)

func TestVariablesInGuidesExist(t *testing.T) {
	t.Parallel()
	reference := page(t, "docs/reference/cli.md") + page(t, "docs/provider/index.md")
	for path, text := range guides(t) {
		for _, name := range variable.FindAllString(text, -1) {
			// Kubernetes would add this one, which the page says.
			if !strings.Contains(reference, name) && name != "CARILLON_PORT" {
				t.Errorf("%s names %s, which no reference lists", path, name)
			}
		}
	}
}

// sources returns all of the text in which messages are written.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"dispatcher", "provider", "terraform"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") ||
				filepath.Ext(path) != ".go" && filepath.Ext(path) != ".tf" && filepath.Ext(path) != "" {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// messages returns the code in the first column of the tables whose first title is one of these.
func messages(text string, titles ...string) []string {
	var found []string
	inside := false
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) < 3:
			inside = false
		case !inside:
			for _, title := range titles {
				inside = inside || strings.TrimSpace(cells[1]) == title
			}
		default:
			for _, m := range span.FindAllStringSubmatch(cells[1], -1) {
				found = append(found, m[1])
			}
		}
	}
	return found
}

// A reader searches the page for what the program has said. What changes from case to case is an ellipsis there.
func TestMessagesInTroubleshootingAreThoseOfTheProgram(t *testing.T) {
	t.Parallel()
	source := sources(t)
	found := messages(page(t, "docs/how-to/troubleshoot.md"), "message", "reason")
	if len(found) < 30 {
		t.Errorf("found %d messages, want thirty or more", len(found))
	}
	for _, message := range found {
		for part := range strings.SplitSeq(message, "…") {
			if !strings.Contains(source, strings.TrimSpace(part)) {
				t.Errorf("docs/how-to/troubleshoot.md quotes %q, and no source says %q", message, strings.TrimSpace(part))
			}
		}
	}
}

var (
	moduleBlock = regexp.MustCompile(`(?s)module "carillon" \{\n(.*?)\n *\}\n *` + "```")
	moduleBegin = regexp.MustCompile(`//terraform/([a-z]+)\?ref=`)
	argument    = regexp.MustCompile(`(?m)^ {2,5}([a-z_0-9]+) += `)
)

func TestModuleBlocksUseInputsThatExist(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"docs/how-to/install-on-ecs.md", "docs/how-to/install-on-ec2.md"} {
		block := moduleBlock.FindStringSubmatch(page(t, path))
		if block == nil {
			t.Fatalf("%s has no module block", path)
		}
		inputs := ""
		files, _ := filepath.Glob(filepath.Join(root, "terraform", moduleBegin.FindStringSubmatch(block[1])[1], "variables*.tf"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			inputs += string(text)
		}
		arguments := argument.FindAllStringSubmatch(block[1], -1)
		if len(arguments) < 8 {
			t.Errorf("%s sets %d inputs, want eight or more", path, len(arguments))
		}
		for _, a := range arguments {
			if a[1] != "source" && !strings.Contains(inputs, `variable "`+a[1]+`"`) {
				t.Errorf("%s sets %s, which is no input of the module", path, a[1])
			}
		}
	}
}
