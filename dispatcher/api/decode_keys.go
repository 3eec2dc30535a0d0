package api

import (
	"bytes"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// checkKeys walks over a valid text, payloads included, and reports duplicate keys of objects: parsers
// disagree about which of them counts.
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
	// keys are those of the objects that are open, as far as they have few.
	keys [][]byte
}

// openValue is an object or array that is not closed yet.
type openValue struct {
	text   []byte // from its beginning on
	object bool
	inKey  bool   // the next string is a key
	key    []byte // of the current member, as it is written
	index  int    // of the current member or element
	first  int    // of its keys
	// many are the keys of an object with more than fewKeys.
	many map[string]struct{}
}

// fewKeys is how many keys are compared one by one, which needs no memory.
const fewKeys = 32

func (w *keyWalker) top() *openValue { return &w.open[len(w.open)-1] }

// isTwin tells whether the innermost object has a key already, and adds it.
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
	top.many = make(map[string]struct{}, count(top.text)) // a map grows by being copied
	top.many[string(key)] = struct{}{}
	for _, other := range few {
		top.many[string(other)] = struct{}{}
	}
	return false
}

// pointer returns the path to the current key.
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
