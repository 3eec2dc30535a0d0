package provider

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// nameRule describes the rule of input.CheckName.
const nameRule = "1 to 63 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or digit"

// The attributes that several resources have.

func appAttribute(kind string) schema.StringAttribute {
	return schema.StringAttribute{
		Required: true,
		MarkdownDescription: "Name of the app. Refer to the resource, `carillon_app.NAME.name`, so that Terraform creates " +
			"it first. Changing it replaces the " + kind + ".",
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// nameAttribute takes a condition on replacement that completes its description, if any.
func nameAttribute(kind, condition string) schema.StringAttribute {
	return schema.StringAttribute{
		Required: true,
		MarkdownDescription: "Name of the " + kind + ": " + nameRule + ". Changing it replaces the " + kind +
			condition + ".",
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

func descriptionAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(""),
		MarkdownDescription: "Free text of at most 1024 characters. Default: empty.",
	}
}

// revisionAttribute takes the changes that are easily overlooked, if any.
func revisionAttribute(kind, including string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Computed: true,
		MarkdownDescription: "Number of the current version of the " + kind + ". Every change adds one" + including +
			". An update planned for another revision is refused.",
	}
}

// The kinds of optional attribute. Those with a default complete their description with it.

func optionalString(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, MarkdownDescription: description}
}

func requiredString(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, MarkdownDescription: description}
}

// resolvedString is optional; the API resolves its default from other attributes.
func resolvedString(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: description}
}

func stringWithDefault[S ~string](value S, description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(string(value)),
		MarkdownDescription: description + " Default: `" + string(value) + "`.",
	}
}

func boolWithDefault(value bool, description string) schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true, Computed: true, Default: booldefault.StaticBool(value),
		MarkdownDescription: description + " Default: `" + strconv.FormatBool(value) + "`.",
	}
}

// numberWithDefault is a number and not an integer; expander.whole says why.
func numberWithDefault(value int, description string) schema.NumberAttribute {
	return schema.NumberAttribute{
		Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(float64(value))),
		MarkdownDescription: description + " Default: `" + strconv.Itoa(value) + "`.",
	}
}

// optionalEquivalent is for strings that are compared by their meaning.
func optionalEquivalent[E equivalence](description string) schema.StringAttribute {
	a := optionalString(description)
	a.CustomType, a.PlanModifiers = semanticType[E]{}, []planmodifier.String{keepEquivalent[E]{}}
	return a
}

func durationWithDefault(value input.Duration, description string) schema.StringAttribute {
	a := optionalEquivalent[durations](description + " Default: `" + formatDuration(value) + "`.")
	a.Computed, a.Default = true, stringdefault.StaticString(formatDuration(value))
	return a
}

func optionalStringMap(description string) schema.MapAttribute {
	return schema.MapAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: description}
}

// listWithDefault is a list for which null and [] mean the same, as they do on the wire: the
// plan always says [].
func listWithDefault(element attr.Type, description string) schema.ListAttribute {
	return schema.ListAttribute{
		Optional: true, Computed: true, ElementType: element, MarkdownDescription: description,
		Default: listdefault.StaticValue(types.ListValueMust(element, []attr.Value{})),
	}
}

// optionalList is a list that means its default if it is null, and none if it is [].
func optionalList(element attr.Type, description string) schema.ListAttribute {
	return schema.ListAttribute{Optional: true, ElementType: element, MarkdownDescription: description}
}

func optionalObject(description string, attributes map[string]schema.Attribute) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: description, Attributes: attributes,
	}
}

// rememberTypes gives nested attributes their types for good. Without, the framework builds each type again whenever it
// looks at the attribute, which is a tenth of what a plan costs.
func rememberTypes(attributes map[string]schema.Attribute) map[string]schema.Attribute {
	for name, a := range attributes {
		switch a := a.(type) {
		case schema.SingleNestedAttribute:
			a.Attributes = rememberTypes(a.Attributes)
			a.CustomType = a.GetType().(types.ObjectType)
			attributes[name] = a
		case schema.MapNestedAttribute:
			a.NestedObject.Attributes = rememberTypes(a.NestedObject.Attributes)
			a.NestedObject.CustomType = a.NestedObject.Type()
			a.CustomType = a.GetType().(types.MapType)
			attributes[name] = a
		}
	}
	return attributes
}

// either lists words for a description: `A`, `B` or `C`.
func either[S ~string](words []S) string {
	var b strings.Builder
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString("`" + string(word) + "`")
	}
	return b.String()
}
