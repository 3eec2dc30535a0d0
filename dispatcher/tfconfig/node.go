package tfconfig

import (
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// node is a part of a resource: the value of an attribute, a block, or a list or map of either. Parts have the
// names that the API gives them, so that its JSON pointers lead to nodes.
type node struct {
	at hcl.Range
	// name is what the file calls it: the name of an attribute or block, a label, a key or an index.
	name string
	kind string // the type of a block or resource
	// unknown is set for what has no value here, and for what is wrong and already reported.
	unknown bool
	value   any              // of a scalar: string, bool, int64, or JSON as json.RawMessage
	parts   map[string]*node // of a block or map; nil for others
	list    []*node          // of a list; its parts are nil
	isList  bool
}

// json returns the value without what is unknown.
func (n *node) json() any {
	switch {
	case n.parts != nil:
		all := map[string]any{}
		for name, part := range n.parts {
			if !part.unknown {
				all[name] = part.json()
			}
		}
		return all
	case n.isList:
		all := []any{}
		for _, part := range n.list {
			if !part.unknown {
				all = append(all, part.json())
			}
		}
		return all
	}
	return n.value
}

// part returns a part of a block, or nil; n may be nil.
func (n *node) part(name string) *node {
	if n == nil {
		return nil
	}
	return n.parts[name]
}

// all returns the parts of a block or map; n may be nil.
func (n *node) all() map[string]*node {
	if n == nil {
		return nil
	}
	return n.parts
}

// text returns the value of a text; ok is false if there is none or it is unknown.
func (n *node) text() (text string, ok bool) {
	if n == nil || n.unknown {
		return "", false
	}
	text, ok = n.value.(string)
	return text, ok
}

// isUnknown tells whether a part that may be missing is unknown.
func (n *node) isUnknown() bool { return n != nil && n.unknown }

// allKnown tells whether nothing in n is unknown; n may be nil.
func (n *node) allKnown() bool {
	if n == nil {
		return true
	}
	for _, part := range n.parts {
		if !part.allKnown() {
			return false
		}
	}
	for _, part := range n.list {
		if !part.allKnown() {
			return false
		}
	}
	return !n.unknown
}

// follow returns the nodes on the way of a JSON pointer, as far as there are any, beginning with n.
func (n *node) follow(pointer string) []*node {
	way := []*node{n}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = unescape.Replace(token)
		var next *node
		if index, err := strconv.Atoi(token); n.isList && err == nil && index >= 0 && index < len(n.list) {
			next = n.list[index]
		} else if !n.isList {
			next = n.parts[token]
		}
		if next == nil {
			return way
		}
		way, n = append(way, next), next
	}
	return way
}
