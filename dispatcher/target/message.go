package target

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Message is a message of an attempt to a queue or topic.
type Message struct {
	Body string
	// Subject is for a message to a topic; it may be empty.
	Subject string
	// Attributes are the attributes of the target, as texts, and AttributeCarillon.
	Attributes map[string]string
	// GroupID orders messages. DeduplicationID is the event id of the run, so a FIFO queue drops a message that an
	// earlier attempt has sent. Both are empty for a standard queue or topic if the target names no group.
	GroupID, DeduplicationID string
}

// AttributeCarillon is the attribute that describes the attempt, as carillon in the event of a Lambda function does.
const AttributeCarillon = "carillon"

// Bounds of messages. AWS allows a message 10 attributes; one is Carillon's.
const (
	maxAttributes     = 9
	maxAttributeName  = 256 // characters
	maxAttributeValue = 8 << 10
	maxMessageGroup   = 128 // characters
	maxSubject        = 99  // characters; a longer one is cut
	maxSubjectText    = 1024
)

// message are the settings that queues and topics share. All its texts may be templates.
type message struct {
	body, subject, group string
	attributes           map[string]string
	fifo                 bool
	most                 int // largest size of a body with its attributes, in bytes
}

// validate returns everything wrong with a target that sends m to a resource as a role; nil means as the node.
func (m message) validate(to resource, arn string, role *AssumeRole, timeout input.Duration) error {
	var problems input.Problems
	checkResource(&problems, "/"+to.name+"_arn", to, arn)
	if role != nil {
		role.check(&problems, "/assume_role", arnPart(arn, arnRegion))
	}
	m.check(&problems)
	timeout.CheckRange(&problems, "/timeout", input.MinDuration, input.MaxDuration)
	return problems.Err()
}

// messageTemplates are the texts of a message as templates; nil without such a text.
type messageTemplates struct {
	message
	body, subject, group *template
	attributes           map[string]*template
}

func (t *messageTemplates) all() []*template {
	if t == nil {
		return nil
	}
	all := []*template{t.body, t.subject, t.group}
	for _, one := range t.attributes {
		all = append(all, one)
	}
	return all
}

var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// check adds everything wrong with m.
func (m message) check(problems *input.Problems) {
	var wrong input.Problems
	if len(m.body) > input.MaxPayload {
		wrong.Add("/body", input.CodePayloadTooLarge, "body has %d bytes; the maximum is 256 KiB", len(m.body))
	}
	for _, text := range []struct {
		name, value string
		most        int
	}{{"subject", m.subject, maxSubjectText}, {"message_group_id", m.group, maxSubjectText}} {
		if len(text.value) > text.most {
			wrong.Add("/"+text.name, input.CodeTextTooLong, "%s has %d bytes; the maximum is %d, templates included",
				text.name, len(text.value), text.most)
		}
	}
	m.checkAttributes(&wrong)
	templates := m.templates(&wrong)
	if len(wrong) == 0 {
		sample := sampleCall(nil)
		sample.App, sample.Job, sample.Trigger = "a", "j", "t"
		_, err := templates.try(sample)
		wrong.AddError("", err)
	}
	problems.AddError("", wrong.Err())
}

func (m message) checkAttributes(problems *input.Problems) {
	const at = "/attributes"
	if len(m.attributes) > maxAttributes {
		problems.Add(at, input.CodeTooMany, "%d attributes are given; the maximum is %d, because AWS allows 10 and one is Carillon's",
			len(m.attributes), maxAttributes)
		return
	}
	for _, name := range input.SortedKeys(m.attributes) {
		switch lower := strings.ToLower(name); {
		case len(name) > maxAttributeName || !attributeName.MatchString(name):
			problems.Add(at+input.Pointer(name), input.CodeAttributeName,
				"attribute name %s does not have 1 to %d letters, digits and any of _-, or single "+
					"dots between them", input.Echo(name), maxAttributeName)
		case lower == AttributeCarillon || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
			problems.Add(at+input.Pointer(name), input.CodeAttributeName,
				"attribute name %s is set by Carillon or reserved by AWS; name it otherwise",
				input.Echo(name))
		}
		if value := m.attributes[name]; value == "" {
			problems.Add(at+input.Pointer(name), input.CodeRequired, "attribute %s has no value, which AWS refuses; give it one, or remove it",
				input.Echo(name))
		} else if len(value) > maxAttributeValue {
			problems.Add(at+input.Pointer(name), input.CodePayloadTooLarge, "value of attribute %s has %d bytes; the maximum is 8 KiB",
				input.Echo(name), len(value))
		}
	}
}

// templates reads the texts of m and adds the problems of their templates. It does not read texts that are too long.
func (m message) templates(problems *input.Problems) *Templates {
	return m.templatesWith(problems, TemplateFields)
}

// templatesWith is templates with the fields that the templates may use.
func (m message) templatesWith(problems *input.Problems, fields []string) *Templates {
	t := &messageTemplates{message: m, attributes: map[string]*template{}}
	read := func(path, text string, most int) *template {
		if text == "" || len(text) > most {
			return nil
		}
		return parseTemplate(problems, path, text, fields)
	}
	t.body = read("/body", m.body, input.MaxPayload)
	t.subject = read("/subject", m.subject, maxSubjectText)
	t.group = read("/message_group_id", m.group, maxSubjectText)
	for _, name := range input.SortedKeys(m.attributes) {
		if len(m.attributes) > maxAttributes {
			break
		}
		if one := read("/attributes"+input.Pointer(name), m.attributes[name], maxAttributeValue); one != nil {
			t.attributes[name] = one
		}
	}
	templates := &Templates{message: t}
	templates.fires = templates.any(func(one *template) bool { return one.fires })
	return templates
}

// warn warns of a payload that is not sent.
func (m message) warn(payload json.RawMessage, problems *input.Problems) {
	var wrong input.Problems
	templates := m.templates(&wrong)
	if len(wrong) > 0 || len(payload) == 0 || m.body == "" || templates.any(func(t *template) bool { return t.payload }) {
		return
	}
	problems.Add("/payload", input.CodePayloadUnused, "the payload is not sent, because the message has a body and no template that uses the "+
		"payload; write {{json .Payload}} where it belongs, or remove it")
}

// Message returns an attempt's message to a queue or topic, with templates filled in. The error is a *TemplateError.
func (c Call) Message() (Message, error) {
	templates, err := c.Templates, error(nil)
	if templates == nil {
		templates, err = c.Target.Templates()
	}
	var filled Message
	if err == nil {
		filled, err = templates.message.fill(&c)
	}
	var problems input.Problems
	if errors.As(err, &problems) {
		err = &TemplateError{problems}
	}
	return filled, err
}

// fill fills in templates. The error is Problems with pointers in the target.
func (t *messageTemplates) fill(c *Call) (Message, error) {
	var problems input.Problems
	m := Message{Attributes: map[string]string{}}
	if t.body == nil {
		m.Body = string(c.Body())
		checkCharacters(&problems, "/body", "body", m.Body)
	} else if m.Body = t.body.text(&problems, "/body", "body", c, input.MaxPayload); m.Body == "" && len(problems) == 0 {
		problems.Add("/body", input.CodeRequired, "body is empty once its template is filled in; AWS refuses a message without a body")
	}
	if t.subject != nil {
		text, _ := t.subject.render(c, maxSubjectText, false)
		m.Subject = subjectOf(text)
	}
	for _, name := range input.SortedKeys(t.attributes) {
		value := t.attributes[name].text(&problems, "/attributes"+input.Pointer(name), "value of attribute "+input.Echo(name), c,
			maxAttributeValue)
		if value != "" { // AWS refuses an empty one, and a field may have no value
			m.Attributes[name] = value
		}
	}
	about, _ := json.Marshal(c.attempt()) // no field of it can fail
	m.Attributes[AttributeCarillon] = string(about)
	t.order(&problems, &m, c)
	if size := m.size(); size > t.most {
		problems.Add("", input.CodePayloadTooLarge, "message has %d bytes with its attributes; the maximum is %d KiB", size, t.most>>10)
	}
	return m, problems.Err()
}

// text returns the text for a call, or adds a problem if it cannot be part of a message.
func (t *template) text(problems *input.Problems, path, what string, c *Call, most int) string {
	text, fits := t.render(c, most, false)
	if !fits {
		problems.Add(path, input.CodePayloadTooLarge, "%s has more than %d KiB once its template is filled in", what, most>>10)
		return ""
	}
	checkCharacters(problems, path, what, text)
	return text
}

// order sets the ids that let queues order messages and drop repeated ones.
func (t *messageTemplates) order(problems *input.Problems, m *Message, c *Call) {
	if t.fifo {
		m.GroupID, m.DeduplicationID = defaultGroup(c.App, c.Job), c.EventID
	}
	if t.group == nil {
		return
	}
	const rule = "up to 128 letters, digits and punctuation marks of ASCII, without spaces"
	id, fits := t.group.render(c, maxMessageGroup, false)
	m.GroupID = id
	switch {
	case !fits || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }):
		problems.Add("/message_group_id", input.CodeTextInvalid, "message_group_id is not %s once its template is filled in", rule)
	case id == "" && t.fifo:
		problems.Add("/message_group_id", input.CodeRequired, "message_group_id is empty once its template is filled in; a FIFO queue or topic "+
			"needs one: %s", rule)
	}
}

// defaultGroup returns APP/JOB. Above AWS's limit, which Carillon's own jobs may exceed, it ends in a hash.
func defaultGroup(app, job string) string {
	group := app + "/" + job
	if len(group) <= maxMessageGroup {
		return group
	}
	const digits = 16
	sum := sha256.Sum256([]byte(group))
	return group[:maxMessageGroup-digits-1] + "/" + hex.EncodeToString(sum[:])[:digits]
}

// size returns the size of the message in bytes, as AWS counts it.
func (m Message) size() int {
	size := len(m.Body) + len(m.Subject)
	for name, value := range m.Attributes {
		size += len(name) + len("String") + len(value)
	}
	return size
}

// try fills in the texts for a sample, and for one with as few values as possible. The error is Problems.
func (t *messageTemplates) try(sample Call) error {
	_, err := t.fill(&sample)
	if err == nil {
		sample = sample.least()
		_, err = t.fill(&sample)
	}
	return err
}

// checkCharacters reports a text with characters that neither SQS nor SNS accepts: those that XML 1.0 does not allow.
func checkCharacters(problems *input.Problems, path, what, text string) {
	if !utf8.ValidString(text) {
		problems.Add(path, input.CodeTextInvalid, "%s is not UTF-8", what)
		return
	}
	at := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0xFFFE || r == 0xFFFF })
	if at >= 0 {
		r, _ := utf8.DecodeRuneInString(text[at:])
		problems.Add(path, input.CodeTextInvalid, "%s holds the character U+%04X, which neither SQS nor SNS takes; remove it, or write it as an "+
			"escape of JSON", what, r)
	}
}

// subjectOf returns the beginning of a text as the subject of a message.
func subjectOf(text string) string {
	text = strings.TrimSpace(input.OneLine(text))
	if utf8.RuneCountInString(text) <= maxSubject {
		return text
	}
	return string([]rune(text)[:maxSubject-1]) + "…"
}

// SQS is an Amazon SQS queue that gets a message, sent with the credentials of the node. An attempt succeeds once the queue
// has the message.
type SQS struct {
	// QueueARN is arn:aws:sqs:REGION:ACCOUNT:NAME. The name of a FIFO queue ends in .fifo.
	QueueARN string `json:"queue_arn" schema:"required"`
	// Body is a template that replaces the payload; it and its result have at most MaxPayload bytes. If empty, the
	// payload is the body, and without a payload a description of the fire.
	Body string `json:"body,omitempty" schema:"max=262144"`
	// Attributes are attributes of the message: at most 9 texts of at most 8 KiB. They may be templates; an attribute
	// that is empty once filled in is left out.
	Attributes map[string]string `json:"attributes,omitempty" schema:"each_max=8192,max=9"`
	// MessageGroupID is the group of the message, up to 128 characters; it may be a template. Empty means APP/JOB for
	// a FIFO queue, none for a standard queue.
	MessageGroupID string `json:"message_group_id,omitempty" schema:"max=1024"`
	// AssumeRole is a role to send as; nil means the node's own.
	AssumeRole *AssumeRole `json:"assume_role,omitempty"`
	// Timeout bounds one attempt.
	Timeout input.Duration `json:"timeout,omitempty"`
	// TraceContext puts the W3C trace context of the attempt into the message's attribute carillon.
	TraceContext bool `json:"trace_context,omitempty"`
}

// maxQueueMessage is the largest message to a queue, with its attributes, in bytes. A queue may have a lower limit.
const maxQueueMessage = 1 << 20

var queueForm = regexp.MustCompile(`^arn:aws[a-z-]*:sqs:[a-z0-9-]+:[0-9]{12}:([a-zA-Z0-9_-]{1,80}|[a-zA-Z0-9_-]{1,75}\.fifo)$`)

// SetDefaults gives a decoded target the values of fields that its JSON leaves out.
func (s *SQS) SetDefaults() { s.Timeout = DefaultTimeout }

// Validate returns everything wrong with s, as Problems with JSON pointers, or nil.
func (s SQS) Validate() error {
	queue := resource{"queue", "an SQS queue", input.CodeQueueARN, "sqs", queueForm}
	return s.message().validate(queue, s.QueueARN, s.AssumeRole, s.Timeout)
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

// arnPart returns a part of an ARN, or an empty text.
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

// resourceHost returns SERVICE:ACCOUNT:REGION:NAME:ROLE of a resource that is called as a role; nil means as the node.
func resourceHost(arn string, role *AssumeRole) string {
	host := strings.Join([]string{arnPart(arn, arnService), arnPart(arn, arnAccount), arnPart(arn, arnRegion), arnPart(arn, arnName)}, ":")
	if role != nil {
		host += ":" + role.RoleARN
	}
	return host
}

// SNS is an Amazon SNS topic that gets a message, published with the credentials of the node. An attempt succeeds once the
// topic has the message; SNS delivers it to the subscribers.
type SNS struct {
	// TopicARN is arn:aws:sns:REGION:ACCOUNT:NAME. The name of a FIFO topic ends in .fifo.
	TopicARN string `json:"topic_arn" schema:"required"`
	// Subject is the subject of mails; it may be a template, and is cut to 99 characters.
	Subject string `json:"subject,omitempty" schema:"max=1024"`
	// Body, Attributes and MessageGroupID are as in SQS. A message has at most 256 KiB with its attributes.
	Body string `json:"body,omitempty" schema:"max=262144"`
	// Attributes of the message, of type String. Values may be templates; an attribute that is empty once filled in
	// is left out. The attribute carillon is always added: it describes the attempt, like the object carillon in the
	// event of a Lambda function.
	Attributes map[string]string `json:"attributes,omitempty" schema:"each_max=8192,max=9"`
	// A template for the group of the message, up to 128 letters, digits and punctuation marks of ASCII.
	// Default: APP/JOB for a FIFO topic, otherwise none.
	MessageGroupID string `json:"message_group_id,omitempty" schema:"max=1024"`
	// AssumeRole is a role to publish as; nil means the node's own.
	AssumeRole *AssumeRole `json:"assume_role,omitempty"`
	// Timeout bounds one attempt.
	Timeout input.Duration `json:"timeout,omitempty"`
	// TraceContext puts the W3C trace context of the attempt into the message's attribute carillon.
	TraceContext bool `json:"trace_context,omitempty"`
}

// maxTopicMessage is the largest message to a topic, with its attributes, in bytes.
const maxTopicMessage = 256 << 10

var topicForm = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:([a-zA-Z0-9_-]{1,256}|[a-zA-Z0-9_-]{1,251}\.fifo)$`)

// SetDefaults gives a decoded target the values of fields that its JSON leaves out.
func (s *SNS) SetDefaults() { s.Timeout = DefaultTimeout }

// Validate returns everything wrong with s, as Problems with JSON pointers, or nil.
func (s SNS) Validate() error {
	topic := resource{"topic", "an SNS topic", input.CodeTopicARN, "sns", topicForm}
	return s.message().validate(topic, s.TopicARN, s.AssumeRole, s.Timeout)
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
