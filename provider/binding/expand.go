package binding

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Expander turns Terraform values into fields of the domain; a flattener does the reverse. A null
// value becomes the zero value, or the default that is passed. Each value is named by the API's
// JSON pointer, so that problems from both sides can be compared. The zero expander is ready to
// use.
type Expander struct {
	// Problems are those of values with a malformed text, such as a bad duration.
	Problems input.Problems
	// Unknown are the pointers of values that Terraform learns only during apply.
	Unknown []string
	// Incomplete are the pointers of values that cannot be checked as a whole because a part is
	// unknown. Their known parts are still checked.
	Incomplete []string
	// Versions are the value_version attributes of secrets, by the pointer of the secret. The
	// domain has no such field: only Terraform needs it.
	Versions map[string]types.String
}

// markUnknown records the pointer if v is unknown, and reports whether it is.
func (e *Expander) markUnknown(pointer string, v interface{ IsUnknown() bool }) bool {
	if v.IsUnknown() {
		e.Unknown = append(e.Unknown, pointer)
	}
	return v.IsUnknown()
}

// IsUnknown reports whether the value at pointer is unknown or belongs to an unknown one.
func (e *Expander) IsUnknown(pointer string) bool {
	return slices.ContainsFunc(e.Unknown, func(u string) bool { return contains(u, pointer) })
}

// AllKnown reports whether the value at pointer and everything inside it is known.
func (e *Expander) AllKnown(pointer string) bool {
	inside := func(u string) bool { return contains(pointer, u) }
	return !e.IsUnknown(pointer) && !slices.ContainsFunc(e.Unknown, inside)
}

// NamesKnown reports whether the names of all blocks at pointer are known.
func (e *Expander) NamesKnown(pointer string) bool {
	unnamed := func(u string) bool { return IsUnknownName(strings.TrimPrefix(u, pointer+"/")) }
	return !e.IsUnknown(pointer) && !slices.ContainsFunc(e.Unknown, unnamed)
}

// contains reports whether the pointer inner is outer or points into it.
func contains(outer, inner string) bool {
	return inner == outer || strings.HasPrefix(inner, outer+"/")
}

// ProblemsWith returns the problems found while expanding, together with those in err, which is the
// domain's validation of the result. It drops problems of unknown values. It also drops the
// domain's problem for a value that could not be expanded: that value became zero, so a second
// message would only confuse.
func (e *Expander) ProblemsWith(err error) input.Problems {
	var fromDomain input.Problems
	fromDomain.AddError("", err)
	var all input.Problems
	for _, p := range e.Problems {
		if !e.IsUnknown(p.Path) { // malformed whatever the other values are
			all = append(all, p)
		}
	}
	for _, p := range e.AboutKnown(fromDomain) {
		expanded := func(own input.Problem) bool { return contains(own.Path, p.Path) }
		if !slices.ContainsFunc(e.Problems, expanded) {
			all = append(all, p)
		}
	}
	return all
}

// AboutKnown returns the problems of known values with rules that depend only on known values.
func (e *Expander) AboutKnown(problems input.Problems) input.Problems {
	var kept input.Problems
	for _, p := range problems {
		if !e.IsUnknown(p.Path) && !slices.Contains(e.Incomplete, p.Path) {
			kept = append(kept, p)
		}
	}
	return kept
}

// stringValue has the methods that all string types of the framework and of this package share.
type stringValue interface {
	IsUnknown() bool
	ValueString() string
}

func (e *Expander) String(pointer string, v stringValue) string {
	e.markUnknown(pointer, v)
	return v.ValueString()
}

// SetText expands a string where the domain takes the empty value for "left out". An empty string
// in the configuration is therefore a problem: the plan would show it, and the state could not. A
// null leaves the field alone, which may hold a default.
func SetText[S ~string](e *Expander, pointer string, v types.String, field *S) {
	if v.IsNull() {
		return
	}
	*field = S(e.String(pointer, v))
	if !v.IsUnknown() && *field == "" {
		e.Problems.Add(pointer, input.CodeRequired, "text is empty; leave it out for the default")
	}
}

// Whole expands a whole number. The schema declares numbers instead of integers because the
// framework's own message about a fraction names neither the attribute nor the rule. advice
// completes our message.
func (e *Expander) Whole(pointer string, v types.Number, otherwise int, code, advice string) int {
	if e.markUnknown(pointer, v) || v.IsNull() {
		return otherwise
	}
	n, _ := e.wholeNumber(pointer, v, input.Problem{Code: code, Message: advice})
	return n
}

// Instant returns nil for null.
func (e *Expander) Instant(pointer string, v types.String) *time.Time {
	if e.markUnknown(pointer, v) || v.IsNull() {
		return nil
	}
	t, err := input.ParseInstant(v.ValueString())
	if err != nil {
		e.Problems.AddError(pointer, err)
		return nil
	}
	return &t
}

// rejectNull adds a problem if an element of a list is null.
func (e *Expander) rejectNull(pointer string, v interface{ IsNull() bool }) {
	if v.IsNull() {
		e.Problems.Add(pointer, input.CodeRequired, "null is not a value; leave it out of the list")
	}
}

// StringMap returns nil if the map is null or unknown.
func (e *Expander) StringMap(pointer string, v types.Map) map[string]string {
	if e.markUnknown(pointer, v) || v.IsNull() {
		return nil
	}
	all := map[string]string{}
	for name, element := range v.Elements() {
		text, _ := element.(types.String)
		at := pointer + input.Pointer(name)
		if text.IsNull() {
			e.Problems.Add(at, input.CodeRequired, "%s is null; leave it out of the map", input.Echo(name))
		}
		all[name] = e.String(at, text)
	}
	return all
}

// Paths turns JSON pointers of the API into paths of attributes. It knows which tokens of pointers have map
// keys or list indexes as children, and the names of the blocks that the API has as an array or object of many.
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
		case token == "defaults" && before == "": // in an app, they are top-level attributes
			before = token
			continue
		default:
			at = at.AtName(p.name(len(at.Steps()) == 0, before, token))
		}
		inMap = !inMap && p.maps[token] && !ofBounds(before, token) // a trigger may have the name "headers"
		inList = p.lists[token] && !p.maps[token] || ofBounds(before, token)
		before = token
		if token == "payload" {
			break // Terraform sees one string, so no path leads into it
		}
	}
	return at
}

// name returns the attribute for a token after another one. The outermost has no other token before it.
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

// Message puts the attribute's path before the message of a problem, because Terraform itself shows only the
// outermost attribute. In a message about a calendar's rule, the path replaces the leading JSON pointer.
func (p Paths) Message(of input.Problem) string {
	message := of.Message
	if value, named := strings.CutPrefix(message, of.Path[strings.LastIndexByte(of.Path, '/')+1:]+` "`); named {
		message = `"` + value
	} else if rest, pointed := strings.CutPrefix(message, strings.TrimPrefix(of.Path, "/")); pointed && strings.Count(of.Path, "/") > 1 {
		message = strings.TrimLeft(rest, ": ")
	}
	return strings.TrimPrefix(p.Of(of.Path).String()+": "+message, ": ")
}

// WithCode ends a message with its code, for people who look it up and for programs.
func WithCode(message, code string) string { return message + " (" + code + ")" }

// ResourceType returns the resource type of a kind.
func ResourceType(kind string) string { return "carillon_" + strings.ReplaceAll(kind, " ", "_") }
