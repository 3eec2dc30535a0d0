package input

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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
