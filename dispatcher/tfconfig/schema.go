package tfconfig

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Kind is how something in a resource is written.
type Kind string

// The kinds. Those up to Labelled are attributes, the others are blocks.
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

	Single   Kind = "block"    // a block that may be given once
	Repeated Kind = "blocks"   // a block that may be repeated, in order
	Labelled Kind = "labelled" // blocks with a name as their label
)

// Attribute is an attribute or a block of a resource.
type Attribute struct {
	Kind     Kind `json:"kind"`
	Required bool `json:"required,omitempty"`
	// ReadOnly is set for what only the server sets.
	ReadOnly bool `json:"read_only,omitempty"`
	// Attributes are those of a block.
	Attributes Schema `json:"attributes,omitempty"`
}

// Schema is what a resource or a block may hold, by name.
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
	return all
})

func (a Attribute) isBlock() bool {
	return a.Kind == Single || a.Kind == Repeated || a.Kind == Labelled
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
var fields = map[string]string{"trigger": "triggers", "endpoint": "endpoints", "rule": "rules", "mute": "mutes", "secret": "secrets"}

// field returns the API's name of an attribute.
func field(name string) string {
	if other, ok := fields[name]; ok {
		return other
	}
	return name
}
