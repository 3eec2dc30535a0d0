// Package protocol converts between Terraform's protocol and a resource, like the framework, but without
// looking up the schema again for each attribute: it reads a schema once into a table, and uses that to plan,
// decode and encode values. It also adds blocks to schemas, which the framework does not support.
package protocol

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// Table is the part of a schema that planning and validating need.
type Table struct {
	attributes map[string]*attribute
	// Unclear are the attributes with a default, validator or plan modifier that the table does not support. A test
	// holds that there are none.
	Unclear []string
}

// Of returns the table of a schema.
func Of(ctx context.Context, s schema.Schema) Table {
	t := Table{attributes: attributesIn(ctx, s.Attributes)}
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

// Object is a value of a resource as Terraform sent it.
type Object struct {
	binding.Values // nil if the object is null
	Names
	misnamed []misnamed
}

// Check adds an error for each value that a configuration must set and does not, and for blocks with the same name.
// Some clients would store write-only values: then it refuses these.
func (t Table) Check(diags *diag.Diagnostics, config Object, storesWriteOnly bool) {
	report(diags, config.misnamed)
	var missing, secret path.Paths
	_ = object{config.Values, maps.Clone(config.Values), nil}.each(t.attributes, path.Empty(), func(p place) (attr.Value, diag.Diagnostics) {
		if p.required && p.plan.IsNull() {
			missing.Append(p.at)
		}
		if p.writeOnly && !p.plan.IsNull() && storesWriteOnly {
			secret.Append(p.at)
		}
		return p.plan, nil
	})
	for _, at := range sorted(missing) {
		diags.AddAttributeError(at, input.RowOf(input.CodeRequired).Title, binding.WithCode(at.String()+" is missing", input.CodeRequired))
	}
	for _, at := range sorted(secret) {
		diags.AddAttributeError(at, "The client cannot keep a secret out of its state",
			at.String()+" is write-only, which needs Terraform 1.11 or OpenTofu 1.11. Upgrade, or refer to the secret by reference.")
	}
}

// Resolve returns the plan of a configuration: with the values of the prior state that stay, defaults, values of the
// API, and results of plan modifiers. The Values of prior are nil for a new object. It returns the attributes that
// force a replacement, too. Terraform's own proposal would be of no use: it compares repeated blocks by position, where
// a block with a name may be another one.
func (t Table) Resolve(ctx context.Context, config, prior Object) (plan binding.Values, replace path.Paths, diags diag.Diagnostics) {
	report(&diags, config.misnamed)
	all := object{config.Values, maps.Clone(config.Values), prior.Values}
	diags.Append(all.each(t.attributes, path.Empty(), filledIn)...)
	changes := prior.Values == nil || !all.plan.Equal(prior.Values)
	diags.Append(all.each(t.attributes, path.Empty(), resolved(ctx, changes, prior.Values != nil, &replace))...)
	return all.plan, replace, diags
}

// Decode returns objects that Terraform sent.
func (t Table) Decode(ctx context.Context, sources ...*tfprotov6.DynamicValue) ([]Object, error) {
	var all []Object
	for i, value := range sources {
		if i > 0 && value != nil && sources[i-1] != nil && bytes.Equal(value.MsgPack, sources[i-1].MsgPack) {
			all = append(all, all[i-1])
			all[i].Values = maps.Clone(all[i].Values)
			continue
		}
		one := Object{Names: Names{}}
		if !IsNull(value) {
			d := decoder{Decoder: msgpack.NewDecoder(bytes.NewReader(value.MsgPack)), names: one.Names}
			object, _, err := d.object(ctx, t.attributes, t.attributes, objectOf(t.attributes), "")
			if err != nil {
				return nil, fmt.Errorf("decode what Terraform sent: %w", err)
			}
			one.Values, one.misnamed = inside(object), d.misnamed
		}
		all = append(all, one)
	}
	return all, nil
}

// Encode returns an object in Terraform's form, with named blocks in the order of names, but unknown at some places.
func (t Table) Encode(ctx context.Context, v binding.Values, names Names, unplanned ...string) (*tfprotov6.DynamicValue, error) {
	var text bytes.Buffer
	if err := (encoder{msgpack.NewEncoder(&text), &text, names, unplanned}).object(ctx, t.attributes, v, ""); err != nil {
		return nil, err
	}
	return &tfprotov6.DynamicValue{MsgPack: text.Bytes()}, nil
}

// Planned returns a plan in Terraform's form; if it changes nothing, that is source, from which prior was decoded. moves
// reports whether a block has another place in it than in the configuration or in the prior state.
func (t Table) Planned(
	ctx context.Context, source *tfprotov6.DynamicValue, plan binding.Values, config, prior Object,
) (of *tfprotov6.DynamicValue, moves bool, err error) {
	names, unplanned := planned(config, prior), []string(nil)
	if prior.Values != nil {
		unplanned = config.unknown()
	}
	moves = len(unplanned) > 0 || names.moved(config.Names, prior.Names)
	if prior.Values != nil && plan.Equal(prior.Values) && maps.EqualFunc(names, prior.Names, slices.Equal) {
		return source, moves, nil
	}
	of, err = t.Encode(ctx, plan, names, unplanned...)
	return of, moves, err
}

// Settled returns the API's values of an object in Terraform's form, but keeps each equivalent text of prior, such as
// 60s for 1m.
func (t Table) Settled(ctx context.Context, prior Object, read binding.Values) (*tfprotov6.DynamicValue, error) {
	if _, err := settleEach(ctx, prior.Values, read); err != nil {
		return nil, err
	}
	return t.Encode(ctx, read, prior.Names)
}

// Null returns null as the protocol writes it.
func Null() *tfprotov6.DynamicValue { return &tfprotov6.DynamicValue{MsgPack: []byte{msgpcode.Nil}} }

// IsNull reports whether a value is null or missing.
func IsNull(value *tfprotov6.DynamicValue) bool {
	return value == nil || len(value.MsgPack) == 1 && value.MsgPack[0] == msgpcode.Nil
}

// Paths converts paths, in the framework's order.
func (n Names) Paths(paths path.Paths) []*tftypes.AttributePath {
	var all []*tftypes.AttributePath
	for _, p := range sorted(paths) {
		all = append(all, n.pathOf(p))
	}
	return all
}

func sorted(paths path.Paths) path.Paths {
	slices.SortFunc(paths, func(a, b path.Path) int { return strings.Compare(a.String(), b.String()) })
	return paths
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
		nested := &tfprotov6.SchemaNestedBlock{TypeName: a.Name, Block: inner, Nesting: tfprotov6.SchemaNestedBlockNestingModeList}
		if a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle {
			nested.Nesting = tfprotov6.SchemaNestedBlockNestingModeSingle
		}
		if a.Required && nested.Nesting == tfprotov6.SchemaNestedBlockNestingModeSingle {
			nested.MinItems, nested.MaxItems = 1, 1
		}
		block.BlockTypes = append(block.BlockTypes, nested)
	}
	slices.SortFunc(block.BlockTypes, func(x, y *tfprotov6.SchemaNestedBlock) int { return strings.Compare(x.TypeName, y.TypeName) })
	return block
}
