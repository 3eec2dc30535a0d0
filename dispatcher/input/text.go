package input

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agext/levenshtein"
)

// Cut returns text with at most most bytes, cut between two characters and marked as cut.
func Cut(text string, most int) string {
	const mark = "…"
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := max(most-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}

// OneLine replaces control characters, such as line breaks, and characters that services refuse in messages by spaces.
func OneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == 0xFFFE || r == 0xFFFF {
			return ' '
		}
		return r
	}, text)
}

// CheckRange reports a number outside [low, high].
func CheckRange(problems *Problems, path string, n, low, high int) {
	if n < low || n > high {
		problems.Add(path, CodeCountRange, "%s %d is not in %d to %d", path[strings.LastIndexByte(path, '/')+1:], n, low, high)
	}
}

// CheckText bounds free text and refuses control characters, which terminals obey and databases refuse, and invalid
// UTF-8.
func CheckText(problems *Problems, path, text string) {
	const most = 1024
	if n := len([]rune(text)); n > most {
		problems.Add(path, CodeTextTooLong, "text has %d characters; the maximum is %d", n, most)
	}
	if !utf8.ValidString(text) {
		problems.Add(path, CodeJSONUTF8, "text is not UTF-8")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
		problems.Add(path, CodeTextInvalid, "text holds a control character; only line breaks and tabs are allowed")
	}
}

// CheckLink adds the problems of the URL of a page for people, if there is one.
func CheckLink(problems *Problems, path, text string) {
	const most = 1024
	switch u, err := url.Parse(text); {
	case text == "":
	case len(text) > most:
		problems.Add(path, CodeURLTooLong, "URL has %d characters; the maximum is %d", len(text), most)
	case err != nil || strings.ContainsFunc(text, func(r rune) bool { return IsControl(r) || r == ' ' }):
		problems.Add(path, CodeURLSyntax, "URL cannot be parsed; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		problems.Add(path, CodeURLScheme, "URL %s does not begin with http or https and a host; write it as https://host/path", Echo(text))
	case u.User != nil:
		problems.Add(path, CodeURLUserinfo, "URL has a user name or password, which everybody who is notified would see; leave it out")
	}
}

// IsControl reports a control character of ASCII.
func IsControl(r rune) bool { return r < ' ' || r == 0x7f }

// Listed joins words for a message.
func Listed[S ~string](words []S) string {
	if len(words) == 0 {
		return "none"
	}
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = string(word)
	}
	return strings.Join(names, ", ")
}

// SortedKeys returns the keys of m in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// CheckEnum adds a problem unless the value at path is one of the allowed ones. what names it in the message.
func CheckEnum[E ~string](problems *Problems, path, what string, value E, allowed []E) {
	if !slices.Contains(allowed, value) {
		problems.Add(path, CodeEnum, "%s %s is %s", what, Echo(string(value)), NotOneOf(value, allowed))
	}
}

// NotOneOf completes a message about a value that is not allowed: "not one of gap, skip; did you mean skip?"
func NotOneOf[E ~string](value E, allowed []E) string {
	known := make([]string, len(allowed))
	for i, a := range allowed {
		known[i] = string(a)
	}
	return "not one of " + strings.Join(known, ", ") + DidYouMean(string(value), known)
}

// DidYouMean ends a message about an unknown name: it suggests the most similar known name, the first of several, or
// is empty.
func DidYouMean(name string, known []string) string {
	const farthest = 2 // edits; with more it is another word
	if len(name) > 64 {
		return ""
	}
	plain := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(s), "_", ""), "-", "")
	}
	name = plain(name)
	best, least := "", farthest+1
	for _, candidate := range known {
		if d := levenshtein.Distance(name, plain(candidate), nil); d < least && d < len(candidate) {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// ShownText makes foreign text safe to show to people: it cannot move a cursor, change colours, hide, or reverse the
// text after it. Such characters are escaped as in a Go string, such as \x1b or \u202e, except those in keep.
func ShownText(text, keep string) string {
	text = strings.ToValidUTF8(text, "\ufffd") // a single byte could be a control character, too
	unsafe := func(r rune) bool { return UnsafeToShow(r) && !strings.ContainsRune(keep, r) }
	if !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var safe strings.Builder
	for _, r := range text {
		switch {
		case !unsafe(r):
			safe.WriteRune(r)
		case r == '\n':
			safe.WriteString(`\n`)
		case r == '\t':
			safe.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&safe, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&safe, `\u%04x`, r)
		default:
			fmt.Fprintf(&safe, `\U%08x`, r)
		}
	}
	return safe.String()
}

// UnsafeToShow reports control characters, invisible characters that format text or change its direction, and line
// separators.
func UnsafeToShow(r rune) bool {
	return r < ' ' || r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// IsName reports whether a text is a name that a client may choose.
func IsName(text string) bool { return namePattern.MatchString(text) }

// CheckName reports a name that does not match ^[a-z0-9][a-z0-9_-]{0,62}$, the rule for every
// name that a client chooses.
func CheckName(problems *Problems, path, name string) {
	if !IsName(name) {
		problems.Add(path, CodeNameFormat,
			"name %s does not match ^[a-z0-9][a-z0-9_-]{0,62}$: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit", Echo(name))
	}
}

// FoldName returns the name of an app with _ for -, as variables name apps. It is unique among apps.
func FoldName(app string) string { return strings.ReplaceAll(app, "-", "_") }

// Sensitive is a text that never shows in JSON, logs, errors or any format of fmt. Only Reveal returns it. The zero
// value has no text.
type Sensitive struct {
	// A pointer, because fmt prints unexported fields without calling their methods.
	text  *string
	wired bool // JSON contains the text; see ForWire
}

// NewSensitive returns text as a Sensitive.
func NewSensitive(text string) Sensitive { return Sensitive{text: &text} }

const redacted = "[redacted]"

// Reveal returns the text.
func (s Sensitive) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text; an empty text is a text.
func (s Sensitive) IsZero() bool { return s.text == nil }

// Equal compares the texts.
func (s Sensitive) Equal(other Sensitive) bool {
	return s.IsZero() == other.IsZero() && s.Reveal() == other.Reveal()
}

// String returns a placeholder.
func (s Sensitive) String() string { return redacted }

// Format writes String for every verb.
func (s Sensitive) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns String.
func (s Sensitive) LogValue() slog.Value { return slog.StringValue(redacted) }

// ForWire returns s with the text in its JSON, to send a definition to the API.
func (s Sensitive) ForWire() Sensitive {
	s.wired = true
	return s
}

// MarshalJSON writes String, except after ForWire.
func (s Sensitive) MarshalJSON() ([]byte, error) {
	if s.wired {
		return json.Marshal(s.Reveal())
	}
	return json.Marshal(redacted)
}

// UnmarshalText takes the text.
func (s *Sensitive) UnmarshalText(text []byte) error {
	*s = NewSensitive(string(text))
	return nil
}
