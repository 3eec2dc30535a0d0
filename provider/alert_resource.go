package provider

import (
	"context"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// alerts is carillon_alert. Its model is in alert_model.go and alert_webhook.go.
func alerts(c *connection) kind[alertModel] {
	return &definition[alert.Alert, alertModel]{
		heading: heading{"alert", alertSchema, importNested("alert", "billing/on-call")}, conn: c,
		expand: expandAlert, flatten: flattenAlert, check: alert.Alert.Validate,
		api: requests[alert.Alert]{
			(*client.Client).PutAlert, (*client.Client).Alert, (*client.Client).DeleteAlert,
			func(a alert.Alert) int64 { return a.Revision },
		},
		secrets: secretsOf[alert.Alert]{target.Secrets[alert.Alert], target.WithSecrets[alert.Alert], checkKeptOfAlert, webhookKnown},
		bounds: func(bounds *target.Bounds, a alert.Alert) error {
			return atDestination(bounds.CheckDestination(a.App, a.Destination))
		},
		planning: warnOfUnknownJobs,
		onWrite: func(c *connection, diags *diag.Diagnostics, a alert.Alert) {
			c.warnOfMistakes(diags, a.App, a.Name, a.Warnings, "more alerts")
		},
	}
}

func checkKeptOfAlert(written, old alert.Alert) error {
	return atDestination(written.Destination.CheckKept(old.Destination))
}

// atDestination returns problems of a destination with their pointers in its alert.
func atDestination(err error) error {
	var problems input.Problems
	problems.AddError(target.DestinationAt, err)
	return problems.Err()
}

// warnOfUnknownJobs warns of names in an alert that no job has, neither in the plan nor on the server. The API says at apply which
// labels no job has.
func warnOfUnknownJobs(ctx context.Context, c *connection, diags *diag.Diagnostics, p planned[alert.Alert]) {
	alert := p.declared
	if len(c.unknown) > 0 || alert.App == "" || alert.Name == "" || diags.HasError() {
		return
	}
	var problems input.Problems
	for i, name := range alert.Jobs {
		at := input.Pointer("jobs", strconv.Itoa(i))
		if p.e.isUnknown(at) || name == "" {
			continue
		}
		if _, exists, _, known := c.followersOf(ctx, alert.App, name); known && !exists {
			addUnknownName(&problems, at, input.CodeAlertJobUnknown, "job", alert.App, name, c.someJobs(ctx, alert.App))
		}
	}
	c.warnOfMistakes(diags, alert.App, alert.Name, p.e.aboutKnown(problems), "more alerts")
}
