package binding

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// listForm is the form of lists of texts, numbers or durations.
type listForm struct {
	element attr.Type
	get     func(any) (elements []attr.Value, missing bool)
	// set resizes the list to count elements and sets each of them to the result of one.
	set func(of any, count int, one func(i int) (text string, n int))
	// keep are the plan modifiers of lists with equivalent elements; keeps reports whether two elements are equivalent.
	keep  []planmodifier.List
	keeps func(a, b string) bool
	parse func(e *Expander, at, text string) int // nil if the text is the value
}

// listOf returns the form of a list. show formats an element, and read parses a text or takes a number.
func listOf[P, E any](element attr.Type, field func(P) *[]E, show func(E) attr.Value, read func(string, int) E) listForm {
	return listForm{
		element: element,
		get: func(of any) ([]attr.Value, bool) {
			all := *field(of.(P))
			elements := make([]attr.Value, len(all))
			for i, one := range all {
				elements[i] = show(one)
			}
			return elements, all == nil
		},
		set: func(of any, count int, one func(int) (string, int)) {
			all := make([]E, count)
			for i := range all {
				all[i] = read(one(i))
			}
			*field(of.(P)) = all
		},
	}
}

// Texts is a list of texts.
func Texts[P any, S ~string](name string, field func(P) *[]S, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, listOf(types.StringType, field,
		func(s S) attr.Value { return types.StringValue(string(s)) }, func(s string, _ int) S { return S(s) }), options)
}

// Wholes is a list of whole numbers.
func Wholes[P any](name string, field func(P) *[]int, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, listOf(types.NumberType, field,
		func(n int) attr.Value { return FlattenNumber(n) }, func(_ string, n int) int { return n }), options)
}

// Durations is a list of durations.
func Durations[P any](name string, field func(P) *[]input.Duration, of Presence, text string, options ...Option) *Row {
	form := listOf(types.StringType, field, func(d input.Duration) attr.Value { return types.StringValue(FormatDuration(d)) },
		func(_ string, n int) input.Duration { return input.Duration(n) })
	form.keep, form.keeps = []planmodifier.List{keepEquivalentDelays{}}, sameDuration
	form.parse = func(e *Expander, at, text string) int {
		d, err := input.ParseDuration(text)
		e.Problems.AddError(at, err)
		return int(d)
	}
	return newRow(name, of, text, form, options)
}

func (l listForm) kind(*Row, bool) attr.Type { return types.ListType{ElemType: l.element} }

func (l listForm) resource(r *Row) schema.Attribute {
	a := schema.ListAttribute{
		Required: r.Presence == Required, Optional: r.isOptional(), Computed: r.isComputed(), ElementType: l.element,
		MarkdownDescription: r.text, PlanModifiers: l.keep,
	}
	if r.Presence == Default {
		a.Default = listdefault.StaticValue(types.ListValueMust(l.element, []attr.Value{}))
	}
	return a
}

func (l listForm) dataSource(r *Row) dataschema.Attribute {
	return dataschema.ListAttribute{Computed: true, ElementType: l.element, MarkdownDescription: r.data}
}

// expand leaves the field alone if the list is null or unknown. [] may differ from nil, which means the default.
func (l listForm) expand(e *Expander, r *Row, at string, v attr.Value, of any) {
	list, _ := v.(types.List)
	if r.Presence == Computed || e.markUnknown(at, list) || list.IsNull() {
		return
	}
	elements := list.Elements()
	l.set(of, len(elements), func(i int) (text string, n int) {
		at := at + "/" + strconv.Itoa(i)
		e.rejectNull(at, elements[i])
		if e.markUnknown(at, elements[i]) || elements[i].IsNull() && l.parse == nil {
			return "", 0
		}
		if number, is := elements[i].(types.Number); is {
			n, _ = e.wholeNumber(at, number, r.bad)
			return "", n
		}
		if text = textOf(elements[i]).ValueString(); l.parse != nil && !elements[i].IsNull() {
			n = l.parse(e, at, text)
		}
		return text, n
	})
}

func (l listForm) flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value {
	elements, missing := l.get(of)
	before, _ := prior.(types.List)
	none := before.IsNull() || before.IsUnknown()
	switch {
	case r.has(NilIsNull):
		if missing {
			return types.ListNull(l.element)
		}
	case f.data && r.has(ThereInData):
	case len(elements) == 0 && r.Presence == Optional && (none || len(before.Elements()) > 0):
		return types.ListNull(l.element)
	case l.keeps != nil && !none && slices.EqualFunc(before.Elements(), elements, func(a, b attr.Value) bool {
		return l.keeps(textOf(a).ValueString(), textOf(b).ValueString())
	}):
		return before
	}
	list, found := types.ListValue(l.element, elements)
	f.diags.Append(found...)
	return list
}

// mapForm is the form of maps of texts.
type mapForm struct {
	get func(any) map[string]string
	set func(any, map[string]string)
}

// Map is a map of texts.
func Map[P any, M ~map[string]string](name string, field func(P) *M, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, mapForm{
		get: func(of any) map[string]string { return *field(of.(P)) },
		set: func(of any, all map[string]string) { *field(of.(P)) = all },
	}, options)
}

func (mapForm) kind(*Row, bool) attr.Type { return types.MapType{ElemType: types.StringType} }

func (mapForm) resource(r *Row) schema.Attribute {
	return schema.MapAttribute{
		Optional: r.isOptional(), Computed: r.isComputed(), ElementType: types.StringType, MarkdownDescription: r.text,
	}
}

func (mapForm) dataSource(r *Row) dataschema.Attribute {
	return dataschema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: r.data}
}

// expand leaves the field alone if the map is null or unknown.
func (m mapForm) expand(e *Expander, r *Row, at string, v attr.Value, of any) {
	if given, _ := v.(types.Map); r.Presence != Computed {
		if all := e.StringMap(at, given); all != nil {
			m.set(of, all)
		}
	}
}

func (m mapForm) flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value {
	before, _ := prior.(types.Map)
	if f.data && r.has(ThereInData) {
		before = types.MapValueMust(types.StringType, map[string]attr.Value{})
	}
	return TextMap(f.diags, m.get(of), before)
}

// blockForm is the form of a block, which may be missing.
type blockForm struct {
	rows *Rows
	get  func(any) any // nil if it is missing
	set  func(of, block any)
}

// Nest describes nested blocks: their field in P, and their rows.
type Nest[P, Q any] struct {
	field func(P) Q
	rows  *Rows
}

// Nested returns a Nest of the field and the rows.
func Nested[P, Q any](field func(P) Q, rows *Rows) Nest[P, Q] { return Nest[P, Q]{field, rows} }

// Block is a block that the domain has as a pointer Q.
func Block[P any, Q comparable](name string, in Nest[P, *Q], of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, blockForm{
		rows: in.rows,
		get: func(of any) any {
			var missing Q
			if block := *in.field(of.(P)); block != missing {
				return block
			}
			return nil
		},
		set: func(of, block any) { *in.field(of.(P)) = block.(Q) },
	}, options)
}

// Part is a block that the domain has as a value. If it is left out, the default of the surrounding value stays.
func Part[P, Q any](name string, in Nest[P, Q], of Presence, text string, options ...Option) *Row {
	part := func(of any) any { return in.field(of.(P)) }
	return newRow(name, of, text, blockForm{
		rows: in.rows, get: part, set: func(of, block any) { in.rows.assign(part(of), block) },
	}, append(options, unlessMissing))
}

func (b blockForm) kind(r *Row, data bool) attr.Type { return b.rows.kind(data && !r.has(AsValue)) }

func (b blockForm) resource(r *Row) schema.Attribute {
	return schema.SingleNestedAttribute{
		Required: r.Presence == Required, Optional: r.isOptional(), MarkdownDescription: r.text, Attributes: b.rows.Attributes(),
	}
}

func (b blockForm) dataSource(r *Row) dataschema.Attribute {
	if r.has(AsValue) {
		return dataschema.ObjectAttribute{Computed: true, MarkdownDescription: r.data, AttributeTypes: b.rows.Type.AttrTypes}
	}
	return dataschema.SingleNestedAttribute{
		Computed: true, MarkdownDescription: r.data, CustomType: b.rows.data, Attributes: b.rows.DataAttributes(),
	}
}

func (b blockForm) expand(e *Expander, _ *Row, at string, v attr.Value, of any) {
	if !e.markUnknown(at, v) && !v.IsNull() {
		block := b.rows.make()
		b.rows.Expand(e, at, In(v), block)
		b.set(of, block)
	}
}

// flatten returns null for a part with its defaults if prior has no such block: a plan cannot add a
// block that the configuration leaves out.
func (b blockForm) flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value {
	object := b.rows.object(f.of(r), b.get(of), prior)
	if r.has(unlessMissing) && !f.all && r.Presence == Optional && r.leftOut != nil && (prior == nil || prior.IsNull()) &&
		object.Equal(r.leftOut) {
		return types.ObjectNull(b.rows.Type.AttrTypes)
	}
	return object
}

// blocksForm is the form of repeated blocks: in Terraform a list, and in the domain a map if they have names.
type blocksForm struct {
	rows  *Rows
	named bool
	key   string // the description of the name
	each  func(of any, do func(key string, block any))
	// empty sets the field to an empty map or list; add adds a block.
	empty func(of any)
	add   func(of any, key string, block any)
}

// Named are blocks with an attribute name, which is their key in the domain. Their order has no meaning. For Terraform
// they are a list, but among Values they are a map by name: protocol.Table converts between the two.
func Named[P, B any](name string, in Nest[P, *map[string]B], of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, blocksForm{
		rows: in.rows, named: true,
		each: func(of any, do func(string, any)) {
			for key, block := range *in.field(of.(P)) {
				do(key, &block)
			}
		},
		empty: func(of any) { *in.field(of.(P)) = map[string]B{} },
		add:   func(of any, key string, block any) { (*in.field(of.(P)))[key] = *block.(*B) },
	}, options)
}

// Key describes the name of named blocks.
func Key(text string) Option {
	return optionFunc(func(r *Row) {
		blocks := r.form.(blocksForm)
		blocks.key = text + ": " + NameRule + "."
		r.form = blocks
	})
}

// UnknownName is the key of a block whose name is unknown; i tells it from others. No name in Terraform has this form,
// because it is no UTF-8.
func UnknownName(i int) string { return notUTF8 + strconv.Itoa(i) }

// IsUnknownName reports whether a key is of UnknownName.
func IsUnknownName(key string) bool { return strings.HasPrefix(key, notUTF8) }

const notUTF8 = "\xff"

// Blocks are blocks in a significant order.
func Blocks[P, B any](name string, in Nest[P, *[]B], of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, blocksForm{
		rows: in.rows,
		each: func(of any, do func(string, any)) {
			for i := range *in.field(of.(P)) {
				do("", &(*in.field(of.(P)))[i])
			}
		},
		empty: func(any) {},
		add: func(of any, _ string, block any) {
			all := in.field(of.(P))
			*all = append(*all, *block.(*B))
		},
	}, options)
}

func (b blocksForm) kind(r *Row, data bool) attr.Type {
	kind := b.rows.kind(data && !r.has(AsValue))
	if b.named {
		return types.MapType{ElemType: kind}
	}
	return types.ListType{ElemType: kind}
}

func (b blocksForm) resource(r *Row) schema.Attribute {
	attributes := b.rows.Attributes()
	if b.named {
		attributes["name"] = schema.StringAttribute{Required: true, MarkdownDescription: b.key}
	}
	return schema.ListNestedAttribute{
		Optional: true, MarkdownDescription: r.text, NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

func (b blocksForm) dataSource(r *Row) dataschema.Attribute {
	if r.has(AsValue) {
		return dataschema.ListAttribute{Computed: true, MarkdownDescription: r.data, ElementType: b.rows.Type}
	}
	block := dataschema.NestedAttributeObject{CustomType: b.rows.data, Attributes: b.rows.DataAttributes()}
	if b.named {
		return dataschema.MapNestedAttribute{Computed: true, MarkdownDescription: r.data, NestedObject: block}
	}
	return dataschema.ListNestedAttribute{Computed: true, MarkdownDescription: r.data, NestedObject: block}
}

func (b blocksForm) expand(e *Expander, r *Row, at string, v attr.Value, of any) {
	if r.Presence == Computed || e.markUnknown(at, v) {
		return
	}
	b.empty(of)
	one := func(key, at string, v attr.Value) {
		block := b.rows.make()
		if !e.markUnknown(at, v) && !v.IsNull() {
			b.rows.Expand(e, at, In(v), block)
		}
		b.add(of, key, block)
	}
	if list, is := v.(types.List); is {
		for i, element := range list.Elements() {
			at := at + "/" + strconv.Itoa(i)
			e.rejectNull(at, element)
			one("", at, element)
		}
		return
	}
	given, _ := v.(types.Map)
	for key, element := range given.Elements() {
		if IsUnknownName(key) {
			e.Unknown = append(e.Unknown, at+input.Pointer(key))
			continue
		}
		one(key, at+input.Pointer(key), element)
	}
}

func (b blocksForm) flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value {
	f = f.of(r)
	kind := b.rows.kind(f.data)
	if b.named {
		was, _ := prior.(types.Map)
		before, blocks := was.Elements(), map[string]attr.Value{}
		b.each(of, func(key string, block any) { blocks[key] = b.rows.object(f, block, before[key]) })
		all, found := types.MapValue(kind, blocks)
		f.diags.Append(found...)
		return all
	}
	before, _ := prior.(types.List)
	old, blocks := before.Elements(), []attr.Value{}
	b.each(of, func(_ string, block any) {
		var was attr.Value
		if len(blocks) < len(old) {
			was = old[len(blocks)]
		}
		blocks = append(blocks, b.rows.object(f, block, was))
	})
	if len(blocks) == 0 && !r.has(AlwaysThere) && (before.IsNull() || before.IsUnknown() || len(old) > 0) {
		return types.ListNull(kind)
	}
	all, found := types.ListValue(kind, blocks)
	f.diags.Append(found...)
	return all
}
