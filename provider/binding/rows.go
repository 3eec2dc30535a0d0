// Package binding makes of one row an attribute all that Terraform wants of it: the schemas of the resource and of the data
// source, the way from a value to the field of the domain, and the way back. A row is data that reads without its interpreter.
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

// Presence says who sets an attribute.
type Presence int

// Who sets an attribute.
const (
	Required Presence = iota // a configuration must set it
	Optional                 // null if a configuration leaves it out
	Default                  // if a configuration leaves it out, it has the default of the domain, which completes its description
	Resolved                 // if a configuration leaves it out, the API decides
	Computed                 // the API decides
	InData                   // the API decides, and only the data source has it
)

// Row is one attribute: how it is called and described, where its value is in a type of the domain, and which form it has there.
type Row struct {
	name  string // of the attribute
	token string // its name in pointers of the API
	Presence
	text, data string // descriptions in the resource and in the data source; empty: it is not there
	form       form
	inside     func(any) any // the part of what the rows describe that form knows; nil: all of it
	modifiers  []planmodifier.String
	// decides and hides are the pointers next to it of what cannot be judged, or is itself unknown, while this is unknown. An
	// empty one is the object that it is in.
	decides, hides []string
	traits         trait
	bad, zero      input.Problem // with a number that is not whole, and with zero
	noText         input.Problem // with an empty text
	leftOut        attr.Value    // what flatten returns for the default of the domain
}

// trait is what a row has that most have not.
type trait int

// What a row may have.
const (
	EmptyIsValue  trait = 1 << iota // an empty text is a value like others
	EmptyIsNull                     // an empty text of what the API decides
	NilIsNull                       // of a list: [] is not the same as none
	AlwaysThere                     // of a list: none is [], also where it is optional
	ThereInData                     // of a list or map: none is an empty one in the data source
	AskedFor                        // the configuration of a data source must set it
	unlessMissing                   // of a block: it is null only if it was, and has its defaults
	AsValue                         // of a block: the data source has it as one value, as the resource describes it
)

func (t trait) addTo(r *Row) { r.traits |= t }

func (r *Row) has(t trait) bool { return r.traits&t != 0 }

// form is how the values of an attribute look.
type form interface {
	kind(r *Row, data bool) attr.Type
	resource(r *Row) schema.Attribute
	dataSource(r *Row) dataschema.Attribute
	// expand sets the field in what of points to, from a value whose pointer is at.
	expand(e *Expander, r *Row, at string, v attr.Value, of any)
	// flatten returns the value of the field. prior is the one that it replaces; nil: none.
	flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value
}

// Option is what else there is to say of an attribute.
type Option interface{ addTo(*Row) }

type optionFunc func(*Row)

func (o optionFunc) addTo(r *Row) { o(r) }

// Token names an attribute that the API calls otherwise.
func Token(name string) Option { return optionFunc(func(r *Row) { r.token = name }) }

// Data describes an attribute in the data source.
func Data(text string) Option { return optionFunc(func(r *Row) { r.data = text }) }

// Decides names what cannot be judged while the attribute is unknown.
func Decides(at ...string) Option { return optionFunc(func(r *Row) { r.decides = at }) }

// Hides names what is unknown, too, while the attribute is.
func Hides(at ...string) Option { return optionFunc(func(r *Row) { r.hides = at }) }

// Advice is what follows "is not a whole number" in the problem with a number that is none, and its code.
func Advice(code, text string) Option {
	return optionFunc(func(r *Row) { r.bad = input.Problem{Code: code, Message: text} })
}

// NotZero is the problem with a number or duration that is zero, which the API takes for "left out".
func NotZero(code, text string) Option {
	return optionFunc(func(r *Row) { r.zero = input.Problem{Code: code, Message: text} })
}

// Modified adds plan modifiers of the framework.
func Modified(modifiers ...planmodifier.String) Option {
	return optionFunc(func(r *Row) { r.modifiers = append(r.modifiers, modifiers...) })
}

// IfEmpty is the problem with an empty text.
func IfEmpty(code, text string) Option {
	return optionFunc(func(r *Row) { r.noText = input.Problem{Code: code, Message: text} })
}

// RowPart is one or several rows, or a rule about them.
type RowPart interface{ addTo(rows *Rows) }

// Rule is what no row can say: it judges the attributes of an object together, once they are expanded.
type Rule func(e *Expander, at string, v Values, of any)

func (r Rule) addTo(to *Rows) { to.rules = append(to.rules, r) }

func (r *Row) addTo(to *Rows) { to.list = append(to.list, r) }

// List are rows that several tables have.
type List []RowPart

func (l List) addTo(to *Rows) {
	for _, part := range l {
		part.addTo(to)
	}
}

// Within makes rows of a part of P from those that are of Q.
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
	assign     func(to, Type any) // of is what make returned
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

// Of returns the table of T, whose values begin as fresh ones.
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

// in returns the part of a value that the form of a row knows.
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
	IsInput       bool // the resource has it
}

// Walk visits the rows of a table and of those that it is made of.
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
			a.IsMap, a.IsList, inner = form.keyed, !form.keyed, form.rows
		case blockForm:
			inner = form.rows
		}
		if visit(all, a); inner != nil {
			inner.Walk(visit)
		}
	}
}

// Attributes returns those of the resource.
func (all *Rows) Attributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{}
	for _, r := range all.list {
		if r.text != "" {
			attributes[r.name] = r.form.resource(r)
		}
	}
	return attributes
}

// DataAttributes returns those of the data source.
func (all *Rows) DataAttributes() map[string]dataschema.Attribute {
	attributes := map[string]dataschema.Attribute{}
	for _, r := range all.list {
		if r.data != "" {
			attributes[r.name] = r.form.dataSource(r)
		}
	}
	return attributes
}

// Expand sets what of points to from the attributes of an object, whose pointer is at.
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
	all   bool // of what a configuration may leave out, too
}

// of returns the flattener of a block, which a data source has as one value.
func (f *flattener) of(r *Row) *flattener {
	if f.data && r.has(AsValue) {
		return &flattener{f.diags, false, true}
	}
	return f
}

// flattened returns the attributes of what of points to. An empty map or list and none are the same on the wire, so they keep the
// form that the user wrote, which is in prior.
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

// Flatten returns the attributes of a resource; prior are those that they replace.
func (all *Rows) Flatten(diags *diag.Diagnostics, of any, prior Values) Values {
	return all.flattened(&flattener{diags: diags}, of, prior)
}

// Null returns the object of a resource that is not there.
func (all *Rows) Null() types.Object { return types.ObjectNull(all.Type.AttrTypes) }

// ObjectOf returns attributes of a resource as an object.
func (all *Rows) ObjectOf(v Values) types.Object { return types.ObjectValueMust(all.Type.AttrTypes, v) }

// ShownObject returns an object of a data source.
func (all *Rows) ShownObject(diags *diag.Diagnostics, of any) types.Object {
	return all.object(&flattener{diags, true, true}, of, nil)
}

// Fresh returns a new value with its defaults.
func (all *Rows) Fresh() any { return all.make() }

// kind returns the type of objects with the rows.
func (all *Rows) kind(data bool) types.ObjectType {
	if data {
		return all.data
	}
	return all.Type
}

// object is flatten for a nested object. Without a value it is null.
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

// In returns the attributes of an object; none if it is null, unknown or missing.
func In(v attr.Value) Values {
	object, _ := v.(types.Object)
	return object.Attributes()
}

// Text returns an attribute that is a text, null if there is none.
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

// Number returns an attribute that is a number; null if there is none.
func (v Values) Number(name string) types.Number { n, _ := v[name].(types.Number); return n }

// Object returns an attribute that is an object; null if there is none.
func (v Values) Object(name string) types.Object { o, _ := v[name].(types.Object); return o }

// List returns an attribute that is a list; null if there is none.
func (v Values) List(name string) types.List { l, _ := v[name].(types.List); return l }

// Map returns an attribute that is a map; null if there is none.
func (v Values) Map(name string) types.Map { m, _ := v[name].(types.Map); return m }

// Revision returns the revision.
func (v Values) Revision() types.Int64 { n, _ := v["revision"].(types.Int64); return n }

// With returns a copy in which an attribute has another value.
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

// planForm is the form of an attribute that only Terraform needs: what a plan or state has stays as it is.
type planForm struct{ form }

func (p planForm) expand(*Expander, *Row, string, attr.Value, any) {}

func (p planForm) flatten(f *flattener, r *Row, _ any, prior attr.Value) attr.Value {
	if prior == nil {
		return nullOf(p.kind(r, f.data))
	}
	return prior
}

// nullOf returns the null of a type.
func nullOf(kind attr.Type) attr.Value {
	ctx := context.Background() //nolint:forbidigo // no type looks at it
	null, err := kind.ValueFromTerraform(ctx, tftypes.NewValue(kind.TerraformType(ctx), nil))
	if err != nil {
		return types.DynamicNull() // no type has a null that is wrong
	}
	return null
}

// Kept is a text that only Terraform needs: what a plan or state has stays as it is.
func Kept(name, text string) *Row { return newRow(name, Optional, text, planForm{textForm{}}, nil) }

// Later is a block of a data source that another request fills in; it is null until then.
func Later(name string, rows *Rows, text string) *Row {
	return newRow(name, InData, text, planForm{blockForm{rows: rows}}, nil)
}

// newRow returns a row to which the options apply.
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
