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
		"new":                          {Before{Keys: true}, given, nil},
		"one too many":                 {Before{Keys: true, Alerts: Max}, given, []string{"too_many "}},
		"an existing one at the limit": {Before{Keys: true, Alerts: Max, Old: &Alert{}}, given, nil},
		"a value without keys":         {Before{}, given, []string{"secret_keys /destination/webhook/secret_url/value"}},
		"no secret to keep": {Before{Keys: true}, target.Secret{Stored: true},
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

// Mutes and acknowledgements store their author, and end in the future.
func TestMutesAndAcknowledgementsEndInTheFuture(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	by := input.Change{Actor: "ann"}
	for until, past := range map[time.Time]bool{noon: true, noon.Add(-time.Hour): true, noon.Add(1500 * time.Microsecond): false} {
		mute, err := (&Mute{Until: &until, Reason: "release"}).Decide(by, noon)
		whole := until.Truncate(time.Millisecond)
		if (err != nil) != past || err == nil && (mute.By != "ann" || !mute.At.Equal(noon) || !mute.Until.Equal(whole)) {
			t.Errorf("mute until %v: %+v, %v", until, mute, err)
		}
		noted, err := Acknowledgement{Until: &until}.Decide(by, noon)
		if (err != nil) != past || err == nil && (noted.By != "ann" || !noted.At.Equal(noon)) {
			t.Errorf("acknowledge until %v: %+v, %v", until, noted, err)
		}
	}
	if mute, err := (*Mute)(nil).Decide(by, noon); mute != nil || err != nil {
		t.Errorf("unmute: %+v, %v", mute, err)
	}
}
