package invoke_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/test/servers"
)

const (
	queue = "arn:aws:sqs:eu-central-1:123456789012:orders"
	topic = "arn:aws:sns:eu-central-1:123456789012:orders"
)

// messenger is AWS with a queue and a topic, each also as FIFO, and an invoker that sends to them.
type messenger struct {
	*invoke.Invoker
	aws *servers.AWS
}

func newMessenger(t *testing.T) messenger {
	t.Helper()
	m := messenger{aws: servers.NewAWS(t)}
	for _, arn := range []string{queue, queue + ".fifo"} {
		m.aws.CreateQueue(arn)
	}
	for _, arn := range []string{topic, topic + ".fifo"} {
		m.aws.CreateTopic(arn)
	}
	m.Invoker = m.invoker(t, servers.SecretAccessKey)
	return m
}

func (m messenger) invoker(t *testing.T, key string) *invoke.Invoker {
	t.Helper()
	i := invoke.New(invoke.Options{LoadAWS: func(context.Context) (aws.Config, error) {
		return aws.Config{
			Region: "us-east-1", BaseEndpoint: aws.String(m.aws.URL), HTTPClient: &http.Client{Transport: &http.Transport{}},
			Credentials: credentials.NewStaticCredentialsProvider(servers.AccessKeyID, key, ""), RetryMaxAttempts: 5,
		}, nil
	}})
	t.Cleanup(i.Close)
	return i
}

// messageTo returns a call that sends a message to a queue or topic.
func messageTo(arn string) target.Call {
	call := callTo("", "", 0)
	if strings.Contains(arn, ":sqs:") {
		call.Target = target.Target{SQS: &target.SQS{QueueARN: arn}}
	} else {
		call.Target = target.Target{SNS: &target.SNS{TopicARN: arn}}
	}
	call.Payload, call.AWSExternalID = json.RawMessage(`{"n":1}`), "ext-1"
	all := []string{"*"}
	call.Bounds = &target.Bounds{
		SQS: target.SQSBounds{Queues: all, Roles: all}, SNS: target.SNSBounds{Topics: all, Roles: all},
	}
	return call
}

func operationOf(arn string) string {
	if strings.Contains(arn, ":sqs:") {
		return "SendMessage"
	}
	return "Publish"
}

func TestMessageIsSentOnceWithItsAttributes(t *testing.T) {
	t.Parallel()
	for arn, want := range map[string]servers.Message{
		queue:           {},
		topic:           {Subject: "ping ran"},
		queue + ".fifo": {GroupID: "demo/ping", DeduplicationID: "evt_1"},
		topic + ".fifo": {Subject: "ping ran", GroupID: "demo/ping", DeduplicationID: "evt_1"},
	} {
		m := newMessenger(t)
		call := messageTo(arn)
		if call.Target.SQS != nil {
			call.Target.SQS.Attributes = map[string]string{"app": "{{.App}}", "fixed": "é<&"}
		} else {
			call.Target.SNS.Attributes, call.Target.SNS.Subject = map[string]string{"app": "{{.App}}", "fixed": "é<&"}, "{{.Job}} ran"
		}
		o := m.Invoke(t.Context(), call)
		if o.State != run.Succeeded || o.HTTPStatus != 200 || m.aws.Calls(operationOf(arn)) != 1 {
			t.Fatalf("%s: outcome = %+v after %d requests, want success after 1", arn, o, m.aws.Calls(operationOf(arn)))
		}
		if r := o.Response; r.MessageID != "message-1" || r.RequestID != "request-message-1" || r.Phases.FirstByte <= 0 {
			t.Errorf("%s: response = %+v, want the ids of message and request, and phases", arn, r)
		}
		got := m.aws.Messages(arn)
		if len(got) != 1 {
			t.Fatalf("%s: got %d messages, want 1", arn, len(got))
		}
		var about struct {
			EventID string `json:"event_id"`
			Fence   int64
		}
		if err := json.Unmarshal([]byte(got[0].Attributes["carillon"]), &about); err != nil || about.EventID != "evt_1" ||
			about.Fence != call.Fence() {
			t.Errorf("%s: attribute carillon = %s, %v", arn, got[0].Attributes["carillon"], err)
		}
		delete(got[0].Attributes, "carillon")
		want.ID, want.Body, want.Attributes = "message-1", `{"n":1}`, map[string]string{"app": "demo", "fixed": "é<&"}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", arn, diff)
		}
	}
}

func TestMessageIsSentAsARoleWithTheIdentityOfTheApp(t *testing.T) {
	t.Parallel()
	const role = "arn:aws:iam::210987654321:role/sender"
	for _, arn := range []string{queue, topic} {
		m := newMessenger(t)
		call := messageTo(arn)
		assume := &target.AssumeRole{RoleARN: role, SessionTags: map[string]string{"team": "crm", "carillon:app": "other"}}
		if call.Target.SQS != nil {
			call.Target.SQS.AssumeRole = assume
		} else {
			call.Target.SNS.AssumeRole = assume
		}
		for range 2 {
			if o := m.Invoke(t.Context(), call); o.State != run.Succeeded {
				t.Fatalf("%s: outcome = %+v, want success", arn, o)
			}
		}
		want := servers.Session{Role: role, Name: "carillon-demo", ExternalID: "ext-1",
			Tags: map[string]string{"carillon:app": "demo", "carillon:job": "ping", "team": "crm"}}
		if diff := cmp.Diff(want, m.aws.Messages(arn)[0].By); diff != "" || m.aws.Calls("AssumeRole") != 1 {
			t.Errorf("%s: the role is assumed %d times, want once; session (-want +got):\n%s", arn, m.aws.Calls("AssumeRole"), diff)
		}
	}
}

func TestQueueOrTopicOutsideTheBoundsGetsNothing(t *testing.T) {
	t.Parallel()
	for _, arn := range []string{queue, topic} {
		m := newMessenger(t)
		for name, bounds := range map[string]*target.Bounds{
			"the defaults": nil,
			"others":       {SQS: target.SQSBounds{Queues: []string{queue + "-b"}}, SNS: target.SNSBounds{Topics: []string{topic + "-b"}}},
		} {
			call := messageTo(arn)
			call.Bounds = bounds
			o := m.Invoke(t.Context(), call)
			if o.State != run.Failed || o.Class != run.ClassBounds || !o.NotSent || m.aws.Calls(operationOf(arn)) != 0 {
				t.Errorf("%s, %s: outcome = %+v after %d requests, want bounds after none", arn, name, o, m.aws.Calls(operationOf(arn)))
			}
		}
	}
}

// Each failure has one class and one request: the engine decides about retries.
func TestFailuresOfQueuesAndTopicsHaveTheirClass(t *testing.T) {
	t.Parallel()
	const (
		failed, lost, timedOut = run.Failed, run.Lost, run.TimedOut
		config, throttled      = run.ClassConfig, run.ClassThrottled
		credential, serverErr  = run.ClassCredentials, run.ClassHTTP5xx
	)
	type expectation struct {
		fault servers.Fault
		state run.State
		class run.Class
	}
	both := map[string]expectation{
		"throttled by the gateway":      {servers.Fault{Status: 429, Code: "TooManyRequestsException"}, failed, throttled},
		"throttled":                     {servers.Fault{Status: 400, Code: "ThrottlingException"}, failed, throttled},
		"throttled as older ones do":    {servers.Fault{Status: 400, Code: "Throttling"}, failed, throttled},
		"denied":                        {servers.Fault{Status: 403, Code: "AccessDenied"}, failed, config},
		"an expired token":              {servers.Fault{Status: 403, Code: "ExpiredToken"}, failed, credential},
		"an unknown key":                {servers.Fault{Status: 403, Code: "InvalidClientTokenId"}, failed, credential},
		"a clock that is wrong":         {servers.Fault{Status: 403, Code: "SignatureDoesNotMatch"}, failed, credential},
		"trouble inside":                {servers.Fault{Status: 500, Code: "InternalFailure"}, failed, serverErr},
		"unavailable":                   {servers.Fault{Status: 503, Code: "ServiceUnavailable"}, failed, serverErr},
		"a page of a proxy":             {servers.Fault{Status: 502, Body: "<html>bad gateway"}, failed, serverErr},
		"a response of another service": {servers.Fault{Status: 200, Body: "<html>a captive portal"}, lost, run.ClassOther},
		"no response in time":           {servers.Fault{Slow: true}, timedOut, run.ClassTimeout},
		"reset in the middle":           {servers.Fault{Reset: true}, lost, run.ClassReset},
	}
	of := map[string]map[string]expectation{
		queue: {
			"gone":                 {servers.Fault{Status: 400, Code: "QueueDoesNotExist"}, failed, config},
			"throttled by SQS":     {servers.Fault{Status: 403, Code: "RequestThrottled"}, failed, throttled},
			"a key that is denied": {servers.Fault{Status: 400, Code: "KmsAccessDenied"}, failed, config},
			"a throttled key":      {servers.Fault{Status: 400, Code: "KmsThrottled"}, failed, throttled},
			"a body that was changed on the way": {
				servers.Fault{Status: 200, Body: `{"MessageId":"m","MD5OfMessageBody":"00000000000000000000000000000000"}`},
				lost, run.ClassProtocol,
			},
		},
		topic: {
			"gone":                 {servers.Fault{Status: 404, Code: "NotFound"}, failed, config},
			"throttled by SNS":     {servers.Fault{Status: 429, Code: "Throttled"}, failed, throttled},
			"not authorized":       {servers.Fault{Status: 403, Code: "AuthorizationError"}, failed, config},
			"a key that is denied": {servers.Fault{Status: 400, Code: "KMSAccessDenied"}, failed, config},
			"a throttled key":      {servers.Fault{Status: 400, Code: "KMSThrottling"}, failed, throttled},
		},
	}
	for arn, own := range of {
		for name, tt := range merged(both, own) {
			t.Run(operationOf(arn)+" "+name, func(t *testing.T) {
				t.Parallel()
				m := newMessenger(t)
				m.aws.Fail(operationOf(arn), tt.fault)
				call := messageTo(arn)
				if tt.state == timedOut {
					call = withTimeout(call, brokenTimeout)
				}
				o := m.Invoke(t.Context(), call)
				if o.State != tt.state || o.Class != tt.class || o.Error == "" || m.aws.Calls(operationOf(arn)) != 1 {
					t.Errorf("outcome = %+v after %d requests, want %s %s after 1", o, m.aws.Calls(operationOf(arn)), tt.state, tt.class)
				}
				if text := o.Error; strings.Contains(text, servers.SecretAccessKey) {
					t.Errorf("error %s shows a secret", text)
				}
			})
		}
	}
}

func merged[V any](maps ...map[string]V) map[string]V {
	all := map[string]V{}
	for _, one := range maps {
		for name, v := range one {
			all[name] = v
		}
	}
	return all
}

func withTimeout(call target.Call, timeout time.Duration) target.Call {
	if call.Target.SQS != nil {
		call.Target.SQS.Timeout = input.Duration(timeout)
	} else {
		call.Target.SNS.Timeout = input.Duration(timeout)
	}
	return call
}

// A lost response leaves the message in the queue. A second attempt adds none to a FIFO queue, because its
// deduplication id is the event id.
func TestSecondAttemptAddsNothingToAFIFOQueue(t *testing.T) {
	t.Parallel()
	for arn, want := range map[string]int{queue: 2, topic: 2, queue + ".fifo": 1, topic + ".fifo": 1} {
		m := newMessenger(t)
		m.aws.Fail(operationOf(arn), servers.Fault{Reset: true})
		call := messageTo(arn)
		if o := m.Invoke(t.Context(), call); o.State != run.Lost || o.NotSent {
			t.Errorf("%s: outcome = %+v, want lost", arn, o)
		}
		m.aws.Fail(operationOf(arn), servers.Fault{})
		call.Attempt++
		if o := m.Invoke(t.Context(), call); o.State != run.Succeeded {
			t.Errorf("%s: outcome = %+v, want success", arn, o)
		}
		if got := len(m.aws.Messages(arn)); got != want {
			t.Errorf("%s: got %d messages after two attempts, want %d", arn, got, want)
		}
	}
}

func TestServerRefusesAWrongSignature(t *testing.T) {
	t.Parallel()
	for _, arn := range []string{queue, topic} {
		m := newMessenger(t)
		o := m.invoker(t, "another").Invoke(t.Context(), messageTo(arn))
		if o.Class != run.ClassCredentials || len(m.aws.Messages(arn)) != 0 {
			t.Errorf("%s: outcome = %+v with %d messages, want credentials and none", arn, o, len(m.aws.Messages(arn)))
		}
	}
}

func TestMessageThatCannotBeFilledInIsNotSent(t *testing.T) {
	t.Parallel()
	m := newMessenger(t)
	call := messageTo(topic)
	call.Payload = json.RawMessage(`"` + strings.Repeat("x", input.MaxPayload-2) + `"`)
	o := m.Invoke(t.Context(), call)
	if o.Class != run.ClassTemplate || !o.NotSent || m.aws.Calls("Publish") != 0 {
		t.Errorf("outcome = %+v after %d requests, want template after none", o, m.aws.Calls("Publish"))
	}
}

func TestCancelledMessageIsRecordedAsCancelled(t *testing.T) {
	t.Parallel()
	m := newMessenger(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := m.Invoke(ctx, messageTo(queue)); o.State != run.Cancelled || len(m.aws.Messages(queue)) != 0 {
		t.Errorf("outcome = %+v, want cancelled and no message", o)
	}
}

// If a kept connection breaks before the response, AWS may have the message, and the client does not repeat it.
func TestMessageIsSentOnceIfTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1)%2 == 0 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Amz-Target") == "" {
			fmt.Fprint(w, "<PublishResponse><PublishResult><MessageId>m</MessageId></PublishResult></PublishResponse>")
			return
		}
		fmt.Fprint(w, `{"MessageId":"m"}`)
	}))
	t.Cleanup(server.Close)
	for _, arn := range []string{queue, topic} {
		requests.Store(0)
		i := messenger{aws: &servers.AWS{Server: server}}.invoker(t, servers.SecretAccessKey)
		for attempt := 1; attempt <= 6; attempt++ {
			want := run.Succeeded
			if attempt%2 == 0 {
				want = run.Lost
			}
			if o := i.Invoke(t.Context(), messageTo(arn)); o.State != want || int(requests.Load()) != attempt {
				t.Errorf("%s, attempt %d: outcome = %+v after %d requests, want %s", arn, attempt, o, requests.Load(), want)
			}
		}
	}
}
