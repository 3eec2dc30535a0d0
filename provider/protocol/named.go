package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// Names are the names of named blocks in the order in which Terraform has them, by the place of the blocks, such as
// target.webhook.signing.secret. Terraform compares lists by position, while the order of these blocks has no meaning.
// So a plan keeps each block where the state has it, and a change shows nothing but what changed.
type Names map[string][]string

// asConfigured are the blocks that stand as in the configuration all the same: a URL may be sensitive, and Terraform
// hides the values that it marks so by their position there.
const asConfigured = "endpoint"

// inOrder returns the keys of blocks in the order that placed gives them after those of n.
func (n Names) inOrder(at string, blocks map[string]attr.Value) []string {
	return placed(n[at], slices.Sorted(maps.Keys(blocks)))
}

// planned returns the order of a planned state; prior is the state before.
func planned(config, prior Object) Names {
	all := maps.Clone(config.Names)
	for at, names := range config.Names {
		if at != asConfigured {
			all[at] = placed(renamed(prior.Names[at], config, at), names)
		}
	}
	return all
}

// renamed returns names of the state before, in which a block that the configuration renames has its new name.
func renamed(before []string, config Object, at string) []string {
	after := slices.Clone(before)
	for name, block := range inside(config.Values[at]) {
		former, _ := inside(block)["renamed_from"].(types.String)
		i := slices.Index(before, former.ValueString())
		if i >= 0 && !slices.Contains(before, name) && !slices.Contains(config.Names[at], before[i]) {
			after[i] = name
		}
	}
	return after
}

// placed keeps the names of before at their places. New names take the places of removed ones, and then follow. A
// place that is still free gets the last name.
func placed(before, names []string) []string {
	added := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(before, name) })
	all := slices.Clone(before)
	for i := 0; i < len(all); i++ {
		if slices.Contains(names, all[i]) {
			continue
		}
		if len(added) > 0 {
			all[i], added = added[0], added[1:]
			continue
		}
		for len(all) > i && !slices.Contains(names, all[len(all)-1]) {
			all = all[:len(all)-1]
		}
		if len(all) > i {
			all[i], all = all[len(all)-1], all[:len(all)-1]
		}
	}
	return append(all, added...)
}

// unknown returns the places at which an existing resource has a block of unknown name. It may be any of the blocks
// there, or a new one, and Terraform demands that the final plan has it at the same place. So none is planned.
func (n Names) unknown() (places []string) {
	for at, names := range n {
		if slices.ContainsFunc(names, binding.IsUnknownName) {
			places = append(places, at)
		}
	}
	return places
}

// moved reports whether a block of a plan has another position in the configuration or in the state before, which
// Terraform refuses unless a provider asks for the rules of providers that are older than its type system.
func (n Names) moved(config, before Names) bool {
	for at, names := range n {
		if !slices.Equal(names, config[at]) {
			return true
		}
		for i, name := range names {
			if was := slices.Index(before[at], name); was >= 0 && was != i {
				return true
			}
		}
	}
	return false
}

// nameValue returns the value of a block's name.
func nameValue(key string) types.String {
	if binding.IsUnknownName(key) {
		return types.StringUnknown()
	}
	return types.StringValue(key)
}

// misnamed is a block with the name of another one, or with none.
type misnamed struct {
	at    string
	index int
	name  types.String
}

// report adds an error for each block.
func report(diags *diag.Diagnostics, blocks []misnamed) {
	for _, one := range blocks {
		steps := strings.Split(one.at, ".")
		at := path.Root(steps[0])
		for _, step := range steps[1:] {
			at = at.AtName(step)
		}
		at = at.AtListIndex(one.index).AtName(nameOfBlock)
		if one.name.IsNull() {
			diags.AddAttributeError(at, input.RowOf(input.CodeRequired).Title, binding.WithCode(at.String()+" is missing", input.CodeRequired))
			continue
		}
		diags.AddAttributeError(at, "Two blocks have the same name", binding.WithCode(fmt.Sprintf(
			"%s: two %s blocks have the name %q; give each a name of its own", one.at, steps[len(steps)-1], one.name.ValueString()),
			input.CodeNameTaken))
	}
}

// Diagnostics converts diagnostics to those of the protocol. Names are those of the configuration, to which Terraform
// refers.
func (n Names) Diagnostics(diags diag.Diagnostics) []*tfprotov6.Diagnostic {
	var all []*tfprotov6.Diagnostic
	for _, d := range diags {
		one := &tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityWarning, Summary: d.Summary(), Detail: d.Detail()}
		if d.Severity() == diag.SeverityError {
			one.Severity = tfprotov6.DiagnosticSeverityError
		}
		if at, ok := d.(diag.DiagnosticWithPath); ok {
			one.Attribute = n.pathOf(at.Path())
		}
		all = append(all, one)
	}
	return all
}

// pathOf converts a path to that of the protocol: a named block to the name at its position, because Terraform shows no
// line of a block in a list. A block that the configuration does not have, such as a removed one, leads to all of its
// kind.
func (n Names) pathOf(p path.Path) *tftypes.AttributePath {
	var steps []tftypes.AttributePathStep
	at := ""
	for i, step := range p.Steps() {
		switch step := step.(type) {
		case path.PathStepAttributeName:
			steps, at = append(steps, tftypes.AttributeName(string(step))), strings.TrimPrefix(at+"."+string(step), ".")
		case path.PathStepElementKeyInt:
			steps = append(steps, tftypes.ElementKeyInt(int64(step)))
		case path.PathStepElementKeyString:
			names, are := n[at]
			place := slices.Index(names, string(step))
			switch {
			case !are:
				steps = append(steps, tftypes.ElementKeyString(string(step)))
			case place < 0:
				return tftypes.NewAttributePathWithSteps(steps)
			default:
				steps = append(steps, tftypes.ElementKeyInt(int64(place)))
				if i == len(p.Steps())-1 {
					steps = append(steps, tftypes.AttributeName(nameOfBlock))
				}
			}
		}
	}
	return tftypes.NewAttributePathWithSteps(steps)
}
