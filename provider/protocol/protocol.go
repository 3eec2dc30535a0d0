// Package protocol converts between Terraform's protocol and a resource, like the framework, but without
// looking up the schema again for each attribute: it reads a schema once into a table, and uses that to plan,
// decode and encode values. It also adds blocks to schemas, which the framework does not support.
package protocol

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/carillon-dev/carillon/provider/binding"
)

// Table is the part of a schema that planning and validating need.
type Table struct {
	kind       types.ObjectType
	attributes map[string]*attribute
	// Unclear are the attributes with a default, validator or plan modifier that the table does not support.
	// If there are any, the table decodes nothing, so that the framework serves all requests.
	Unclear []string
}

// Of returns the table of a schema.
func Of(ctx context.Context, s schema.Schema) Table {
	t := Table{kind: s.Type().(types.ObjectType), attributes: attributesIn(ctx, s.Attributes)}
	t.Unclear = unclear("", t.attributes)
	return t
}

func unclear(at string, attributes map[string]*attribute) (all []string) {
	for name, a := range attributes {
		if a.unclear {
			all = append(all, at+name)
		}
		all = append(all, unclear(at+name+".", a.inner)...)
	}
	return all
}

// Complete reports whether a configuration sets everything that is required, or may still set it.
func (t Table) Complete(config binding.Values) bool { return complete(t.attributes, config) }

// Resolve completes a plan, in place: defaults, values of the API, and results of plan modifiers.
// prior is nil for a new object. It returns the attributes that force a replacement.
func (t Table) Resolve(ctx context.Context, config, plan, prior binding.Values) (replace path.Paths, diags diag.Diagnostics) {
	all := object{config, plan, prior}
	diags.Append(all.each(t.attributes, path.Empty(), filledIn)...)
	changes := prior == nil || !plan.Equal(prior)
	diags.Append(all.each(t.attributes, path.Empty(), resolved(ctx, changes, prior != nil, &replace))...)
	return replace, diags
}

// Decode returns the attributes of objects that are neither null nor unknown.
func (t Table) Decode(ctx context.Context, sources ...*tfprotov6.DynamicValue) (all []binding.Values, ok bool) {
	if len(t.Unclear) > 0 {
		return nil, false
	}
	for i, value := range sources {
		if value == nil || len(value.MsgPack) == 0 {
			return nil, false
		}
		if i > 0 && bytes.Equal(value.MsgPack, sources[i-1].MsgPack) {
			all = append(all, maps.Clone(all[i-1]))
			continue
		}
		object, err := decodeObject(ctx, t.kind, value.MsgPack)
		if err != nil || object.IsNull() || object.IsUnknown() {
			return nil, false
		}
		all = append(all, object.Attributes())
	}
	return all, true
}

// Encode returns the attributes of an object in Terraform's form.
func (t Table) Encode(ctx context.Context, v binding.Values) (*tfprotov6.DynamicValue, error) {
	object, diags := types.ObjectValue(t.kind.AttrTypes, v)
	if _, err := checked(object, diags); err != nil {
		return nil, err
	}
	return encodeObject(ctx, object)
}

// Settled returns the API's values of an object, but keeps each equivalent text of prior, such as
// 60s for 1m. If nothing differs, it returns source, from which prior was decoded.
func (t Table) Settled(
	ctx context.Context, source *tfprotov6.DynamicValue, prior, read binding.Values,
) (*tfprotov6.DynamicValue, error) {
	if _, err := settleEach(ctx, prior, read); err != nil {
		return nil, err
	}
	if read.Equal(prior) {
		return source, nil
	}
	return t.Encode(ctx, read)
}

// Null returns null as the protocol writes it.
func Null() *tfprotov6.DynamicValue { return &tfprotov6.DynamicValue{MsgPack: []byte{msgpcode.Nil}} }

// IsNull reports whether a value is null or missing.
func IsNull(value *tfprotov6.DynamicValue) bool {
	return value == nil || len(value.MsgPack) == 1 && value.MsgPack[0] == msgpcode.Nil
}

// Diagnostics converts diagnostics to those of the protocol, like the framework.
func Diagnostics(diags diag.Diagnostics) []*tfprotov6.Diagnostic {
	var all []*tfprotov6.Diagnostic
	for _, d := range diags {
		one := &tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityWarning, Summary: d.Summary(), Detail: d.Detail()}
		if d.Severity() == diag.SeverityError {
			one.Severity = tfprotov6.DiagnosticSeverityError
		}
		if at, ok := d.(diag.DiagnosticWithPath); ok {
			one.Attribute = pathOf(at.Path())
		}
		all = append(all, one)
	}
	return all
}

// Paths converts paths in the framework's order.
func Paths(paths path.Paths) []*tftypes.AttributePath {
	slices.SortFunc(paths, func(a, b path.Path) int { return strings.Compare(a.String(), b.String()) })
	var all []*tftypes.AttributePath
	for _, p := range paths {
		all = append(all, pathOf(p))
	}
	return all
}

// pathOf converts a path to that of the protocol. A job contains no sets, whose elements have no keys.
func pathOf(p path.Path) *tftypes.AttributePath {
	var steps []tftypes.AttributePathStep
	for _, step := range p.Steps() {
		switch step := step.(type) {
		case path.PathStepAttributeName:
			steps = append(steps, tftypes.AttributeName(string(step)))
		case path.PathStepElementKeyString:
			steps = append(steps, tftypes.ElementKeyString(string(step)))
		case path.PathStepElementKeyInt:
			steps = append(steps, tftypes.ElementKeyInt(int64(step)))
		}
	}
	return tftypes.NewAttributePathWithSteps(steps)
}

// WithBlocks returns a block where configurable nested attributes are blocks.
func WithBlocks(attributes []*tfprotov6.SchemaAttribute) *tfprotov6.SchemaBlock {
	block := &tfprotov6.SchemaBlock{}
	for _, a := range attributes {
		if a.NestedType == nil || !a.Required && !a.Optional {
			block.Attributes = append(block.Attributes, a)
			continue
		}
		inner := WithBlocks(a.NestedType.Attributes)
		inner.Description, inner.DescriptionKind = a.Description, a.DescriptionKind
		inner.Deprecated, inner.DeprecationMessage = a.Deprecated, a.DeprecationMessage
		nested := &tfprotov6.SchemaNestedBlock{TypeName: a.Name, Block: inner, Nesting: blockNesting(a.NestedType.Nesting)}
		if a.Required && nested.Nesting == tfprotov6.SchemaNestedBlockNestingModeSingle {
			nested.MinItems, nested.MaxItems = 1, 1
		}
		block.BlockTypes = append(block.BlockTypes, nested)
	}
	slices.SortFunc(block.BlockTypes, func(x, y *tfprotov6.SchemaNestedBlock) int { return strings.Compare(x.TypeName, y.TypeName) })
	return block
}

// blockNesting returns the nesting of blocks with values of the attribute's type.
func blockNesting(mode tfprotov6.SchemaObjectNestingMode) tfprotov6.SchemaNestedBlockNestingMode {
	return map[tfprotov6.SchemaObjectNestingMode]tfprotov6.SchemaNestedBlockNestingMode{
		tfprotov6.SchemaObjectNestingModeSingle: tfprotov6.SchemaNestedBlockNestingModeSingle,
		tfprotov6.SchemaObjectNestingModeList:   tfprotov6.SchemaNestedBlockNestingModeList,
		tfprotov6.SchemaObjectNestingModeSet:    tfprotov6.SchemaNestedBlockNestingModeSet,
		tfprotov6.SchemaObjectNestingModeMap:    tfprotov6.SchemaNestedBlockNestingModeMap,
	}[mode]
}
