package dispatcher

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

func TestWrongFollowersAreRefused(t *testing.T) {
	t.Parallel()
	deliver := func(to target.FollowDestination) Follow { return Follow{FollowDestination: to} }
	hook := func(url string) *target.FollowWebhook { return &target.FollowWebhook{URL: url} }
	for name, tt := range map[string]struct {
		follow Follow
		want   []string
	}{
		"nothing":            {Follow{}, []string{"required /on_failure"}},
		"the job itself":     {Follow{Jobs: []string{"other", "job"}}, []string{"follow_cycle /on_failure/jobs/1"}},
		"a job twice":        {Follow{Jobs: []string{"other", "other"}}, []string{"follow_twice /on_failure/jobs/1"}},
		"a delivery":         {Follow{Jobs: []string{"other.on_failure"}}, []string{"name_format /on_failure/jobs/0"}},
		"too many":           {Follow{Jobs: make([]string, MostFollowers+1)}, []string{"too_many /on_failure/jobs"}},
		"an unknown payload": {Follow{Jobs: []string{"other"}, Payload: "both"}, []string{"enum /on_failure/payload"}},
		"two destinations": {deliver(target.FollowDestination{Webhook: hook("https://a.example/"), SNS: &target.FollowTopic{}}),
			[]string{"target_kind /on_failure/sns"}},
		"no URL":      {deliver(target.FollowDestination{Webhook: hook("")}), []string{"required /on_failure/webhook/url"}},
		"no function": {deliver(target.FollowDestination{Lambda: &target.FollowLambda{}}), []string{"required /on_failure/lambda/function"}},
		"no queue":    {deliver(target.FollowDestination{SQS: &target.FollowQueue{}}), []string{"required /on_failure/sqs/queue_arn"}},
		"no topic":    {deliver(target.FollowDestination{SNS: &target.FollowTopic{}}), []string{"required /on_failure/sns/topic_arn"}},
		"no signing secret": {deliver(target.FollowDestination{
			Webhook: &target.FollowWebhook{URL: "https://a.example/", Signing: &target.Signing{}},
		}), []string{"required /on_failure/webhook/signing/secrets"}},
		"several at once": {Follow{Jobs: []string{"?"}, Payload: "x"},
			[]string{"enum /on_failure/payload", "name_format /on_failure/jobs/0"}},
		"a template that fails": {deliver(target.FollowDestination{Webhook: hook("https://a.example/{{.Nope}}")}),
			[]string{"template_field /on_failure/webhook/url"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := validJob()
			job.Name, job.OnFailure = "job", &tt.follow
			var problems input.Problems
			problems.AddError("", job.Validate())
			var got []string
			for _, p := range problems {
				got = append(got, p.Code+" "+p.Path)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func validJob() Job {
	hook := target.Webhook{URL: "https://example.com/"}
	hook.SetDefaults()
	job := Job{App: "app", Name: "name", JobSpec: JobSpec{Target: target.Target{Webhook: &hook}}}
	job.SetDefaults()
	return job
}

func TestCyclesOfFollowersAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		followers map[string][]string
		want      string
	}{
		"none":           {map[string][]string{"a": {"b", "c"}, "b": {"c"}}, ""},
		"of one":         {map[string][]string{"a": {"a"}}, "a a"},
		"of three":       {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}, "a b c a"},
		"behind a chain": {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, "b c b"},
		"one of many":    {map[string][]string{"a": {"x", "b"}, "b": {"y"}, "y": {"b"}}, "b y b"},
	} {
		if got := strings.Join(FindFollowCycle(tt.followers), " "); got != tt.want {
			t.Errorf("%s: got cycle %q, want %q", name, got, tt.want)
		}
	}
}

func TestFollowersGetTheResultAsJSONIfItIsJSON(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", input.MaxPayloadDepth) + strings.Repeat("]", input.MaxPayloadDepth)
	for name, tt := range map[string]struct {
		response  *run.Response
		want      string
		truncated bool
	}{
		"no response":             {nil, "", false},
		"JSON":                    {&run.Response{Body: `{"a": [1]}`}, `{"a":[1]}`, false},
		"a text":                  {&run.Response{Body: "all\nfine"}, `"all\nfine"`, false},
		"JSON that was cut":       {&run.Response{Body: `{"a": 1`, BodyTruncated: true}, `"{\"a\": 1"`, true},
		"a truncated number":      {&run.Response{Body: `12`, BodyTruncated: true}, `"12"`, true},
		"JSON that is too deep":   {&run.Response{Body: deep}, `"` + deep + `"`, false},
		"the message of callback": {&run.Response{Body: "accepted", CallbackResult: `{"rows": 3}`}, `{"rows":3}`, false},
	} {
		raw, err := FollowDocument{Event: run.OnSuccess}.Encode(tt.response)
		if err != nil {
			t.Fatal(err)
		}
		var got FollowDocument
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if string(got.Result) != tt.want || got.ResultTruncated != tt.truncated {
			t.Errorf("%s: result %s, truncated %t; want %s, %t", name, got.Result, got.ResultTruncated, tt.want, tt.truncated)
		}
	}
}

// The longest response with six bytes of JSON for every byte, and the longest document, fit into a payload.
func TestFollowDocumentFitsIntoAPayload(t *testing.T) {
	t.Parallel()
	d := FollowDocument{Event: run.OnFailure, Parent: FollowedRun{
		App: strings.Repeat("a", 63), Job: strings.Repeat("j", 63), Error: strings.Repeat("\x01", 1024), ScheduledAt: time.Unix(0, 0),
	}}
	raw, err := d.Encode(&run.Response{Body: strings.Repeat("\x01", 64<<10)})
	if err != nil || len(raw) > input.MaxPayload {
		t.Errorf("the document has %d bytes (%v), want at most %d", len(raw), err, input.MaxPayload)
	}
	if err := run.CheckPayload(raw); err != nil {
		t.Errorf("the document is no payload: %v", err)
	}
	var got FollowDocument
	if err := json.Unmarshal(raw, &got); err != nil || !got.ResultTruncated {
		t.Errorf("the document says truncated %t (%v), want true", got.ResultTruncated, err)
	}
}

func TestFollowersOfARunHaveOneKey(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	parent := run.Key{TriggerID: 7, ScheduledAt: at, Kind: run.KindSchedule}
	key := FollowerKey(nil, parent, run.OnFailure, 9, run.KindChain)
	if key != FollowerKey(nil, parent, run.OnFailure, 9, run.KindChain) || !key.ScheduledAt.Equal(at) || key.Kind != run.KindChain {
		t.Errorf("key %+v is not that of the run at the same instant", key)
	}
	others := []run.Key{
		FollowerKey(nil, parent, run.OnSuccess, 9, run.KindChain), FollowerKey(nil, parent, run.OnFailure, 10, run.KindChain),
		FollowerKey(nil, run.Key{TriggerID: 8, ScheduledAt: at, Kind: run.KindSchedule}, run.OnFailure, 9, run.KindChain),
		FollowerKey(nil, run.Key{TriggerID: 7, ScheduledAt: at, Kind: run.KindManual}, run.OnFailure, 9, run.KindChain),
	}
	if slices.Contains(others, key) {
		t.Errorf("another event, follower or run has the same key: %+v", others)
	}
}

func TestSecretsOfTheWholeJobHavePointers(t *testing.T) {
	t.Parallel()
	signing := func(name string) *target.Signing {
		return &target.Signing{Secrets: map[string]target.Secret{"v1": {Reference: name}}}
	}
	job := validJob()
	job.Target.Webhook.Signing = signing("env:SECRET_A")
	job.OnMisfire = &Follow{FollowDestination: target.FollowDestination{
		Webhook: &target.FollowWebhook{URL: "https://a.example/", Signing: signing("env:SECRET_B")},
	}}
	paths := input.SortedKeys(target.Secrets(job))
	want := []string{"/on_misfire/webhook/signing/secrets/v1", "/target/webhook/signing/secrets/v1"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Fatalf("secrets (-want +got):\n%s", diff)
	}
	changed := target.WithSecrets(job, map[string]target.Secret{want[0]: {Reference: "env:SECRET_C"}})
	if got := target.Secrets(changed)[want[0]].Reference; got != "env:SECRET_C" {
		t.Errorf("the replaced secret is %s", got)
	}
	if got := target.Secrets(job)[want[0]].Reference; got != "env:SECRET_B" {
		t.Errorf("the job that was copied has secret %s now", got)
	}
}
