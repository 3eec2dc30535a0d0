package protocol

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"github.com/carillon-dev/carillon/provider/binding"
)

// The functions of this file convert values between MessagePack, which Terraform sends, and the framework's form. The
// framework uses a third form in between, where every object compares and copies the types of all nested values.

// unknownCode is an unknown value as Terraform writes it: an extension, whose content it ignores.
const unknownCode = "\xd4\x00\x00"

// decoder reads a value that Terraform sent.
type decoder struct {
	*msgpack.Decoder
	names    Names // of the named blocks that were read
	misnamed []misnamed
}

// object reads an object, of which at is the place. It returns null or unknown where that was sent.
func (d *decoder) object(
	ctx context.Context, sent, inner map[string]*attribute, of types.ObjectType, at string,
) (attr.Value, types.String, error) {
	var name types.String
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return nil, name, err
	case msgpcode.IsExt(code):
		return types.ObjectUnknown(of.AttrTypes), types.StringUnknown(), d.Skip()
	case code == msgpcode.Nil:
		return types.ObjectNull(of.AttrTypes), name, d.Skip()
	}
	n, err := d.DecodeMapLen()
	if err != nil {
		return nil, name, err
	}
	all := make(map[string]attr.Value, n)
	for range n {
		key, err := d.DecodeString()
		if err != nil {
			return nil, name, err
		}
		a := sent[key]
		if a == nil {
			return nil, name, fmt.Errorf("decode attribute %q: the schema has none of that name", key)
		}
		if all[key], err = d.attribute(ctx, a, at+key); err != nil {
			return nil, name, err
		}
	}
	if len(inner) < len(sent) {
		name, _ = all[nameOfBlock].(types.String)
		delete(all, nameOfBlock)
	}
	object, err := checked(types.ObjectValue(of.AttrTypes, all))
	return object, name, err
}

// attribute reads the value of an attribute, or of the blocks in its place.
func (d *decoder) attribute(ctx context.Context, a *attribute, at string) (attr.Value, error) {
	if a.inner == nil {
		return decodeValue(ctx, a.kind, d.Decoder)
	}
	if a.repeats == single {
		block, _, err := d.object(ctx, a.sent, a.inner, a.block(), at+".")
		return block, err
	}
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return nil, err
	case msgpcode.IsExt(code):
		return a.unknown, d.Skip()
	case code == msgpcode.Nil:
		return a.null, d.Skip()
	}
	n, err := d.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	list, byName := make([]attr.Value, n), make(map[string]attr.Value, n)
	for i := range n {
		block, name, err := d.object(ctx, a.sent, a.inner, a.block(), at+".")
		if err != nil {
			return nil, err
		}
		list[i] = block
		if a.repeats == named {
			byName[d.key(at, i, name, byName)] = block
		}
	}
	if a.repeats == named {
		return checked(types.MapValue(a.block(), byName))
	}
	return checked(types.ListValue(a.block(), list))
}

// key returns the key of the i-th block of a list, and records its place.
func (d *decoder) key(at string, i int, name types.String, taken map[string]attr.Value) string {
	key := name.ValueString()
	_, twice := taken[key]
	if name.IsNull() || twice {
		d.misnamed = append(d.misnamed, misnamed{at, i, name})
	}
	if name.IsNull() || twice || name.IsUnknown() {
		key = binding.UnknownName(i)
	}
	d.names[at] = append(d.names[at], key)
	return key
}

func decodeValue(ctx context.Context, of attr.Type, from *msgpack.Decoder) (attr.Value, error) {
	code, err := from.PeekCode()
	switch {
	case err != nil:
		return nil, err
	case msgpcode.IsExt(code):
		return constant(ctx, of, from, tftypes.UnknownValue)
	case code == msgpcode.Nil:
		return constant(ctx, of, from, nil)
	}
	switch of := of.(type) {
	case types.MapType:
		elements, err := decodeEach(ctx, from, of.ElemType)
		if err != nil {
			return nil, err
		}
		return checked(types.MapValue(of.ElemType, elements))
	case types.ListType:
		return decodeList(ctx, of, from)
	case basetypes.NumberType:
		n, err := decodeNumber(code, from)
		return types.NumberValue(n), err
	case basetypes.Int64Type:
		n, err := decodeNumber(code, from)
		if err != nil {
			return nil, err
		}
		whole, _ := n.Int64()
		return types.Int64Value(whole), nil
	case basetypes.BoolType:
		b, err := from.DecodeBool()
		return types.BoolValue(b), err
	case basetypes.StringTypable:
		text, err := from.DecodeString()
		if err != nil {
			return nil, err
		}
		value, diags := of.ValueFromString(ctx, types.StringValue(text))
		return checked(value, diags)
	}
	return nil, fmt.Errorf("decode %s: no such type in a job", of)
}

// constant skips a value that is null or unknown, and returns it.
func constant(ctx context.Context, of attr.Type, from *msgpack.Decoder, value any) (attr.Value, error) {
	if err := from.Skip(); err != nil {
		return nil, err
	}
	return of.ValueFromTerraform(ctx, tftypes.NewValue(of.TerraformType(ctx), value))
}

func decodeEach(ctx context.Context, from *msgpack.Decoder, of attr.Type) (map[string]attr.Value, error) {
	n, err := from.DecodeMapLen()
	if err != nil {
		return nil, err
	}
	all := make(map[string]attr.Value, n)
	for range n {
		name, err := from.DecodeString()
		if err != nil {
			return nil, err
		}
		if all[name], err = decodeValue(ctx, of, from); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func decodeList(ctx context.Context, of types.ListType, from *msgpack.Decoder) (attr.Value, error) {
	n, err := from.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	elements := make([]attr.Value, n)
	for i := range elements {
		if elements[i], err = decodeValue(ctx, of.ElemType, from); err != nil {
			return nil, err
		}
	}
	return checked(types.ListValue(of.ElemType, elements))
}

// decodeNumber reads a number, which Terraform writes as an integer, a float or, if neither fits, as text.
func decodeNumber(code byte, from *msgpack.Decoder) (*big.Float, error) {
	switch {
	case code == msgpcode.Uint64:
		n, err := from.DecodeUint64()
		return new(big.Float).SetUint64(n), err
	case msgpcode.IsFixedNum(code), code >= msgpcode.Uint8 && code <= msgpcode.Int64:
		n, err := from.DecodeInt64()
		return new(big.Float).SetInt64(n), err
	case code == msgpcode.Float, code == msgpcode.Double:
		n, err := from.DecodeFloat64()
		return big.NewFloat(n), err
	}
	text, err := from.DecodeString()
	if err != nil {
		return nil, err
	}
	const precision = 512 // Terraform's own
	n, _, err := big.ParseFloat(text, 10, precision, big.ToNearestEven)
	return n, err
}

// checked turns diagnostics of the framework into an error.
func checked[T attr.Value](value T, diags diag.Diagnostics) (attr.Value, error) {
	for _, d := range diags.Errors() {
		return nil, fmt.Errorf("%s: %s", d.Summary(), d.Detail())
	}
	return value, nil
}

// encoder writes a value in Terraform's form.
type encoder struct {
	*msgpack.Encoder
	out   *bytes.Buffer
	names Names // the order of named blocks
	// unplanned are the places of blocks that are written as unknown.
	unplanned []string
}

// object writes the attributes of an object, of which at is the place.
func (e encoder) object(ctx context.Context, sent map[string]*attribute, values map[string]attr.Value, at string) error {
	if err := e.EncodeMapLen(len(values)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := e.EncodeString(name); err != nil {
			return err
		}
		if err := e.attribute(ctx, sent[name], values[name], at+name); err != nil {
			return err
		}
	}
	return nil
}

// attribute writes the value of an attribute, or the blocks in its place.
func (e encoder) attribute(ctx context.Context, a *attribute, value attr.Value, at string) error {
	if a == nil {
		return fmt.Errorf("encode %s: the schema has no such attribute", at)
	}
	if slices.Contains(e.unplanned, at) {
		value = a.unknown
	}
	if a.inner == nil || !known(value) {
		return encodeValue(ctx, value, e.Encoder, e.out)
	}
	switch value := value.(type) {
	case types.List:
		return e.blocks(ctx, a, at, value.Elements(), nil)
	case types.Map:
		byName := value.Elements()
		names, blocks := e.names.inOrder(at, byName), []attr.Value{}
		for _, name := range names {
			blocks = append(blocks, byName[name])
		}
		return e.blocks(ctx, a, at, blocks, names)
	}
	return e.object(ctx, a.sent, inside(value), at+".")
}

// blocks writes repeated blocks, which have names unless there are none.
func (e encoder) blocks(ctx context.Context, a *attribute, at string, blocks []attr.Value, names []string) error {
	if err := e.EncodeArrayLen(len(blocks)); err != nil {
		return err
	}
	for i, block := range blocks {
		values := inside(block)
		switch {
		case !known(block):
			if err := encodeValue(ctx, block, e.Encoder, e.out); err != nil {
				return err
			}
			continue
		case names != nil:
			values[nameOfBlock] = nameValue(names[i])
		}
		if err := e.object(ctx, a.sent, values, at+"."); err != nil {
			return err
		}
	}
	return nil
}

// encodeValue writes numbers as text, which the protocol allows. From version 1.10 on, Terraform compares the states
// before and after a refresh in memory, where a number from the state file has another precision than a number from the
// provider. So `plan -refresh-only -detailed-exitcode` would exit with 2 without any difference
// (hashicorp/terraform#36403).
func encodeValue(ctx context.Context, value attr.Value, to *msgpack.Encoder, out *bytes.Buffer) error {
	switch {
	case value.IsNull():
		return to.EncodeNil()
	case value.IsUnknown():
		_, err := out.WriteString(unknownCode)
		return err
	}
	switch value := value.(type) {
	case types.Map:
		return encodeEach(ctx, value.Elements(), to, out)
	case types.List:
		elements := value.Elements()
		if err := to.EncodeArrayLen(len(elements)); err != nil {
			return err
		}
		for _, element := range elements {
			if err := encodeValue(ctx, element, to, out); err != nil {
				return err
			}
		}
		return nil
	case types.Number:
		return to.EncodeString(value.ValueBigFloat().Text('f', -1))
	case types.Int64:
		return to.EncodeString(value.String())
	case types.Bool:
		return to.EncodeBool(value.ValueBool())
	case basetypes.StringValuable:
		text, diags := value.ToStringValue(ctx)
		if _, err := checked(text, diags); err != nil {
			return err
		}
		return to.EncodeString(text.ValueString())
	}
	return fmt.Errorf("encode %s: no such type in a job", value)
}

func encodeEach(ctx context.Context, values map[string]attr.Value, to *msgpack.Encoder, out *bytes.Buffer) error {
	if err := to.EncodeMapLen(len(values)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := to.EncodeString(name); err != nil {
			return err
		}
		if err := encodeValue(ctx, values[name], to, out); err != nil {
			return err
		}
	}
	return nil
}

// settle returns a value from the API, but keeps each equivalent text of prior.
func settle(ctx context.Context, prior, read attr.Value) (attr.Value, error) {
	if prior == nil || prior.IsNull() || prior.IsUnknown() || read.IsNull() || read.IsUnknown() || read.Equal(prior) {
		return read, nil
	}
	switch read := read.(type) {
	case types.Object:
		attributes, err := settleEach(ctx, inside(prior), read.Attributes())
		if err != nil {
			return nil, err
		}
		return checked(types.ObjectValue(read.AttributeTypes(ctx), attributes))
	case types.Map:
		elements, err := settleEach(ctx, inside(prior), read.Elements())
		if err != nil {
			return nil, err
		}
		return checked(types.MapValue(read.ElementType(ctx), elements))
	case types.List:
		before, _ := prior.(types.List)
		return settleList(ctx, before.Elements(), read)
	case basetypes.StringValuableWithSemanticEquals:
		same, diags := read.StringSemanticEquals(ctx, prior.(basetypes.StringValuable))
		if same && !diags.HasError() {
			return prior, nil
		}
	}
	return read, nil
}

// settleEach settles the attributes of an object or the elements of a map, in place.
func settleEach(ctx context.Context, prior, read map[string]attr.Value) (map[string]attr.Value, error) {
	for name, value := range read {
		settled, err := settle(ctx, prior[name], value)
		if err != nil {
			return nil, err
		}
		read[name] = settled
	}
	return read, nil
}

func settleList(ctx context.Context, prior []attr.Value, read types.List) (attr.Value, error) {
	elements := read.Elements()
	for i := range min(len(elements), len(prior)) {
		var err error
		if elements[i], err = settle(ctx, prior[i], elements[i]); err != nil {
			return nil, err
		}
	}
	return checked(types.ListValue(read.ElementType(ctx), elements))
}
