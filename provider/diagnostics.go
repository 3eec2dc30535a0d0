package provider

import (
	"cmp"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// reportProblems adds an error for each problem, at the attribute that it points to.
func reportProblems(diags *diag.Diagnostics, problems []input.Problem) {
	for _, p := range problems {
		diags.AddAttributeError(attributePath(p.Path), cmp.Or(input.RowOf(p.Code).Title, "Invalid value"), withCode(messageWithPath(p), p.Code))
	}
}

// messageWithPath puts the attribute's path before the message, because Terraform itself shows
// only the outermost attribute. A message about a calendar's rule begins with its JSON pointer;
// the path replaces it.
func messageWithPath(p input.Problem) string {
	at, message := attributePath(p.Path).String(), p.Message
	rest, pointed := strings.CutPrefix(message, strings.TrimPrefix(p.Path, "/"))
	if pointed && strings.Count(p.Path, "/") > 1 {
		message = strings.TrimLeft(rest, ": ")
	}
	if at == "" {
		return message
	}
	return at + ": " + message
}

// withCode ends a message with its code: people look it up, and programs find it.
func withCode(message, code string) string { return message + " (" + code + ")" }

// pointerTokens says of the tokens of JSON pointers which have keys of a map or indexes of a list as their children, and what the
// blocks are called that the API has as an array or object of many.
type pointerTokens struct {
	maps, lists map[string]bool
	blocks      map[string]string
}

var tokensOfRows = sync.OnceValue(func() pointerTokens {
	t := pointerTokens{map[string]bool{}, map[string]bool{}, map[string]string{}}
	for _, kind := range []*binding.Rows{jobRows, alertRows, groupRows, appRows, calendarRows} {
		kind.Walk(func(_ *binding.Rows, a binding.Placed) {
			token := a.Token[strings.LastIndexByte(a.Token, '/')+1:]
			if !a.IsInput || !a.IsMap && !a.IsList {
				return
			}
			if t.maps[token] = t.maps[token] || a.IsMap; a.IsList {
				t.lists[token] = true
			}
			if a.Token == token && a.Name != token {
				t.blocks[token] = a.Name
			}
		})
	}
	return t
})

// attributePath turns a JSON pointer of the API into the path of the attribute:
// "/triggers/nightly/expression" into trigger["nightly"].expression.
func attributePath(pointer string) path.Path {
	p, tokens := path.Empty(), tokensOfRows()
	inMap, inList, before := false, false, ""
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		index, notIndex := strconv.Atoi(token)
		switch {
		case token == "" && !inMap:
			return p
		case inList && notIndex == nil:
			p = p.AtListIndex(index)
		case inMap:
			p = p.AtMapKey(token)
		case token == "defaults" && before == "": // of an app; they are attributes of their own
			before = token
			continue
		case before == "defaults" && len(p.Steps()) == 0:
			p = p.AtName("default_" + token)
		case ofBounds(before, token):
			p = p.AtName(token)
		default:
			p = p.AtName(cmp.Or(tokens.blocks[token], token))
		}
		inMap = !inMap && tokens.maps[token] && !ofBounds(before, token) // a trigger may be named "headers"
		inList = tokens.lists[token] && !tokens.maps[token] || ofBounds(before, token)
		before = token
		if token == "payload" {
			return p // Terraform sees one string, so there is no path into it
		}
	}
	return p
}

// ofBounds reports whether a token of a pointer is the list of secrets in bounds, and not the map in signing.
func ofBounds(before, token string) bool { return before == "bounds" && token == "secrets" }
