package alert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestPutDecidesAboutAnAlert(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	declared := func(url target.Secret) Alert {
		a := Alert{App: "crm", Name: "all"}
		a.Destination.Webhook = &target.AlertWebhook{SecretURL: &url}
		a.SetDefaults()
		return a
	}
	given := target.Secret{Value: input.NewSensitive("https://hooks.example.com/1")}
	for name, tt := range map[string]struct {
		before Before
		url    target.Secret
		want   []string
	}{
		"new":                   {Before{Keys: true}, given, nil},
		"one too many":          {Before{Keys: true, Alerts: Max}, given, []string{"too_many "}},
		"as many as there were": {Before{Keys: true, Alerts: Max, Old: &Alert{}}, given, nil},
		"a value without keys":  {Before{}, given, []string{"secret_keys /destination/webhook/secret_url/value"}},
		"nothing to keep": {Before{Keys: true}, target.Secret{Stored: true},
			[]string{"secret_missing /destination/webhook/secret_url/stored"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bounds := target.Bounds{}.WithDefaults("crm")
			tt.before.Bounds, tt.before.Defaults = &bounds, &dispatcher.JobDefaults{Retry: &run.Retry{MaxAttempts: 7}}
			c, err := tt.before.Put(declared(tt.url), noon)
			var problems input.Problems
			problems.AddError("", err)
			var got []string
			for _, p := range problems {
				got = append(got, p.Code+" "+p.Path)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if err == nil && c.Attached.Job.Revision != 1 {
				t.Errorf("the attached job has revision %d, want 1", c.Attached.Job.Revision)
			}
		})
	}
}
