package kit

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Texts are all words of the console in one language. A text has placeholders, such as {name}. A text that depends on a
// number has the keys KEY.one and KEY.other; the value named n selects one.
type Texts struct {
	Language string // as in the attribute lang: that of the file
	All      map[string]string
}

// FirstLanguage is the language if no accepted one exists.
const FirstLanguage = "en"

// Languages are the texts of each language, by its tag.
type Languages map[string]*Texts

// LanguageChoice is a language by its tag, and its name in that language.
type LanguageChoice struct{ Tag, Name string }

// LoadTexts reads the languages of all files.
func LoadTexts(files fs.FS) (Languages, error) {
	names, err := fs.Glob(files, "texts/*.json")
	if err != nil {
		return nil, err
	}
	all := Languages{}
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		read := &Texts{Language: strings.TrimSuffix(path.Base(name), ".json")}
		if err := json.Unmarshal(raw, &read.All); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[read.Language] = read
	}
	if all[FirstLanguage] == nil {
		return nil, fmt.Errorf("there is no texts/%s.json", FirstLanguage)
	}
	return all, nil
}

// Of returns the chosen language, or the first existing one that the browser accepts.
func (l Languages) Of(chosen, accepted string) *Texts {
	if found := l[chosen]; found != nil {
		return found
	}
	best, bestWeight := l[FirstLanguage], 0.0
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

// Choices lists all languages by their tags.
func (l Languages) Choices() (all []LanguageChoice) {
	for _, tag := range slices.Sorted(maps.Keys(l)) {
		all = append(all, LanguageChoice{tag, l[tag].Text("language.name")})
	}
	return all
}

// Has reports whether a key has a text.
func (t *Texts) Has(key string) bool { return t.All[key] != "" || t.All[key+".other"] != "" }

// Text returns a text with its values, which are given as name and value in turns. For a key without a text it returns
// the key, which no page of a release shows: a test looks for all of them.
func (t *Texts) Text(key string, values ...any) string {
	var number string
	pairs := make([]string, 0, len(values))
	for i := 0; i+1 < len(values); i += 2 {
		name, value := TextOf(values[i]), TextOf(values[i+1])
		if name == "n" {
			number = value
		}
		pairs = append(pairs, "{"+name+"}", value)
	}
	found, has := t.All[key]
	if !has {
		form := ".other"
		if number == "1" {
			form = ".one"
		}
		if found, has = t.All[key+form]; !has {
			return key
		}
	}
	if len(pairs) == 0 {
		return found
	}
	return strings.NewReplacer(pairs...).Replace(found)
}

// Word returns the text of a value of the API, such as a class of failure. It returns the value itself if it has none,
// as from a node that knows more values than this one.
func (t *Texts) Word(prefix, value string) string {
	if key := WordKey(prefix, value); t.Has(key) {
		return t.Text(key)
	}
	return value
}

// WordKey is the key of the word for a value. Keys have no blanks.
func WordKey(prefix, value string) string { return prefix + strings.ReplaceAll(value, " ", "_") }

// WordAndValue is Word with the value after it, for places without markup.
func (t *Texts) WordAndValue(prefix, value string) string {
	if word := t.Word(prefix, value); word != value {
		return word + " (" + value + ")"
	}
	return value
}

// TextOf returns a value in the form for a text.
func TextOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(value)
}

// Reader is the language and the zone of a page's reader, and the time.
type Reader struct {
	Now   time.Time
	Zone  Zone
	Texts *Texts
}

// ZoneChoice is the zone in which a person wants to see times.
type ZoneChoice string

// The choices of a zone.
const (
	ZoneUTC     ZoneChoice = "utc"
	ZoneTrigger ZoneChoice = "trigger"
	ZoneBrowser ZoneChoice = "browser"
)

// ZoneChoices returns all of them, in the order of the settings.
func ZoneChoices() []ZoneChoice { return []ZoneChoice{ZoneUTC, ZoneTrigger, ZoneBrowser} }

// ZoneOption is a choice in the settings. Shown is the zone and its offset now; empty: unknown on this page.
type ZoneOption struct {
	Choice ZoneChoice
	Shown  string
}

// ZoneOptions returns all choices. trigger is the name of the zone of the page's trigger; empty: it has none.
func (r Reader) ZoneOptions(trigger string) []ZoneOption {
	named := func(l *time.Location) string {
		if l == nil {
			return ""
		}
		return l.String() + " " + offset(r.Now.In(l))
	}
	return []ZoneOption{
		{ZoneUTC, offset(r.Now.UTC())}, {ZoneTrigger, named(location(trigger))}, {ZoneBrowser, named(r.Zone.browser)},
	}
}

// Zone is the zone of times in a visit.
type Zone struct {
	Choice ZoneChoice
	// browser is the zone of the browser; nil: its script has not set it.
	browser *time.Location
}

// ReadZone returns the zone for a choice, and the name of the browser's zone.
func ReadZone(chosen, browser string) Zone {
	z := Zone{Choice: ZoneUTC, browser: location(browser)}
	switch choice := ZoneChoice(chosen); {
	case choice == ZoneTrigger, choice == ZoneBrowser && z.browser != nil:
		z.Choice = choice
	}
	return z
}

// location returns the zone of a name in the time zone data of the program, or nil.
func location(name string) *time.Location {
	if name == "" {
		return nil
	}
	found, known := schedule.Location(name)
	if !known {
		return nil
	}
	return found
}

// In returns t in the chosen zone. trigger is the name of the zone of t's trigger; empty: t belongs to none.
func (z Zone) In(t time.Time, trigger string) time.Time {
	switch z.Choice {
	case ZoneBrowser:
		return t.In(z.browser)
	case ZoneTrigger:
		if of := location(trigger); of != nil {
			return t.In(of)
		}
	}
	return t.UTC()
}

// offset returns the offset of t from UTC, such as +02:00; UTC is Z.
func offset(t time.Time) string { return t.Format("Z07:00") }
