package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/provider/binding"
)

// paths are the paths of the resources' attributes.
var paths = sync.OnceValue(func() binding.Paths { return binding.PathsOf(jobRows, alertRows, groupRows, appRows, calendarRows) })

// reportProblems adds an error for each problem, at its attribute.
func reportProblems(diags *diag.Diagnostics, problems []input.Problem) {
	paths().Report(diags, problems)
}

// messagesOf returns problems in one line, each after the path of its attribute.
func messagesOf(problems []input.Problem) string {
	texts := make([]string, len(problems))
	for i, one := range problems {
		texts[i] = paths().Message(one)
	}
	return strings.Join(texts, "; ")
}

// isConflict reports whether an update or delete failed because the object no longer has the
// planned revision. A deleted object has none.
func isConflict(err error) bool {
	return errors.Is(err, dispatcher.ErrPrecondition) || client.IsNotFound(err)
}

// report adds the error of a request. doing names the action and its object, such as `create job
// "billing/nightly"`, and continues "Could not" and "refused to".
func (c *connection) report(diags *diag.Diagnostics, doing string, err error) {
	const whichEndpoint = "The endpoint is the provider's argument endpoint, or the environment variable CARILLON_ENDPOINT."
	var response *client.Error
	switch {
	case errors.Is(err, context.Canceled):
		diags.AddError("Interrupted",
			fmt.Sprintf("The request to %s was interrupted before the response arrived. It may have taken effect.", doing))
	case errors.Is(err, client.ErrForeign):
		diags.AddError("The response does not come from Carillon (provider_endpoint)",
			fmt.Sprintf("Could not %s: %v.\n\nThe response was ignored. Check that %s is the endpoint of a dispatcher, and that no "+
				"proxy responds in its place. %s", doing, err, c.Endpoint, whichEndpoint))
	case !errors.As(err, &response):
		diags.AddError("Carillon's API cannot be reached (provider_endpoint)",
			fmt.Sprintf("Could not %s: %v.\n\nCheck that a dispatcher is running at %s and that this is the right endpoint. %s",
				doing, err, c.Endpoint, whichEndpoint))
	case response.Status == http.StatusUnauthorized:
		diags.AddError("Carillon's API does not accept the token (401)",
			fmt.Sprintf("Could not %s at %s: %v.\n\nCreate a token with `carillon token create` on the dispatcher's database, and set it as "+
				"the environment variable CARILLON_TOKEN or as the provider's argument token. Nodes with --client-ca need a certificate in "+
				"addition: set client_cert and client_key.", doing, c.Endpoint, response))
	case response.Status == http.StatusForbidden:
		diags.AddError("The token does not allow this (403)",
			fmt.Sprintf("Could not %s: %v.\n\nThe provider needs a token with the scopes read and write that is bound to this app or to no app. "+
				"See `carillon token create`.", doing, err))
	case len(response.Problems) > 0 && response.Problems[0].Path != "": // the definition itself is invalid
		for i, problem := range response.Problems {
			if problem.Code == input.CodeJSONUnknown { // only a later provider sends one
				response.Problems[i].Message += "; the node is older than the provider: upgrade the nodes first"
			}
		}
		reportProblems(diags, response.Problems)
	default:
		explanation := response.Error()
		if response.RequestID != "" { // the dispatcher's log has it, too
			explanation += "\n\nRequest id: " + response.RequestID
		}
		diags.AddError(fmt.Sprintf("Carillon's API refused to %s (%d)", doing, response.Status), explanation)
	}
}

// reportCreate adds the error of a create. importID is the id for an import of the existing object.
func (c *connection) reportCreate(diags *diag.Diagnostics, kind, importID string, err error) {
	switch {
	case errors.Is(err, dispatcher.ErrPrecondition):
		diags.AddError(fmt.Sprintf("The %s already exists", kind),
			fmt.Sprintf("The %s %q exists but is not in this state, so nothing was written. To manage it here, import it with this "+
				"block:\n\n  import {\n    to = %s.NAME\n    id = %q\n  }\n\nNAME is the resource's name in your configuration. Or "+
				"choose another name for the %s.\n\nIf it is in this state and the plan replaces it, take create_before_destroy out of its "+
				"lifecycle: two cannot have one name at once.", kind, importID, binding.ResourceType(kind), importID, kind))
	case client.IsNotFound(err):
		app, _, _ := strings.Cut(importID, "/")
		diags.AddAttributeError(path.Root("app"), "The app does not exist (not_found)",
			fmt.Sprintf("Could not create %s %q: there is no app %q. Declare it as a carillon_app and refer to its name, "+
				"so that Terraform creates it first.", kind, importID, app))
	default:
		c.report(diags, fmt.Sprintf("create %s %q", kind, importID), err)
	}
}

// doneBy describes who made an unexpected change, and when, if the audit log has it. done is
// "changed" or "deleted".
func doneBy(done string, refused error) string {
	var response *client.Error
	if !errors.As(refused, &response) || response.ChangedBy == "" {
		return ""
	}
	return fmt.Sprintf(", %s by %s at %s", done, input.Echo(response.ChangedBy), response.ChangedAt.UTC().Format(time.RFC3339))
}
