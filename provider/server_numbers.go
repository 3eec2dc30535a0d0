package provider

import (
	"bytes"
	"math/big"
	"strconv"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// numbersAsText writes the numbers of a state that was read as text, which the protocol allows. Terraform
// from 1.10 on compares the state before and after a refresh in memory, where a number from the state file
// has another precision than one that comes as a number. So `plan -refresh-only -detailed-exitcode` would
// exit with 2 although it finds no differences (hashicorp/terraform#36403).
func numbersAsText(state *tfprotov6.DynamicValue) error {
	if state == nil || len(state.MsgPack) == 0 {
		return nil
	}
	var text bytes.Buffer
	err := copyNumbersAsText(msgpack.NewDecoder(bytes.NewReader(state.MsgPack)), msgpack.NewEncoder(&text), &text)
	if err == nil {
		state.MsgPack = text.Bytes()
	}
	return err
}

// copyNumbersAsText copies one value. Everything that is a number in MessagePack is one in Terraform.
func copyNumbersAsText(from *msgpack.Decoder, to *msgpack.Encoder, out *bytes.Buffer) error {
	code, err := from.PeekCode()
	if err != nil {
		return err
	}
	elements := 0
	switch {
	case msgpcode.IsFixedMap(code), code == msgpcode.Map16, code == msgpcode.Map32:
		n, err := from.DecodeMapLen()
		if err != nil {
			return err
		}
		if err := to.EncodeMapLen(n); err != nil {
			return err
		}
		elements = 2 * n
	case msgpcode.IsFixedArray(code), code == msgpcode.Array16, code == msgpcode.Array32:
		n, err := from.DecodeArrayLen()
		if err != nil {
			return err
		}
		if err := to.EncodeArrayLen(n); err != nil {
			return err
		}
		elements = n
	case code == msgpcode.Uint64:
		n, err := from.DecodeUint64()
		if err != nil {
			return err
		}
		return to.EncodeString(strconv.FormatUint(n, 10))
	case msgpcode.IsFixedNum(code), code >= msgpcode.Uint8 && code <= msgpcode.Int64:
		n, err := from.DecodeInt64()
		if err != nil {
			return err
		}
		return to.EncodeString(strconv.FormatInt(n, 10))
	case code == msgpcode.Float, code == msgpcode.Double:
		f, err := from.DecodeFloat64()
		if err != nil {
			return err
		}
		return to.EncodeString(big.NewFloat(f).Text('f', -1))
	default:
		raw, err := from.DecodeRaw()
		out.Write(raw)
		return err
	}
	for range elements {
		if err := copyNumbersAsText(from, to, out); err != nil {
			return err
		}
	}
	return nil
}
