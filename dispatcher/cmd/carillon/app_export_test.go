package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/alert"
)

// Anyone who moves an app has to write the values of all its secrets into the file, not only those of its jobs.
func TestExportNamesAllStoredSecrets(t *testing.T) {
	t.Parallel()
	stored := &dispatcher.Signing{Secrets: map[string]dispatcher.Secret{"a": {Stored: true}, "b": {Reference: "env:B"}}}
	target := dispatcher.Target{Webhook: &dispatcher.Webhook{Signing: stored}}
	job := dispatcher.Job{Name: "parent", Target: target, OnFailure: &dispatcher.Follow{Target: &target}}
	a := alert.Alert{Name: "night"}
	a.Destination.Webhook = &dispatcher.AlertWebhook{Webhook: *target.Webhook}
	export := access.Export{
		Jobs: []access.ExportedJob{{Job: job}}, Groups: []dispatcher.EndpointGroup{{Name: "workers", Signing: stored}},
		Alerts: []alert.Alert{a},
	}
	want := []string{
		"alert night at destination/webhook/signing/secrets/a",
		"group workers at signing/secrets/a",
		"job parent at on_failure/target/webhook/signing/secrets/a",
		"job parent at target/webhook/signing/secrets/a",
	}
	if diff := cmp.Diff(want, storedSecrets(export)); diff != "" {
		t.Errorf("secrets whose values are left out (-want +got):\n%s", diff)
	}
}
