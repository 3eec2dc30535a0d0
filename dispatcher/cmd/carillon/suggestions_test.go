package main

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// suggestion is a text in which the product, or a page of it, tells people what to type.
type suggestion struct{ file, text string }

// root is the top folder of the repository.
const root = "../../.."

// literals returns the texts in the sources of the product: those of messages, of help, and of tags. Values that are put
// into a message are %s.
func literals(t *testing.T) (all []suggestion) {
	t.Helper()
	eachFile(t, func(path string) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "storetest") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, found := literal(n)
			if found {
				all = append(all, suggestion{path, text})
			}
			return !found
		})
	}, "dispatcher", "provider", "lambda", "worker")
	return all
}

func literal(n ast.Node) (string, bool) {
	switch e := n.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := literal(e.X)
		right, isRight := literal(e.Y)
		if e.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "%s"
		}
		if !isRight {
			right = "%s"
		}
		return left + right, true
	}
	return "", false
}

// eachFile calls a function with each file below some folders of the repository.
func eachFile(t *testing.T, do func(path string), folders ...string) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(path, "testdata") {
				do(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

var (
	fence = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```")
	code  = regexp.MustCompile("`([^`\n]+)`")
)

// pages returns the code of the pages of the docs: the lines of blocks, and spans in text.
func pages(t *testing.T) (all []suggestion) {
	t.Helper()
	read := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		switch filepath.Ext(path) {
		case ".md":
			joined := strings.ReplaceAll(string(text), "\\\n", " ")
			for _, block := range fence.FindAllStringSubmatch(joined, -1) {
				for line := range strings.Lines(block[1]) {
					if task, is := strings.CutPrefix(line, "run "); is && strings.Contains(joined, "\nrun() {") {
						line = "carillon " + task // as a task on ECS
					}
					all = append(all, suggestion{path, strings.TrimSpace(line)})
				}
			}
			for _, span := range code.FindAllStringSubmatch(fence.ReplaceAllString(joined, ""), -1) {
				all = append(all, suggestion{path, span[1]})
			}
		case ".json", ".yml", ".yaml", ".tf", ".html":
			for line := range strings.Lines(string(text)) {
				all = append(all, suggestion{path, line})
			}
		}
	}
	eachFile(t, read, "docs", "examples", "terraform", "dispatcher/console/texts", "dispatcher/api/openapi.json", "README.md")
	return all
}

var (
	// The name of the program, and what follows in the line. As the value of a flag, it is the name of something else.
	mention = regexp.MustCompile(`(?:^|[^\w./=-]|(?:^|[^\w.])(?:bin/|/usr/bin/|/))carillon ([a-z][^\n]*)`)
	valued  = regexp.MustCompile(`(-n|--[a-z]+) ?$`)
	// argument is one of a command within a sentence: a flag, a value that is put in, a name in capitals, a path, a file.
	argument = regexp.MustCompile(`^(--?[a-zA-Z][\w-]*(=\S*)?|%[a-z]\S*|[A-Z@\[{$][^ ]*|\S*/\S*|\d\S*|-)$`)
	end      = regexp.MustCompile("[.,;:)`\"\\\\]+$")
	// stops are the words at which a command of a shell ends.
	stops = []string{"|", "||", "&&", "&", ";", ">", "<", ">>", "2>&1", "`", "#", "\\"}
	// prose are words after the name of the product that are no commands.
	prose = []string{"key" /* id, of a sealed secret */, "is", "to",
		"and", "or", "with", "in", "of", "can", "from", "for", "on", "as", "has", "uses", "the", "at"}
	// harmless are problems of a text that names only a part of a command, or a file of somebody else.
	harmless = regexp.MustCompile(`but got "EOL"|missing value|no such file|missing flags: --name|nothing is to be renamed`)
)

// commandsIn returns the commands in a text, each as its words, and the words after the name of the program that are none.
// Within a sentence, a command ends where prose goes on; code has nothing else.
func commandsIn(tree *kong.Node, s suggestion) (all [][]string, unknown []string) {
	isCode := filepath.Ext(s.file) == ".md"
	for _, at := range mention.FindAllStringSubmatchIndex(s.text, -1) {
		if valued.MatchString(s.text[:at[2]-len("carillon ")]) {
			continue
		}
		node := tree
		var found []string
		for _, word := range shellWords(strings.NewReplacer("`", " ` ", ");", " ; ", `\"`, `"`).Replace(s.text[at[2]:at[3]])) {
			trimmed := end.ReplaceAllString(word, "")
			child := childOf(node, trimmed)
			if slices.Contains(stops, word) || trimmed == "" || len(found) > 0 && (trimmed == "-h" || trimmed == "--help") {
				break
			}
			before := append([]string{""}, found...)[len(found)]
			switch value := strings.HasPrefix(before, "-") && !strings.Contains(before, "="); {
			case child != nil:
				found, node = append(found, trimmed), child
			case len(found) > 0 && (isCode || value || argument.MatchString(trimmed)):
				found = append(found, placeholder(trimmed))
			case len(found) == 0 && !slices.Contains(prose, trimmed) && !strings.HasSuffix(word, ":"):
				unknown = append(unknown, trimmed)
				trimmed = ""
			default:
				trimmed = ""
			}
			if trimmed != word {
				break
			}
		}
		if len(found) > 0 {
			all = append(all, found)
		}
	}
	return all, unknown
}

// placeholder returns a value that a placeholder such as NAME may stand for.
func placeholder(word string) string {
	switch {
	case strings.Contains(word, "CARILLON_DATABASE") || word == "URL":
		return "postgres://carillon@db/carillon"
	case word == "SCOPE":
		return "read"
	case regexp.MustCompile(`^[A-Z/]+$`).MatchString(word):
		return strings.ToLower(word)
	}
	return strings.NewReplacer("%s", "x", "%q", "x").Replace(word)
}

func childOf(node *kong.Node, word string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == word || slices.Contains(child.Aliases, word) {
			return child
		}
	}
	return nil
}

// Whatever the product and its pages tell people to type is a command that exists, with flags that it has.
func TestSuggestedCommandsParse(t *testing.T) {
	t.Setenv("CARILLON_DATABASE", "postgres://carillon@db/carillon")
	tree := newParser(&cli{}, console{}, func(int) {}).Model.Node
	seen := map[string]bool{}
	for _, s := range append(literals(t), pages(t)...) {
		commands, unknown := commandsIn(tree, s)
		for _, word := range unknown {
			t.Errorf("%s: carillon %s is no command: %q", s.file, word, s.text)
		}
		for _, words := range commands {
			line := strings.Join(words, " ")
			if seen[line] || onlyNames(tree, words) {
				continue
			}
			seen[line] = true
			parser := newParser(&cli{}, console{out: io.Discard, err: io.Discard}, func(int) {},
				kong.BindTo(t.Context(), (*context.Context)(nil)), kong.Bind(console{}))
			_, err := parser.Parse(withTimesAgo(words))
			if err == nil || harmless.MatchString(err.Error()) {
				continue
			}
			if !strings.HasPrefix(err.Error(), `expected "<`) || filepath.Ext(s.file) == ".md" && !strings.Contains(line, "--") {
				t.Errorf("%s: carillon %s: %v", s.file, line, err)
			}
		}
	}
	if len(seen) < 200 {
		t.Errorf("found %d commands, want 200 or more", len(seen))
	}
}

// onlyNames reports whether words only name a command or a group of commands.
func onlyNames(node *kong.Node, words []string) bool {
	for _, word := range words {
		if node = childOf(node, word); node == nil {
			return false
		}
	}
	return true
}

var (
	flagText     = regexp.MustCompile(`(?:^|[\s(,"'\x60])--([a-z][a-z0-9-]*)`)
	variableText = regexp.MustCompile(`\bCARILLON_[A-Z_]*[A-Z]\b`)
	routeText    = regexp.MustCompile(`\b(GET|PUT|POST|PATCH|DELETE) (/v1/[a-zA-Z0-9_./{}%-]+)`)
)

// Each flag and each variable that a message names exists.
func TestFlagsAndVariablesOfMessagesExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"help": true, "version": true}
	for _, leaf := range newParser(&cli{}, console{}, func(int) {}).Model.Leaves(false) {
		for _, group := range leaf.AllFlags(false) {
			for _, flag := range group {
				known[flag.Name], known["no-"+flag.Name] = true, true
				for _, variable := range flag.Envs {
					known[variable] = true
				}
			}
		}
	}
	texts, checked := literals(t), 0
	for _, s := range texts {
		if variableText.FindString(s.text) == s.text {
			known[s.text] = true // the code that reads it
		}
	}
	for _, s := range texts {
		for _, m := range flagText.FindAllStringSubmatch(s.text, -1) {
			checked++
			if !known[m[1]] {
				t.Errorf("%s names --%s, which no command has: %q", s.file, m[1], s.text)
			}
		}
		for _, name := range variableText.FindAllString(s.text, -1) {
			if !known[name] {
				t.Errorf("%s names %s, which nothing reads: %q", s.file, name, s.text)
			}
		}
	}
	if checked < 200 {
		t.Errorf("found %d flags, want 200 or more", checked)
	}
}

// Blocks of Terraform in messages can be pasted.
func TestTerraformOfMessagesParses(t *testing.T) {
	t.Parallel()
	block, found := regexp.MustCompile(`(?ms)^ *(import|resource|moved|removed)\b[^\n]*\{\n.*?^ *\}`), 0
	for _, s := range literals(t) {
		for _, snippet := range block.FindAllString(s.text, -1) {
			found++
			filled := strings.NewReplacer("%s", "carillon_job", "%q", `"billing/invoices"`).Replace(snippet)
			if _, problems := hclsyntax.ParseConfig([]byte(filled), s.file, hcl.InitialPos); problems.HasErrors() {
				t.Errorf("%s: %v: %s", s.file, problems, filled)
			}
		}
	}
	if found == 0 {
		t.Error("found no block of Terraform")
	}
}

// A flag without a value is not guessed to have the next flag as its value.
func TestMissingValueOfAFlagIsNotGuessed(t *testing.T) {
	t.Parallel()
	_, errs, code := carillon(t, nil, "run", "list", "--state", "--failed")
	if want := "carillon: --state: needs a value, and \"--failed\" is a flag\n"; code != exitUsage || errs != want {
		t.Errorf("exit %d, %q, want %q", code, errs, want)
	}
}

// Each route that a message or a page names is one of the API.
func TestSuggestedRoutesExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "dispatcher", "api", "openapi.json"))
	var document struct {
		Paths map[string]map[string]any
	}
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	wildcard := regexp.MustCompile(`\{[a-z]+\}`)
	exists := func(method, path string) bool {
		for known, methods := range document.Paths {
			if regexp.MustCompile("^"+wildcard.ReplaceAllString(known, `[^/]+`)+"$").MatchString(path) && methods[strings.ToLower(method)] != nil {
				return true
			}
		}
		return false
	}
	checked := 0
	for _, s := range append(literals(t), pages(t)...) {
		for _, m := range routeText.FindAllStringSubmatch(s.text, -1) {
			checked++
			if path := strings.TrimRight(m[2], "."); !exists(m[1], path) {
				t.Errorf("%s names %s %s, which the API does not have: %q", s.file, m[1], path, s.text)
			}
		}
	}
	if checked < 100 {
		t.Errorf("found %d routes, want 100 or more", checked)
	}
}
