package tfconfig

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Resource is one instance of a resource of Carillon.
type Resource struct {
	// Type is one of the types of this package.
	Type string
	// Address is its name in Terraform, such as carillon_job.nightly["eu"].
	Address string

	at       hcl.Range
	root     *node
	provider string // its configuration in the root module, such as carillon.staging
}

// File is the path of the file that declares it.
func (r *Resource) File() string { return r.at.Filename }

// Line of the declaration, from 1.
func (r *Resource) Line() int { return r.at.Start.Line }

// uncertain reports whether it stands for instances of an unknown number.
func (r *Resource) uncertain() bool { return strings.Contains(r.Address, anyInstance) }

// name returns the value of its attribute name; ok is false if it is unknown.
func (r *Resource) name() (string, bool) { return r.root.part("name").text() }

// app returns the name of the app that it is or belongs to; ok is false if it is unknown.
func (r *Resource) app() (string, bool) {
	if r.Type == AppType {
		return r.name()
	}
	return r.root.part("app").text()
}

// read evaluates the resources of a module and of those that it calls.
func (m *moduleInstance) read() {
	for _, block := range m.resources {
		m.resource(block)
	}
	for _, name := range slices.Sorted(maps.Keys(m.modules)) {
		made := m.call(name)
		if made == nil {
			continue
		}
		for _, one := range made.modules {
			m.module.Called[filepath.Join(m.root, one.path)] = true
			one.read()
		}
	}
}

// unique removes repeated problems of the instances of a resource.
func unique(problems []Problem) []Problem {
	type place struct {
		file, code, message string
		line, column        int
	}
	seen := map[place]bool{}
	return slices.DeleteFunc(problems, func(p Problem) bool {
		key := place{p.File, p.Code, p.Message, p.Line, p.Column}
		again := seen[key]
		seen[key] = true
		return again
	})
}

// instances are the instances of a resource or a module.
type instances struct {
	all []instance
	by  string // count, for_each, or nothing
	// known is false if they depend on unknown values. One instance stands for them, so that misspelt names are found
	// all the same.
	known bool
}

// instance is one instance of a resource or a module.
type instance struct {
	key    string // of for_each
	suffix string // of the address
	scope  scope
}

// anyInstance ends the address of an instance that stands for unknown ones.
const anyInstance = "[?]"

// instancesOf returns the instances of a resource or a module.
func instancesOf(body *hclsyntax.Body, s scope) instances {
	unknown := instances{all: []instance{{suffix: anyInstance, scope: s.with("each", cty.DynamicVal).with("count", cty.DynamicVal)}}}
	if count := body.Attributes["count"]; count != nil {
		value := s.value(count.Expr)
		if !value.IsKnown() || value.IsNull() || value.Type() != cty.Number {
			return unknown
		}
		n, _ := value.AsBigFloat().Int64()
		const most = 10_000 // real modules have fewer; without a bound, a mistake would take all memory
		all := instances{by: "count", known: true}
		for i := range min(n, most) {
			index := cty.ObjectVal(map[string]cty.Value{"index": cty.NumberIntVal(i)})
			all.all = append(all.all, instance{suffix: fmt.Sprintf("[%d]", i), scope: s.with("count", index)})
		}
		return all
	}
	each := body.Attributes["for_each"]
	if each == nil {
		return instances{all: []instance{{scope: s}}, known: true}
	}
	elements, ok := elementsOf(s.value(each.Expr))
	if !ok {
		return unknown
	}
	all := instances{by: "for_each", known: true}
	for _, e := range elements {
		if e.key.IsNull() || e.key.Type() != cty.String {
			return unknown
		}
		value := cty.ObjectVal(map[string]cty.Value{"key": e.key, "value": e.value})
		all.all = append(all.all, instance{e.key.AsString(), fmt.Sprintf("[%q]", e.key.AsString()), s.with("each", value)})
	}
	return all
}

// value returns the value of a reference to instances, from that of each.
func (i instances) value(one func(n int) cty.Value) cty.Value {
	switch {
	case !i.known:
		return cty.DynamicVal
	case i.by == "":
		return one(0)
	case i.by == "count":
		var all []cty.Value
		for n := range i.all {
			all = append(all, one(n))
		}
		return cty.TupleVal(all)
	}
	all := map[string]cty.Value{}
	for n := range i.all {
		all[i.all[n].key] = one(n)
	}
	return object(all)
}

// metaArguments are attributes of every resource.
var metaArguments = []string{"count", "for_each", "depends_on", "provider"}

// resource reads all instances of a resource.
func (m *moduleInstance) resource(block *hclsyntax.Block) {
	address := m.address + strings.Join(block.Labels, ".")
	provider := m.provider("carillon")
	if given := block.Body.Attributes["provider"]; given != nil {
		provider = m.provider(traversed(given.Expr))
	}
	schema := Schemas()[block.Labels[0]]
	body := &hclsyntax.Body{Attributes: maps.Clone(block.Body.Attributes), SrcRange: block.Body.SrcRange}
	for _, name := range metaArguments {
		delete(body.Attributes, name)
	}
	for _, inner := range block.Body.Blocks {
		if !slices.Contains(notAttributes, inner.Type) {
			body.Blocks = append(body.Blocks, inner)
		}
	}
	for _, one := range instancesOf(block.Body, m.scope()).all {
		r := reader{m.module, address + one.suffix, one.scope}
		root := r.block(&node{at: block.DefRange(), kind: block.Labels[0], name: block.Labels[1]}, body, schema)
		if block.Labels[0] == AppType {
			root = withDefaults(root)
		}
		m.module.Resources = append(m.module.Resources, &Resource{block.Labels[0], r.resource, block.DefRange(), root, provider})
	}
}

// Kind is the syntax of a part of a resource.
type Kind string

// The kinds. Those up to TextMap are attributes, the others are blocks.
const (
	Text      Kind = "text"
	Flag      Kind = "flag"      // true or false
	Number    Kind = "number"    // a whole number
	Length    Kind = "duration"  // text such as 30s
	Instant   Kind = "instant"   // text in RFC 3339
	Document  Kind = "json"      // text that is JSON
	Texts     Kind = "texts"     // a list of texts
	Numbers   Kind = "numbers"   // a list of whole numbers
	Durations Kind = "durations" // a list of durations
	TextMap   Kind = "text_map"  // texts by name

	Single   Kind = "block"  // a block that may be given once
	Repeated Kind = "blocks" // a block that may be repeated, in order
	Named    Kind = "named"  // blocks that each have a name of their own as an attribute
)

// Attribute is an attribute or a block of a resource.
type Attribute struct {
	Kind     Kind `json:"kind"`
	Required bool `json:"required,omitempty"`
	// ReadOnly is true if only the server sets it.
	ReadOnly bool `json:"read_only,omitempty"`
	// Attributes are the attributes of a block, for Named without name.
	Attributes Schema `json:"attributes,omitempty"`
}

// Schema has the attributes and blocks of a resource or a block, by name.
type Schema map[string]Attribute

// The types of resources that this package knows.
const (
	AlertType    = "carillon_alert"
	AppType      = "carillon_app"
	CalendarType = "carillon_calendar"
	GroupType    = "carillon_endpoint_group"
	JobType      = "carillon_job"
)

//go:embed schema.json
var schemaText []byte

// Schemas returns the schemas of the resources by their types. They must not be changed.
var Schemas = sync.OnceValue(func() map[string]Schema {
	var all map[string]Schema
	if err := json.Unmarshal(schemaText, &all); err != nil {
		panic(fmt.Sprintf("schema.json: %v", err)) // the provider's test wrote it
	}
	for _, schema := range all {
		schema.omitNames()
	}
	return all
})

// omitNames removes the names of Named blocks. They are keys in the API, where a DNS member has another name.
func (s Schema) omitNames() {
	for _, a := range s {
		if a.Kind == Named {
			delete(a.Attributes, "name")
		}
		a.Attributes.omitNames()
	}
}

func (a Attribute) isBlock() bool {
	return a.Kind == Single || a.Kind == Repeated || a.Kind == Named
}

// names returns the names that a user may write, in order.
func (s Schema) names() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !s[name].ReadOnly {
			all = append(all, name)
		}
	}
	return all
}

// fields are the names that the API has for some attributes and blocks.
var fields = map[string]string{
	"trigger": "triggers", "endpoint": "endpoints", "rule": "rules", "mute": "mutes", "secret": "secrets",
}

// field returns the API's name of an attribute.
func field(name string) string {
	if other, ok := fields[name]; ok {
		return other
	}
	return name
}
