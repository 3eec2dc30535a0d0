package binding

import (
	"cmp"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// textForm is the form of texts, and of other values written as text.
type textForm struct {
	get      func(any) (text string, zero bool)
	set      func(any, string) error // sets the field even if it returns an error
	likeness                         // of texts with several spellings
	isText   bool                    // and no other value
	getData  func(any) string        // in a data source; nil means get
}

// likeness is a type of texts that are compared by meaning.
type likeness struct {
	of   basetypes.StringTypable
	wrap func(basetypes.StringValue) attr.Value
	keep planmodifier.String
}

func alike[E equivalence]() likeness {
	return likeness{SemanticType[E]{}, func(v basetypes.StringValue) attr.Value { return SemanticString[E]{v} }, keepEquivalent[E]{}}
}

// Text is a text.
func Text[P any, S ~string](name string, field func(P) *S, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, textForm{
		get:    func(of any) (string, bool) { s := string(*field(of.(P))); return s, s == "" },
		set:    func(of any, s string) error { *field(of.(P)) = S(s); return nil },
		isText: true,
	}, options)
}

// Shown is a computed text.
func Shown[P any](name string, text func(P) string, of Presence, description string, options ...Option) *Row {
	return newRow(name, of, description, textForm{
		get: func(of any) (string, bool) { s := text(of.(P)); return s, s == "" },
	}, options)
}

// Duration is a duration.
func Duration[P any](name string, field func(P) *input.Duration, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, textForm{
		get: func(of any) (string, bool) { d := *field(of.(P)); return FormatDuration(d), d == 0 },
		set: func(of any, s string) (err error) { *field(of.(P)), err = input.ParseDuration(s); return err },

		likeness: alike[DurationText](),
	}, options)
}

// Instant is an optional point in time.
func Instant[P any](name string, field func(P) **time.Time, of Presence, text string, options ...Option) *Row {
	format := func(layout string) func(any) (string, bool) {
		return func(of any) (string, bool) {
			t := *field(of.(P))
			if t == nil {
				return "", true
			}
			return t.UTC().Format(layout), false
		}
	}
	seconds := format(time.RFC3339)
	return newRow(name, of, text, textForm{
		get:     format(time.RFC3339Nano),
		getData: func(of any) string { s, _ := seconds(of); return s },
		set: func(of any, s string) error {
			*field(of.(P)) = nil
			t, err := input.ParseInstant(s)
			if err == nil {
				*field(of.(P)) = &t
			}
			return err
		},
		likeness: alike[InstantText](),
	}, options)
}

// JSON is a document.
func JSON[P any, B ~[]byte](name string, field func(P) *B, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, textForm{
		get:      func(of any) (string, bool) { b := *field(of.(P)); return string(b), len(b) == 0 },
		set:      func(of any, s string) error { *field(of.(P)) = B(s); return nil },
		likeness: alike[DocumentText](), isText: true,
	}, options)
}

func (t textForm) kind(*Row, bool) attr.Type {
	if t.of != nil {
		return t.of
	}
	return types.StringType
}

func (t textForm) value(v basetypes.StringValue) attr.Value {
	if t.wrap != nil {
		return t.wrap(v)
	}
	return v
}

func (t textForm) resource(r *Row) schema.Attribute {
	a := schema.StringAttribute{
		Required: r.Presence == Required, Optional: r.isOptional(), Computed: r.isComputed(), CustomType: t.of,
		PlanModifiers: r.modifiers, MarkdownDescription: r.text,
	}
	if t.keep != nil {
		a.PlanModifiers = append(a.PlanModifiers, t.keep)
	}
	if r.Presence == Default {
		text := textOf(r.leftOut).ValueString()
		a.Default, a.MarkdownDescription = stringdefault.StaticString(text), r.described(text)
	}
	return a
}

func (t textForm) dataSource(r *Row) dataschema.Attribute {
	return dataschema.StringAttribute{
		Required: r.has(AskedFor), Computed: !r.has(AskedFor), CustomType: t.of, MarkdownDescription: r.data,
	}
}

func (t textForm) expand(e *Expander, r *Row, at string, v attr.Value, of any) {
	text := textOf(v)
	switch {
	case r.Presence == Computed:
		return
	case text.IsNull():
		if r.Presence == Required {
			e.Unknown = append(e.Unknown, at) // already reported by the framework
		}
		return
	case e.markUnknown(at, text):
		if t.isText && !r.has(EmptyIsValue) {
			_ = t.set(of, "")
		}
		return
	}
	if err := t.set(of, text.ValueString()); err != nil {
		e.Problems.AddError(at, err)
		return
	}
	_, zero := t.get(of)
	switch {
	case !zero || r.Presence == Required:
	case t.isText && !r.has(EmptyIsValue):
		e.Problems.Add(at, r.noText.Code, "%s", r.noText.Message)
	case r.zero.Code != "":
		e.Problems.Add(at, r.zero.Code, "%s", r.zero.Message)
	}
}

func (t textForm) flatten(f *flattener, r *Row, of any, _ attr.Value) attr.Value {
	text, zero := t.get(of)
	if f.data && t.getData != nil && !zero {
		text = t.getData(of)
	}
	switch {
	case !zero:
	case r.Presence == Default && r.leftOut != nil:
		return r.leftOut
	case r.Presence == Optional || r.Presence == Resolved || r.has(EmptyIsNull) || t.getData != nil:
		return t.value(types.StringNull())
	}
	return t.value(types.StringValue(text))
}

// boolForm is the form of booleans.
type boolForm struct{ field func(any) *bool }

// Bool is a boolean.
func Bool[P any](name string, field func(P) *bool, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, boolForm{func(of any) *bool { return field(of.(P)) }}, options)
}

func (boolForm) kind(*Row, bool) attr.Type { return types.BoolType }

func (boolForm) resource(r *Row) schema.Attribute {
	a := schema.BoolAttribute{
		Required: r.Presence == Required, Optional: r.isOptional(), Computed: r.isComputed(), MarkdownDescription: r.text,
	}
	if r.Presence == Default {
		value := r.leftOut.(types.Bool).ValueBool()
		a.Default, a.MarkdownDescription = booldefault.StaticBool(value), r.described(strconv.FormatBool(value))
	}
	return a
}

func (boolForm) dataSource(r *Row) dataschema.Attribute {
	return dataschema.BoolAttribute{Computed: true, MarkdownDescription: r.data}
}

func (b boolForm) expand(e *Expander, r *Row, at string, v attr.Value, of any) {
	if value, _ := v.(types.Bool); r.Presence != Computed && !e.markUnknown(at, v) && !v.IsNull() {
		*b.field(of) = value.ValueBool()
	}
}

// flatten returns null for false if the attribute is optional and not configured.
func (b boolForm) flatten(f *flattener, r *Row, of any, prior attr.Value) attr.Value {
	value := *b.field(of)
	if r.Presence == Optional && !value && !f.all && (prior == nil || prior.IsNull()) {
		return types.BoolNull()
	}
	return types.BoolValue(value)
}

// wholeForm is the form of whole numbers. The schema declares numbers instead of integers because
// the framework's own message about a fraction names neither the attribute nor the rule.
type wholeForm struct {
	get func(any) int
	set func(any, int)
}

// Whole is a whole number.
func Whole[P any, N ~int | ~int64](name string, field func(P) *N, of Presence, text string, options ...Option) *Row {
	return newRow(name, of, text, wholeForm{
		get: func(of any) int { return int(*field(of.(P))) },
		set: func(of any, n int) { *field(of.(P)) = N(n) },
	}, options)
}

func (wholeForm) kind(*Row, bool) attr.Type { return types.NumberType }

func (wholeForm) resource(r *Row) schema.Attribute {
	a := schema.NumberAttribute{
		Required: r.Presence == Required, Optional: r.isOptional(), Computed: r.isComputed(), MarkdownDescription: r.text,
	}
	if r.Presence == Default {
		value := r.leftOut.(types.Number).ValueBigFloat()
		a.Default, a.MarkdownDescription = numberdefault.StaticBigFloat(value), r.described(value.Text('f', 0))
	}
	return a
}

func (wholeForm) dataSource(r *Row) dataschema.Attribute {
	return dataschema.NumberAttribute{Computed: true, MarkdownDescription: r.data}
}

func (w wholeForm) expand(e *Expander, r *Row, at string, v attr.Value, of any) {
	value, _ := v.(types.Number)
	if r.Presence == Computed || e.markUnknown(at, value) || value.IsNull() {
		return
	}
	n, whole := e.wholeNumber(at, value, r.bad)
	w.set(of, n)
	if n == 0 && whole && r.zero.Code != "" {
		e.Problems.Add(at, r.zero.Code, "%s", r.zero.Message)
	}
}

// wholeNumber adds a problem if a number is not whole.
func (e *Expander) wholeNumber(at string, v types.Number, bad input.Problem) (n int, whole bool) {
	number, accuracy := v.ValueBigFloat().Int64()
	if accuracy != big.Exact {
		e.Problems.Add(at, cmp.Or(bad.Code, input.CodeCountRange), "%s is not a whole number; %s", v.ValueBigFloat().Text('g', 10),
			cmp.Or(bad.Message, "give a whole number"))
	}
	return int(number), accuracy == big.Exact
}

func (w wholeForm) flatten(_ *flattener, r *Row, of any, _ attr.Value) attr.Value {
	n := w.get(of)
	switch {
	case n != 0:
	case r.Presence == Default && r.leftOut != nil:
		return r.leftOut
	case r.Presence == Optional || r.has(EmptyIsNull):
		return types.NumberNull()
	}
	return FlattenNumber(n)
}

// shownForm is the form of values that only the API sets, with its own type.
type shownForm struct {
	of  attr.Type
	get func(any) attr.Value
}

// Value shows a value of a type.
func Value[P any](name string, kind attr.Type, value func(P) attr.Value, of Presence, text string) *Row {
	return newRow(name, of, text, shownForm{kind, func(of any) attr.Value { return value(of.(P)) }}, nil)
}

// Counter is a number that the API increases.
func Counter[P any](name string, field func(P) *int64, text string, options ...Option) *Row {
	value := func(of any) attr.Value { return types.Int64Value(*field(of.(P))) }
	return newRow(name, Computed, text, shownForm{types.Int64Type, value}, options)
}

func (s shownForm) kind(*Row, bool) attr.Type { return s.of }

func (s shownForm) resource(r *Row) schema.Attribute {
	if of, is := s.of.(types.MapType); is {
		return schema.MapAttribute{Computed: true, ElementType: of.ElemType, MarkdownDescription: r.text}
	}
	return schema.Int64Attribute{Computed: true, MarkdownDescription: r.text}
}

func (s shownForm) dataSource(r *Row) dataschema.Attribute {
	switch of := s.of.(type) {
	case types.MapType:
		return dataschema.MapAttribute{Computed: true, ElementType: of.ElemType, MarkdownDescription: r.data}
	case basetypes.Int64Type:
		return dataschema.Int64Attribute{Computed: true, MarkdownDescription: r.data}
	}
	return dataschema.Float64Attribute{Computed: true, MarkdownDescription: r.data}
}

func (shownForm) expand(*Expander, *Row, string, attr.Value, any) {}

func (s shownForm) flatten(_ *flattener, _ *Row, of any, _ attr.Value) attr.Value { return s.get(of) }

// OrNull turns the empty string, which the domain takes for "left out", into null.
func OrNull[S ~string](value S) types.String {
	if value == "" {
		return types.StringNull()
	}
	return types.StringValue(string(value))
}

// FlattenNumber returns a number of Terraform.
func FlattenNumber(n int) types.Number { return types.NumberValue(big.NewFloat(float64(n))) }

// TextMap returns texts in the form that the user wrote, which is in prior, the value of the plan
// or state: an empty and a missing map look the same in JSON.
func TextMap(diags *diag.Diagnostics, texts map[string]string, prior types.Map) types.Map {
	if len(texts) == 0 && (prior.IsNull() || prior.IsUnknown() || len(prior.Elements()) > 0) {
		return types.MapNull(types.StringType)
	}
	elements := make(map[string]attr.Value, len(texts))
	for name, text := range texts {
		elements[name] = types.StringValue(text)
	}
	m, found := types.MapValue(types.StringType, elements)
	diags.Append(found...)
	return m
}

// Secrets are the rows of each secret.
var Secrets = Of(Fresh[target.Secret],
	Text("reference", func(s *target.Secret) *string { return &s.Reference }, Optional, "Where each node finds the secret when it makes a "+
		"call: `env:NAME` for an environment variable whose name begins with `"+target.SecretEnvPrefix+"`, `file:PATH` for a file below the "+
		"directory of `carillon serve --secret-dir`, `awssm:NAME` for AWS Secrets Manager, `ssm:NAME` for AWS Parameter Store, or "+
		"`vault:PATH#KEY` for HashiCorp Vault. The last three take `#KEY` for a key of a secret that is JSON, and then `@VERSION`. "+
		"Default: `value` holds the secret.", Hides("")), // one of the two is required, and either may be null
	newRow("value", Optional, "The secret itself. Carillon stores it encrypted and never returns it. Plan and state do not contain it, so "+
		"Terraform cannot see a change: change `value_version` together with it. Needs Terraform 1.11. Default: `reference` says where the "+
		"secret is. If that is missing too, as in the configuration of an imported job, the stored value stays.",
		secretForm{}, []Option{Hides("")}),
	newRow("value_version", Optional, "Any text, such as a number. Terraform sends `value` when this changes. It must change when the "+
		"scheme, "+
		"host or port of the URL changes. Default: none, so `value` is sent once.", versionForm{planForm{textForm{}}}, nil),
)

// secretForm is the form of a secret's value. It is write-only: Terraform keeps it in neither plan
// nor state, so only the configuration has it.
type secretForm struct{}

func (secretForm) kind(*Row, bool) attr.Type { return types.StringType }

func (secretForm) resource(r *Row) schema.Attribute {
	return schema.StringAttribute{Optional: true, WriteOnly: true, Sensitive: true, MarkdownDescription: r.text}
}

func (secretForm) dataSource(*Row) dataschema.Attribute { return nil }

func (secretForm) expand(e *Expander, _ *Row, at string, v attr.Value, of any) {
	text := textOf(v)
	switch {
	case text.IsNull() || text.IsUnknown():
	case text.ValueString() == "":
		e.Problems.Add(at, input.CodeRequired, "the secret is empty; give its value, or refer to it by reference")
	default:
		of.(*target.Secret).Value = input.NewSensitive(text.ValueString())
	}
}

func (secretForm) flatten(*flattener, *Row, any, attr.Value) attr.Value { return types.StringNull() }

// versionForm is the form of value_version, which the API does not know.
type versionForm struct{ planForm }

func (versionForm) expand(e *Expander, _ *Row, at string, v attr.Value, _ any) {
	if e.Versions == nil {
		e.Versions = map[string]types.String{}
	}
	e.Versions[at[:strings.LastIndexByte(at, '/')]] = textOf(v) // by the pointer of the secret
}
