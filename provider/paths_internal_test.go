package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/carillon-dev/carillon/provider/binding"
)

// A JSON pointer into each list and map of a resource leads to an element of it.
func TestPathsFollowListsAndMapsOfTheSchemas(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{}
	kinds := []*binding.Rows{jobRows, alertRows, groupRows, appRows, calendarRows}
	for _, kind := range kinds {
		kind.Walk(func(_ *binding.Rows, a binding.Placed) {
			if a.IsInput && (a.IsMap || a.IsList) && a.Name != a.Token && !strings.Contains(a.Token, "/") {
				tokens[a.Name] = a.Token
			}
		})
	}
	for _, kind := range kinds {
		checkPaths(t, tokens, "", kind.Attributes())
	}
}

// checkPaths checks the paths of attributes; tokens are the names in the API where they differ.
func checkPaths(t *testing.T, tokens map[string]string, pointer string, attributes map[string]schema.Attribute) {
	t.Helper()
	for name, a := range attributes {
		pointer := pointer + "/" + name
		if rest, ok := strings.CutPrefix(pointer, "/default_"); ok {
			pointer = "/defaults/" + rest
		}
		if token := tokens[name]; token != "" {
			pointer = strings.TrimSuffix(pointer, name) + token
		}
		if name == "next_fire_times" {
			continue // users do not set it
		}
		switch a := a.(type) {
		case schema.SingleNestedAttribute:
			checkPaths(t, tokens, pointer, a.Attributes)
		case schema.ListNestedAttribute:
			checkPaths(t, tokens, pointer+"/0", a.NestedObject.Attributes)
		}
		steps := paths().Of(pointer + "/0").Steps()
		step := steps[len(steps)-1]
		switch nested := a.(type) {
		case schema.MapAttribute:
			if !step.Equal(path.PathStepElementKeyString("0")) {
				t.Errorf("%s/0 ends with %s, want a key", pointer, step)
			}
		case schema.ListAttribute:
			if !step.Equal(path.PathStepElementKeyInt(0)) {
				t.Errorf("%s/0 ends with %s, want an index", pointer, step)
			}
		case schema.ListNestedAttribute: // a block with a name has that as its key
			var key path.PathStep = path.PathStepElementKeyInt(0)
			if nested.NestedObject.Attributes["name"] != nil {
				key = path.PathStepElementKeyString("0")
			}
			if !step.Equal(key) {
				t.Errorf("%s/0 ends with %s, want an index", pointer, step)
			}
		}
	}
}
