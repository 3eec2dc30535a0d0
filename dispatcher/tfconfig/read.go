package tfconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// reader reads one resource.
type reader struct {
	module   *Module
	resource string
	scope    scope
}

func (r reader) add(at hcl.Range, code, format string, args ...any) {
	r.module.add(r.resource, problemAt(at, code, format, args...))
}

// block reads the contents of a block into its node. Its parts get the API's names.
func (r reader) block(n *node, body *hclsyntax.Body, schema Schema) *node {
	n.parts = map[string]*node{}
	for _, given := range slices.SortedFunc(maps.Values(body.Attributes), func(a, b *hclsyntax.Attribute) int {
		return a.SrcRange.Start.Byte - b.SrcRange.Start.Byte
	}) {
		a, known := schema[given.Name]
		switch {
		case !known:
			r.unknown(n, given.NameRange, given.Name, schema)
		case a.ReadOnly:
			r.add(given.NameRange, CodeReadOnly, "%s is set by the server; leave it out", given.Name)
		case a.isBlock():
			r.add(given.NameRange, CodeForm, "%s", blockForm(given.Name, a))
			n.parts[field(given.Name)] = &node{at: given.SrcRange, name: given.Name, unknown: true}
		default:
			if read := r.attribute(given, a); read != nil {
				n.parts[field(given.Name)] = read
			}
		}
	}
	for _, given := range body.Blocks {
		r.nested(n, given, schema)
	}
	for _, name := range schema.names() {
		if a := schema[name]; a.Required && n.parts[field(name)] == nil {
			r.add(n.at, input.CodeRequired, "%s is missing", name)
			n.parts[field(name)] = &node{at: n.at, name: name, unknown: true}
		}
	}
	return n
}

// unknown reports a name that the schema lacks. The attribute that was probably meant becomes unknown.
func (r reader) unknown(n *node, at hcl.Range, name string, schema Schema) {
	n.parts[name] = &node{at: at, name: name, unknown: true}
	for other, its := range fields { // the names that blocks had when they were attributes, and have in the API
		if a := schema[other]; a.isBlock() && its == name {
			r.add(at, CodeForm, "%s", blockForm(other, a))
			return
		}
	}
	for _, meant := range schema.names() { // the probably meant one is not missing
		if n.parts[field(meant)] == nil && input.DidYouMean(name, []string{meant}) != "" {
			n.parts[field(meant)] = &node{at: at, name: meant, unknown: true}
		}
	}
	r.add(at, CodeUnknown, "%s has no %s%s", n.kind, input.Echo(name), input.DidYouMean(name, schema.names()))
}

// blockForm returns the syntax of a block.
func blockForm(name string, a Attribute) string {
	switch a.Kind {
	case Named:
		return fmt.Sprintf("%s is a block: write %s { … } with name = \"NAME\" for each, without =", name, name)
	case Repeated:
		return fmt.Sprintf("%s is a block: write %s { … } for each, without = and [ ]", name, name)
	}
	return fmt.Sprintf("%s is a block: write %s { … }, without =", name, name)
}

// notAttributes are blocks of every resource that are not about the resource itself.
var notAttributes = []string{"lifecycle", "connection", "provisioner"}

// nested reads a block inside of n.
func (r reader) nested(n *node, given *hclsyntax.Block, schema Schema) {
	a, known := schema[given.Type]
	switch {
	case given.Type == "dynamic" && len(given.Labels) == 1:
		r.dynamic(n, given, schema)
	case !known:
		r.unknown(n, given.TypeRange, given.Type, schema)
	case !a.isBlock():
		r.add(given.TypeRange, CodeForm, "%s is an attribute: write %s = …", given.Type, given.Type)
	case a.Kind == Named && len(given.Labels) > 0:
		r.add(given.LabelRanges[0], CodeForm, "%s has no label; write name = %q inside", given.Type, given.Labels[0])
		n.parts[field(given.Type)] = &node{at: given.DefRange(), name: given.Type, unknown: true}
	case len(given.Labels) > 0:
		r.add(given.TypeRange, CodeForm, "%s", blockForm(given.Type, a))
	default:
		r.put(n, &node{at: given.DefRange(), kind: given.Type}, given.Body, a)
	}
}

// put reads the body of a block into one, and adds that to n.
func (r reader) put(n, one *node, body *hclsyntax.Body, a Attribute) {
	key := field(one.kind)
	all := n.parts[key]
	switch {
	case a.Kind == Single && all != nil:
		r.add(one.at, CodeTwice, "block %s is given twice", one.kind)
	case a.Kind == Single:
		one.name = one.kind
		n.parts[key] = r.block(one, body, a.Attributes)
	case a.Kind == Repeated:
		if all == nil {
			all = &node{at: one.at, name: one.kind, isList: true}
			n.parts[key] = all
		}
		one.name = strconv.Itoa(len(all.list))
		all.list = append(all.list, r.block(one, body, a.Attributes))
	default:
		if all == nil {
			all = &node{at: one.at, name: one.kind, parts: map[string]*node{}}
			n.parts[key] = all
		}
		r.named(all, one, body, a)
	}
}

// named adds a block to all blocks of its type, by its name. All are unknown if its name is, because it may be any.
func (r reader) named(all, one *node, body *hclsyntax.Body, a Attribute) {
	others := &hclsyntax.Body{Attributes: maps.Clone(body.Attributes), Blocks: body.Blocks}
	name := r.ownName(one, others.Attributes, a.Attributes)
	r.block(one, others, a.Attributes)
	text, known := name.text()
	if !known || all.unknown {
		all.unknown, all.parts = true, nil
		return
	}
	if first := all.parts[text]; first != nil {
		r.add(name.at, CodeTwice, "%s %q is given twice, first in line %d; give each a name of its own", one.kind, text, first.at.Start.Line)
		return
	}
	one.name = text
	all.parts[text] = one
}

// ownName reads the name of a block and takes it out of its attributes. It reports a missing name, and returns nil.
func (r reader) ownName(one *node, attributes hclsyntax.Attributes, schema Schema) *node {
	given, written := attributes["name"]
	delete(attributes, "name")
	if written {
		if name := r.attribute(given, Attribute{Kind: Text}); name != nil {
			return name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		if _, known := schema[key]; !known && !written && input.DidYouMean(key, []string{"name"}) != "" {
			r.add(attributes[key].NameRange, CodeUnknown, "%s has no %s; did you mean name?", one.kind, input.Echo(key))
			delete(attributes, key)
			return nil
		}
	}
	r.add(one.at, input.CodeRequired, "%s has no name; write name = \"NAME\" inside", one.kind)
	return nil
}

// dynamic reads a dynamic block: once for each element, or once with unknown elements.
func (r reader) dynamic(n *node, given *hclsyntax.Block, schema Schema) {
	name := given.Labels[0]
	a, known := schema[name]
	content := slices.IndexFunc(given.Body.Blocks, func(b *hclsyntax.Block) bool { return b.Type == "content" })
	switch {
	case !known || !a.isBlock():
		r.unknown(n, given.LabelRanges[0], name, schema)
		return
	case content < 0 || given.Body.Attributes["for_each"] == nil:
		return // terraform validate reports it
	}
	if labels := given.Body.Attributes["labels"]; labels != nil {
		r.add(labels.NameRange, CodeForm, "%s has no labels; write name = … in content", name)
	}
	body, iterator := given.Body.Blocks[content].Body, name
	if attribute := given.Body.Attributes["iterator"]; attribute != nil {
		iterator = hcl.ExprAsKeyword(attribute.Expr)
	}
	elements, ok := elementsOf(r.scope.value(given.Body.Attributes["for_each"].Expr))
	if !ok {
		// Misspelt names are found all the same. The contents of the blocks are unknown.
		r.scope = r.scope.with(iterator, cty.DynamicVal)
		r.put(&node{parts: map[string]*node{}}, &node{at: given.DefRange(), kind: name}, body, a)
		n.parts[field(name)] = &node{at: given.DefRange(), name: name, unknown: true}
		return
	}
	for _, element := range elements {
		inner, one := r, &node{at: given.DefRange(), kind: name}
		inner.scope = r.scope.with(iterator, cty.ObjectVal(map[string]cty.Value{"key": element.key, "value": element.value}))
		inner.put(n, one, body, a)
	}
}

// element is one element of a for_each.
type element struct{ key, value cty.Value }

// elementsOf returns the elements of a collection; ok is false if they are unknown.
func elementsOf(of cty.Value) (all []element, ok bool) {
	if !of.IsKnown() || of.IsNull() || !of.CanIterateElements() {
		return nil, false
	}
	for key, value := range of.Elements() {
		if of.Type().IsSetType() {
			key = value
		}
		if !key.IsKnown() {
			return nil, false
		}
		all = append(all, element{key, value})
	}
	return all, true
}

// attribute reads an attribute; nil if it is null, which is the same as left out.
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

// textMap reads a map of texts, each of which may be unknown.
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
	n.unknown = !n.allKnown() // an unknown element may change the meaning of the others
}

func (r reader) wrongType(n *node, name, want string) {
	n.unknown = true
	r.add(n.at, CodeType, "%s is not %s", name, want)
}

// scalar reads one value. A wrong value is reported, and unknown from then on.
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

// textOf checks a text that must have a certain form.
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
