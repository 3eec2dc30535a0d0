package decode

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

var (
	rawType     = reflect.TypeFor[json.RawMessage]()
	instantType = reflect.TypeFor[time.Time]()
)

// fill sets v from raw. It returns false if v keeps its default because of a problem.
func (d *decoder) fill(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	switch {
	case v.Type() == rawType:
		v.SetBytes(bytes.Clone(raw)) // the body is not kept
		return true
	case v.Kind() == reflect.Pointer:
		return d.fillPointer(v, raw, at)
	case raw[0] == 'n' && (v.Kind() == reflect.Map || v.Kind() == reflect.Slice): // Go writes empty ones as null
		return true
	case raw[0] == 'n':
		d.add(at, input.CodeRequired, "null is not allowed; give a value, or leave the field out if it has a default")
		return false
	case v.Type() == instantType:
		return d.fillText(raw, at, func(text string) error {
			t, err := input.ParseInstant(text)
			v.Set(reflect.ValueOf(t))
			return err
		})
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return d.fillText(raw, at, func(text string) error { return u.UnmarshalText([]byte(text)) })
	}
	switch v.Kind() {
	case reflect.Struct:
		return d.fillStruct(v, raw, at)
	case reflect.Map:
		return d.fillMap(v, raw, at)
	case reflect.Slice:
		return d.fillSlice(v, raw, at)
	case reflect.String:
		return d.fillText(raw, at, func(text string) error { v.SetString(text); return nil })
	case reflect.Bool:
		return d.fillBool(v, raw, at)
	case reflect.Int, reflect.Int64:
		return d.fillInt(v, raw, at)
	}
	panic("decode: no rule for " + v.Type().String())
}

func (d *decoder) fillPointer(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if !d.take(int(v.Type().Elem().Size()), at) {
		return false
	}
	elem := reflect.New(v.Type().Elem())
	ok := raw[0] != 'n' && d.fill(elem.Elem(), raw, at)
	if ok {
		v.Set(elem)
	}
	return ok
}

func (d *decoder) fillBool(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if raw[0] != 't' && raw[0] != 'f' {
		d.wrongType(at, "true or false", raw)
		return false
	}
	v.SetBool(raw[0] == 't')
	return true
}

func (d *decoder) fillText(raw json.RawMessage, at *pointer, set func(string) error) bool {
	if raw[0] != '"' {
		d.wrongType(at, "a string", raw)
		return false
	}
	err := set(string(unquote(raw)))
	if err == nil {
		return true
	}
	var problem *input.Problem
	if errors.As(err, &problem) {
		d.add(at, problem.Code, "%s", problem.Message)
	} else {
		d.add(at, input.CodeJSONType, "value is not valid")
	}
	return false
}

func (d *decoder) fillInt(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		d.wrongType(at, "a whole number", raw)
		return false
	}
	n, err := strconv.ParseInt(string(raw), 10, v.Type().Bits())
	if err != nil {
		d.add(at, input.CodeJSONType, "expected a whole number without point or exponent, of at most %d bits",
			v.Type().Bits())
		return false
	}
	v.SetInt(n)
	return true
}

func (d *decoder) fillMap(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if raw[0] != '{' {
		d.wrongType(at, "an object", raw)
		return false
	}
	n, ok := d.elements(raw, at, func(n int) int { return mapSize(v.Type(), n) })
	if !ok {
		return false
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), n))
	elem, here := reflect.New(v.Type().Elem()).Elem(), &pointer{parent: at}
	for key, value := range Parts(raw) {
		if d.full() {
			break
		}
		elem.SetZero()
		here.key = key
		d.fill(elem, value, here)
		v.SetMapIndex(reflect.ValueOf(string(unquote(key))), elem)
	}
	return true
}

// elements counts the elements of a list or map, and takes their memory.
func (d *decoder) elements(raw json.RawMessage, at *pointer, size func(n int) int) (n int, ok bool) {
	if n = Count(raw); n > d.most {
		d.add(at, input.CodeTooMany, "there are more than %d elements; no list or map may have as many", d.most)
		return n, false
	}
	if !d.take(size(n), at) {
		return n, false
	}
	d.work += len(raw)
	return n, true
}

func (d *decoder) fillSlice(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if raw[0] != '[' {
		d.wrongType(at, "an array", raw)
		return false
	}
	n, ok := d.elements(raw, at, func(n int) int { return n * int(v.Type().Elem().Size()) })
	if !ok {
		return false
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	here := &pointer{parent: at}
	for _, element := range Parts(raw) {
		if d.full() {
			break
		}
		d.fill(v.Index(here.index), element, here)
		here.index++
	}
	v.SetLen(here.index)
	return true
}

// mapSize estimates the memory of a map of n entries without the texts of its keys. Go gives a map 8 slots at least,
// and up to twice as many as it needs. A value of more than 128 bytes lies outside of its slot, which points to it.
func mapSize(t reflect.Type, n int) int {
	const pointerSize, insideSlot = 8, 128
	key, value := int(t.Key().Size()), int(t.Elem().Size())
	if value <= insideSlot {
		return max(8, 2*n) * (key + value)
	}
	return max(8, 2*n)*(key+pointerSize) + n*value
}

func (d *decoder) fillStruct(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if raw[0] != '{' {
		d.wrongType(at, "an object", raw)
		return false
	}
	if with, ok := v.Addr().Interface().(interface{ SetDefaults() }); ok {
		with.SetDefaults()
	}
	if with, ok := v.Addr().Interface().(interface{ LeaveToApp() }); ok {
		with.LeaveToApp()
	}
	fields, known := d.fields[v.Type()]
	if !known {
		fields = Fields(v.Type())
		d.fields[v.Type()] = fields
	}
	d.work += len(raw)
	here := &pointer{parent: at}
	for literal, value := range Parts(raw) {
		here.key = literal
		key := unquote(literal)
		field, known := fields[string(key)]
		switch {
		case d.full():
			return true
		case !known:
			d.work += min(len(key), 64) * len(fields) // for the suggestion of a similar name
			name := string(key)
			d.add(here, input.CodeJSONUnknown, "unknown field %s%s",
				input.Echo(name), input.DidYouMean(name, slices.Sorted(maps.Keys(fields))))
		case !field.ReadOnly:
			d.fill(v.FieldByIndex(field.index), value, here)
		}
	}
	return true
}

// Field is a field of a struct.
type Field struct {
	index []int
	// ReadOnly fields are those that only the server writes, and those of an embedded struct that it writes, tagged
	// body:"-". A body may contain them with any value; they are ignored.
	ReadOnly bool
}

// Fields returns the fields of a struct by their JSON names, including those of embedded structs.
func Fields(t reflect.Type) map[string]Field {
	fields := map[string]Field{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = Field{f.Index, t.Field(f.Index[0]).Tag.Get("body") == "-"}
		}
	}
	return fields
}
