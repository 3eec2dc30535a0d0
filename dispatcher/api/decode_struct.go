package api

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// readOnly lists the fields of each type that only the server writes. A body may contain them with
// any value; they are ignored.
var readOnly = map[reflect.Type][]string{
	reflect.TypeFor[dispatcher.App](): {
		"aws_external_id", "breaks", "pauses", "importing", "usage", "revision", "created_at", "updated_at",
	},
	reflect.TypeFor[dispatcher.Bounds](): {"suspended_by", "suspended_at"},
	reflect.TypeFor[dispatcher.Job](): {
		"origin", "paused", "paused_by", "paused_at", "pause_reason", "paused_until", "pauses", "state", "revision", "created_at",
		"updated_at", "warnings",
	},
	reflect.TypeFor[dispatcher.Trigger](): {
		"paused", "paused_by", "paused_at", "pause_reason", "paused_until", "state", "error", "prev_fire_time", "next_fire_time",
		"due_at", "anchor_at", "counted_from", "fired", "origin",
	},
	reflect.TypeFor[dispatcher.Calendar]():      {"removal_requested_at", "revision", "created_at", "updated_at"},
	reflect.TypeFor[dispatcher.EndpointGroup](): {"revision", "created_at", "updated_at"},
	reflect.TypeFor[dispatcher.Target]():        {"alert"},
	reflect.TypeFor[dispatcher.Alert]():         {"muted", "firing", "warnings", "revision", "created_at", "updated_at"},
	reflect.TypeFor[dispatcher.AlertMute]():     {"by", "at"},
	reflect.TypeFor[dispatcher.Endpoint]():      {"source", "draining", "registered_at", "expires_at", "server_name", "refused"},
	reflect.TypeFor[dispatcher.CarriedState]():  {"revision", "updated_at", "run", "set_by", "discarded_run"},
	reflect.TypeFor[dispatcher.APIToken]():      {"id", "created_at", "last_used_at", "rotated_until", "revision"},
}

// members calls each for every member of a valid JSON object.
func (d *decoder) members(raw json.RawMessage, each func(key string, value json.RawMessage)) {
	d.work += len(raw)
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token()
	for dec.More() {
		key, _ := dec.Token()
		var value json.RawMessage
		_ = dec.Decode(&value)
		name, _ := key.(string)
		each(name, value)
	}
}

var (
	rawType     = reflect.TypeFor[json.RawMessage]()
	instantType = reflect.TypeFor[time.Time]()
)

// fill sets v from raw. It returns false if v keeps its default because of a problem.
func (d *decoder) fill(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	switch {
	case v.Type() == rawType:
		v.SetBytes(raw)
		return true
	case v.Kind() == reflect.Pointer:
		if !d.take(int(v.Type().Elem().Size()), at) {
			return false
		}
		elem := reflect.New(v.Type().Elem())
		ok := raw[0] != 'n' && d.fill(elem.Elem(), raw, at)
		if ok {
			v.Set(elem)
		}
		return ok
	case raw[0] == 'n' && (v.Kind() == reflect.Map || v.Kind() == reflect.Slice): // Go writes empty ones so
		return true
	case raw[0] == 'n':
		d.add(at, dispatcher.CodeRequired, "null is not allowed; give a value, or leave the field out if it has a default")
		return false
	case v.Type() == instantType:
		return d.fillText(raw, at, func(text string) error {
			t, err := dispatcher.ParseInstant(text)
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
		if raw[0] != 't' && raw[0] != 'f' {
			d.wrongType(at, "true or false", raw)
			return false
		}
		v.SetBool(raw[0] == 't')
		return true
	case reflect.Int, reflect.Int64:
		return d.fillInt(v, raw, at)
	}
	panic("decode: no rule for " + v.Type().String())
}

func (d *decoder) fillText(raw json.RawMessage, at *pointer, set func(string) error) bool {
	if raw[0] != '"' {
		d.wrongType(at, "a string", raw)
		return false
	}
	var text string
	_ = json.Unmarshal(raw, &text) // the text is known to be valid
	err := set(text)
	if err == nil {
		return true
	}
	var problem *dispatcher.Problem
	if errors.As(err, &problem) {
		d.add(at, problem.Code, "%s", problem.Message)
	} else {
		d.add(at, dispatcher.CodeJSONType, "value is not valid")
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
		d.add(at, dispatcher.CodeJSONType, "expected a whole number without point or exponent, of at most %d bits",
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
	v.Set(reflect.MakeMap(v.Type()))
	d.members(raw, func(key string, value json.RawMessage) {
		if v.Len() == d.most {
			d.tooMany(at)
			return
		}
		if !d.take(len(key)+entrySize(v), at) {
			return
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.fill(elem, value, &pointer{at, key})
		v.SetMapIndex(reflect.ValueOf(key), elem)
	})
	return true
}

// tooMany reports a list or map with more elements than any may have, once.
func (d *decoder) tooMany(at *pointer) {
	problem := dispatcher.Problem{Path: at.String(), Code: dispatcher.CodeTooMany,
		Message: fmt.Sprintf("there are more than %d elements; no list or map may have as many", d.most)}
	if !slices.Contains(d.problems, problem) {
		d.add(at, problem.Code, "%s", problem.Message)
	}
}

func (d *decoder) fillSlice(v reflect.Value, raw json.RawMessage, at *pointer) bool {
	if raw[0] != '[' {
		d.wrongType(at, "an array", raw)
		return false
	}
	d.work += len(raw)
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	elements := json.NewDecoder(bytes.NewReader(raw))
	_, _ = elements.Token() // the text is known to be valid
	for i := 0; elements.More() && !d.full(); i++ {
		if i == d.most {
			d.tooMany(at)
			v.SetZero()
			return false
		}
		// Twice, for the list grows by being copied.
		if !d.take(2*int(v.Type().Elem().Size()), at) {
			return false
		}
		var element json.RawMessage
		_ = elements.Decode(&element)
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.fill(v.Index(i), element, &pointer{at, strconv.Itoa(i)})
	}
	return true
}

// entrySize estimates what another entry of a map takes besides the text of its key. Go gives a map 8 slots at first, and up to
// twice as many as it needs later; a value of more than 128 bytes lies outside of its slot.
func entrySize(v reflect.Value) int {
	value := int(v.Type().Elem().Size())
	slot := int(v.Type().Key().Size()) + min(value, 128)
	if v.Len() == 0 {
		return value + 10*slot
	}
	return value + 2*slot
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
		fields = jsonFields(v.Type())
		d.fields[v.Type()] = fields
	}
	d.members(raw, func(key string, value json.RawMessage) {
		index, known := fields[key]
		switch {
		case d.full():
		case !known:
			d.work += min(len(key), 64) * len(fields) // for what was meant
			d.add(&pointer{at, key}, dispatcher.CodeJSONUnknown, "unknown field %s%s",
				dispatcher.Echo(key), dispatcher.DidYouMean(key, slices.Sorted(maps.Keys(fields))))
		case slices.Contains(readOnly[v.Type()], key):
		default:
			d.fill(v.FieldByIndex(index), value, &pointer{at, key})
		}
	})
	return true
}

// jsonFields returns the fields of a struct by their JSON names, including those of embedded structs.
func jsonFields(t reflect.Type) map[string][]int {
	fields := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = f.Index
		}
	}
	return fields
}
