package dispatcher_test

import (
	"strings"
	"testing"

	"github.com/carillon-dev/carillon/dispatcher"
)

func TestRollUpShowsTheFirstThatHolds(t *testing.T) {
	t.Parallel()
	waiting := dispatcher.Trigger{Enabled: true, State: dispatcher.TriggerWaiting}
	complete := dispatcher.Trigger{Enabled: true, State: dispatcher.TriggerComplete}
	broken := dispatcher.Trigger{Enabled: true, State: dispatcher.TriggerError}
	paused := dispatcher.Trigger{Enabled: true, State: dispatcher.TriggerPaused, Paused: true}
	off := dispatcher.Trigger{State: dispatcher.TriggerWaiting}
	for name, tt := range map[string]struct {
		triggers         []dispatcher.Trigger
		disabled, paused bool
		want             dispatcher.JobState
	}{
		"no trigger":                        {want: dispatcher.JobInit},
		"none enabled":                      {triggers: []dispatcher.Trigger{off}, want: dispatcher.JobInit},
		"a disabled job":                    {triggers: []dispatcher.Trigger{waiting}, disabled: true, want: dispatcher.JobInit},
		"one armed":                         {triggers: []dispatcher.Trigger{waiting, complete, paused}, want: dispatcher.JobExecuting},
		"the rest complete":                 {triggers: []dispatcher.Trigger{complete, off}, want: dispatcher.JobComplete},
		"the rest paused":                   {triggers: []dispatcher.Trigger{complete, paused}, want: dispatcher.JobPaused},
		"a paused job":                      {triggers: []dispatcher.Trigger{waiting, complete}, paused: true, want: dispatcher.JobPaused},
		"a paused job with nothing to come": {triggers: []dispatcher.Trigger{complete}, paused: true, want: dispatcher.JobComplete},
		"one in error":                      {triggers: []dispatcher.Trigger{waiting, broken}, paused: true, want: dispatcher.JobError},
	} {
		job := dispatcher.Job{Enabled: !tt.disabled, Paused: tt.paused, Triggers: map[string]dispatcher.Trigger{}}
		for i, trigger := range tt.triggers {
			job.Triggers[string(rune('a'+i))] = trigger
		}
		if got := job.RollUp(); got != tt.want {
			t.Errorf("%s: state %s, want %s", name, got, tt.want)
		}
	}
}

func TestFaultsNeverEchoMuch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("€", 100_000)
	j := job(minutely, withTrigger(func(t *dispatcher.Trigger) { t.Timezone, t.Expression = long, long }))
	j.Name = long
	j.Triggers[long] = trigger(long)
	j.Target.Webhook.Method = long
	j.Target.Webhook.URL = "http://" + long
	j.Target.Webhook.Headers = map[string]string{long: "x"}
	if text := j.Validate().Error(); len(text) > 8000 {
		t.Errorf("the faults of a job with endless texts take %d bytes: %.200s", len(text), text)
	}
	for _, text := range []string{strings.Repeat("1", 100_000), long, "P" + long, long + "d"} {
		if _, err := dispatcher.ParseDuration(text); err == nil || len(err.Error()) > 500 {
			t.Errorf("the fault of an endless duration takes %d bytes", len(err.Error()))
		}
		if _, err := dispatcher.ParseInstant(text); err == nil || len(err.Error()) > 500 {
			t.Errorf("the fault of an endless instant takes %d bytes", len(err.Error()))
		}
	}
}

func TestFaultsNeverEchoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, url := range []string{
		"https://user:" + secret + "@example.com/", "https://user:" + secret + "%zz@example.com/", "https://example.com/ ?key=" + secret,
		"ftp://user:" + secret + "@example.com/", "https://example.com/%zz?key=" + secret, "https:///?key=" + secret,
	} {
		j := job("")
		j.Target.Webhook.URL = url
		j.Target.Webhook.Headers = map[string]string{"Authorization": secret + "\n", "Host": secret}
		err := j.Validate()
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("faults of %s are %v, want some without the secret", url, err)
		}
	}
}

func TestPointerEscapes(t *testing.T) {
	t.Parallel()
	if got, want := dispatcher.Pointer("a/b", "c~d", ""), "/a~1b/c~0d/"; got != want {
		t.Errorf("Pointer = %q, want %q", got, want)
	}
}

func TestDurationsRoundTrip(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"90s": "1m30s", "250ms": "250ms", "1h30m": "1h30m0s", "0.5s": "500ms", "24h": "24h0m0s"} {
		d, err := dispatcher.ParseDuration(text)
		if err != nil || d.String() != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %s", text, d, err, want)
		}
		if again, err := dispatcher.ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", d, again, err, d)
		}
	}
}
