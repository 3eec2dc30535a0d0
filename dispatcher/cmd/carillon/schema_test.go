package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// apiSchemas are the schemas of openapi.json.
type apiSchemas map[string]apiSchema

// apiSchema is the part of a schema with the fields of an object.
type apiSchema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]apiSchema
	Required             []string
	Items                *apiSchema
	AdditionalProperties any
}

// is reports whether a schema permits a type; a schema without types permits all.
func (s apiSchema) is(kind string) bool {
	several, _ := s.Type.([]any)
	return s.Type == nil || s.Type == kind || slices.Contains(several, any(kind))
}

func readSchemas(t *testing.T, document string) apiSchemas {
	t.Helper()
	var doc struct {
		Components struct{ Schemas apiSchemas }
	}
	if err := json.Unmarshal([]byte(document), &doc); err != nil || len(doc.Components.Schemas) < 30 {
		t.Fatalf("openapi.json has %d schemas, %v", len(doc.Components.Schemas), err)
	}
	return doc.Components.Schemas
}

// check requires that the output of a command matches the schema. As lines, each line is an item of a list.
func (s apiSchemas) check(t *testing.T, command, form, schema, out string) {
	t.Helper()
	if form == outputTable {
		return
	}
	described, texts := apiSchema{Ref: "/" + schema}, []string{out}
	if form == outputLines {
		if list := s[schema].Properties["items"]; list.Items != nil {
			described = *list.Items
		}
		texts = strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	for _, text := range texts {
		if text == "" && form == outputLines {
			continue // an empty list has no line
		}
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Errorf("%s: %v: %s", command, err, text)
			continue
		}
		for _, problem := range s.problems(described, "", value) {
			t.Errorf("%s: %s: %s", command, problem, text)
		}
	}
}

// problems returns the differences between a value and its schema.
func (s apiSchemas) problems(described apiSchema, at string, value any) (found []string) {
	if described.Ref != "" {
		name := described.Ref[strings.LastIndex(described.Ref, "/")+1:]
		target, known := s[name]
		if !known {
			return []string{"no schema " + name}
		}
		return s.problems(target, at, value)
	}
	switch v := value.(type) {
	case map[string]any:
		if !described.is("object") {
			found = append(found, fmt.Sprintf("%s is an object, and its schema says %v", at, described.Type))
		}
		for _, name := range described.Required {
			if _, has := v[name]; !has {
				found = append(found, at+"/"+name+" is missing")
			}
		}
		for name, field := range v {
			property, known := described.Properties[name]
			switch {
			case known:
				found = append(found, s.problems(property, at+"/"+name, field)...)
			case described.Properties != nil && described.AdditionalProperties == nil:
				found = append(found, at+"/"+name+" is in no schema")
			}
		}
	case []any:
		if !described.is("array") {
			found = append(found, fmt.Sprintf("%s is an array, and its schema says %v", at, described.Type))
		}
		for i, item := range v {
			if described.Items != nil {
				found = append(found, s.problems(*described.Items, fmt.Sprintf("%s/%d", at, i), item)...)
			}
		}
	}
	return found
}
