package provider

import (
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/provider/plan"
)

// connection is what the provider block gives to resources and data sources, and what its process knows of the plan.
type connection struct {
	*plan.Plan
	unknown       []string          // the arguments of the provider block that are unknown
	labels        map[string]string // default_labels
	labelsUnknown bool
}

// unconfigured returns the connection of a provider that has none, as during validation.
func unconfigured() *connection {
	return &connection{Plan: plan.New(paths(), ""), labelsUnknown: true}
}

// configured returns the connection from the data that Terraform passes to Configure. It is nil
// while the provider is not configured, as during validation.
func configured(providerData any) *connection {
	conn, _ := providerData.(*connection)
	return conn
}

// ready reports whether requests can be made. If not, it adds an error that says why.
func (c *connection) ready(diags *diag.Diagnostics) bool {
	if len(c.unknown) == 0 {
		return true
	}
	diags.AddAttributeError(path.Root(c.unknown[0]), "The Carillon provider is not configured yet",
		fmt.Sprintf("The %s of the provider block is known only after apply, but this plan must read from the API now. "+
			"First apply the resources that it depends on with -target, or set a value that is known at plan.",
			strings.Join(c.unknown, " and ")))
	return false
}
