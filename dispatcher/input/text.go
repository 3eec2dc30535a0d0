package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
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

// Count returns a number of things, by the word for one of them.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// CheckJSONText returns, as Problems or nil, the strings, keys and numbers of a valid JSON text that cannot be stored
// or read as written: databases refuse NUL, decoders replace half of a surrogate pair by another character, and
// receivers turn a number beyond the range of a double into infinity or an error (RFC 8259, section 6). most bounds
// the number of returned problems.
func CheckJSONText(text []byte, most int) error {
	w := jsonTextWalker{text: text, most: most}
	w.walk()
	return w.problems.Err()
}

// jsonTextWalker walks over the strings of a JSON text, without recursion.
type jsonTextWalker struct {
	text     []byte
	most     int
	problems Problems
	open     []jsonLevel
}

// jsonLevel is an object or array that is not closed yet.
type jsonLevel struct {
	object bool
	inKey  bool   // the next string is a key
	key    []byte // of the current member, in quotes
	index  int    // of the current element
}

func (w *jsonTextWalker) walk() {
	for i := 0; i < len(w.text) && len(w.problems) < w.most; i++ {
		switch c := w.text[i]; c {
		case '{', '[':
			w.open = append(w.open, jsonLevel{object: c == '{', inKey: c == '{'})
		case '}', ']':
			w.open = w.open[:len(w.open)-1]
		case ',':
			top := &w.open[len(w.open)-1]
			top.index++
			top.inKey = top.object
		case ':':
			w.open[len(w.open)-1].inKey = false
		case '"':
			end := i + 1
			for ; w.text[end] != '"'; end++ {
				if w.text[end] == '\\' {
					end++
				}
			}
			literal := w.text[i : end+1]
			if n := len(w.open); n > 0 && w.open[n-1].inKey {
				w.open[n-1].key = literal
			}
			w.check(literal)
			i = end
		case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			end := i + 1
			for end < len(w.text) && strings.IndexByte("+-.0123456789eE", w.text[end]) >= 0 {
				end++
			}
			w.checkNumber(w.text[i:end])
			i = end - 1
		}
	}
}

// check reports a string, which is in quotes. Its text is never shown: it may be a secret.
func (w *jsonTextWalker) check(literal []byte) {
	nul, half := false, false
	for i := 1; i < len(literal)-1; i++ {
		if literal[i] != '\\' {
			continue
		}
		i++
		unit, ok := escapedUnit(literal[i-1:])
		switch {
		case !ok:
		case unit == 0:
			nul = true
		case utf16.IsSurrogate(unit):
			next, _ := escapedUnit(literal[i+5:])
			if utf16.DecodeRune(unit, next) == utf8.RuneError {
				half = true
			} else {
				i += 6
			}
		}
		if ok {
			i += 4
		}
	}
	if nul {
		w.problems.Add(w.path(), CodeStringNUL, "text holds the character NUL (\\u0000), which no database stores; remove it")
	}
	if half {
		w.problems.Add(w.path(), CodeJSONUTF8, "text holds half of a surrogate pair (\\ud800 to \\udfff), which is no character; "+
			"write both halves, or the character itself")
	}
}

// MaxJSONNumber bounds a number in a JSON text, in bytes.
const MaxJSONNumber = 1 << 10

// checkNumber reports a number that is too long, or that exceeds a double.
func (w *jsonTextWalker) checkNumber(number []byte) {
	const always = 300 // digits that are always within the range of a double
	switch {
	case len(number) > MaxJSONNumber:
		w.problems.Add(w.path(), CodeJSONNumber, "number has %d bytes; the maximum is %d: write it as a text", len(number), MaxJSONNumber)
	case len(number) <= always && !bytes.ContainsAny(number, "eE"):
	default:
		if _, err := strconv.ParseFloat(string(number), 64); err != nil {
			w.problems.Add(w.path(), CodeJSONNumber, "number is beyond the range of a double (1.8e308), so receivers would read infinity; "+
				"write it as a text")
		}
	}
}

// escapedUnit reads the UTF-16 unit of an escape such as \u00e4 at the beginning of text.
func escapedUnit(text []byte) (rune, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return rune(n), err == nil
}

// path returns the JSON pointer of the current string, or of its member if it is a key.
func (w *jsonTextWalker) path() string {
	path := ""
	for _, level := range w.open {
		token := strconv.Itoa(level.index)
		if level.object {
			_ = json.Unmarshal(level.key, &token) // it is known to be valid
		}
		path += Pointer(token)
	}
	return path
}

// SameJSON reports whether two values are the same as JSON.
func SameJSON(a, b any) bool {
	was, err := json.Marshal(a)
	if err != nil {
		return false
	}
	is, err := json.Marshal(b)
	return err == nil && bytes.Equal(was, is)
}

// MaxPayload bounds a payload, in bytes.
const MaxPayload = 256 << 10

// MaxPayloadDepth bounds how deep a payload nests.
const MaxPayloadDepth = 32

// CheckPayload reports a payload that is too large, too deep or not JSON; no payload is valid.
func CheckPayload(problems *Problems, payload json.RawMessage) {
	if len(payload) > MaxPayload {
		problems.Add("/payload", CodePayloadTooLarge, "payload has %d bytes; the maximum is 256 KiB", len(payload))
		return
	}
	if len(payload) == 0 {
		return
	}
	if !json.Valid(payload) {
		problems.Add("/payload", CodeJSONSyntax, "payload is not JSON; write a text in quotes, as jsonencode of Terraform does")
		return
	}
	if depth := JSONDepth(payload); depth > MaxPayloadDepth {
		problems.Add("/payload", CodeJSONDepth, "payload is nested %d deep; the maximum is %d", depth, MaxPayloadDepth)
	}
}

// JSONDepth returns how deep valid JSON nests; a scalar has depth 0.
func JSONDepth(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
