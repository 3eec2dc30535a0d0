package target

import (
	"cmp"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// SQS is an Amazon SQS queue that gets a message, sent with the credentials of the node. An attempt succeeds once the queue
// has the message.
type SQS struct {
	// QueueARN is arn:aws:sqs:REGION:ACCOUNT:NAME. The name of a FIFO queue ends in .fifo.
	QueueARN string `json:"queue_arn"`
	// Body is a template that replaces the payload; it and its result have at most MaxPayload bytes. Empty: the payload is the
	// body, and without one a description of the fire.
	Body string `json:"body,omitempty"`
	// Attributes are attributes of the message: at most 9 texts of at most 8 KiB. They may be templates; one that is empty once
	// it is filled in is left out.
	Attributes map[string]string `json:"attributes,omitempty"`
	// MessageGroupID is the group of the message, up to 128 characters; it may be a template. Empty: APP/JOB for a FIFO queue,
	// none for a standard queue.
	MessageGroupID string `json:"message_group_id,omitempty"`
	// AssumeRole is a role to send as; nil: the node's own.
	AssumeRole *AssumeRole `json:"assume_role,omitempty"`
	// Timeout bounds one attempt.
	Timeout input.Duration `json:"timeout,omitempty"`
	// TraceContext puts the W3C trace context of the attempt into the message's attribute carillon.
	TraceContext bool `json:"trace_context,omitempty"`
}

// maxQueueMessage is the most bytes of a message to a queue, with its attributes. A queue may have a lower limit of its own.
const maxQueueMessage = 1 << 20

var queueForm = regexp.MustCompile(`^arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}:([a-zA-Z0-9_-]{1,80}|[a-zA-Z0-9_-]{1,75}\.fifo)$`)

// SetDefaults gives a decoded target the values of fields that its JSON leaves out.
func (s *SQS) SetDefaults() { s.Timeout = DefaultTimeout }

// Validate returns everything wrong with s, as Problems with JSON pointers, or nil.
func (s SQS) Validate() error {
	var problems input.Problems
	checkResource(&problems, "/queue_arn", resource{"queue", "an SQS queue", input.CodeQueueARN, "sqs", queueForm}, s.QueueARN)
	if s.AssumeRole != nil {
		s.AssumeRole.check(&problems, "/assume_role", arnPart(s.QueueARN, arnRegion))
	}
	s.message().check(&problems)
	s.Timeout.CheckRange(&problems, "/timeout", input.MinDuration, input.MaxDuration)
	return problems.Err()
}

func (s *SQS) message() message {
	return message{body: s.Body, attributes: s.Attributes, group: s.MessageGroupID, fifo: strings.HasSuffix(s.QueueARN, ".fifo"),
		most: maxQueueMessage}
}

func (s *SQS) kind() Kind { return KindSQS }

// host is sqs:ACCOUNT:REGION:NAME:ROLE.
func (s *SQS) host() (name string, atOnce int) { return resourceHost(s.QueueARN, s.AssumeRole), 0 }

// origin is empty: a queue has no secrets.
func (s *SQS) origin() string { return "" }

func (s *SQS) timeout() time.Duration { return cmp.Or(s.Timeout, DefaultTimeout).Std() }

func (s *SQS) templates(problems *input.Problems) *Templates { return s.message().templates(problems) }

func (s *SQS) warn(payload json.RawMessage, problems *input.Problems) {
	s.message().warn(payload, problems)
}

// The parts of an ARN.
const (
	arnPartition = 1
	arnService   = 2
	arnRegion    = 3
	arnAccount   = 4
	arnName      = 5
)

// arnPart returns a part of an ARN; empty if there is none.
func arnPart(arn string, n int) string {
	if parts := strings.SplitN(arn, ":", arnName+1); len(parts) > n {
		return parts[n]
	}
	return ""
}

// resource is a kind of resource that jobs name by its ARN.
type resource struct {
	name, article, code, service string
	form                         *regexp.Regexp
}

func checkResource(problems *input.Problems, at string, of resource, arn string) {
	form := "write it as arn:aws:" + of.service + ":REGION:ACCOUNT:NAME"
	region, partition := arnPart(arn, arnRegion), arnPart(arn, arnPartition)
	switch {
	case arn == "":
		problems.Add(at, input.CodeRequired, "%s is missing; %s", of.name, form)
	case !of.form.MatchString(arn):
		problems.Add(at, of.code, "%s %s is not the ARN of %s; %s", of.name, input.Echo(arn), of.article, form)
	case !regionForm.MatchString(region):
		problems.Add(at, of.code, "region %s is not of the form eu-central-1", input.Echo(region))
	case partitionOf(region) != partition:
		problems.Add(at, of.code, "region %s is in partition %s, not in %s", input.Echo(region), partitionOf(region), input.Echo(partition))
	}
}

// resourceHost is SERVICE:ACCOUNT:REGION:NAME:ROLE of a resource that is called as a role; nil: as the node.
func resourceHost(arn string, role *AssumeRole) string {
	host := strings.Join([]string{arnPart(arn, arnService), arnPart(arn, arnAccount), arnPart(arn, arnRegion), arnPart(arn, arnName)}, ":")
	if role != nil {
		host += ":" + role.RoleARN
	}
	return host
}
