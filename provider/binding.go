package provider

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

// presence says who sets an attribute.
type presence int

const (
	required presence = iota // a configuration must set it
	optional                 // null if a configuration leaves it out
	standard                 // if a configuration leaves it out, it has the default of the domain, which completes its description
	decided                  // if a configuration leaves it out, the API decides
	computed                 // the API decides
	inData                   // the API decides, and only the data source has it
)

// row is one attribute: how it is called and described, where its value is in a type of the domain, and which form it has there.
type row struct {
	name  string // of the attribute
	token string // its name in pointers of the API
	presence
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

const (
	emptyIsValue  trait = 1 << iota // an empty text is a value like others
	emptyIsNull                     // an empty text of what the API decides
	nilIsNull                       // of a list: [] is not the same as none
	alwaysThere                     // of a list: none is [], also where it is optional
	thereInData                     // of a list or map: none is an empty one in the data source
	askedFor                        // the configuration of a data source must set it
	unlessMissing                   // of a block: it is null only if it was, and has its defaults
	asValue                         // of a block: the data source has it as one value, as the resource describes it
)

func (t trait) addTo(r *row) { r.traits |= t }

func (r *row) has(t trait) bool { return r.traits&t != 0 }

// form is how the values of an attribute look.
type form interface {
	kind(r *row, data bool) attr.Type
	resource(r *row) schema.Attribute
	dataSource(r *row) dataschema.Attribute
	// expand sets the field in what of points to, from a value whose pointer is at.
	expand(e *expander, r *row, at string, v attr.Value, of any)
	// flatten returns the value of the field. prior is the one that it replaces; nil: none.
	flatten(f *flattener, r *row, of any, prior attr.Value) attr.Value
}

// option is what else there is to say of an attribute.
type option interface{ addTo(*row) }

type optionFunc func(*row)

func (o optionFunc) addTo(r *row) { o(r) }

// token names an attribute that the API calls otherwise.
func token(name string) option { return optionFunc(func(r *row) { r.token = name }) }

// shownAs describes an attribute in the data source.
func shownAs(text string) option { return optionFunc(func(r *row) { r.data = text }) }

// decides names what cannot be judged while the attribute is unknown; hides what is then unknown, too.
func decides(at ...string) option { return optionFunc(func(r *row) { r.decides = at }) }
func hides(at ...string) option   { return optionFunc(func(r *row) { r.hides = at }) }

// advice is what follows "is not a whole number" in the problem with a number that is none, and its code.
func advice(code, text string) option {
	return optionFunc(func(r *row) { r.bad = input.Problem{Code: code, Message: text} })
}

// notZero is the problem with a number or duration that is zero, which the API takes for "left out".
func notZero(code, text string) option {
	return optionFunc(func(r *row) { r.zero = input.Problem{Code: code, Message: text} })
}

// planModifiers are those of the framework.
func planModifiers(modifiers ...planmodifier.String) option {
	return optionFunc(func(r *row) { r.modifiers = append(r.modifiers, modifiers...) })
}

// ifEmpty is the problem with an empty text.
func ifEmpty(code, text string) option {
	return optionFunc(func(r *row) { r.noText = input.Problem{Code: code, Message: text} })
}

// rowPart is one or several rows, or a rule about them.
type rowPart interface{ addTo(rows *rows) }

// rule is what no row can say: it judges the attributes of an object together, once they are expanded.
type rule func(e *expander, at string, v values, of any)

func (r rule) addTo(to *rows) { to.rules = append(to.rules, r) }

func (r *row) addTo(to *rows) { to.list = append(to.list, r) }

// rowList are rows that several tables have.
type rowList []rowPart

func (l rowList) addTo(to *rows) {
	for _, part := range l {
		part.addTo(to)
	}
}

// within makes rows of a part of P from those that are of Q.
func within[P, Q any](part func(P) Q, of ...rowPart) rowPart {
	var inner rows
	rowList(of).addTo(&inner)
	lift := func(of any) any { return part(of.(P)) }
	var lifted rowList
	for _, r := range inner.list {
		copied, before := *r, r.inside
		copied.inside = lift
		if before != nil {
			copied.inside = func(of any) any { return before(lift(of)) }
		}
		lifted = append(lifted, &copied)
	}
	for _, judge := range inner.rules {
		lifted = append(lifted, rule(func(e *expander, at string, v values, of any) { judge(e, at, v, lift(of)) }))
	}
	return lifted
}

// rows are the attributes of a type of the domain.
type rows struct {
	list     []*row
	rules    []rule
	make     func() any       // a new value with its defaults
	assign   func(to, of any) // of is what make returned
	of, data types.ObjectType // in the resource, and in the data source
}

// fresh returns a value with the defaults of the domain.
func fresh[T any]() *T {
	v := new(T)
	if d, is := any(v).(interface{ SetDefaults() }); is {
		d.SetDefaults()
	}
	return v
}

// rowsOf returns the table of T, whose values begin as fresh ones.
func rowsOf[T any](fresh func() *T, parts ...rowPart) *rows {
	all := &rows{
		make:   func() any { return fresh() },
		assign: func(to, of any) { *to.(*T) = *of.(*T) },
	}
	rowList(parts).addTo(all)
	return all.complete()
}

// complete fills in what follows from the rows.
func (all *rows) complete() *rows {
	all.of, all.data = types.ObjectType{AttrTypes: map[string]attr.Type{}}, types.ObjectType{AttrTypes: map[string]attr.Type{}}
	start := all.make()
	for _, r := range all.list {
		if r.text != "" {
			all.of.AttrTypes[r.name] = r.form.kind(r, false)
		}
		if r.data != "" {
			all.data.AttrTypes[r.name] = r.form.kind(r, true)
		}
		if r.presence == standard || r.presence == optional {
			r.leftOut = r.form.flatten(&flattener{diags: &diag.Diagnostics{}}, r, r.in(start), nil)
		}
	}
	return all
}

// in returns the part of a value that the form of a row knows.
func (r *row) in(of any) any {
	if r.inside != nil {
		return r.inside(of)
	}
	return of
}

// placed is an attribute in its table.
type placed struct {
	name, token   string
	isMap, isList bool
	isInput       bool // the resource has it
}

// walk visits the rows of a table and of those that it is made of.
func (all *rows) walk(visit func(in *rows, a placed)) {
	for _, r := range all.list {
		a := placed{name: r.name, token: r.token, isInput: r.text != ""}
		var inner *rows
		switch form := r.form.(type) {
		case mapForm:
			a.isMap = true
		case listForm:
			a.isList = true
		case blocksForm:
			a.isMap, a.isList, inner = form.keyed, !form.keyed, form.rows
		case blockForm:
			inner = form.rows
		}
		if visit(all, a); inner != nil {
			inner.walk(visit)
		}
	}
}

// attributes returns those of the resource.
func (all *rows) attributes() map[string]schema.Attribute {
	attributes := map[string]schema.Attribute{}
	for _, r := range all.list {
		if r.text != "" {
			attributes[r.name] = r.form.resource(r)
		}
	}
	return attributes
}

// dataAttributes returns those of the data source.
func (all *rows) dataAttributes() map[string]dataschema.Attribute {
	attributes := map[string]dataschema.Attribute{}
	for _, r := range all.list {
		if r.data != "" {
			attributes[r.name] = r.form.dataSource(r)
		}
	}
	return attributes
}

// expand sets what of points to from the attributes of an object, whose pointer is at.
func (all *rows) expand(e *expander, at string, v values, of any) {
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
			e.incomplete = append(e.incomplete, pointersBelow(at, r.decides)...)
			e.unknown = append(e.unknown, pointersBelow(at, r.hides)...)
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
func (f *flattener) of(r *row) *flattener {
	if f.data && r.has(asValue) {
		return &flattener{f.diags, false, true}
	}
	return f
}

// flattened returns the attributes of what of points to. An empty map or list and none are the same on the wire, so they keep the
// form that the user wrote, which is in prior.
func (all *rows) flattened(f *flattener, of any, prior values) values {
	attributes := make(values, len(all.list))
	for _, r := range all.list {
		if f.data && r.data != "" || !f.data && r.text != "" {
			attributes[r.name] = r.form.flatten(f, r, r.in(of), prior[r.name])
		}
	}
	return attributes
}

// shown returns the attributes of a data source.
func (all *rows) shown(diags *diag.Diagnostics, of any) values {
	return all.flattened(&flattener{diags, true, true}, of, nil)
}

// flatten returns the attributes of a resource; prior are those that they replace.
func (all *rows) flatten(diags *diag.Diagnostics, of any, prior values) values {
	return all.flattened(&flattener{diags: diags}, of, prior)
}

// null returns the object of a resource that is not there.
func (all *rows) null() types.Object { return types.ObjectNull(all.of.AttrTypes) }

// objectOf returns attributes of a resource as an object.
func (all *rows) objectOf(v values) types.Object { return types.ObjectValueMust(all.of.AttrTypes, v) }

// shownObject returns an object of a data source.
func (all *rows) shownObject(diags *diag.Diagnostics, of any) types.Object {
	return all.object(&flattener{diags, true, true}, of, nil)
}

// fresh returns a new value with its defaults.
func (all *rows) fresh() any { return all.make() }

// kind returns the type of objects with the rows.
func (all *rows) kind(data bool) types.ObjectType {
	if data {
		return all.data
	}
	return all.of
}

// object is flatten for a nested object. Without a value it is null.
func (all *rows) object(f *flattener, of any, prior attr.Value) types.Object {
	kind := all.kind(f.data)
	if of == nil {
		return types.ObjectNull(kind.AttrTypes)
	}
	object, found := types.ObjectValue(kind.AttrTypes, all.flattened(f, of, valuesIn(prior)))
	f.diags.Append(found...)
	return object
}

// values are the attributes of an object by their names.
type values map[string]attr.Value

// valuesIn returns the attributes of an object; none if it is null, unknown or missing.
func valuesIn(v attr.Value) values {
	object, _ := v.(types.Object)
	return object.Attributes()
}

// text returns an attribute that is a text, null if there is none.
func (v values) text(name string) types.String { return textOf(v[name]) }

func textOf(v attr.Value) types.String {
	switch v := v.(type) {
	case types.String:
		return v
	case interface{ asText() basetypes.StringValue }:
		return v.asText()
	}
	return types.StringNull()
}

func (v values) number(name string) types.Number { n, _ := v[name].(types.Number); return n }
func (v values) object(name string) types.Object { o, _ := v[name].(types.Object); return o }
func (v values) list(name string) types.List     { l, _ := v[name].(types.List); return l }
func (v values) mapOf(name string) types.Map     { m, _ := v[name].(types.Map); return m }
func (v values) revision() types.Int64           { n, _ := v["revision"].(types.Int64); return n }

// with returns a copy in which an attribute has another value.
func (v values) with(name string, value attr.Value) values {
	changed := maps.Clone(v)
	changed[name] = value
	return changed
}

// described returns the description of an attribute with its default.
func (r *row) described(value string) string {
	if r.presence != standard || value == "" {
		return r.text
	}
	return r.text + " Default: `" + value + "`."
}

func (r *row) isOptional() bool {
	return r.presence == optional || r.presence == standard || r.presence == decided
}
func (r *row) isComputed() bool {
	return r.presence == standard || r.presence == decided || r.presence == computed
}

// planForm is the form of an attribute that only Terraform needs: what a plan or state has stays as it is.
type planForm struct{ form }

func (p planForm) expand(*expander, *row, string, attr.Value, any) {}

func (p planForm) flatten(f *flattener, r *row, _ any, prior attr.Value) attr.Value {
	if prior == nil {
		return nullOf(p.kind(r, f.data))
	}
	return prior
}

// nullOf returns the null of a type.
func nullOf(kind attr.Type) attr.Value {
	ctx := context.Background()
	null, err := kind.ValueFromTerraform(ctx, tftypes.NewValue(kind.TerraformType(ctx), nil))
	if err != nil {
		return types.DynamicNull() // no type has a null that is wrong
	}
	return null
}

// keptRow is a text that only Terraform needs: what a plan or state has stays as it is.
func keptRow(name, text string) *row { return newRow(name, optional, text, planForm{textForm{}}, nil) }

// laterRow is a block of a data source that another request fills in; it is null until then.
func laterRow(name string, rows *rows, text string) *row {
	return newRow(name, inData, text, planForm{blockForm{rows: rows}}, nil)
}

// newRow returns a row to which the options apply.
func newRow(name string, of presence, text string, form form, options []option) *row {
	r := &row{name: name, token: name, presence: of, text: text, form: form}
	if of == inData {
		r.presence, r.text, r.data = computed, "", text
	}
	for _, o := range options {
		o.addTo(r)
	}
	r.noText.Code = cmp.Or(r.noText.Code, input.CodeRequired)
	r.noText.Message = cmp.Or(r.noText.Message, "text is empty; leave it out for the default")
	return r
}
