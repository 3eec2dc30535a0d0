package servers

import (
	"crypto/md5" //nolint:gosec // SQS uses it
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Message is a received message of a queue or topic.
type Message struct {
	ID, Body, Subject        string
	Attributes               map[string]string
	GroupID, DeduplicationID string
	// By is the sender; its Role is empty for the node itself.
	By Session
}

// CreateQueue creates a queue, by its ARN. The name of a FIFO queue ends in .fifo.
func (a *AWS) CreateQueue(arn string) { a.create(arn) }

// CreateTopic creates a topic, by its ARN. The name of a FIFO topic ends in .fifo.
func (a *AWS) CreateTopic(arn string) { a.create(arn) }

func (a *AWS) create(arn string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.messages[arn] = []Message{}
}

// Messages returns the messages of a queue or topic, in order, without the duplicates that a FIFO one dropped.
func (a *AWS) Messages(arn string) []Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.messages[arn])
}

// mostMessage is the largest size of a message in bytes, by the service of its ARN.
var mostMessage = map[string]int{"sqs": 1 << 20, "sns": 256 << 10}

// attributeValue is an attribute in the form of the APIs.
type attributeValue struct{ DataType, StringValue string }

// sendMessage serves SendMessage of SQS with its protocol AWS JSON 1.0.
func (a *AWS) sendMessage(w http.ResponseWriter, r *http.Request, by Session, body []byte) {
	const operation = "SendMessage"
	var in struct {
		QueueURL               string `json:"QueueUrl"`
		MessageBody            string
		MessageAttributes      map[string]attributeValue
		MessageGroupID         string `json:"MessageGroupId"`
		MessageDeduplicationID string `json:"MessageDeduplicationId"`
	}
	if r.Header.Get("Content-Type") != "application/x-amz-json-1.0" || json.Unmarshal(body, &in) != nil {
		refuse(w, operation, http.StatusBadRequest, "SerializationException")
		return
	}
	m := Message{Body: in.MessageBody, Attributes: map[string]string{}, GroupID: in.MessageGroupID,
		DeduplicationID: in.MessageDeduplicationID, By: by}
	for name, value := range in.MessageAttributes {
		if value.DataType != "String" {
			refuse(w, operation, http.StatusBadRequest, "InvalidParameterValue")
			return
		}
		m.Attributes[name] = value.StringValue
	}
	path := strings.Split(in.QueueURL, "/")
	arn := ""
	if len(path) == 5 {
		arn = "arn:aws:sqs:eu-central-1:" + path[3] + ":" + path[4]
	}
	id, status, code := a.take(operation, arn, m, "QueueDoesNotExist", http.StatusBadRequest)
	if code != "" {
		refuse(w, operation, status, code)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amzn-Requestid", "request-"+id)
	_ = json.NewEncoder(w).Encode(map[string]string{
		"MessageId": id, "MD5OfMessageBody": md5Of([]byte(m.Body)), "MD5OfMessageAttributes": md5Of(attributeBytes(m.Attributes)),
	})
}

// publish serves Publish of SNS, with form requests and XML responses.
func (a *AWS) publish(w http.ResponseWriter, by Session, form url.Values) {
	const operation = "Publish"
	m := Message{Body: form.Get("Message"), Subject: form.Get("Subject"), Attributes: map[string]string{}, By: by,
		GroupID: form.Get("MessageGroupId"), DeduplicationID: form.Get("MessageDeduplicationId")}
	for n := 1; ; n++ {
		at := fmt.Sprintf("MessageAttributes.entry.%d.", n)
		if form.Get(at+"Name") == "" {
			break
		}
		if form.Get(at+"Value.DataType") != "String" {
			refuse(w, operation, http.StatusBadRequest, "InvalidParameterValue")
			return
		}
		m.Attributes[form.Get(at+"Name")] = form.Get(at + "Value.StringValue")
	}
	if utf8.RuneCountInString(m.Subject) > 99 || strings.ContainsAny(m.Subject, "\r\n") {
		refuse(w, operation, http.StatusBadRequest, "InvalidParameter")
		return
	}
	id, status, code := a.take(operation, form.Get("TopicArn"), m, "NotFound", http.StatusNotFound)
	if code != "" {
		refuse(w, operation, status, code)
		return
	}
	type result struct {
		MessageID string `xml:"MessageId"`
	}
	type metadata struct {
		RequestID string `xml:"RequestId"`
	}
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("X-Amzn-Requestid", "request-"+id)
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName  xml.Name `xml:"http://sns.amazonaws.com/doc/2010-03-31/ PublishResponse"`
		Result   result   `xml:"PublishResult"`
		Metadata metadata `xml:"ResponseMetadata"`
	}{Result: result{id}, Metadata: metadata{"request-" + id}})
}

// echo responds to SendMessage and Publish with the credentials of the request.
func echo(w http.ResponseWriter, r *http.Request, operation string, f Fault) {
	said := r.Header.Get("X-Amz-Security-Token") + " " + r.Header.Get("Authorization")
	w.Header().Set("X-Amzn-Requestid", said)
	form := "<PublishResponse><PublishResult><MessageId>%[2]s</MessageId></PublishResult></PublishResponse>"
	switch {
	case operation == "SendMessage" && f.Status == 0:
		form = `{"MessageId":%[2]q}`
	case operation == "SendMessage":
		form = `{"__type":%[1]q,"message":%[2]q}`
	case f.Status != 0:
		form = "<ErrorResponse><Error><Code>%[1]s</Code><Message>%[2]s</Message></Error><RequestId>%[2]s</RequestId></ErrorResponse>"
	}
	w.WriteHeader(max(f.Status, http.StatusOK))
	_, _ = fmt.Fprintf(w, form, f.Code, said)
}

// take puts a message in a queue or topic, and returns its id or the error; gone is the code for a missing one.
func (a *AWS) take(operation, arn string, m Message, gone string, goneStatus int) (id string, status int, code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all, ok := a.messages[arn]
	if a.allow != nil && !a.allow(m.By, operation, arn) {
		return "", http.StatusForbidden, map[string]string{"SendMessage": "AccessDeniedException", "Publish": "AuthorizationError"}[operation]
	}
	if !ok {
		return "", goneStatus, gone
	}
	fifo := strings.HasSuffix(arn, ".fifo")
	if code := wrong(m, mostMessage[strings.Split(arn, ":")[2]]); code != "" {
		return "", http.StatusBadRequest, code
	}
	if fifo != (m.DeduplicationID != "") || fifo && m.GroupID == "" {
		return "", http.StatusBadRequest, "InvalidParameterValue"
	}
	for _, earlier := range all {
		if fifo && earlier.DeduplicationID == m.DeduplicationID {
			return earlier.ID, 0, ""
		}
	}
	m.ID = fmt.Sprintf("message-%d", len(all)+1)
	a.messages[arn] = append(all, m)
	return m.ID, 0, ""
}

var attributeForm = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// wrong returns the error code for a message that AWS would refuse, or "".
func wrong(m Message, most int) (code string) {
	size := len(m.Body) + len(m.Subject)
	for name, value := range m.Attributes {
		size += len(name) + len("String") + len(value)
		if !attributeForm.MatchString(name) || value == "" {
			return "InvalidParameterValue"
		}
	}
	odd := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\r", r) || r == 0xFFFE || r == 0xFFFF }
	switch {
	case m.Body == "" || size > most || len(m.Attributes) > 10 || len(m.GroupID) > 128 || len(m.DeduplicationID) > 128:
		return "InvalidParameterValue"
	case !utf8.ValidString(m.Body) || strings.ContainsFunc(m.Body, odd):
		return "InvalidMessageContents"
	}
	return ""
}

// queryCode returns SQS's name of an error for clients of its older protocol, which newer ones read, too.
func queryCode(code string) string {
	if code == "QueueDoesNotExist" {
		return "AWS.SimpleQueueService.NonExistentQueue"
	}
	return code
}

func md5Of(text []byte) string {
	sum := md5.Sum(text) //nolint:gosec // SQS uses it
	return hex.EncodeToString(sum[:])
}

// attributeBytes returns the bytes for SQS's checksum of attributes.
func attributeBytes(attributes map[string]string) []byte {
	var out []byte
	add := func(text string) {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(text))), text...) //nolint:gosec // bounded by mostMessage
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		add(name)
		add("String")
		out = append(out, 1)
		add(attributes[name])
	}
	return out
}
