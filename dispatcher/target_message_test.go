package dispatcher_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

const (
	queueARN = "arn:aws:sqs:eu-central-1:123456789012:orders"
	topicARN = "arn:aws:sns:eu-central-1:123456789012:orders"
)

func queueTo(change func(*target.SQS)) target.Target {
	s := target.SQS{QueueARN: queueARN}
	s.SetDefaults()
	change(&s)
	return target.Target{SQS: &s}
}

func topicTo(change func(*target.SNS)) target.Target {
	s := target.SNS{TopicARN: topicARN}
	s.SetDefaults()
	change(&s)
	return target.Target{SNS: &s}
}

func TestQueuesAndTopicsAreChecked(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for n := range 10 {
		many[fmt.Sprint("a", n)] = "x"
	}
	queue := func(arn string) target.Target { return queueTo(func(s *target.SQS) { s.QueueARN = arn }) }
	topic := func(arn string) target.Target { return topicTo(func(s *target.SNS) { s.TopicARN = arn }) }
	group := func(arn, group string) target.Target {
		return queueTo(func(s *target.SQS) { s.QueueARN, s.MessageGroupID = arn, group })
	}
	body := func(text string) target.Target { return queueTo(func(s *target.SQS) { s.Body = text }) }
	role := func(arn string) target.Target {
		return queueTo(func(s *target.SQS) { s.AssumeRole = &target.AssumeRole{RoleARN: arn} })
	}
	subject := func(text string) target.Target { return topicTo(func(s *target.SNS) { s.Subject = text }) }
	attributes := func(all map[string]string) target.Target {
		return queueTo(func(s *target.SQS) { s.Attributes = all })
	}
	attribute := func(name, value string) target.Target {
		return attributes(map[string]string{name: value})
	}
	for name, tt := range map[string]struct {
		target target.Target
		want   []string // path code
	}{
		"a queue":                        {queue(queueARN), nil},
		"a FIFO queue":                   {queue(queueARN + ".fifo"), nil},
		"a queue of China":               {queue("arn:aws-cn:sqs:cn-north-1:123456789012:a"), nil},
		"no queue":                       {queue(""), []string{"/sqs/queue_arn required"}},
		"the URL of a queue":             {queue("https://sqs.eu-central-1.amazonaws.com/123456789012/a"), []string{"/sqs/queue_arn queue_arn"}},
		"another service":                {queue(topicARN), []string{"/sqs/queue_arn queue_arn"}},
		"a name too long":                {queue(queueARN + strings.Repeat("x", 80)), []string{"/sqs/queue_arn queue_arn"}},
		"no region":                      {queue("arn:aws:sqs:x:123456789012:a"), []string{"/sqs/queue_arn queue_arn"}},
		"another partition":              {queue("arn:aws:sqs:cn-north-1:123456789012:a"), []string{"/sqs/queue_arn queue_arn"}},
		"a topic":                        {topic(topicARN), nil},
		"a subscription":                 {topic(topicARN + ":1234"), []string{"/sns/topic_arn topic_arn"}},
		"no topic":                       {topic(""), []string{"/sns/topic_arn required"}},
		"attributes":                     {attribute("team.name", "{{.App}}"), nil},
		"ten attributes":                 {attributes(many), []string{"/sqs/attributes too_many"}},
		"Carillon's attribute":           {attribute("Carillon", "x"), []string{"/sqs/attributes/Carillon attribute_name"}},
		"an attribute of AWS":            {attribute("aws.x", "x"), []string{"/sqs/attributes/aws.x attribute_name"}},
		"two dots":                       {attribute("a..b", "x"), []string{"/sqs/attributes/a..b attribute_name"}},
		"an empty attribute":             {attribute("a", ""), []string{"/sqs/attributes/a required"}},
		"a control character":            {attribute("a", "\x01"), []string{"/sqs/attributes/a text_invalid"}},
		"a long attribute":               {attribute("a", strings.Repeat("x", 8<<10+1)), []string{"/sqs/attributes/a payload_too_large"}},
		"an unknown field":               {attribute("a", "{{.Nothing}}"), []string{"/sqs/attributes/a template_field"}},
		"an empty body":                  {body("{{.Trigger}}"), []string{"/sqs/body required"}},
		"a noncharacter":                 {body("a\uFFFEb"), []string{"/sqs/body text_invalid"}},
		"not UTF-8":                      {body("a\xffb"), []string{"/sqs/body text_invalid"}},
		"a group with a space":           {group(queueARN, "a b"), []string{"/sqs/message_group_id text_invalid"}},
		"a group of a standard":          {group(queueARN, "{{.Trigger}}"), nil},
		"an empty group of a FIFO queue": {group(queueARN+".fifo", "{{.Trigger}}"), []string{"/sqs/message_group_id required"}},
		"a timeout too short":            {queueTo(func(s *target.SQS) { s.Timeout = 1 }), []string{"/sqs/timeout duration_min"}},
		"a subject":                      {subject("{{.Job}} failed"), nil},
		"a subject too long":             {subject(strings.Repeat("x", 1025)), []string{"/sns/subject text_too_long"}},
		"an invalid role":                {role("x"), []string{"/sqs/assume_role/role_arn role_arn"}},
		"a role without an ARN":          {role(""), []string{"/sqs/assume_role/role_arn required"}},
		"all at once": {queueTo(func(s *target.SQS) {
			s.QueueARN, s.Body, s.MessageGroupID, s.Timeout = "q", "{{", strings.Repeat("x", 1025), 1
		}), []string{"/sqs/queue_arn queue_arn", "/sqs/message_group_id text_too_long", "/sqs/body template_syntax",
			"/sqs/timeout duration_min"}},
		"two kinds": {target.Target{SQS: queue(queueARN).SQS, SNS: topic(topicARN).SNS}, []string{"/sns target_kind"}},
	} {
		var problems input.Problems
		errors.As(tt.target.Validate(), &problems)
		var got []string
		for _, p := range problems {
			got = append(got, p.Path+" "+p.Code)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, problems, diff)
		}
	}
}

func callOf(to target.Target) target.Call {
	at := time.Date(2027, 3, 4, 5, 6, 7, 0, time.UTC)
	return target.Call{
		App: "shop", Job: "report", Trigger: "nightly", Key: run.Key{TriggerID: 7, ScheduledAt: at, Kind: run.KindSchedule},
		EventID: "evt_x", Attempt: 2, Payload: json.RawMessage(`{"a": 1}`), Target: to,
	}
}

func TestMessagesCarryPayloadAndIdentity(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		target target.Target
		change func(*target.Call)
		want   target.Message // without Carillon's attribute
	}{
		"the payload is the body": {queueTo(func(*target.SQS) {}), nil, target.Message{Body: `{"a": 1}`}},
		"a FIFO queue orders by job": {queueTo(func(s *target.SQS) { s.QueueARN += ".fifo" }), nil,
			target.Message{Body: `{"a": 1}`, GroupID: "shop/report", DeduplicationID: "evt_x"}},
		"a group is a template": {topicTo(func(s *target.SNS) { s.TopicARN, s.MessageGroupID = s.TopicARN+".fifo", "g-{{.Trigger}}" }), nil,
			target.Message{Body: `{"a": 1}`, GroupID: "g-nightly", DeduplicationID: "evt_x"}},
		"a standard queue has a declared group": {queueTo(func(s *target.SQS) { s.MessageGroupID = "{{.App}}" }), nil,
			target.Message{Body: `{"a": 1}`, GroupID: "shop"}},
		"a body takes the place of the payload": {queueTo(func(s *target.SQS) { s.Body = `{"p":{{json .Payload}},"n":{{.Attempt}}}` }), nil,
			target.Message{Body: `{"p":{"a":1},"n":2}`}},
		"an attribute without a value is left out": {queueTo(func(s *target.SQS) {
			s.Attributes = map[string]string{"trigger": "{{.Trigger}}", "job": "{{.Job}}"}
		}), func(c *target.Call) { c.Trigger = "" },
			target.Message{Body: `{"a": 1}`, Attributes: map[string]string{"job": "report"}}},
		"a subject is one short line": {topicTo(func(s *target.SNS) { s.Subject = "{{.Job}}\n" + strings.Repeat("é", 200) }), nil,
			target.Message{Body: `{"a": 1}`, Subject: "report " + strings.Repeat("é", 91) + "…"}},
	} {
		call := callOf(tt.target)
		if tt.change != nil {
			tt.change(&call)
		}
		got, err := call.Message()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var about map[string]any
		if err := json.Unmarshal([]byte(got.Attributes[target.AttributeCarillon]), &about); err != nil || about["event_id"] != "evt_x" ||
			about["job"] != "report" || about["attempt"] != 2.0 {
			t.Errorf("%s: attribute carillon = %s, %v", name, got.Attributes[target.AttributeCarillon], err)
		}
		maps.DeleteFunc(got.Attributes, func(name, _ string) bool { return name == target.AttributeCarillon })
		if len(got.Attributes) == 0 {
			got.Attributes = nil
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestMessageIsNotSentIfAWSWouldRefuseIt(t *testing.T) {
	t.Parallel()
	large := json.RawMessage(`"` + strings.Repeat("x", input.MaxPayload-2) + `"`)
	for name, tt := range map[string]struct {
		target  target.Target
		payload json.RawMessage
		code    string // empty if it is sent
	}{
		"the largest payload to a queue": {queueTo(func(*target.SQS) {}), large, ""},
		"the largest payload to a topic": {topicTo(func(*target.SNS) {}), large, input.CodePayloadTooLarge},
		"a noncharacter":                 {queueTo(func(*target.SQS) {}), json.RawMessage("\"\uFFFF\""), input.CodeTextInvalid},
		"a body too large": {queueTo(func(s *target.SQS) { s.Body = "{{json .Payload}}x" }), large,
			input.CodePayloadTooLarge},
	} {
		job := dispatcher.Job{App: "shop", Name: "report", JobSpec: dispatcher.JobSpec{Target: tt.target, Payload: tt.payload}}
		call := callOf(tt.target)
		call.Payload = tt.payload
		_, err := call.Message()
		var refused *target.TemplateError
		if tt.code == "" && err != nil || tt.code != "" && (!errors.As(err, &refused) || refused.Problems[0].Code != tt.code) {
			t.Errorf("%s: %v, want %q", name, err, tt.code)
		}
		err = job.Validate()
		if declared := hasCode(err, input.CodePayloadTooLarge) || hasCode(err, input.CodeTextInvalid); declared != (tt.code != "") {
			t.Errorf("%s: refused when declared: %v", name, declared)
		}
	}
}

func TestWarningIfPayloadIsNotSent(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{"": 0, "x": 1, "{{json .Payload}}": 0} {
		job := dispatcher.Job{JobSpec: dispatcher.JobSpec{Target: queueTo(func(s *target.SQS) { s.Body = body }), Payload: json.RawMessage(`1`)}}
		if got := job.Warn(nil); len(got) != want {
			t.Errorf("body %q: warnings %v, want %d", body, got, want)
		}
	}
}

func TestHostOfAQueueOrTopicIdentifiesIt(t *testing.T) {
	t.Parallel()
	role := &target.AssumeRole{RoleARN: "arn:aws:iam::210987654321:role/r"}
	for want, target := range map[string]target.Target{
		"sqs:123456789012:eu-central-1:orders":                 queueTo(func(*target.SQS) {}),
		"sns:123456789012:eu-central-1:orders":                 topicTo(func(*target.SNS) {}),
		"sns:123456789012:eu-central-1:orders:" + role.RoleARN: topicTo(func(s *target.SNS) { s.AssumeRole = role }),
	} {
		if got, _ := target.Host(); got != want {
			t.Errorf("host = %q, want %q", got, want)
		}
	}
}

// Resources of AWS are allowed only if operators list them.
func TestQueuesTopicsAndRolesAreBounded(t *testing.T) {
	t.Parallel()
	role := &target.AssumeRole{RoleARN: "arn:aws:iam::123456789012:role/shop-sender"}
	queue, topic := queueTo(func(s *target.SQS) { s.AssumeRole = role }), topicTo(func(s *target.SNS) { s.AssumeRole = role })
	for name, tt := range map[string]struct {
		target target.Target
		bounds target.Bounds
		want   []string
	}{
		"by default, no queue": {queue, target.Bounds{}, []string{input.CodeBoundQueue, input.CodeBoundRole}},
		"by default, no topic": {topic, target.Bounds{}, []string{input.CodeBoundTopic, input.CodeBoundRole}},
		"patterns of queues": {queue, target.Bounds{SQS: target.SQSBounds{
			Queues: []string{"arn:aws:sqs:*:123456789012:ord*"}, Roles: []string{"arn:aws:iam::*:role/shop-*"}}}, nil},
		"another queue": {queue, target.Bounds{SQS: target.SQSBounds{Queues: []string{queueARN + "-b"}, Roles: []string{"*"}}},
			[]string{input.CodeBoundQueue}},
		"topics are no queues": {queue, target.Bounds{SNS: target.SNSBounds{Topics: []string{"*"}, Roles: []string{"*"}}},
			[]string{input.CodeBoundQueue, input.CodeBoundRole}},
		"roles of functions are not those of topics": {topic, target.Bounds{
			SNS: target.SNSBounds{Topics: []string{topicARN}}, Lambda: target.LambdaBounds{Roles: []string{"*"}}},
			[]string{input.CodeBoundRole}},
	} {
		var problems input.Problems
		errors.As(tt.bounds.CheckTarget("shop", tt.target), &problems)
		var got []string
		for _, p := range problems {
			got = append(got, p.Code)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	wrong := target.Bounds{SQS: target.SQSBounds{Queues: []string{"orders"}, Roles: []string{"r"}},
		SNS: target.SNSBounds{Topics: []string{"orders"}, Roles: []string{"r"}}}
	var problems input.Problems
	if errors.As(wrong.Validate(), &problems); len(problems) != 4 {
		t.Errorf("patterns that are no ARNs: %v, want 4 problems", problems)
	}
}

// Carillon's own jobs may have longer names than people can give, and two jobs must keep different groups.
func TestDefaultGroupIsAsLongAsAWSAllows(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, job := range []string{strings.Repeat("j", 63), strings.Repeat("j", 63) + ".on_failure", strings.Repeat("j", 63) + ".on_success"} {
		call := callOf(queueTo(func(s *target.SQS) { s.QueueARN += ".fifo" }))
		call.App, call.Job = strings.Repeat("a", 63), job
		got, err := call.Message()
		if err != nil || len(got.GroupID) > 128 || seen[got.GroupID] {
			t.Errorf("group of %s is %s, %v; want one of its own with at most 128 characters", job, got.GroupID, err)
		}
		seen[got.GroupID] = true
	}
}
