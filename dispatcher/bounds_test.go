package dispatcher_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// closed returns a job for each list of bounds that uses an entry of it.
func closed(t *testing.T) map[string]dispatcher.Job {
	t.Helper()
	webhook := func(change func(*target.Webhook)) dispatcher.Job {
		w := &target.Webhook{URL: "https://hooks.example.com/run"}
		change(w)
		return dispatcher.Job{App: "crm", Name: "nightly", JobSpec: dispatcher.JobSpec{Target: target.Target{Webhook: w}}}
	}
	return map[string]dispatcher.Job{
		"secrets": webhook(func(w *target.Webhook) {
			w.Auth = &target.Auth{Bearer: &target.BearerAuth{Token: target.Secret{Reference: "env:SECRET_CRM_KEY"}}}
		}),
		"egress.hosts": webhook(func(*target.Webhook) {}),
		"egress.ports": webhook(func(*target.Webhook) {}),
		"lambda.functions": {App: "crm", Name: "nightly", JobSpec: dispatcher.JobSpec{Target: target.Target{
			Lambda: &target.Lambda{Function: "arn:aws:lambda:eu-central-1:123456789012:function:pay"}}}},
		"sqs.queues": {App: "crm", Name: "nightly", JobSpec: dispatcher.JobSpec{Target: target.Target{
			SQS: &target.SQS{QueueARN: "arn:aws:sqs:eu-central-1:123456789012:pay"}}}},
		"sns.topics": {App: "crm", Name: "nightly", JobSpec: dispatcher.JobSpec{Target: target.Target{
			SNS: &target.SNS{TopicARN: "arn:aws:sns:eu-central-1:123456789012:pay"}}}},
	}
}

func TestEmptyListOfBoundsAllowsNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		empty          string // bounds with the list empty
		allowedMissing bool   // whether the job is within bounds that leave the list out
	}{
		"secrets":          {`{"secrets":[]}`, true},
		"egress.hosts":     {`{"egress":{"hosts":[]}}`, true},
		"egress.ports":     {`{"egress":{"ports":[]}}`, true},
		"lambda.functions": {`{"lambda":{"functions":[]}}`, false},
		"sqs.queues":       {`{"sqs":{"queues":[]}}`, false},
		"sns.topics":       {`{"sns":{"topics":[]}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bounds target.Bounds
			if err := json.Unmarshal([]byte(tt.empty), &bounds); err != nil {
				t.Fatal(err)
			}
			if err := bounds.Validate(); err != nil {
				t.Errorf("%s is refused: %v", tt.empty, err)
			}
			job := closed(t)[name]
			// As they are stored, and as they are read.
			stored, err := json.Marshal(bounds.WithDefaults("crm").WithoutDefaults("crm"))
			if err != nil {
				t.Fatal(err)
			}
			var read target.Bounds
			if err := json.Unmarshal(stored, &read); err != nil {
				t.Fatal(err)
			}
			if err := read.WithDefaults("crm").CheckTarget(job.App, job.Target); err == nil || !strings.Contains(err.Error(), "none") {
				t.Errorf("with %s, stored as %s, the job is judged %v, want it refused because none is allowed", tt.empty, stored, err)
			}
			if err := (target.Bounds{}).WithDefaults("crm").CheckTarget(job.App, job.Target); (err == nil) != tt.allowedMissing {
				t.Errorf("without the list the job is judged %v, want allowed %t", err, tt.allowedMissing)
			}
		})
	}
}

// Bounds from a response can be declared unchanged, with the same meaning.
func TestShownBoundsCanBeDeclaredUnchanged(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		`{}`, `{"secrets":[]}`, `{"secrets":null}`, `{"secrets":["env:SECRET_CRM_*","file:crm/*"]}`,
		`{"egress":{"hosts":[],"ports":[],"networks":[]}}`, `{"egress":{"networks":["public"]}}`,
		`{"lambda":{"functions":[]},"sign_as_node":[]}`,
	} {
		t.Run(given, func(t *testing.T) {
			t.Parallel()
			read := func(text string) target.Bounds {
				var b target.Bounds
				if err := json.Unmarshal([]byte(text), &b); err != nil {
					t.Fatal(err)
				}
				return b.WithDefaults("crm")
			}
			first := read(given)
			shown, err := json.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, read(string(shown))); diff != "" {
				t.Errorf("%s is shown as %s, which means something else (-given +shown):\n%s", given, shown, diff)
			}
		})
	}
}
