// Package binding derives from one row what Terraform needs of an attribute: the schemas of resource and data
// source, and the conversions between its value and a field of the domain. A row is plain data.
package binding

import (
	"cmp"
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Presence is who sets an attribute.
type Presence int

// The values of Presence.
const (
	Required Presence = iota // a configuration must set it
	Optional                 // null if a configuration leaves it out
	Default                  // if a configuration leaves it out, it has the domain's default, which completes its description
	Resolved                 // if a configuration leaves it out, the API decides
	Computed                 // the API decides
	InData                   // the API decides, and only the data source has it
)

// Row is one attribute: its name and description, its place in a type of the domain, and its form there.
type Row struct {
	name  string // of the attribute
	token string // its name in pointers of the API
	Presence
	text, data string // descriptions in the resource and in the data source; empty where it does not exist
	form       form
	inside     func(any) any // the part of the rows' object that form converts; nil for all of it
	modifiers  []planmodifier.String
	// While this attribute is unknown, the attributes at the pointers in decides cannot be checked,
	// and those in hides count as unknown. An empty pointer is the surrounding object.
	decides, hides []string
	traits         trait
	bad, zero      input.Problem // of a number that is not whole, and of zero
	noText         input.Problem // of an empty text
	leftOut        attr.Value    // the result of flatten for the domain's default
}

// trait is a special property of a row.
type trait int

// The traits of rows.
const (
	EmptyIsValue  trait = 1 << iota // an empty text is a valid value
	EmptyIsNull                     // an empty text is null; the API decides the value
	NilIsNull                       // of a list: [] differs from null
	AlwaysThere                     // of a list: an empty list is [], even if it is optional
	ThereInData                     // of a list or map: never null in the data source
	AskedFor                        // the configuration of a data source must set it
	unlessMissing                   // of a block: null if it was null and has its defaults
	AsValue                         // of a block: the data source has it as one value, with the resource's description
)

func (t trait) addTo(r *Row) { r.traits |= t }

func (r *Row) has(t trait) bool { return r.traits&t != 0 }

// form converts the values of an attribute.
type form interface {
	kind(r *Row, data bool) attr.Type
	resource(r *Row) schema.Attribute
	dataSource(r *Row) dataschema.Attribute
	// expand sets the field of a domain object from a value; at is the value's pointer.
	expand(e *Expander, r *Row, at string, v attr.Value, of any)
	// flatten returns the value of the field. prior is the value that it replaces, or nil.
	flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value
}

// Option is an additional property of an attribute.
type Option interface{ addTo(*Row) }

type optionFunc func(*Row)

func (o optionFunc) addTo(r *Row) { o(r) }

// Token sets the name in the API if it differs from the attribute's.
func Token(name string) Option { return optionFunc(func(r *Row) { r.token = name }) }

// Data describes an attribute in the data source.
func Data(text string) Option { return optionFunc(func(r *Row) { r.data = text }) }

// NameRule describes the rule of input.CheckName.
const NameRule = "1 to 63 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or digit"

// Decides names attributes that cannot be checked while this attribute is unknown.
func Decides(at ...string) Option { return optionFunc(func(r *Row) { r.decides = at }) }

// Hides names attributes that count as unknown while this attribute is.
func Hides(at ...string) Option { return optionFunc(func(r *Row) { r.hides = at }) }

// Advice is the text after "is not a whole number", and the code of that problem.
func Advice(code, text string) Option {
	return optionFunc(func(r *Row) { r.bad = input.Problem{Code: code, Message: text} })
}

// NotZero is the problem of a number or duration of zero, which the API takes for "left out".
func NotZero(code, text string) Option {
	return optionFunc(func(r *Row) { r.zero = input.Problem{Code: code, Message: text} })
}

// Modified adds plan modifiers of the framework.
func Modified(modifiers ...planmodifier.String) Option {
	return optionFunc(func(r *Row) { r.modifiers = append(r.modifiers, modifiers...) })
}

// IfEmpty is the problem of an empty text.
func IfEmpty(code, text string) Option {
	return optionFunc(func(r *Row) { r.noText = input.Problem{Code: code, Message: text} })
}

// RowPart is one or several rows, or a rule about them.
type RowPart interface{ addTo(rows *Rows) }

// Rule checks the attributes of an object together, after they are expanded.
type Rule func(e *Expander, at string, v Values, of any)

func (r Rule) addTo(to *Rows) { to.rules = append(to.rules, r) }

func (r *Row) addTo(to *Rows) { to.list = append(to.list, r) }

// List is a list of rows that several tables share.
type List []RowPart

func (l List) addTo(to *Rows) {
	for _, part := range l {
		part.addTo(to)
	}
}

// Within makes rows of Q, a part of P, into rows of P.
func Within[P, Q any](part func(P) Q, of ...RowPart) RowPart {
	var inner Rows
	List(of).addTo(&inner)
	lift := func(of any) any { return part(of.(P)) }
	var lifted List
	for _, r := range inner.list {
		copied, before := *r, r.inside
		copied.inside = lift
		if before != nil {
			copied.inside = func(of any) any { return before(lift(of)) }
		}
		lifted = append(lifted, &copied)
	}
	for _, judge := range inner.rules {
		lifted = append(lifted, Rule(func(e *Expander, at string, v Values, of any) { judge(e, at, v, lift(of)) }))
	}
	return lifted
}

// Rows are the attributes of a type of the domain.
type Rows struct {
	list       []*Row
	rules      []Rule
	make       func() any         // a new value with its defaults
	assign     func(to, Type any) // copies a result of make
	Type, data types.ObjectType   // in the resource, and in the data source
}

// Fresh returns a value with the defaults of the domain.
func Fresh[T any]() *T {
	v := new(T)
	if d, is := any(v).(interface{ SetDefaults() }); is {
		d.SetDefaults()
	}
	return v
}

// Of returns the table of T, with values that begin as fresh ones.
func Of[T any](fresh func() *T, parts ...RowPart) *Rows {
	all := &Rows{
		make:   func() any { return fresh() },
		assign: func(to, of any) { *to.(*T) = *of.(*T) },
	}
	List(parts).addTo(all)
	return all.complete()
}

// complete fills in what follows from the rows.
func (all *Rows) complete() *Rows {
	all.Type, all.data = types.ObjectType{AttrTypes: map[string]attr.Type{}}, types.ObjectType{AttrTypes: map[string]attr.Type{}}
	start := all.make()
	for _, r := range all.list {
		if r.text != "" {
			all.Type.AttrTypes[r.name] = r.form.kind(r, false)
		}
		if r.data != "" {
			all.data.AttrTypes[r.name] = r.form.kind(r, true)
		}
		if r.Presence == Default || r.Presence == Optional {
			r.leftOut = r.form.flatten(&flattener{diags: &diag.Diagnostics{}}, r, r.in(start), nil)
		}
	}
	return all
}

// in returns the part of an object that the form of the row converts.
func (r *Row) in(of any) any {
	if r.inside != nil {
		return r.inside(of)
	}
	return of
}

// Placed is an attribute in its table.
type Placed struct {
	Name, Token   string
	IsMap, IsList bool
	IsInput       bool // in the resource
}

// Walk visits the rows of a table and of its nested tables.
func (all *Rows) Walk(visit func(in *Rows, a Placed)) {
	for _, r := range all.list {
		a := Placed{Name: r.name, Token: r.token, IsInput: r.text != ""}
		var inner *Rows
		switch form := r.form.(type) {
		case mapForm:
			a.IsMap = true
		case listForm:
			a.IsList = true
		case blocksForm:
			a.IsMap, a.IsList, inner = form.named, !form.named, form.rows
		case blockForm:
			inner = form.rows
		}
		if visit(all, a); inner != nil {
			inner.Walk(visit)
		}
	}
}

// Attributes returns the attributes of the resource.
func (all *Rows) Attributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{}
	for _, r := range all.list {
		if r.text != "" {
			attributes[r.name] = r.form.resource(r)
		}
	}
	return attributes
}

// DataAttributes returns the attributes of the data source.
func (all *Rows) DataAttributes() map[string]dataschema.Attribute {
	attributes := map[string]dataschema.Attribute{}
	for _, r := range all.list {
		if r.data != "" {
			attributes[r.name] = r.form.dataSource(r)
		}
	}
	return attributes
}

// Expand sets a domain object from the attributes of a Terraform object; at is the pointer of that.
func (all *Rows) Expand(e *Expander, at string, v Values, of any) {
	for _, r := range all.list {
		if r.text == "" {
			continue
		}
		value := v[r.name]
		if value == nil {
			value = nullOf(r.form.kind(r, false))
		}
		r.form.expand(e, r, at+"/"+r.token, value, r.in(of))
		if value.IsUnknown() {
			e.Incomplete = append(e.Incomplete, pointersBelow(at, r.decides)...)
			e.Unknown = append(e.Unknown, pointersBelow(at, r.hides)...)
		}
	}
	for _, judge := range all.rules {
		judge(e, at, v, of)
	}
}

func pointersBelow(at string, names []string) []string {
	var all []string
	for _, name := range names {
		if name == "" {
			all = append(all, at)
		} else {
			all = append(all, at+"/"+name)
		}
	}
	return all
}

// flattener turns fields of the domain into Terraform values.
type flattener struct {
	diags *diag.Diagnostics
	data  bool // with the attributes of the data source
	all   bool // with attributes that a configuration may leave out
}

// of returns the flattener of a block; a data source may have the block as one value.
func (f *flattener) of(r *Row) *flattener {
	if f.data && r.has(AsValue) {
		return &flattener{f.diags, false, true}
	}
	return f
}

// flattened returns the attributes of an object. Empty and missing maps and lists look the same in
// JSON, so they keep the form that the user wrote, which is in prior.
func (all *Rows) flattened(f *flattener, of any, prior Values) Values {
	attributes := make(Values, len(all.list))
	for _, r := range all.list {
		if f.data && r.data != "" || !f.data && r.text != "" {
			attributes[r.name] = r.form.flatten(f, r, r.in(of), prior[r.name])
		}
	}
	return attributes
}

// Shown returns the attributes of a data source.
func (all *Rows) Shown(diags *diag.Diagnostics, of any) Values {
	return all.flattened(&flattener{diags, true, true}, of, nil)
}

// Flatten returns the attributes of a resource; prior are the values that they replace.
func (all *Rows) Flatten(diags *diag.Diagnostics, of any, prior Values) Values {
	return all.flattened(&flattener{diags: diags}, of, prior)
}

// Null returns the null object of a missing resource.
func (all *Rows) Null() types.Object { return types.ObjectNull(all.Type.AttrTypes) }

// ObjectOf returns attributes of a resource as an object.
func (all *Rows) ObjectOf(v Values) types.Object { return types.ObjectValueMust(all.Type.AttrTypes, v) }

// ShownObject returns an object of a data source.
func (all *Rows) ShownObject(diags *diag.Diagnostics, of any) types.Object {
	return all.object(&flattener{diags, true, true}, of, nil)
}

// Fresh returns a new value with its defaults.
func (all *Rows) Fresh() any { return all.make() }

// kind returns the type of objects with these rows.
func (all *Rows) kind(data bool) types.ObjectType {
	if data {
		return all.data
	}
	return all.Type
}

// object flattens a nested object. It returns null for a nil value.
func (all *Rows) object(f *flattener, of any, prior attr.Value) types.Object {
	kind := all.kind(f.data)
	if of == nil {
		return types.ObjectNull(kind.AttrTypes)
	}
	object, found := types.ObjectValue(kind.AttrTypes, all.flattened(f, of, In(prior)))
	f.diags.Append(found...)
	return object
}

// Values are the attributes of an object by their names.
type Values map[string]attr.Value

// In returns the attributes of an object, or no attributes if it is null, unknown or missing.
func In(v attr.Value) Values {
	object, _ := v.(types.Object)
	return object.Attributes()
}

// Text returns a text attribute, or null.
func (v Values) Text(name string) types.String { return textOf(v[name]) }

func textOf(v attr.Value) types.String {
	switch v := v.(type) {
	case types.String:
		return v
	case interface{ asText() basetypes.StringValue }:
		return v.asText()
	}
	return types.StringNull()
}

// Number returns a number attribute, or null.
func (v Values) Number(name string) types.Number { n, _ := v[name].(types.Number); return n }

// Object returns an object attribute, or null.
func (v Values) Object(name string) types.Object { o, _ := v[name].(types.Object); return o }

// List returns a list attribute, or null.
func (v Values) List(name string) types.List { l, _ := v[name].(types.List); return l }

// Map returns a map attribute, or null.
func (v Values) Map(name string) types.Map { m, _ := v[name].(types.Map); return m }

// Revision returns the revision.
func (v Values) Revision() types.Int64 { n, _ := v["revision"].(types.Int64); return n }

// With returns a copy with one attribute changed.
func (v Values) With(name string, value attr.Value) Values {
	changed := maps.Clone(v)
	changed[name] = value
	return changed
}

// Equal reports whether two objects have the same attributes.
func (v Values) Equal(other Values) bool {
	return maps.EqualFunc(v, other, func(a, b attr.Value) bool { return a.Equal(b) })
}

// described returns the description of an attribute with its default.
func (r *Row) described(value string) string {
	if r.Presence != Default || value == "" {
		return r.text
	}
	return r.text + " Default: `" + value + "`."
}

func (r *Row) isOptional() bool {
	return r.Presence == Optional || r.Presence == Default || r.Presence == Resolved
}
func (r *Row) isComputed() bool {
	return r.Presence == Default || r.Presence == Resolved || r.Presence == Computed
}

// planForm is the form of an attribute that only Terraform needs: flatten keeps its value from the plan or state.
type planForm struct{ form }

func (p planForm) expand(*Expander, *Row, string, attr.Value, any) {}

func (p planForm) flatten(f *flattener, r *Row, _ any, prior attr.Value) attr.Value {
	if prior == nil {
		return nullOf(p.kind(r, f.data))
	}
	return prior
}

// nullOf returns null of a type.
func nullOf(kind attr.Type) attr.Value {
	ctx := context.Background() //nolint:forbidigo // types do not use it
	null, err := kind.ValueFromTerraform(ctx, tftypes.NewValue(kind.TerraformType(ctx), nil))
	if err != nil {
		return types.DynamicNull() // cannot happen for our types
	}
	return null
}

// Kept is a text that only Terraform needs: its value in the plan or state stays unchanged.
func Kept(name, text string) *Row { return newRow(name, Optional, text, planForm{textForm{}}, nil) }

// Later is a data source's block that another request fills in; it is null until then.
func Later(name string, rows *Rows, text string) *Row {
	return newRow(name, InData, text, planForm{blockForm{rows: rows}}, nil)
}

// newRow returns a row with the options applied.
func newRow(name string, of Presence, text string, form form, options []Option) *Row {
	r := &Row{name: name, token: name, Presence: of, text: text, form: form}
	if of == InData {
		r.Presence, r.text, r.data = Computed, "", text
	}
	for _, o := range options {
		o.addTo(r)
	}
	r.noText.Code = cmp.Or(r.noText.Code, input.CodeRequired)
	r.noText.Message = cmp.Or(r.noText.Message, "text is empty; leave it out for the default")
	return r
}
