package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// To move an app, a user must write the values of all its secrets into the file, not only those of its jobs.
func TestExportNamesAllStoredSecrets(t *testing.T) {
	t.Parallel()
	stored := &target.Signing{Secrets: map[string]target.Secret{"a": {Stored: true}, "b": {Reference: "env:B"}}}
	job := dispatcher.Job{Name: "parent", JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: &target.Webhook{Signing: stored}}}}
	job.OnFailure = &dispatcher.Follow{FollowDestination: target.FollowDestination{Webhook: &target.FollowWebhook{Signing: stored}}}
	a := alert.Alert{Name: "night"}
	a.Destination.Webhook = &target.AlertWebhook{Webhook: *job.Target.Webhook}
	export := access.Export{
		Jobs: []access.ExportedJob{{Job: job}}, Groups: []target.EndpointGroup{{Name: "workers",
			EndpointGroupSpec: target.EndpointGroupSpec{Signing: stored}}},
		Alerts: []alert.Alert{a},
	}
	want := []string{
		"alert night at destination/webhook/signing/secrets/a",
		"group workers at signing/secrets/a",
		"job parent at on_failure/webhook/signing/secrets/a",
		"job parent at target/webhook/signing/secrets/a",
	}
	if diff := cmp.Diff(want, storedSecrets(export)); diff != "" {
		t.Errorf("secrets whose values are left out (-want +got):\n%s", diff)
	}
}
