package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/dispatcher/verify"
)

var update = flag.Bool("update", false, "write openapi.json")

// TestOpenAPIIsMadeOfTheCode compares the description of the API with the routes, types and comments. With -update it
// writes it. Texts that no code has, such as those of query parameters, are in testdata/openapi_parts.json.
func TestOpenAPIIsMadeOfTheCode(t *testing.T) {
	t.Parallel()
	built := newBuilder(t).document()
	text := layOut(built, "") + "\n"
	if *update {
		if err := os.WriteFile("openapi.json", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(openAPIDocument), text); diff != "" {
		t.Errorf("openapi.json is not what the code says (-file +code); make docs writes it:\n%s", diff)
	}
}

// openAPIParts are the texts that no code has.
type openAPIParts struct {
	Info, Tags, SecuritySchemes, Headers, Responses any

	Parameters map[string]any            // by name, or by operation and name; those of several operations have a component
	Scalars    map[string]map[string]any // texts of a form
	Properties map[string]map[string]any // examples and forms, by schema and property
	Schemas    map[string]map[string]any // rules for a whole object
	OrEmpty    []string                  // enumerations whose empty text means the default
}

// builder makes the description of the API.
type builder struct {
	t       *testing.T
	parts   openAPIParts
	sources sources
	schemas map[string]any
	bodies  map[reflect.Type]bool // types in bodies of requests
	revised map[reflect.Type]bool // types with a revision, as their ETag
	used    map[string]bool       // parts
}

// schemaNames are the types that have another name in the description than in Go.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[access.APIToken](): "Token", reflect.TypeFor[run.Ref](): "RunRef", reflect.TypeFor[run.Cause](): "RunCause",
	reflect.TypeFor[run.State](): "RunState", reflect.TypeFor[run.Kind](): "RunKind", reflect.TypeFor[run.Input](): "RunInput",
	reflect.TypeFor[run.Range](): "RunRange", reflect.TypeFor[target.Kind](): "TargetKind", reflect.TypeFor[verify.Page](): "VerifyPage",
	reflect.TypeFor[verify.Trigger](): "TriggerVerification", reflect.TypeFor[registry](): "ExecutorRegistration",
	reflect.TypeFor[callbackFailure](): "CallbackEnd", reflect.TypeFor[time.Time](): "Instant", reflect.TypeFor[input.Duration](): "Duration",
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	b := &builder{t: t, sources: sources{}, schemas: map[string]any{}, bodies: map[reflect.Type]bool{},
		revised: map[reflect.Type]bool{}, used: map[string]bool{}}
	text, err := os.ReadFile("testdata/openapi_parts.json")
	if err == nil {
		err = json.Unmarshal(text, &b.parts)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rt := range routes() {
		b.mark(reflect.TypeOf(rt.takes))
		if rt.conditional {
			b.revised[reflect.TypeOf(rt.gives)], b.revised[reflect.TypeOf(rt.creates)] = true, true
		}
	}
	return b
}

// mark notes a type in the body of a request.
func (b *builder) mark(typ reflect.Type) {
	if typ == nil || b.bodies[typ] {
		return
	}
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		b.mark(typ.Elem())
	case reflect.Struct:
		b.bodies[typ] = true
		for _, f := range reflect.VisibleFields(typ) {
			if typ.Field(f.Index[0]).Tag.Get("body") != "-" {
				b.mark(f.Type)
			}
		}
	}
}

func (b *builder) document() object {
	paths := object{}
	for _, s := range sections {
		for _, rt := range s.routes {
			item, _ := paths.get(rt.Path).(object)
			if item == nil {
				item = object{}
				if in := b.pathParameters(rt.Path); len(in) > 0 {
					item.set("parameters", in)
				}
			}
			item.set(strings.ToLower(rt.Method), b.operation(s.tag, rt))
			paths.set(rt.Path, item)
		}
	}
	b.schema(reflect.TypeFor[problemDocument]())
	var codes []string
	for _, row := range input.Codes {
		codes = append(codes, row.Code)
	}
	b.schemas["Code"] = object{{"type", "string"}, {"enum", codes}, {"description", "The closed list of codes that clients can test."}}
	for name, s := range b.parts.Scalars {
		b.schemas[name] = s
	}
	for key := range b.parts.Properties {
		if !b.used[key] {
			b.t.Errorf("no schema has the property %s of testdata/openapi_parts.json", key)
		}
	}
	parameters := map[string]any{}
	for key, part := range b.parts.Parameters {
		if !b.used[key] {
			b.t.Errorf("no route has the parameter %s of testdata/openapi_parts.json", key)
		}
		if !strings.Contains(key, " ") {
			parameters[componentOf(key)] = part
		}
	}
	return object{
		{"openapi", "3.1.0"}, {"info", b.parts.Info}, {"security", []any{map[string]any{"bearer": []any{}}}}, {"tags", b.parts.Tags},
		{"paths", paths}, {"components", object{
			{"securitySchemes", b.parts.SecuritySchemes}, {"parameters", parameters}, {"headers", b.parts.Headers},
			{"responses", b.parts.Responses}, {"schemas", b.schemas},
		}},
	}
}

func (b *builder) pathParameters(path string) (all []any) {
	for segment := range strings.SplitSeq(path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			all = append(all, b.parameter("", strings.TrimSuffix(name, "}")))
		}
	}
	return all
}

// parameter is the parameter of an operation, if it has one of its own, or the shared one.
func (b *builder) parameter(operation, name string) any {
	if own, ok := b.parts.Parameters[operation+" "+name]; ok {
		b.used[operation+" "+name] = true
		return own
	}
	if b.parts.Parameters["?"+name] != nil && operation != "" { // "job" in a path is required
		name = "?" + name
	}
	if b.parts.Parameters[name] == nil {
		b.t.Errorf("testdata/openapi_parts.json does not describe the parameter %s of %s", name, operation)
	}
	b.used[name] = true
	return ref("parameters", componentOf(name))
}

// componentOf is the name of a parameter's component: a query and a path may have parameters of the same name.
func componentOf(name string) string {
	if query, ok := strings.CutPrefix(name, "?"); ok {
		return "by" + upper(query)
	}
	return name
}

// operation describes a route.
func (b *builder) operation(tag string, rt route) object {
	id, text := rt.id, rt.text
	if id == "" {
		name := runtime.FuncForPC(reflect.ValueOf(rt.serve).Pointer()).Name()
		id = name[strings.LastIndex(name, ".")+1:]
		text = strings.TrimPrefix(b.sources.of(b.t, reflect.TypeFor[API]().PkgPath()).functions[id], id+" ")
	}
	if text == "" {
		b.t.Errorf("%s %s has no comment that tells what it does", rt.Method, rt.Path)
	}
	summary, description, _ := strings.Cut(text, ". ")
	op := object{{"tags", []string{tag}}, {"operationId", id}, {"summary", upper(strings.TrimSuffix(summary, "."))}}
	if description != "" {
		op.set("description", description)
	}
	switch {
	case rt.Executors:
		op.set("security", []any{map[string]any{"executor": []any{}}})
	case rt.Scope == "":
		op.set("security", []any{})
	}
	var parameters []any
	if rt.conditional {
		for _, header := range map[string][]string{
			http.MethodGet: {"ifNoneMatchRead"}, http.MethodPut: {"ifMatch", "ifNoneMatch"},
		}[rt.Method] {
			parameters = append(parameters, b.parameter(id, header))
		}
		if rt.Method != http.MethodGet && rt.Method != http.MethodPut {
			parameters = append(parameters, b.parameter(id, "ifMatch"))
		}
	}
	for _, name := range rt.Query {
		parameters = append(parameters, b.parameter(id, name))
	}
	if _, ok := b.parts.Parameters[id+" traceparent"]; ok {
		parameters = append(parameters, b.parameter(id, "traceparent"))
	}
	if parameters != nil {
		op.set("parameters", parameters)
	}
	if rt.takes != nil {
		body := object{{"content", b.content(rt.takes)}}
		if !rt.optional {
			body = append(object{{"required", true}}, body...)
		}
		op.set("requestBody", body)
	}
	op.set("responses", b.responses(rt))
	return op
}

func (b *builder) responses(rt route) object {
	responses := object{}
	success := func(status int, bodies ...any) {
		one := object{{"description", http.StatusText(status)}}
		if len(bodies) > 0 && b.revised[reflect.TypeOf(bodies[0])] {
			one.set("headers", map[string]any{"ETag": ref("headers", "ETag")})
		}
		if status == http.StatusAccepted && rt.takes != nil {
			one.set("headers", map[string]any{"Location": ref("headers", "Location")})
		}
		if len(bodies) > 0 {
			one.set("content", b.content(bodies...))
		}
		responses.set(strconv.Itoa(status), one)
	}
	switch {
	case rt.counts != nil && rt.status == 0:
		success(http.StatusOK, rt.gives, rt.counts)
	case rt.counts != nil:
		success(http.StatusOK, rt.counts)
		success(rt.status, rt.gives)
	case rt.Method == http.MethodDelete:
		success(http.StatusNoContent)
		if rt.gives != nil {
			success(http.StatusAccepted, rt.gives)
		}
	default:
		success(max(rt.status, http.StatusOK), rt.gives)
	}
	if rt.creates != nil {
		success(http.StatusCreated, rt.creates)
	}
	if rt.conditional && rt.Method == http.MethodGet {
		responses.set("304", ref("responses", "NotModified"))
	}
	if rt.Scope != "" || rt.Probe {
		responses.set("default", ref("responses", "Problem"))
	}
	return responses
}

// content describes a body, of one type or of one of several.
func (b *builder) content(bodies ...any) object {
	if _, text := bodies[0].(string); text {
		plain := object{{"schema", object{{"type", "string"}}}}
		return object{{"text/plain", plain}, {"application/openmetrics-text", plain}}
	}
	s := b.schema(reflect.TypeOf(bodies[0]))
	if len(bodies) > 1 {
		s = object{{"oneOf", []any{s, b.schema(reflect.TypeOf(bodies[1]))}}}
	}
	if reflect.TypeOf(bodies[0]) == reflect.TypeFor[[]executorResult]() {
		s.set("maxItems", maxCallbacks)
	}
	return object{{"application/json", object{{"schema", s}}}}
}

func upper(text string) string {
	if text == "" {
		return text
	}
	return string(unicode.ToUpper(rune(text[0]))) + text[1:]
}

func ref(section, name string) object {
	return object{{"$ref", fmt.Sprintf("#/components/%s/%s", section, name)}}
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

func (o object) get(key string) any {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (o *object) set(key string, value any) {
	for i, m := range *o {
		if m.key == key {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{key, value})
}

// MarshalJSON writes the members.
func (o object) MarshalJSON() ([]byte, error) {
	members := make([]string, len(o))
	for i, m := range o {
		members[i] = compact(m.key) + ": " + compact(m.value)
	}
	return []byte("{" + strings.Join(members, ", ") + "}"), nil
}

func compact(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// layOut writes a line for each operation, component, property and parameter, so that a change of one changes one line.
func layOut(v any, indent string) string {
	var o object
	switch v := v.(type) {
	case object:
		o = v
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o = append(o, member{key, v[key]})
		}
	default:
		return compact(v)
	}
	const deep = 4
	if len(o) == 0 || len(indent) >= 2*deep && o.get("properties") == nil {
		return compact(o)
	}
	lines := make([]string, len(o))
	for i, m := range o {
		value := compact(m.value)
		switch inner, _ := m.value.(object); {
		case m.key == "properties":
			value = layOutEach(inner, indent+"    ")
		case len(value) > 100 || len(indent) < 4:
			value = layOut(m.value, indent+"  ")
		}
		lines[i] = indent + "  " + compact(m.key) + ": " + value
	}
	return "{\n" + strings.Join(lines, ",\n") + "\n" + indent + "}"
}

func layOutEach(o object, indent string) string {
	lines := make([]string, len(o))
	for i, m := range o {
		lines[i] = indent + compact(m.key) + ": " + compact(m.value)
	}
	return "{\n" + strings.Join(lines, ",\n") + "\n" + strings.TrimSuffix(indent, "  ") + "}"
}
