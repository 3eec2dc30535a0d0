package console

import (
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

var update = flag.Bool("update", false, "sort the texts, and write the golden files")

// The keys of texts in the sources. Keys that a template or a function composes are in composed.
var (
	templateKey = regexp.MustCompile(`\bt "([^"]+)"`)
	sourceKey   = regexp.MustCompile(`(?:\.text\(|key: |notice: |key, d := |return )"([a-z0-9_-]+(?:\.[a-z0-9_-]+)+)"`)
	literal     = regexp.MustCompile(`"([A-Za-z0-9_.-]+)"`)
	placeholder = regexp.MustCompile(`\{[a-z_]+\}`)
	composed    = regexp.MustCompile(`^(state\.|settings\.(zone|theme)\.|problem\.[0-9]{3}$)`)
)

// sources returns the names and contents of the templates and of the Go files that are not tests.
func sources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.go", "kit/*.go", "templates/*.html"} {
		files, err := fs.Glob(os.DirFS("."), pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all[file] = string(raw)
		}
	}
	return all
}

func TestTextsOfAllLanguagesAreTheSame(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(os.DirFS("."), "texts/*.json")
	if err != nil {
		t.Fatal(err)
	}
	languages, err := kit.LoadTexts(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	first := languages[kit.FirstLanguage]
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		of := languages[strings.TrimSuffix(strings.TrimPrefix(file, "texts/"), ".json")]
		if sorted := sortedTexts(t, of.All); string(raw) != sorted {
			if *update {
				if err := os.WriteFile(file, []byte(sorted), 0o644); err != nil { //nolint:gosec // a source file
					t.Fatal(err)
				}
				continue
			}
			t.Errorf("%s is not sorted, or has a key twice; run this test with -update", file)
		}
		for key, text := range first.All {
			switch other, has := of.All[key]; {
			case !has:
				t.Errorf("%s lacks %s", file, key)
			case strings.TrimSpace(other) == "" || strings.TrimSpace(other) != other:
				t.Errorf("%s: %s is empty, or has a blank at its beginning or end", file, key)
			case !slices.Equal(placeholders(text), placeholders(other)):
				t.Errorf("%s: %s has the placeholders %v, want %v", file, key, placeholders(other), placeholders(text))
			}
		}
		for key := range of.All {
			if _, has := first.All[key]; !has {
				t.Errorf("%s has %s, which %s lacks", file, key, kit.FirstLanguage)
			}
		}
	}
}

// sortedTexts returns a file of texts in its canonical form.
func sortedTexts(t *testing.T, all map[string]string) string {
	t.Helper()
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(all); err != nil { // a map is encoded in the order of its keys
		t.Fatal(err)
	}
	return b.String()
}

func placeholders(text string) []string {
	return slices.Compact(slices.Sorted(slices.Values(placeholder.FindAllString(text, -1))))
}

// isJoined reports whether the sources have both parts of a key, one of them with the dot in between: "kind." or
// ".title". The parts of a confirmation and the hint of a field follow from their names.
func isJoined(used map[string]bool, key string) bool {
	for at := range len(key) {
		if key[at] == '.' && (used[key[:at+1]] || used[key[:at]] && used[key[at:]]) {
			return true
		}
	}
	name, last, _ := strings.Cut(key, ".")
	return used[name] && (last == "text" || last == "title") || used[strings.TrimSuffix(key, ".hint")]
}

func TestTextsMatchTheirUseInPages(t *testing.T) {
	t.Parallel()
	languages, err := kit.LoadTexts(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	english := languages[kit.FirstLanguage]
	used := map[string]bool{}
	for file, text := range sources(t) {
		pattern := sourceKey
		if strings.HasSuffix(file, ".html") {
			pattern = templateKey
		}
		for _, found := range pattern.FindAllStringSubmatch(text, -1) {
			if !english.Has(found[1]) && !english.Has(strings.TrimSuffix(found[1], ".")) {
				t.Errorf("%s uses the text %s, which there is not", file, found[1])
			}
		}
		for _, found := range literal.FindAllStringSubmatch(text, -1) {
			used[found[1]] = true
		}
	}
	for _, s := range screens() {
		used[s.name+".title"] = true
		if !english.Has(s.name + ".title") {
			t.Errorf("the screen %s has no text %s.title", s.name, s.name)
		}
	}
	for _, name := range shellPages() {
		used[name+".title"] = true
	}
	for _, key := range slices.Sorted(maps.Keys(english.All)) {
		whole := strings.TrimSuffix(strings.TrimSuffix(key, ".one"), ".other")
		if !used[key] && !used[whole] && !composed.MatchString(key) && !isJoined(used, key) {
			t.Errorf("no page uses the text %s", key)
		}
	}
	for _, choice := range kit.ZoneChoices() {
		if !english.Has("settings.zone." + string(choice)) {
			t.Errorf("there is no text for the zone %s", choice)
		}
	}
	for _, theme := range themes() {
		if !english.Has("settings.theme." + theme) {
			t.Errorf("there is no text for the theme %s", theme)
		}
	}
}

func TestAnotherLanguageIsOneFile(t *testing.T) {
	t.Parallel()
	english, err := fs.ReadFile(textFiles, "texts/en.json")
	if err != nil {
		t.Fatal(err)
	}
	languages, err := kit.LoadTexts(fstest.MapFS{
		"texts/en.json": {Data: english}, "texts/eo.json": {Data: []byte(strings.Replace(string(english), `"Sign in"`, `"Ensaluti"`, 1))},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ chosen, accepted, want string }{
		{"", "", "en"}, {"", "eo", "eo"}, {"", "fr;q=0.9, eo;q=0.5, en;q=0.1", "eo"}, {"en", "eo", "en"}, {"", "EO-eo", "eo"}, {"xx", "fr", "en"},
		{"", "en;q=0.2,eo;q=no", "en"}, {"", strings.Repeat("eo", 10_000), "en"},
	} {
		if got := languages.Of(tt.chosen, tt.accepted).Language; got != tt.want {
			t.Errorf("language chosen %q, accepted %.40q: %s, want %s", tt.chosen, tt.accepted, got, tt.want)
		}
	}
}

func TestTextsHaveValuesAndPlurals(t *testing.T) {
	t.Parallel()
	of := &kit.Texts{All: map[string]string{"jobs.one": "{n} job of {app}", "jobs.other": "{n} jobs of {app}", "plain": "{a} {b}"}}
	for _, tt := range []struct {
		key    string
		values []any
		want   string
	}{
		{"jobs", []any{"n", 1, "app", "shop"}, "1 job of shop"},
		{"jobs", []any{"n", 0, "app", "shop"}, "0 jobs of shop"},
		{"plain", []any{"a", "{b}", "b", "x"}, "{b} x"}, // a value is not a text
		{"missing", nil, "missing"},
	} {
		if got := of.Text(tt.key, tt.values...); got != tt.want {
			t.Errorf("text(%s, %v) = %q, want %q", tt.key, tt.values, got, tt.want)
		}
	}
}

// A text with a number before a plural has a form for one, too.
func TestTextsCountOneThing(t *testing.T) {
	t.Parallel()
	languages, err := kit.LoadTexts(textFiles)
	if err != nil {
		t.Fatal(err)
	}
	counted := regexp.MustCompile(`\{(n|count|fires|runs|jobs|total|most)\} ([a-z]+ )?[a-z]{3,}s\b`)
	for key, text := range languages[kit.FirstLanguage].All {
		many := []string{"attention.groups.draining", "attention.herd", "chosen.none", "job.slots.policy", "job_statistics.sum"}
		if found := counted.FindString(text); found != "" && !strings.HasSuffix(key, ".other") && !slices.Contains(many, key) {
			t.Errorf("%s says %q, also of one; give it the value n and the keys %s.one and %s.other", key, found, key, key)
		}
	}
}
