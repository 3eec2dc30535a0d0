package provider

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/carillon-dev/carillon/dispatcher"
)

// reader reads the values of a model into fields of the domain. Null gives the zero value,
// or the default that is passed. Values are named by the JSON pointer that the API would
// name them by. The zero reader is ready.
type reader struct {
	// faults are the texts that could not be read.
	problems dispatcher.Problems
	// deferred are the pointers of what is not known yet, so cannot be judged.
	deferred []string
	// partial are the pointers of what cannot be judged as a whole, because a part of it is
	// not known yet; its other parts can be.
	partial []string
	// versions are those of the values of secrets, by their pointers.
	versions map[string]types.String
}

// unknown notes what is not known yet, and tells whether v is.
func (r *reader) unknown(pointer string, v interface{ IsUnknown() bool }) bool {
	if v.IsUnknown() {
		r.deferred = append(r.deferred, pointer)
	}
	return v.IsUnknown()
}

// awaits tells whether the value at pointer is not known yet, or part of what is not.
func (r *reader) awaits(pointer string) bool {
	for _, d := range r.deferred {
		if within(d, pointer) {
			return true
		}
	}
	return false
}

// settled tells whether all of the value at pointer is known.
func (r *reader) settled(pointer string) bool {
	for _, d := range r.deferred {
		if within(pointer, d) {
			return false
		}
	}
	return !r.awaits(pointer)
}

// within tells whether the pointer inner is outer or points into it.
func within(outer, inner string) bool {
	return inner == outer || strings.HasPrefix(inner, outer+"/")
}

// judge returns the faults of reading and those of err, which is what the domain makes of
// what was read, but none about values that are not known yet. A text that could not be
// read left a zero value, whose own fault would say nothing more.
func (r *reader) judge(err error) dispatcher.Problems {
	var ofDomain dispatcher.Problems
	ofDomain.AddError("", err)
	all := r.known(r.problems)
	for _, f := range r.known(ofDomain) {
		if !slices.ContainsFunc(r.problems, func(unread dispatcher.Problem) bool { return within(unread.Path, f.Path) }) {
			all = append(all, f)
		}
	}
	return all
}

// known returns the faults that are not about values that are not known yet.
func (r *reader) known(problems dispatcher.Problems) dispatcher.Problems {
	var kept dispatcher.Problems
	for _, f := range problems {
		if !r.awaits(f.Path) && !slices.Contains(r.partial, f.Path) {
			kept = append(kept, f)
		}
	}
	return kept
}

func (r *reader) text(pointer string, v interface {
	IsUnknown() bool
	ValueString() string
}) string {
	r.unknown(pointer, v)
	return v.ValueString()
}

func (r *reader) bool(pointer string, v types.Bool, otherwise bool) bool {
	if r.unknown(pointer, v) || v.IsNull() {
		return otherwise
	}
	return v.ValueBool()
}

// required is text for an attribute that must be set. Of null the framework has complained
// already, so it counts as not known.
func (r *reader) required(pointer string, v types.String) string {
	if v.IsNull() {
		r.deferred = append(r.deferred, pointer)
	}
	return r.text(pointer, v)
}

// whole reads a whole number. An attribute of type integer would refuse others with words
// of the framework's own, which name neither the attribute nor the rule.
func (r *reader) whole(pointer string, v types.Number, code, wayOut string) int {
	if r.unknown(pointer, v) || v.IsNull() {
		return 0
	}
	n, accuracy := v.ValueBigFloat().Int64()
	if accuracy != big.Exact {
		r.problems.Add(pointer, code, "%s is not a whole number; %s", v.ValueBigFloat().Text('g', 10), wayOut)
	}
	return int(n)
}

func (r *reader) duration(pointer string, v text[durations], otherwise dispatcher.Duration) dispatcher.Duration {
	if r.unknown(pointer, v) || v.IsNull() {
		return otherwise
	}
	d, err := dispatcher.ParseDuration(v.ValueString())
	r.problems.AddError(pointer, err)
	return d
}

// list reads the elements of a list; nil where there is nothing to read.
func (r *reader) list(pointer string, v types.List) []attr.Value {
	if r.unknown(pointer, v) || v.IsNull() {
		return nil
	}
	return v.Elements()
}

// texts reads a list of texts.
func (r *reader) texts(pointer string, v types.List) []string {
	var all []string
	for i, element := range r.list(pointer, v) {
		one, _ := element.(types.String)
		at := pointer + "/" + strconv.Itoa(i)
		r.element(at, one)
		all = append(all, r.text(at, one))
	}
	return all
}

// element refuses an element of a list that is null.
func (r *reader) element(pointer string, v interface{ IsNull() bool }) {
	if v.IsNull() {
		r.problems.Add(pointer, dispatcher.CodeRequired, "null is not a value; leave it out of the list")
	}
}

// instant returns nil for null.
func (r *reader) instant(pointer string, v text[instants]) *time.Time {
	if r.unknown(pointer, v) || v.IsNull() {
		return nil
	}
	t, err := dispatcher.ParseInstant(v.ValueString())
	if err != nil {
		r.problems.AddError(pointer, err)
		return nil
	}
	return &t
}

// object reads the attributes of an object into the struct that into points to. It returns
// false, and leaves the struct alone, where there is nothing to read.
func (r *reader) object(ctx context.Context, pointer string, v types.Object, into any) bool {
	if r.unknown(pointer, v) || v.IsNull() {
		return false
	}
	if diags := v.As(ctx, into, basetypes.ObjectAsOptions{}); diags.HasError() {
		r.problems.AddError(pointer, fmt.Errorf("read %T: %v", into, diags))
		return false
	}
	return true
}
