package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// A JSON pointer into each list and map of a resource leads to an element of it.
func TestPathsFollowListsAndMapsOfTheSchemas(t *testing.T) {
	t.Parallel()
	for _, of := range []schema.Schema{appSchema(), alertSchema(), calendarSchema(), groupSchema(), jobSchema()} {
		checkPaths(t, "", of.Attributes)
	}
}

func checkPaths(t *testing.T, pointer string, attributes map[string]schema.Attribute) {
	t.Helper()
	for name, a := range attributes {
		pointer := pointer + "/" + name
		if rest, ok := strings.CutPrefix(pointer, "/default_"); ok {
			pointer = "/defaults/" + rest
		}
		for ofAPI, block := range tokensOfRows().blocks {
			if name == block {
				pointer = strings.TrimSuffix(pointer, block) + ofAPI
			}
		}
		if name == "next_fire_times" {
			continue // nobody writes it
		}
		switch a := a.(type) {
		case schema.SingleNestedAttribute:
			checkPaths(t, pointer, a.Attributes)
		case schema.MapNestedAttribute:
			checkPaths(t, pointer+"/0", a.NestedObject.Attributes)
		case schema.ListNestedAttribute:
			checkPaths(t, pointer+"/0", a.NestedObject.Attributes)
		}
		steps := attributePath(pointer + "/0").Steps()
		step := steps[len(steps)-1]
		switch a.(type) {
		case schema.MapAttribute, schema.MapNestedAttribute:
			if !step.Equal(path.PathStepElementKeyString("0")) {
				t.Errorf("%s/0 ends with %s, want a key", pointer, step)
			}
		case schema.ListAttribute, schema.ListNestedAttribute:
			if !step.Equal(path.PathStepElementKeyInt(0)) {
				t.Errorf("%s/0 ends with %s, want an index", pointer, step)
			}
		}
	}
}
