package dispatcher_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestRollUpShowsTheFirstStateInOrder(t *testing.T) {
	t.Parallel()
	waiting := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Enabled: true},
		TriggerStatus: dispatcher.TriggerStatus{State: dispatcher.TriggerWaiting}}
	complete := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Enabled: true},
		TriggerStatus: dispatcher.TriggerStatus{State: dispatcher.TriggerComplete}}
	broken := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Enabled: true},
		TriggerStatus: dispatcher.TriggerStatus{State: dispatcher.TriggerError}}
	paused := dispatcher.Trigger{TriggerSpec: dispatcher.TriggerSpec{Enabled: true},
		TriggerStatus: dispatcher.TriggerStatus{State: dispatcher.TriggerPaused, Paused: true}}
	off := dispatcher.Trigger{TriggerStatus: dispatcher.TriggerStatus{State: dispatcher.TriggerWaiting}}
	for name, tt := range map[string]struct {
		triggers         []dispatcher.Trigger
		disabled, paused bool
		live             bool
		want             dispatcher.JobState
	}{
		"no trigger":                        {want: dispatcher.JobInit},
		"none enabled":                      {triggers: []dispatcher.Trigger{off}, want: dispatcher.JobInit},
		"a disabled job":                    {triggers: []dispatcher.Trigger{waiting}, disabled: true, want: dispatcher.JobInit},
		"one is waiting":                    {triggers: []dispatcher.Trigger{waiting, complete, paused}, want: dispatcher.JobExecuting},
		"the rest complete":                 {triggers: []dispatcher.Trigger{complete, off}, want: dispatcher.JobComplete},
		"the rest paused":                   {triggers: []dispatcher.Trigger{complete, paused}, want: dispatcher.JobPaused},
		"a paused job":                      {triggers: []dispatcher.Trigger{waiting, complete}, paused: true, want: dispatcher.JobPaused},
		"a paused job without future fires": {triggers: []dispatcher.Trigger{complete}, paused: true, want: dispatcher.JobComplete},
		"the last run is live":              {triggers: []dispatcher.Trigger{complete}, live: true, want: dispatcher.JobExecuting},
		"run by hand":                       {live: true, paused: true, want: dispatcher.JobExecuting},
		"one in error, with a live run":     {triggers: []dispatcher.Trigger{broken}, live: true, want: dispatcher.JobError},
		"one in error":                      {triggers: []dispatcher.Trigger{waiting, broken}, paused: true, want: dispatcher.JobError},
	} {
		job := dispatcher.Job{JobSpec: dispatcher.JobSpec{Enabled: !tt.disabled, Triggers: map[string]dispatcher.Trigger{}},
			JobStatus: dispatcher.JobStatus{Paused: tt.paused}}
		for i, trigger := range tt.triggers {
			job.Triggers[string(rune('a'+i))] = trigger
		}
		if got := job.RollUp(tt.live); got != tt.want {
			t.Errorf("%s: state %s, want %s", name, got, tt.want)
		}
	}
}

func TestProblemsNeverEchoLongValues(t *testing.T) {
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
		if _, err := input.ParseDuration(text); err == nil || len(err.Error()) > 500 {
			t.Errorf("the fault of an endless duration takes %d bytes", len(err.Error()))
		}
		if _, err := input.ParseInstant(text); err == nil || len(err.Error()) > 500 {
			t.Errorf("the fault of an endless instant takes %d bytes", len(err.Error()))
		}
	}
}

func TestProblemsNeverEchoSecrets(t *testing.T) {
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

func TestMissingScheduleIsOneProblem(t *testing.T) {
	t.Parallel()
	wrong := job(minutely, withTrigger(func(t *dispatcher.Trigger) { t.Expression, t.Timezone = "", "CEST" }))
	var problems input.Problems
	problems.AddError("", wrong.Validate())
	if len(problems) != 2 || problems[0].Code != input.CodeCronEmpty || problems[1].Path != "/triggers/t/timezone" {
		t.Errorf("faults of no expression = %v, want it called empty, and the zone's", problems)
	}
}

// Warnings of the schedule package reach the author of the job.
func TestWarnFindsProbableMistakesInSchedules(t *testing.T) {
	t.Parallel()
	berlin := withTrigger(func(t *dispatcher.Trigger) { t.Timezone = "Europe/Berlin" })
	for name, tt := range map[string]struct {
		declared dispatcher.Job
		want     string // code of the only warning
	}{
		"an ordinary schedule":    {declared: job("0 12 * * *", berlin)},
		"an uneven step":          {job("*/7 * * * *"), input.WarnStep},
		"a missing day":           {job("0 0 31 * *"), input.WarnDay},
		"a lost hour":             {job("30 2 * * *", berlin), input.WarnDST},
		"a lost hour with a rule": {declared: job("30 2 * * *", berlin, withTrigger(func(t *dispatcher.Trigger) { t.Gap = schedule.GapSkip }))},
		"a moved hour":            {declared: job("30 2 * * *", berlin, withTrigger(func(t *dispatcher.Trigger) { t.Gap = schedule.GapNext }))},
		"a window without fires":  {job("0 0 1 1 *", endAt(monday.Add(time.Hour))), input.WarnNoFire},
	} {
		revised, _ := revise(t, nil, tt.declared, monday)
		switch warnings := revised.Warn(nil); {
		case tt.want == "" && len(warnings) == 0:
		case len(warnings) != 1 || warnings[0].Code != tt.want || warnings[0].Path != "/triggers/t/expression":
			t.Errorf("%s: warnings %v, want %s", name, warnings, tt.want)
		}
	}
	late, _ := revise(t, nil, job("30 2 * * *", berlin), monday)
	fired, last := late.Triggers["t"], monday.AddDate(5, 0, 0)
	fired.PrevFireTime = &last
	late.Triggers["t"] = fired
	if got := late.Warn(nil); len(got) != 1 || strings.Contains(got[0].Message, "2026") {
		t.Errorf("warnings years later = %v, want those of the year after the last fire", got)
	}
}

func TestAcknowledgedWarningsAreNotRepeated(t *testing.T) {
	t.Parallel()
	declared := job("*/7 2 * * *", withTrigger(func(t *dispatcher.Trigger) { t.Timezone = "Europe/Berlin" }))
	codes := func(acknowledged ...string) (found []string) {
		declared.Acknowledge = acknowledged
		revised, _ := revise(t, nil, declared, monday)
		for _, w := range revised.Warn(nil) {
			found = append(found, w.Code)
		}
		return found
	}
	for _, tt := range []struct{ acknowledged, want []string }{
		{nil, []string{input.WarnStep, input.WarnDST}},
		{[]string{input.WarnStep}, []string{input.WarnDST}},
		{[]string{input.WarnDST}, []string{input.WarnStep}},
		{[]string{input.WarnDST, input.WarnStep}, nil},
		{[]string{input.WarnNoFire}, []string{input.WarnStep, input.WarnDST}},
	} {
		if diff := cmp.Diff(tt.want, codes(tt.acknowledged...)); diff != "" {
			t.Errorf("acknowledged %v: warnings (-want +got):\n%s", tt.acknowledged, diff)
		}
	}
}

func TestUnknownCodesCannotBeAcknowledged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		codes []string
		want  string
	}{
		{[]string{"step_unevn"}, `/acknowledge/0: "step_unevn" is not the code of a warning; did you mean step_uneven?`},
		{[]string{"dst", "bound_secret"}, `/acknowledge/1: "bound_secret" is not the code of a warning; the codes are listed`},
		{[]string{"dst", "dst"}, `/acknowledge/1: "dst" is given twice`},
		{[]string{""}, `/acknowledge/0: "" is not the code of a warning`},
		{make([]string, 1000), `/acknowledge: 1000 codes are given; there are 14`},
	} {
		wrong := job(minutely)
		wrong.Acknowledge = tt.codes
		if err := wrong.Validate(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("acknowledge %.40q: %v, want %s", tt.codes, err, tt.want)
		}
	}
}

func TestWarningAboutZoneAbbreviations(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{
		"EST": "without daylight saving; name a place, such as America/New_York", "HST": "Pacific/Honolulu", "CET": "follows daylight saving",
		"UTC": "", "Etc/GMT-2": "", "Japan": "",
	} {
		declared := job("0 12 * * *", withTrigger(func(t *dispatcher.Trigger) { t.Timezone = zone }))
		revised, _ := revise(t, nil, declared, monday)
		switch warnings := revised.Warn(nil); {
		case want == "" && len(warnings) == 0:
		case want == "" || len(warnings) != 1 || warnings[0].Code != input.WarnZone || warnings[0].Path != "/triggers/t/timezone" ||
			!strings.Contains(warnings[0].Message, want):
			t.Errorf("%s: warnings %v, want %q", zone, warnings, want)
		}
	}
}

func TestWarningAboutFunctionInAnotherRegion(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:lambda:eu-west-1:123456789012:function:f"
	for _, tt := range []struct {
		function, region, node string
		want                   int
	}{
		{arn, "", "eu-central-1", 1},
		{arn, "", "eu-west-1", 0},
		{arn, "", "", 0},
		{arn, "eu-west-1", "eu-central-1", 0},
		{"f", "eu-west-1", "eu-central-1", 0},
		{"f", "", "eu-central-1", 0},
	} {
		declared := dispatcher.Job{JobSpec: dispatcher.JobSpec{Target: target.Target{Lambda: &target.Lambda{Function: tt.function,
			Region: tt.region}}}}
		got := declared.WarnOfRegion(tt.node)
		if len(got) != tt.want || tt.want == 1 && got[0].Code != input.CodeLambdaRegion {
			t.Errorf("%+v: warnings %v", tt, got)
		}
		declared.Acknowledge = []string{input.CodeLambdaRegion}
		if got := declared.WarnOfRegion(tt.node); len(got) != 0 {
			t.Errorf("%+v, acknowledged: warnings %v", tt, got)
		}
	}
}

func TestPointerEscapes(t *testing.T) {
	t.Parallel()
	if got, want := input.Pointer("a/b", "c~d", ""), "/a~1b/c~0d/"; got != want {
		t.Errorf("Pointer = %q, want %q", got, want)
	}
}

func TestDurationsRoundTrip(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"90s": "1m30s", "250ms": "250ms", "1h30m": "1h30m0s", "0.5s": "500ms", "24h": "24h0m0s",
		"1d": "24h0m0s", "30d": "720h0m0s", "1d12h": "36h0m0s", "2d0.5s": "48h0m0.5s", "0d": "0s", "106751d": "2562024h0m0s",
	} {
		d, err := input.ParseDuration(text)
		if err != nil || d.String() != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %s", text, d, err, want)
		}
		if again, err := input.ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", d, again, err, d)
		}
	}
}

func TestDaysInDurationsComeFirstAndWhole(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]string{
		"1.5d": input.CodeDurationSyntax, "12h1d": input.CodeDurationSyntax, "1d1d": input.CodeDurationSyntax,
		"d": input.CodeDurationSyntax, "1D": input.CodeDurationSyntax, "-1d": input.CodeDurationSyntax,
		"1d 12h": input.CodeDurationSyntax, "1d12": input.CodeDurationSyntax, "2w": input.CodeDurationUnit,
		"106752d": input.CodeDurationMax, "106751d24h": input.CodeDurationMax, "99999999999999999999d": input.CodeDurationMax,
	} {
		d, err := input.ParseDuration(text)
		var problem *input.Problem
		if !errors.As(err, &problem) || problem.Code != code {
			t.Errorf("ParseDuration(%q) = %v, %v, want %s", text, d, err, code)
		}
	}
}

// A clock that is behind has a negative offset. Clients can read it, although people cannot write one.
func TestNegativeDurationsAreReadButNotWritten(t *testing.T) {
	t.Parallel()
	behind := input.Duration(-1500 * time.Millisecond)
	raw, err := json.Marshal(behind)
	var read input.Duration
	if err == nil {
		err = json.Unmarshal(raw, &read)
	}
	if err != nil || read != behind {
		t.Errorf("%s is read as %v, %v, want %v", raw, read, err, behind)
	}
	if d, err := input.ParseDuration("-1.5s"); err == nil {
		t.Errorf("ParseDuration takes -1.5s as %v", d)
	}
	for _, wrong := range []string{`"--5s"`, `"-"`, `5`, `""`} {
		if err := json.Unmarshal([]byte(wrong), &read); err == nil {
			t.Errorf("%s is read as %v", wrong, read)
		}
	}
}
