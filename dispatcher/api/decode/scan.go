package decode

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// The functions of this file walk over a valid JSON text. A value is a part of the text, and is not copied, so the cost
// of a body does not depend on the number of its values, or on their nesting.

// skipSpace returns the offset of the next byte that is not white space.
func skipSpace(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
		at++
	}
	return at
}

// stringEnd returns the end of the string at an offset.
func stringEnd(text []byte, at int) int {
	for at++; text[at] != '"'; at++ {
		if text[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// valueEnd returns the end of the value at an offset.
func valueEnd(text []byte, at int) int {
	switch text[at] {
	case '"':
		return stringEnd(text, at)
	case '{', '[':
	default: // a number, true, false or null
		for at < len(text) && bytes.IndexByte([]byte(",]} \t\r\n"), text[at]) < 0 {
			at++
		}
		return at
	}
	for depth := 0; ; at++ {
		switch text[at] {
		case '"':
			at = stringEnd(text, at) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
	}
}

// Parts yields the members of an object, with their keys as written in the text, or the elements of an array, with nil.
// Other values, and an empty text, have no parts.
func Parts(raw json.RawMessage) iter.Seq2[json.RawMessage, json.RawMessage] {
	return func(yield func(key, value json.RawMessage) bool) {
		if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
			return
		}
		object := raw[0] == '{'
		for at := skipSpace(raw, 1); raw[at] != '}' && raw[at] != ']'; {
			var key json.RawMessage
			if object {
				end := stringEnd(raw, at)
				key, at = raw[at:end], skipSpace(raw, skipSpace(raw, end)+1) // after the colon
			}
			end := valueEnd(raw, at)
			if !yield(key, raw[at:end:end]) {
				return
			}
			if at = skipSpace(raw, end); raw[at] == ',' {
				at = skipSpace(raw, at+1)
			}
		}
	}
}

// Count returns how many members or elements an object or array has.
func Count(raw json.RawMessage) int {
	n := 0
	for range Parts(raw) {
		n++
	}
	return n
}

// Member returns the first member of an object with a name; nil: none, or raw is not an object.
func Member(raw json.RawMessage, name string) json.RawMessage {
	for key, value := range Parts(raw) {
		if key != nil && string(unquote(key)) == name {
			return value
		}
	}
	return nil
}

// unquote returns the text of a string. It is a part of the string if that holds no escape.
func unquote(literal json.RawMessage) []byte {
	inner := literal[1 : len(literal)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	text := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			text = append(text, inner[i])
			continue
		}
		i++
		switch inner[i] {
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := hexUnit(inner[i+1:])
			i += 4
			if rest := inner[i+1:]; utf16.IsSurrogate(r) && bytes.HasPrefix(rest, []byte(`\u`)) {
				if pair := utf16.DecodeRune(r, hexUnit(rest[2:])); pair != utf8.RuneError {
					r = pair
					i += 6
				}
			}
			text = utf8.AppendRune(text, r) // half of a pair becomes U+FFFD
		default: // a quote, a slash or a backslash
			text = append(text, inner[i])
		}
	}
	return text
}

// hexUnit reads the four digits of an escape.
func hexUnit(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16)
	return rune(n)
}

// checkKeys walks over a valid text, payloads included, and reports duplicate keys of objects: parsers disagree about
// the one that counts.
func (d *decoder) checkKeys(text []byte) {
	d.work += len(text)
	w := keyWalker{}
	for at := 0; at < len(text) && !d.full(); at++ {
		switch c := text[at]; c {
		case '{', '[':
			w.open = append(w.open, openValue{text: text[at:], object: c == '{', inKey: c == '{', first: len(w.keys)})
		case '}', ']':
			w.keys = w.keys[:w.top().first]
			w.open = w.open[:len(w.open)-1]
		case ',':
			w.top().index++
			w.top().inKey = w.top().object
		case '"':
			end := stringEnd(text, at)
			if len(w.open) > 0 && w.top().inKey {
				w.top().inKey = false
				w.top().key = text[at:end]
				if key := unquote(w.top().key); w.isTwin(key) {
					d.add(w.pointer(), input.CodeJSONDuplicate, "key %s is given twice", input.Echo(string(key)))
				}
			}
			at = end - 1
		}
	}
}

// keyWalker walks over the keys of a text.
type keyWalker struct {
	open []openValue
	// keys are those of the open objects with few keys.
	keys [][]byte
}

// openValue is an object or array that is not closed yet.
type openValue struct {
	text   []byte // from its beginning on
	object bool
	inKey  bool   // the next string is a key
	key    []byte // of the current member, as written in the text
	index  int    // of the current member or element
	first  int    // of its keys
	// many are the keys of an object with more than fewKeys.
	many map[string]struct{}
}

// fewKeys is how many keys are compared one by one, which needs no memory.
const fewKeys = 32

func (w *keyWalker) top() *openValue { return &w.open[len(w.open)-1] }

// isTwin reports whether the innermost object has a key already, and adds it.
func (w *keyWalker) isTwin(key []byte) bool {
	top := w.top()
	if top.many != nil {
		_, twin := top.many[string(key)]
		if !twin {
			top.many[string(key)] = struct{}{}
		}
		return twin
	}
	few := w.keys[top.first:]
	for _, other := range few {
		if bytes.Equal(other, key) {
			return true
		}
	}
	if len(few) < fewKeys {
		w.keys = append(w.keys, key)
		return false
	}
	top.many = make(map[string]struct{}, Count(top.text)) // a growing map would be copied
	top.many[string(key)] = struct{}{}
	for _, other := range few {
		top.many[string(other)] = struct{}{}
	}
	return false
}

func (w *keyWalker) pointer() *pointer {
	var at *pointer
	for _, one := range w.open {
		at = &pointer{parent: at, index: one.index}
		if one.object {
			at.key = one.key
		}
	}
	return at
}
