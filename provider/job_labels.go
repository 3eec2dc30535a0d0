package provider

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// defaultLabels returns the default_labels of the provider block, and whether they are known only after apply.
func defaultLabels(value types.Map, diags *diag.Diagnostics) (labels map[string]string, unknown bool) {
	var e binding.Expander
	labels = e.StringMap("/default_labels", value)
	if len(e.Unknown) > 0 {
		return nil, true
	}
	problems := e.Problems
	problems.AddError("/default_labels", input.Labels(labels).Validate())
	for _, p := range problems {
		diags.AddAttributeError(path.Root("default_labels"), "Invalid default_labels of the Carillon provider", p.Message)
	}
	return labels, false
}

// withDefaultLabels returns the labels of a job with those of the provider that it does not replace.
func (c *connection) withDefaultLabels(own map[string]string) input.Labels {
	if len(c.labels) == 0 {
		return own
	}
	all := maps.Clone(c.labels)
	maps.Copy(all, own)
	return all
}

// plannedLabels returns labels_all of a plan.
func (c *connection) plannedLabels(ctx context.Context, diags *diag.Diagnostics, own types.Map) types.Map {
	var e binding.Expander
	labels := e.StringMap("/labels", own)
	if c.labelsUnknown || len(e.Unknown) > 0 {
		return types.MapUnknown(types.StringType)
	}
	all := c.withDefaultLabels(labels)
	var problems input.Problems
	problems.AddError("/labels", all.Validate())
	reportProblems(diags, problems)
	return binding.TextMap(diags, all, types.MapNull(types.StringType))
}

// showLabels sets the labels of a job in its model. Default ones that prior does not write are in labels_all only.
func (c *connection) showLabels(ctx context.Context, diags *diag.Diagnostics, labels input.Labels, prior types.Map, m binding.Values) {
	own, written := map[string]string{}, prior.Elements()
	for name, value := range labels {
		_, here := written[name]
		if given, isDefault := c.labels[name]; here || !isDefault || given != value {
			own[name] = value
		}
	}
	m["labels"] = binding.TextMap(diags, own, prior)
	m["labels_all"] = binding.TextMap(diags, labels, types.MapNull(types.StringType))
}
