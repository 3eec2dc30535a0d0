package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// connection is what resources and data sources get from the provider block.
type connection struct {
	*client.Client          // nil while an argument is unknown
	endpoint       string   // as given; without credentials
	unknown        []string // the arguments of the provider block that are not known yet
}

// configured returns the connection that Configure is handed; nil before the provider is
// configured, as in validation.
func configured(providerData any) *connection {
	conn, _ := providerData.(*connection)
	return conn
}

// ready tells whether requests can be made, and reports why not.
func (c *connection) ready(diags *diag.Diagnostics) bool {
	if len(c.unknown) == 0 {
		return true
	}
	diags.AddAttributeError(path.Root(c.unknown[0]), "The Carillon provider is not configured yet",
		fmt.Sprintf("The provider block's %s depends on something that is known only after apply, but this plan must read from the API now. "+
			"Apply first what it depends on, with -target, or give a value that is known at plan.", strings.Join(c.unknown, " and ")))
	return false
}

// report turns an error of the client into diagnostics. doing names what was attempted and
// on what: `create job "billing/nightly"`.
func (c *connection) report(diags *diag.Diagnostics, doing string, err error) {
	var response *client.Error
	switch {
	case errors.Is(err, context.Canceled):
		diags.AddError("Interrupted", fmt.Sprintf("The request to %s was given up before its response came.", doing))
	case errors.Is(err, client.ErrForeign):
		diags.AddError("The response does not come from Carillon (provider_endpoint)",
			fmt.Sprintf("Could not %s: %v.\n\nNothing was concluded from the response. Is %s the endpoint of a dispatcher, and does a proxy "+
				"stand between? It is the provider's argument endpoint, or else CARILLON_ENDPOINT.", doing, err, c.endpoint))
	case !errors.As(err, &response):
		diags.AddError("Carillon's API cannot be reached (provider_endpoint)",
			fmt.Sprintf("Could not %s: %v.\n\nIs a dispatcher running at %s, and is this the right endpoint? "+
				"It is the provider's argument endpoint, or else CARILLON_ENDPOINT.", doing, err, c.endpoint))
	case response.Status == http.StatusUnauthorized:
		diags.AddError("Carillon's API does not accept the token (401)",
			fmt.Sprintf("Could not %s: the token is unknown to %s or was revoked.\n\nCreate one with `carillon token create` "+
				"on the dispatcher's database, and set it as CARILLON_TOKEN or as the provider's argument token.", doing, c.endpoint))
	case response.Status == http.StatusForbidden:
		diags.AddError("The token does not allow this (403)",
			fmt.Sprintf("Could not %s: %v.\n\nThe provider needs a token with scope write that is bound to this app, or to none: see `carillon token create`.", doing, err))
	case len(response.Problems) > 0 && response.Problems[0].Path != "":
		reportProblems(diags, response.Problems) // what was sent is wrong
	default:
		diags.AddError(fmt.Sprintf("Carillon's API refused to %s (%d)", doing, response.Status), detail(response))
	}
}

// detail is what a response says, with the way out that is Terraform's own, and with the id
// by which the dispatcher's log knows the request.
func detail(response *client.Error) string {
	text := response.Error()
	if says(response, dispatcher.CodeCalendarInUse) {
		text += "\n\nBy itself Terraform destroys a calendar before it updates what named it. With lifecycle { create_before_destroy = true } " +
			"in the calendar's block it does so afterwards. If the block is gone already, apply in two steps: first take the calendar " +
			"out where it is named, then destroy it."
	}
	if response.RequestID != "" {
		text += "\n\nRequest id: " + response.RequestID
	}
	return text
}

// absent tells Carillon's own "not found" from the 404 of a proxy or of a wrong endpoint, on
// which nothing may be dropped from the state.
func absent(err error) bool {
	var response *client.Error
	return errors.As(err, &response) && response.Status == http.StatusNotFound && says(response, dispatcher.CodeNotFound)
}

// says tells whether one of a response's faults has the code.
func says(response *client.Error, code string) bool {
	return slices.ContainsFunc(response.Problems, func(f dispatcher.Problem) bool { return f.Code == code })
}

// reportExisting reports that what was to be created exists; importID is what to import it by.
func reportExisting(diags *diag.Diagnostics, kind, importID string) {
	diags.AddError(fmt.Sprintf("The %s exists already", kind),
		fmt.Sprintf("The %s %q exists, but this state does not know it, so nothing was written. To manage it here, import it:\n\n"+
			"  terraform import carillon_%s.NAME %s\n\nwhere NAME is the resource's name in your configuration; or choose another name.", kind, importID, kind, importID))
}

// reportStale reports that the revision that a plan was made from is not the current one,
// which read looks up.
func (c *connection) reportStale(diags *diag.Diagnostics, kind, name string, planned int64, read func() (int64, error)) {
	const again = "Nothing was written. Run terraform plan again to see what changed."
	current, err := read()
	switch {
	case absent(err):
		diags.AddError(fmt.Sprintf("The %s was deleted outside of Terraform", kind),
			fmt.Sprintf("The plan was made for revision %d of %s %q, which no longer exists. %s", planned, kind, name, again))
	case err != nil:
		c.report(diags, fmt.Sprintf("read %s %q, which changed outside of Terraform,", kind, name), err)
	default:
		diags.AddError(fmt.Sprintf("The %s was changed outside of Terraform", kind),
			fmt.Sprintf("The plan was made for revision %d of %s %q, but it is now at revision %d. %s", planned, kind, name, current, again))
	}
}
