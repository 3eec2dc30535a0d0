package db

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"
)

// arrayCodec encodes the columns of a batch. The codec of pgx takes each element out of its slice as an any, which
// costs an allocation for each value of each fire; it stays for whatever is no such column.
type arrayCodec struct{ *pgtype.ArrayCodec }

// PlanEncode returns how a value is encoded.
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		element := c.ElementType.OID
		switch value.(type) {
		case []int64:
			if element == pgtype.Int8OID {
				return arrayPlan[int64]{element, 8, appendBigint}
			}
		case []*int64:
			if element == pgtype.Int8OID {
				return arrayPlan[*int64]{element, 8, appendOptionalBigint}
			}
		case []int32:
			if element == pgtype.Int4OID {
				return arrayPlan[int32]{element, 4, appendInteger}
			}
		case []bool:
			if element == pgtype.BoolOID {
				return arrayPlan[bool]{element, 1, appendBoolean}
			}
		case []string:
			if element == pgtype.TextOID {
				return arrayPlan[string]{element, 0, appendText}
			}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// encodeArrays makes a connection encode the columns of batches by arrayCodec.
func encodeArrays(types *pgtype.Map) {
	for _, oid := range []uint32{pgtype.Int8ArrayOID, pgtype.Int4ArrayOID, pgtype.BoolArrayOID, pgtype.TextArrayOID} {
		if array, ok := types.TypeForOID(oid); ok {
			if codec, ok := array.Codec.(*pgtype.ArrayCodec); ok {
				types.RegisterType(&pgtype.Type{Name: array.Name, OID: oid, Codec: arrayCodec{codec}})
			}
		}
	}
}

// arrayPlan encodes an array of one dimension.
type arrayPlan[T any] struct {
	element uint32 // type
	size    int    // of an element, if all have the same
	// append appends an element after its length, which is -1 for NULL.
	append func([]byte, T) []byte
}

// Encode appends an array in the binary format. A nil slice is NULL.
func (p arrayPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	elements := value.([]T)
	if elements == nil {
		return nil, nil
	}
	const header, length = 20, 4
	if need := header + len(elements)*(length+p.size); cap(buf)-len(buf) < need {
		buf = append(make([]byte, 0, 4*(len(buf)+need)), buf...) // other columns follow
	}
	dimensions := min(1, len(elements))
	buf = binary.BigEndian.AppendUint32(buf, uint32(dimensions))
	buf = binary.BigEndian.AppendUint32(buf, 0) // 1 would only announce NULLs
	buf = binary.BigEndian.AppendUint32(buf, p.element)
	if dimensions == 0 {
		return buf, nil
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(elements)))
	buf = binary.BigEndian.AppendUint32(buf, 1) // the first index
	for _, one := range elements {
		buf = p.append(buf, one)
	}
	return buf, nil
}

func appendBigint(buf []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buf, 8), uint64(n))
}

func appendOptionalBigint(buf []byte, n *int64) []byte {
	if n == nil {
		return binary.BigEndian.AppendUint32(buf, 1<<32-1)
	}
	return appendBigint(buf, *n)
}

func appendInteger(buf []byte, n int32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buf, 4), uint32(n))
}

func appendBoolean(buf []byte, yes bool) []byte {
	value := byte(0)
	if yes {
		value = 1
	}
	return append(binary.BigEndian.AppendUint32(buf, 1), value)
}

func appendText(buf []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(text))), text...)
}
