package binding

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Paths turns JSON pointers of the API into paths of attributes. It knows of the tokens of pointers which have keys of a map or
// indexes of a list as their children, and what the blocks are called that the API has as an array or object of many.
type Paths struct {
	maps, lists map[string]bool
	blocks      map[string]string
}

// PathsOf returns the paths of the attributes in tables.
func PathsOf(tables ...*Rows) Paths {
	p := Paths{map[string]bool{}, map[string]bool{}, map[string]string{}}
	for _, table := range tables {
		table.Walk(func(_ *Rows, a Placed) {
			token := a.Token[strings.LastIndexByte(a.Token, '/')+1:]
			if !a.IsInput || !a.IsMap && !a.IsList {
				return
			}
			if p.maps[token] = p.maps[token] || a.IsMap; a.IsList {
				p.lists[token] = true
			}
			if a.Token == token && a.Name != token {
				p.blocks[token] = a.Name
			}
		})
	}
	return p
}

// Of returns the path of the attribute at a pointer: trigger["nightly"].expression for "/triggers/nightly/expression".
func (p Paths) Of(pointer string) path.Path {
	at, before := path.Empty(), ""
	inMap, inList := false, false
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		index, notIndex := strconv.Atoi(token)
		switch {
		case token == "" && !inMap:
			return at
		case inList && notIndex == nil:
			at = at.AtListIndex(index)
		case inMap:
			at = at.AtMapKey(token)
		case token == "defaults" && before == "": // of an app; they are attributes of their own
			before = token
			continue
		default:
			at = at.AtName(p.name(len(at.Steps()) == 0, before, token))
		}
		inMap = !inMap && p.maps[token] && !ofBounds(before, token) // a trigger may be named "headers"
		inList = p.lists[token] && !p.maps[token] || ofBounds(before, token)
		before = token
		if token == "payload" {
			break // Terraform sees one string, so there is no path into it
		}
	}
	return at
}

// name returns the name of an attribute that has a token after another one. The outermost is in nothing but its resource.
func (p Paths) name(outermost bool, before, token string) string {
	switch {
	case outermost && before == "defaults":
		return "default_" + token
	case ofBounds(before, token):
		return token
	}
	return cmp.Or(p.blocks[token], token)
}

// ofBounds reports whether a token of a pointer is the list of secrets in bounds, and not the map in signing.
func ofBounds(before, token string) bool { return before == "bounds" && token == "secrets" }

// Report adds an error for each problem, at the attribute that it points to.
func (p Paths) Report(diags *diag.Diagnostics, problems []input.Problem) {
	for _, one := range problems {
		diags.AddAttributeError(p.Of(one.Path), cmp.Or(input.RowOf(one.Code).Title, "Invalid value"), WithCode(p.Message(one), one.Code))
	}
}

// Message puts the attribute's path before the message of a problem, because Terraform itself shows only the outermost attribute.
// A message about a calendar's rule begins with its JSON pointer; the path replaces it.
func (p Paths) Message(of input.Problem) string {
	at, message := p.Of(of.Path).String(), of.Message
	rest, pointed := strings.CutPrefix(message, strings.TrimPrefix(of.Path, "/"))
	if pointed && strings.Count(of.Path, "/") > 1 {
		message = strings.TrimLeft(rest, ": ")
	}
	if at == "" {
		return message
	}
	return at + ": " + message
}

// WithCode ends a message with its code: people look it up, and programs find it.
func WithCode(message, code string) string { return message + " (" + code + ")" }

// ResourceType returns the type of the resource of a kind of thing.
func ResourceType(kind string) string { return "carillon_" + strings.ReplaceAll(kind, " ", "_") }
