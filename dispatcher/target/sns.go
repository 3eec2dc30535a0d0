package target

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// SNS is an Amazon SNS topic that gets a message, published with the credentials of the node. An attempt succeeds once the
// topic has the message; SNS delivers it to the subscribers.
type SNS struct {
	// TopicARN is arn:aws:sns:REGION:ACCOUNT:NAME. The name of a FIFO topic ends in .fifo.
	TopicARN string `json:"topic_arn"`
	// Subject is the subject of mails; it may be a template, and is cut to 99 characters. Empty: none.
	Subject string `json:"subject,omitempty"`
	// Body, Attributes and MessageGroupID are as those of SQS. A message has at most 256 KiB with its attributes.
	Body           string            `json:"body,omitempty"`
	Attributes     map[string]string `json:"attributes,omitempty"`
	MessageGroupID string            `json:"message_group_id,omitempty"`
	// AssumeRole is a role to publish as; nil: the node's own.
	AssumeRole *AssumeRole `json:"assume_role,omitempty"`
	// Timeout bounds one attempt.
	Timeout input.Duration `json:"timeout,omitempty"`
	// TraceContext puts the W3C trace context of the attempt into the message's attribute carillon.
	TraceContext bool `json:"trace_context,omitempty"`
}

// maxTopicMessage is the most bytes of a message to a topic, with its attributes.
const maxTopicMessage = 256 << 10

var topicForm = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:([a-zA-Z0-9_-]{1,256}|[a-zA-Z0-9_-]{1,251}\.fifo)$`)

// SetDefaults gives a decoded target the values of fields that its JSON leaves out.
func (s *SNS) SetDefaults() { s.Timeout = DefaultTimeout }

// Validate returns everything wrong with s, as Problems with JSON pointers, or nil.
func (s SNS) Validate() error {
	var problems input.Problems
	checkResource(&problems, "/topic_arn", resource{"topic", "an SNS topic", input.CodeTopicARN, "sns", topicForm}, s.TopicARN)
	if s.AssumeRole != nil {
		s.AssumeRole.check(&problems, "/assume_role", arnPart(s.TopicARN, arnRegion))
	}
	s.message().check(&problems)
	s.Timeout.CheckRange(&problems, "/timeout", input.MinDuration, input.MaxDuration)
	return problems.Err()
}

func (s *SNS) message() message {
	return message{body: s.Body, subject: s.Subject, attributes: s.Attributes, group: s.MessageGroupID,
		fifo: strings.HasSuffix(s.TopicARN, ".fifo"), most: maxTopicMessage}
}

func (s *SNS) kind() Kind { return KindSNS }

// host is sns:ACCOUNT:REGION:NAME:ROLE.
func (s *SNS) host() (name string, atOnce int) { return resourceHost(s.TopicARN, s.AssumeRole), 0 }

// origin is empty: a topic has no secrets.
func (s *SNS) origin() string { return "" }

func (s *SNS) timeout() time.Duration { return cmp.Or(s.Timeout, DefaultTimeout).Std() }

func (s *SNS) templates(problems *input.Problems) *Templates { return s.message().templates(problems) }

func (s *SNS) warn(payload json.RawMessage, problems *input.Problems) {
	s.message().warn(payload, problems)
}
