package api

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
)

// schema returns the schema of a type, or a reference to it.
func (b *builder) schema(typ reflect.Type) object {
	switch typ.Kind() {
	case reflect.Pointer:
		return b.schema(typ.Elem())
	case reflect.Bool:
		return object{{"type", "boolean"}}
	case reflect.Int, reflect.Int32, reflect.Uint64:
		return b.scalar(typ, "integer", "")
	case reflect.Int64:
		return b.scalar(typ, "integer", "int64")
	case reflect.Float64:
		return object{{"type", "number"}}
	case reflect.String:
		return b.scalar(typ, "string", "")
	case reflect.Slice:
		if typ == reflect.TypeFor[json.RawMessage]() {
			return object{}
		}
		if _, ok := b.parts.Scalars[b.name(typ)]; ok || typ.Elem().Kind() == reflect.Uint8 {
			return b.scalar(typ, "string", "")
		}
		return object{{"type", "array"}, {"items", b.schema(typ.Elem())}}
	case reflect.Map:
		if name := b.name(typ); b.parts.Scalars[name] != nil {
			return ref("schemas", name)
		}
		if typ.Elem().Kind() == reflect.Interface {
			return object{{"type", "object"}}
		}
		return object{{"type", "object"}, {"additionalProperties", b.schema(typ.Elem())}}
	case reflect.Struct:
		name := b.name(typ)
		if b.parts.Scalars[name] != nil {
			return ref("schemas", name)
		}
		if strings.Contains(name, "[") {
			return b.object(typ, "")
		}
		if _, known := b.schemas[name]; !known {
			b.schemas[name] = nil // for a type that contains itself
			b.schemas[name] = b.object(typ, name)
		}
		return ref("schemas", name)
	}
	b.t.Fatalf("no rule for %s", typ)
	return nil
}

// scalar is a basic type, one of the texts of a form, or an enumeration.
func (b *builder) scalar(typ reflect.Type, basic, format string) object {
	name := b.name(typ)
	values := b.sources.enum(b.t, typ)
	switch {
	case b.parts.Scalars[name] != nil:
		return ref("schemas", name)
	case len(values) > 0 && basic == "string":
		if b.schemas[name] == nil {
			b.schemas[name] = b.enumeration(typ, values)
		}
		return ref("schemas", name)
	case format != "":
		return object{{"type", basic}, {"format", format}}
	}
	return object{{"type", basic}}
}

func (b *builder) enumeration(typ reflect.Type, values []enumValue) object {
	s := object{{"type", "string"}}
	var all, told []string
	if slices.Contains(b.parts.OrEmpty, b.name(typ)) {
		all = append(all, "")
	}
	for _, v := range values {
		all = append(all, v.value)
		if v.comment != "" {
			told = append(told, v.value+": "+strings.TrimSuffix(v.comment, "."))
		}
	}
	s.set("enum", all)
	text := b.sources.of(b.t, typ.PkgPath()).types[typ.Name()].comment
	if told != nil {
		text = strings.TrimSpace(text + " " + strings.Join(told, "; ") + ".")
	}
	if text != "" {
		s.set("description", b.sources.say(b.t, typ, text))
	}
	return s
}

// object is the schema of a struct.
func (b *builder) object(typ reflect.Type, name string) object {
	s := object{{"type", "object"}}
	body := b.bodies[typ]
	if text := b.sources.of(b.t, typ.PkgPath()).types[typ.Name()].comment; text != "" {
		s.set("description", b.sources.say(b.t, typ, text))
	}
	var required []string
	properties := object{}
	fields := decode.Fields(typ)
	defaults := defaultsOf(typ)
	for _, f := range reflect.VisibleFields(typ) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		field, ok := fields[key]
		if !ok {
			continue
		}
		rules := parseRules(f.Tag.Get("schema"))
		property := b.property(f, rules)
		if always := !strings.Contains(options, "omit"); rules.required || always && !body {
			required = append(required, key)
		}
		if body && !field.ReadOnly && !rules.required {
			if value, ok := rules.defaultOf(f.Type, defaults.FieldByIndex(f.Index)); ok {
				property.set("default", value)
			}
		}
		if field.ReadOnly {
			property.set("readOnly", true)
		}
		if text := b.sources.field(b.t, typ, f); text != "" {
			property.set("description", text)
		}
		if name == "Job" && key == "acknowledge" {
			property.set("items", object{{"type", "string"}, {"enum", dispatcher.WarningCodes}})
			property.set("maxItems", len(dispatcher.WarningCodes))
		}
		for word, value := range b.extra(b.parts.Properties, name+"."+key) {
			property.set(word, value)
		}
		properties.set(key, property)
	}
	if required != nil {
		s.set("required", required)
	}
	s.set("properties", properties)
	if body {
		s.set("additionalProperties", false)
	}
	for word, value := range b.extra(b.parts.Schemas, name) {
		s.set(word, value)
	}
	return s
}

// extra yields the additions of the parts, in order.
func (b *builder) extra(of map[string]map[string]any, key string) func(func(string, any) bool) {
	b.used[key] = true
	return func(yield func(string, any) bool) {
		for _, word := range slices.Sorted(maps.Keys(of[key])) {
			if !yield(word, of[key][word]) {
				return
			}
		}
	}
}

func (b *builder) property(f reflect.StructField, rules rules) object {
	if rules.enum != nil && f.Type.Kind() == reflect.String {
		return object{{"type", "string"}, {"enum", rules.enum}}
	}
	s := b.schema(f.Type)
	inner := &s
	if items, ok := s.get("items").(object); ok {
		inner = &items
		defer func() { s.set("items", items) }()
	} else if values, ok := s.get("additionalProperties").(object); ok {
		inner = &values
		defer func() { s.set("additionalProperties", values) }()
	}
	if rules.ref != "" {
		*inner = ref("schemas", rules.ref)
	}
	words := map[string][2]string{"integer": {"minimum", "maximum"}, "number": {"minimum", "maximum"}, "string": {"minLength", "maxLength"},
		"array": {"minItems", "maxItems"}, "object": {"minProperties", "maxProperties"}}
	limit := func(s *object, least, most *int64) {
		kind, _ := s.get("type").(string)
		if least != nil {
			s.set(words[kind][0], *least)
		}
		if most != nil {
			s.set(words[kind][1], *most)
		}
	}
	limit(inner, rules.eachMin, rules.eachMax)
	limit(&s, rules.min, rules.max)
	if rules.key != "" {
		s.set("propertyNames", ref("schemas", rules.key))
	}
	return s
}

// name is that of a schema.
func (b *builder) name(typ reflect.Type) string {
	if name, ok := schemaNames[typ]; ok {
		return name
	}
	name := typ.Name()
	if elem, ok := strings.CutPrefix(name, "list["); ok {
		of, _ := typ.FieldByName("Items")
		_ = elem
		return b.name(of.Type.Elem()) + "List"
	}
	if strings.HasSuffix(typ.PkgPath(), "/alert") && !strings.Contains(name, "Alert") {
		name = "Alert" + name
	}
	return upper(name)
}
