package dispatcher

import (
	"errors"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestNoJobHasTheTargetOfAnAlert(t *testing.T) {
	t.Parallel()
	d := target.AlertDestination{Webhook: &target.AlertWebhook{Webhook: target.Webhook{URL: "https://example.com/", Method: "POST",
		Timeout: target.DefaultTimeout}}}
	err := Job{App: "a", Name: "j", JobSpec: JobSpec{Target: d.Target()}}.Validate()
	var problems input.Problems
	if !errors.As(err, &problems) || problems[0].Path != "/target/alert" || problems[0].Code != input.CodeTargetKind {
		t.Errorf("error is %v, want a problem of /target/alert", err)
	}
}
