package provider_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/provider"
)

// emptyTexts are the optional texts where "" is a valid value that the state can hold.
var emptyTexts = []string{
	"carillon_alert.description", "carillon_app.bounds.suspended_reason", "carillon_app.description", "carillon_calendar.description",
	"carillon_endpoint_group.description", "carillon_job.description",
}

// A module passes "" for a missing value. If an attribute accepts it as anything else, the apply fails on a null state.
func TestEmptyTextIsRefusedUnlessItIsAValue(t *testing.T) {
	t.Parallel()
	server := provider.NewServer(t.Context(), "test")
	got, err := providerserver.NewProtocol6(provider.New("test")())().GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var accepted []string
	texts := 0
	for name, schema := range got.ResourceSchemas {
		for path := range optionalTexts(schema.Block.Attributes, nil) {
			texts++
			config, err := tfprotov6.NewDynamicValue(schema.ValueType(), withText(schema.Block.Attributes, path, ""))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := server.ValidateResourceConfig(t.Context(), &tfprotov6.ValidateResourceConfigRequest{
				TypeName: name, Config: &config,
				ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(resp.Diagnostics, func(d *tfprotov6.Diagnostic) bool {
				return strings.Contains(d.Attribute.String(), path[len(path)-1])
			}) && path[len(path)-1] != "value_version" { // only Terraform has it
				accepted = append(accepted, name+"."+strings.Join(path, "."))
			}
		}
	}
	slices.Sort(accepted)
	if diff := cmp.Diff(emptyTexts, accepted); diff != "" || texts < 50 {
		t.Errorf("of %d optional texts these take \"\" (-want +got):\n%s", texts, diff)
	}
}

// optionalTexts yields the paths of the optional texts among attributes, which are below the path at.
func optionalTexts(attributes []*tfprotov6.SchemaAttribute, at []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for _, a := range attributes {
			path := append(slices.Clone(at), a.Name)
			switch {
			case !a.Optional && !a.Required:
			case a.NestedType != nil:
				for below := range optionalTexts(a.NestedType.Attributes, path) {
					if !yield(below) {
						return
					}
				}
			case a.Optional && a.Type.Is(tftypes.String):
				if !yield(path) {
					return
				}
			}
		}
	}
}

// withText returns an object with a text at path. Required siblings are unknown, so that they cause
// no problem; other attributes are left out.
func withText(attributes []*tfprotov6.SchemaAttribute, path []string, text string) tftypes.Value {
	types, values := map[string]tftypes.Type{}, map[string]tftypes.Value{}
	for _, a := range attributes {
		of := a.ValueType()
		types[a.Name] = of
		switch {
		case a.Name != path[0] && a.Name == "name": // a block with an unknown name is not checked
			values[a.Name] = tftypes.NewValue(of, "a")
		case a.Name != path[0] && a.Required:
			values[a.Name] = tftypes.NewValue(of, tftypes.UnknownValue)
		case a.Name != path[0]:
			values[a.Name] = tftypes.NewValue(of, nil)
		case len(path) == 1:
			values[a.Name] = tftypes.NewValue(of, text)
		default:
			values[a.Name] = inside(a.NestedType, withText(a.NestedType.Attributes, path[1:], text))
		}
	}
	return tftypes.NewValue(tftypes.Object{AttributeTypes: types}, values)
}

// inside returns the value of a nested attribute that contains object.
func inside(nested *tfprotov6.SchemaObject, object tftypes.Value) tftypes.Value {
	switch nested.Nesting {
	case tfprotov6.SchemaObjectNestingModeList, tfprotov6.SchemaObjectNestingModeSet:
		return tftypes.NewValue(nested.ValueType(), []tftypes.Value{object})
	}
	return object
}
