package provider

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/tfconfig"
	"github.com/carillon-dev/carillon/provider/binding"
)

// carillon lint must know the provider's schema. To write its file again, run UPDATE_TFCONFIG=1 go
// test ./provider -run TestLintKnowsTheSchemaOfTheProvider.
func TestLintKnowsTheSchemaOfTheProvider(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "dispatcher", "tfconfig", "schema.json")
	all := map[string]tfconfig.Schema{}
	for kind, of := range map[string]*binding.Rows{
		tfconfig.AlertType: alertRows, tfconfig.AppType: appRows, tfconfig.CalendarType: calendarRows,
		tfconfig.GroupType: groupRows, tfconfig.JobType: jobRows,
	} {
		all[kind] = lintSchema(t, of.Attributes())
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if os.Getenv("UPDATE_TFCONFIG") != "" {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(got)); diff != "" {
		t.Errorf("%s differs from the schema; write it with UPDATE_TFCONFIG=1 (-want +got):\n%s", file, diff)
	}
}

// lintSchema returns attributes in the form of package tfconfig: nested ones that users write are blocks.
func lintSchema(t *testing.T, attributes map[string]schema.Attribute) tfconfig.Schema {
	t.Helper()
	all := tfconfig.Schema{}
	for name, a := range attributes {
		one := tfconfig.Attribute{Required: a.IsRequired(), ReadOnly: !a.IsRequired() && !a.IsOptional()}
		switch nested := a.(type) {
		case schema.SingleNestedAttribute:
			one.Kind, one.Attributes = tfconfig.Single, lintSchema(t, nested.Attributes)
		case schema.ListNestedAttribute:
			one.Kind, one.Attributes = tfconfig.Repeated, lintSchema(t, nested.NestedObject.Attributes)
			if one.Attributes["name"].Required {
				one.Kind = tfconfig.Named
			}
		default:
			one.Kind = lintKind(a.GetType())
		}
		if name == "delays" { // Terraform compares their texts
			one.Kind = tfconfig.Durations
		}
		if one.Kind == "" && !one.ReadOnly {
			t.Errorf("attribute %s has type %s, which package tfconfig does not read", name, a.GetType())
		}
		all[name] = one
	}
	return all
}

// lintKind returns the kind of an attribute, or "".
func lintKind(of attr.Type) tfconfig.Kind {
	switch of := of.(type) {
	case binding.SemanticType[binding.DurationText]:
		return tfconfig.Length
	case binding.SemanticType[binding.InstantText]:
		return tfconfig.Instant
	case binding.SemanticType[binding.DocumentText]:
		return tfconfig.Document
	case types.ListType:
		return map[tfconfig.Kind]tfconfig.Kind{
			tfconfig.Text: tfconfig.Texts, tfconfig.Number: tfconfig.Numbers, tfconfig.Length: tfconfig.Durations,
		}[lintKind(of.ElemType)]
	case types.MapType:
		if of.ElemType.Equal(types.StringType) {
			return tfconfig.TextMap
		}
	}
	for kind, is := range map[tfconfig.Kind]attr.Type{
		tfconfig.Text: types.StringType, tfconfig.Flag: types.BoolType, tfconfig.Number: types.NumberType,
	} {
		if of.Equal(is) {
			return kind
		}
	}
	return ""
}
