package tfconfig

import (
	"encoding/json"
	"errors"
	"math/big"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// attribute reads an attribute; nil: it is null, which is the same as left out.
func (r reader) attribute(given *hclsyntax.Attribute, a Attribute) *node {
	n := &node{at: given.Expr.Range(), name: given.Name}
	value := r.scope.value(given.Expr)
	if value.IsKnown() && value.IsNull() {
		return nil
	}
	switch a.Kind {
	case TextMap:
		r.textMap(n, given, value)
	case Texts, Numbers, Durations:
		r.list(n, given, value, a.Kind)
	default:
		r.scalar(n, a.Kind, value)
	}
	return n
}

// textMap reads a map of texts, in which each may be unknown.
func (r reader) textMap(n *node, given *hclsyntax.Attribute, value cty.Value) {
	if !value.IsKnown() {
		n.unknown = true
		return
	}
	if !value.Type().IsMapType() && !value.Type().IsObjectType() {
		r.wrongType(n, given.Name, "a map of texts")
		return
	}
	n.parts = map[string]*node{}
	places := map[string]hcl.Range{}
	if literal, ok := given.Expr.(*hclsyntax.ObjectConsExpr); ok {
		for _, item := range literal.Items {
			if key := r.scope.value(item.KeyExpr); key.IsKnown() && !key.IsNull() && key.Type() == cty.String {
				places[key.AsString()] = item.ValueExpr.Range()
			}
		}
	}
	for key, element := range value.Elements() {
		name := key.AsString()
		part := &node{at: n.at, name: name}
		if place, ok := places[name]; ok {
			part.at = place
		}
		n.parts[name] = part
		r.scalar(part, Text, element)
	}
}

// list reads a list of scalars, each of which may be unknown.
func (r reader) list(n *node, given *hclsyntax.Attribute, value cty.Value, kind Kind) {
	if !value.IsKnown() {
		n.unknown = true
		return
	}
	t := value.Type()
	if !t.IsListType() && !t.IsTupleType() && !t.IsSetType() {
		r.wrongType(n, given.Name, "a list")
		return
	}
	n.isList = true
	literal, _ := given.Expr.(*hclsyntax.TupleConsExpr)
	for _, element := range value.Elements() {
		part := &node{at: n.at, name: strconv.Itoa(len(n.list))}
		if literal != nil && len(n.list) < len(literal.Exprs) {
			part.at = literal.Exprs[len(n.list)].Range()
		}
		n.list = append(n.list, part)
		r.scalar(part, map[Kind]Kind{Texts: Text, Numbers: Number, Durations: Length}[kind], element)
	}
	n.unknown = !n.allKnown() // an unknown element may change what the others mean
}

func (r reader) wrongType(n *node, name, want string) {
	n.unknown = true
	r.add(n.at, CodeType, "%s is not %s", name, want)
}

// scalar reads one value. What is wrong with it is reported, and it is unknown from then on.
func (r reader) scalar(n *node, kind Kind, value cty.Value) {
	if !value.IsKnown() {
		n.unknown = true
		return
	}
	if value.IsNull() {
		r.wrongType(n, n.name+" = null", "a value in a list or map; leave it out")
		return
	}
	want, words := cty.String, "a text"
	switch kind {
	case Flag:
		want, words = cty.Bool, "true or false"
	case Number:
		want, words = cty.Number, "a number"
	}
	value, err := convert.Convert(value, want)
	if err != nil {
		r.wrongType(n, n.name, words)
		return
	}
	switch kind {
	case Flag:
		n.value = value.True()
	case Number:
		whole, accuracy := value.AsBigFloat().Int64()
		if accuracy != big.Exact {
			r.wrongType(n, n.name+" "+value.AsBigFloat().Text('g', 10), "a whole number")
			return
		}
		n.value = whole
	default:
		r.textOf(n, kind, value.AsString())
	}
}

// textOf checks a text that has a form of its own.
func (r reader) textOf(n *node, kind Kind, text string) {
	var err error
	n.value = text
	switch kind {
	case Length:
		_, err = input.ParseDuration(text)
	case Instant:
		_, err = input.ParseInstant(text)
	case Document:
		n.value = json.RawMessage(text)
		if !json.Valid([]byte(text)) {
			err = &input.Problem{Code: input.CodeJSONSyntax, Message: n.name + " is not JSON"}
		}
	}
	var problem *input.Problem
	if errors.As(err, &problem) {
		n.unknown = true
		r.add(n.at, problem.Code, "%s", problem.Message)
	}
}
