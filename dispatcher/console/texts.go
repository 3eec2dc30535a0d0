package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// texts are all words of the console in one language. A text has placeholders, such as {name}. One that depends on a number is
// KEY.one and KEY.other, of which the value named n decides.
type texts struct {
	language string // as in the attribute lang: that of the file
	all      map[string]string
}

// firstLanguage is for those who ask for none that there is.
const firstLanguage = "en"

// languages are the texts of each language, by its tag.
type languages map[string]*texts

// languageChoice is a language by its tag, and in its own words.
type languageChoice struct{ Tag, Name string }

// loadTexts reads every language that there is a file of.
func loadTexts(files fs.FS) (languages, error) {
	names, err := fs.Glob(files, "texts/*.json")
	if err != nil {
		return nil, err
	}
	all := languages{}
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		read := &texts{language: strings.TrimSuffix(path.Base(name), ".json")}
		if err := json.Unmarshal(raw, &read.all); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[read.language] = read
	}
	if all[firstLanguage] == nil {
		return nil, fmt.Errorf("there is no texts/%s.json", firstLanguage)
	}
	return all, nil
}

// of returns the one that was chosen, or the first that the browser accepts and that there is.
func (l languages) of(chosen, accepted string) *texts {
	if found := l[chosen]; found != nil {
		return found
	}
	best, bestWeight := l[firstLanguage], 0.0
	if len(accepted) > 1<<10 {
		accepted = accepted[:1<<10]
	}
	for one := range strings.SplitSeq(accepted, ",") {
		tag, weight := one, 1.0
		if name, q, has := strings.Cut(one, ";"); has {
			tag = name
			parsed, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(q), "q="), 64)
			if err != nil {
				continue
			}
			weight = parsed
		}
		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		if found := l[primary]; found != nil && weight > bestWeight {
			best, bestWeight = found, weight
		}
	}
	return best
}

// choices lists all languages by their tags.
func (l languages) choices() (all []languageChoice) {
	for _, tag := range slices.Sorted(maps.Keys(l)) {
		all = append(all, languageChoice{tag, l[tag].text("language.name")})
	}
	return all
}

func (t *texts) has(key string) bool { return t.all[key] != "" || t.all[key+".other"] != "" }

// text returns a text with its values, which are given as name and value in turns. A key that there is no text of is returned
// itself, which no page of a release shows: a test looks for all of them.
func (t *texts) text(key string, values ...any) string {
	var number string
	pairs := make([]string, 0, len(values))
	for i := 0; i+1 < len(values); i += 2 {
		name, value := textOf(values[i]), textOf(values[i+1])
		if name == "n" {
			number = value
		}
		pairs = append(pairs, "{"+name+"}", value)
	}
	found, has := t.all[key]
	if !has {
		form := ".other"
		if number == "1" {
			form = ".one"
		}
		if found, has = t.all[key+form]; !has {
			return key
		}
	}
	if len(pairs) == 0 {
		return found
	}
	return strings.NewReplacer(pairs...).Replace(found)
}

// word returns the text of a value of the API, such as a class of failure; the value itself if there is none, as of a node that
// knows more values than this one.
func (t *texts) word(prefix, value string) string {
	if key := wordKey(prefix, value); t.has(key) {
		return t.text(key)
	}
	return value
}

// wordKey is the key of the word for a value. Keys have no blanks.
func wordKey(prefix, value string) string { return prefix + strings.ReplaceAll(value, " ", "_") }

// wordAndValue is word with the value after it, for places that have no markup.
func (t *texts) wordAndValue(prefix, value string) string {
	if word := t.word(prefix, value); word != value {
		return word + " (" + value + ")"
	}
	return value
}

// textOf returns a value as a text shows it.
func textOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(value)
}
