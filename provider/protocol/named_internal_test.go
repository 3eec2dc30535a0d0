package protocol

import (
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// A refresh keeps each block that is still there at its place, so that it shows nothing but what changed.
func TestBlocksStayAtTheirPlaceWhenOthersAreRemovedOutside(t *testing.T) {
	t.Parallel()
	of := Names{"trigger": {"b", "a", "c"}}
	for name, test := range map[string]struct{ read, want []string }{
		"none changed":        {[]string{"a", "b", "c"}, []string{"b", "a", "c"}},
		"first removed":       {[]string{"a", "c"}, []string{"c", "a"}},
		"removed and added":   {[]string{"a", "c", "z"}, []string{"z", "a", "c"}},
		"added":               {[]string{"a", "b", "c", "0"}, []string{"b", "a", "c", "0"}},
		"all others":          {[]string{"y", "x"}, []string{"x", "y"}},
		"all removed":         {nil, nil},
		"last but one stays":  {[]string{"a"}, []string{"a"}},
		"more than there was": {[]string{"c", "z", "y", "x", "w"}, []string{"w", "x", "c", "y", "z"}},
	} {
		blocks := map[string]attr.Value{}
		for _, one := range test.read {
			blocks[one] = types.BoolValue(true)
		}
		if got := of.inOrder("trigger", blocks); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := (Names{}).inOrder("trigger", map[string]attr.Value{"b": nil, "a": nil}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("without a state before: %q", got)
	}
}

// Terraform shows the line of the name for a problem of a whole block.
func TestPathsOfBlocksLeadToTheirNames(t *testing.T) {
	t.Parallel()
	n := Names{"trigger": {"b", "a"}}
	root := tftypes.NewAttributePath().WithAttributeName("trigger")
	block := path.Root("trigger").AtMapKey("a")
	for _, test := range []struct {
		of   path.Path
		want *tftypes.AttributePath
	}{
		{block, root.WithElementKeyInt(1).WithAttributeName("name")},
		{block.AtName("expression"), root.WithElementKeyInt(1).WithAttributeName("expression")},
		{path.Root("trigger").AtMapKey("removed"), root},
		{path.Root("headers").AtMapKey("a"), tftypes.NewAttributePath().WithAttributeName("headers").WithElementKeyString("a")},
	} {
		if got := n.pathOf(test.of); !got.Equal(test.want) {
			t.Errorf("%s: %s, want %s", test.of, got, test.want)
		}
	}
}
