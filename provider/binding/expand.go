package binding

import (
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Expander turns Terraform values into fields of the domain; flatten.go holds the way back.
// A null value gives the zero value, or the default that is passed. Each value is named by the
// JSON pointer that the API uses for it, so that problems from both sides can be compared.
// The zero expander is ready to use.
type Expander struct {
	// problems are the values that do not have the form of their type, such as a bad duration.
	Problems input.Problems
	// unknown are the pointers of values that Terraform learns only during apply.
	Unknown []string
	// incomplete are the pointers of values whose rules cannot be checked as a whole because a
	// part is unknown. Rules about their known parts still hold.
	Incomplete []string
	// versions are the value_version attributes of secrets, by the pointer of the secret. The
	// domain has no such field: only Terraform needs it.
	Versions map[string]types.String
}

// markUnknown remembers the pointer if v is unknown, and returns whether it is.
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

// contains reports whether the pointer inner is outer or points into it.
func contains(outer, inner string) bool {
	return inner == outer || strings.HasPrefix(inner, outer+"/")
}

// ProblemsWith returns the problems found while expanding, together with those in err, which
// is the domain's verdict on the result. It drops problems about unknown values. It also drops
// the domain's problem with a value that could not be expanded: that value became zero, so the
// second message would only confuse.
func (e *Expander) ProblemsWith(err error) input.Problems {
	var fromDomain input.Problems
	fromDomain.AddError("", err)
	var all input.Problems
	for _, p := range e.Problems {
		if !e.IsUnknown(p.Path) { // the form of a known value does not depend on others
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

// AboutKnown returns the problems whose values are known, and with them all that their rules depend on.
func (e *Expander) AboutKnown(problems input.Problems) input.Problems {
	var kept input.Problems
	for _, p := range problems {
		if !e.IsUnknown(p.Path) && !slices.Contains(e.Incomplete, p.Path) {
			kept = append(kept, p)
		}
	}
	return kept
}

// stringValue is what all string types of the framework and of this package have in common.
type stringValue interface {
	IsUnknown() bool
	ValueString() string
}

func (e *Expander) String(pointer string, v stringValue) string {
	e.markUnknown(pointer, v)
	return v.ValueString()
}

// SetText expands a string whose empty value means "left out" in the domain. An empty
// string in the configuration is therefore a problem: the plan would show it, and the state
// could not. A null leaves the field alone, which may hold a default.
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
