package provider

import (
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// connection is what the provider block gives to resources and data sources.
type connection struct {
	*client.Client                   // nil while an argument of the provider block is unknown
	endpoint       string            // as configured, for messages; it holds no credentials
	unknown        []string          // the arguments of the provider block that are unknown
	labels         map[string]string // default_labels
	labelsUnknown  bool
	apps           known[*access.App] // as the API has them; nil: it could not be read
	// bounds and defaults of apps are those of this plan. Bounds are nil while they are not known before apply.
	bounds    known[*target.Bounds]
	defaults  known[plannedDefaults]
	calendars knownCalendars
	groups    knownGroups
	jobs      knownJobs
	told      *told
	zones     sync.Once // they were compared with the dispatcher's
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
