// Package target describes the targets of attempts: webhooks, Lambda functions, queues, topics, endpoint groups and
// the destinations of alerts. It has their authentication, their templates, and the bounds of an app that they must
// stay within.
package target

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Target is called by a run. Exactly one of its fields is set.
type Target struct {
	Webhook *Webhook `json:"webhook,omitempty"`
	Lambda  *Lambda  `json:"lambda,omitempty"`
	// Group is an endpoint group of the app.
	Group *GroupTarget `json:"group,omitempty"`
	// SQS is a queue, and SNS is a topic, that gets a message.
	SQS *SQS `json:"sqs,omitempty"`
	SNS *SNS `json:"sns,omitempty"`
	// Alert is the destination of an alert's notifications. Jobs of users cannot have it.
	Alert *AlertDestination `json:"alert,omitempty" body:"-"`
}

// Kind is a kind of target, named as its key in JSON. It is empty for a target of a kind that
// this version does not know.
type Kind string

// The kinds of target.
const (
	KindWebhook Kind = "webhook"
	KindLambda  Kind = "lambda"
	KindGroup   Kind = "group"
	KindSQS     Kind = "sqs"
	KindSNS     Kind = "sns"
	KindAlert   Kind = "alert"
)

// Kinds are all kinds.
var Kinds = []Kind{KindWebhook, KindLambda, KindGroup, KindSQS, KindSNS, KindAlert}

// callee is implemented by every kind of target. A new kind needs a field of Target, a case in Target.given, a file
// that implements this, and a file of package invoke that calls it.
type callee interface {
	kind() Kind
	Validate() error
	// host is for Target.Host, and origin for Target.Origin.
	host() (name string, atOnce int)
	origin() string
	// timeout is for Target.Timeout.
	timeout() time.Duration
	// templates reads the templates, and adds their problems; nil if there are none.
	templates(problems *input.Problems) *Templates
	// warn adds warnings about what is allowed but probably a mistake, with JSON pointers in the job.
	warn(payload json.RawMessage, problems *input.Problems)
}

// given yields the targets that are set in t; a valid target has one.
func (t Target) given(yield func(callee) bool) {
	if t.Webhook != nil && !yield(t.Webhook) {
		return
	}
	if t.Lambda != nil && !yield(t.Lambda) {
		return
	}
	if t.Group != nil && !yield(t.Group) {
		return
	}
	if t.SQS != nil && !yield(t.SQS) {
		return
	}
	if t.SNS != nil && !yield(t.SNS) {
		return
	}
	if t.Alert != nil {
		yield(t.Alert)
	}
}

// one returns the target that is set in t, or nil.
func (t Target) one() callee {
	for given := range t.given {
		return given
	}
	return nil
}

// Kind returns the kind of t.
func (t Target) Kind() Kind {
	if one := t.one(); one != nil {
		return one.kind()
	}
	return ""
}

// GroupName returns the name of the group that t names; empty if it names none.
func (t Target) GroupName() string {
	if t.Group == nil {
		return ""
	}
	return t.Group.Name
}

// AssumeRole returns the role for calls of AWS; nil for the node's own, or if t does not call AWS.
func (t Target) AssumeRole() *AssumeRole {
	switch {
	case t.Lambda != nil:
		return t.Lambda.AssumeRole
	case t.SQS != nil:
		return t.SQS.AssumeRole
	case t.SNS != nil:
		return t.SNS.AssumeRole
	}
	return nil
}

// AWSRegion returns the region of AWS that t names; empty for the node's, or if t does not call AWS.
func (t Target) AWSRegion() string {
	switch {
	case t.Lambda != nil:
		return t.Lambda.FunctionRegion()
	case t.SQS != nil:
		return arnPart(t.SQS.QueueARN, arnRegion)
	case t.SNS != nil:
		return arnPart(t.SNS.TopicARN, arnRegion)
	}
	return ""
}

// Headers returns the headers that t sends; has is false for a target that can have none.
func (t Target) Headers() (headers map[string]string, has bool) {
	switch {
	case t.Webhook != nil:
		return t.Webhook.Headers, true
	case t.Group != nil && t.Group.XXLJob == nil:
		return t.Group.Headers, true
	}
	return nil, false
}

// WithHeaders returns t with other headers, if its kind has any.
func (t Target) WithHeaders(headers map[string]string) Target {
	switch {
	case t.Webhook != nil:
		changed := *t.Webhook
		changed.Headers = headers
		t.Webhook = &changed
	case t.Group != nil:
		changed := *t.Group
		changed.Headers = headers
		t.Group = &changed
	}
	return t
}

// Validate returns everything wrong with t, as Problems with JSON pointers, or nil.
func (t Target) Validate() error {
	var problems input.Problems
	switch all := slices.Collect(t.given); len(all) {
	case 0:
		problems.Add("/webhook", input.CodeRequired, "target names nothing to call; give it a webhook, a lambda, a group, an sqs or an sns")
	case 1:
		problems.AddError("/"+string(all[0].kind()), all[0].Validate())
	default:
		problems.Add("/"+string(all[1].kind()), input.CodeTargetKind, "%s and %s are given; a run calls one thing", all[0].kind(), all[1].kind())
	}
	return problems.Err()
}

// Host returns the host of the calls of t, and how many of them may be in flight at once on a node; 0 means no limit
// of its own. Limits, rates and circuits are kept for each host: for a webhook, the host of its URL in any spelling;
// for a Lambda function, its account, its region, its name and the role that it is invoked as; for a queue or topic,
// its service, account, region, name and role. A rate counts the calls of all apps, a circuit those of one.
func (t Target) Host() (name string, atOnce int) {
	if one := t.one(); one != nil {
		return one.host()
	}
	return "", 0
}

// Origin returns the origin that the value of a secret is bound to, by its JSON pointer in t: scheme, host and port of
// the URL that it is sent to, and for client credentials those of the token URL as well; empty for services of AWS.
func (t Target) Origin(path string) string {
	one := t.one()
	if one == nil {
		return ""
	}
	w := t.Webhook
	if t.Alert != nil && t.Alert.Webhook != nil {
		w = &t.Alert.Webhook.Webhook
	}
	if w != nil && w.Auth.oauth2() != nil && isOAuth2Secret(path) {
		return one.origin() + " " + w.Auth.OAuth2.origin()
	}
	return one.origin()
}

// Timeout returns how long one attempt may take.
func (t Target) Timeout() time.Duration {
	if one := t.one(); one != nil {
		return one.timeout()
	}
	return 0
}

// Templates reads the templates of t; nil if it has none. The error is Problems, which Validate finds, too.
func (t Target) Templates() (*Templates, error) {
	one := t.one()
	if one == nil {
		return nil, nil
	}
	var problems input.Problems
	templates := one.templates(&problems)
	return templates, problems.Err()
}

// Warn adds warnings about what is allowed but probably a mistake in the target of a job, with JSON pointers in the
// job.
func (t Target) Warn(payload json.RawMessage, problems *input.Problems) {
	if one := t.one(); one != nil {
		one.warn(payload, problems)
	}
}

// hostOf returns the host of a URL, with its port unless that is the scheme's: the same for each way to write it, or
// an empty text. A host is never part of a template.
func hostOf(text string) string {
	if isTemplate(text) {
		text = urlBeginning.FindString(text)
	}
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if addr, err := netip.ParseAddr(host); err == nil {
		host = Dialled(addr).String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	}
	if port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return host
	}
	return host + ":" + port
}

// TargetSummary is the target of a job in short.
type TargetSummary struct {
	// Empty for a kind that this version does not know.
	Kind Kind `json:"kind"`
	// Name is the host of a webhook, with its port unless that is the scheme's, or the name of the function, group,
	// queue or topic.
	Name string `json:"name"`
}

// Summary returns the summary of t.
func (t Target) Summary() TargetSummary {
	s := TargetSummary{Kind: t.Kind()}
	switch {
	case t.Webhook != nil:
		s.Name = hostOf(t.Webhook.URL)
	case t.Lambda != nil:
		s.Name = t.Lambda.FunctionName()
	case t.Group != nil:
		s.Name = t.Group.Name
	case t.SQS != nil:
		s.Name = arnPart(t.SQS.QueueARN, arnName)
	case t.SNS != nil:
		s.Name = arnPart(t.SNS.TopicARN, arnName)
	}
	return s
}
