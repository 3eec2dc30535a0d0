package target

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Templates are the checked templates of a webhook, of the requests to an endpoint group, or of a message.
type Templates struct {
	message *messageTemplates // of a queue or topic; the rest is empty then
	webhook *Webhook
	url     *template // nil if it is not a template, as for the others
	headers map[string]*template
	body    *template
	hashKey *template // of a group
	fires   bool      // one of them uses PreviousFire or NextFire
}

// urlBeginning is the part of a URL that cannot be a template: limits, circuits and the egress guard
// depend on the host.
var urlBeginning = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#\\{}]*[/?]`)

// UseFires reports whether a template uses PreviousFire or NextFire.
func (t *Templates) UseFires() bool {
	return t != nil && t.fires
}

func (t *Templates) any(is func(*template) bool) bool {
	if t == nil {
		return false
	}
	for _, one := range slices.Concat(slices.Collect(maps.Values(t.headers)), t.message.all(), []*template{t.url, t.body, t.hashKey}) {
		if one != nil && is(one) {
			return true
		}
	}
	return false
}

// templates reads the templates of w and adds their problems.
func (w *Webhook) templates(problems *input.Problems) *Templates {
	return w.templatesWith(problems, TemplateFields)
}

// templatesWith is templates with the fields that the templates may use; with callback, they may use its fields, too.
// It does not read texts that are too long.
func (w *Webhook) templatesWith(problems *input.Problems, fields []string) *Templates {
	t, ofURL := Templates{webhook: w}, fields
	if w.Callback != nil {
		fields, ofURL = withCallback(fields), withCallbackURL(fields)
	}
	if isTemplate(w.URL) && len(w.URL) <= maxURL {
		if !urlBeginning.MatchString(w.URL) {
			problems.Add("/url", input.CodeTemplateHost, "scheme, host and port of a URL cannot be templates; begin with "+
				"https://host/ and use templates after that")
		}
		t.url = parseTemplate(problems, "/url", w.URL, ofURL)
	}
	for _, name := range input.SortedKeys(w.Headers) {
		if value := w.Headers[name]; isTemplate(value) && len(value) <= maxHeaderValue && len(w.Headers) <= maxHeaders {
			if t.headers == nil {
				t.headers = map[string]*template{}
			}
			t.headers[name] = parseTemplate(problems, "/headers"+input.Pointer(name), value, fields)
		}
	}
	if w.Body != "" && len(w.Body) <= input.MaxPayload {
		t.body = parseTemplate(problems, "/body", w.Body, fields)
	}
	if t.url == nil && t.body == nil && t.headers == nil {
		return nil
	}
	t.fires = t.any(func(one *template) bool { return one.fires })
	return &t
}

// withCallback returns the fields of a target with callback.
func withCallback(fields []string) []string { return slices.Concat(fields, CallbackTemplateFields) }

// withCallbackURL is withCallback for a text that others log, such as a URL: it must not contain the token.
func withCallbackURL(fields []string) []string {
	return slices.DeleteFunc(withCallback(fields), func(name string) bool { return name == string(fieldCallbackToken) })
}

// checkTemplates checks all templates of w, and returns the URL filled in with a sample.
func (w *Webhook) checkTemplates(problems *input.Problems, sample Call) (url string) {
	if isTemplate(w.URL) && len(w.URL) > maxURL {
		checkURL(problems, "/url", w.URL)
	}
	if len(w.Body) > input.MaxPayload {
		problems.Add("/body", input.CodePayloadTooLarge, "body has %d bytes; the maximum is 256 KiB", len(w.Body))
	}
	fields := TemplateFields
	if sample.Notification != nil {
		fields = AlertTemplateFields
	}
	templates := w.templatesWith(problems, fields)
	if templates == nil || len(*problems) > 0 {
		return w.URL
	}
	sample.Callback = sampleCallback(w.Callback, sample)
	url, err := templates.try(sample)
	problems.AddError("", err)
	return url
}

// TryTemplates fills in the valid templates of t, the target of a job, with sample values. The error is Problems with
// pointers in the target.
func (t Target) TryTemplates(app, job string, payload json.RawMessage) error {
	var problems input.Problems
	templates, _ := t.Templates()
	if templates != nil && len(payload) <= input.MaxPayload && json.Valid(payload) {
		sample := sampleCall(payload)
		sample.App, sample.Job, sample.Callback = app, job, sampleCallback(t.Callback(), sample)
		_, err := templates.try(sample)
		problems.AddError("/"+string(t.Kind()), err)
	}
	return problems.Err()
}

// sampleCall returns a call with every field set and as long as possible.
func sampleCall(payload json.RawMessage) Call {
	at, name := time.Date(2999, 12, 31, 23, 59, 59, 999e6, time.UTC), strings.Repeat("n", 63)
	return Call{
		App: name, Job: name, Trigger: name, Key: run.Key{TriggerID: 1 << 62, ScheduledAt: at, Kind: run.KindCatchUp},
		EventID: run.Salt(nil).EventID(run.Origin{Installation: name, App: name, Job: name, Trigger: name}, at, run.KindSchedule), Attempt: 1e6,
		Payload: payload, PreviousFire: at, NextFire: at,
		Shard: &run.Shard{Index: run.MaxShards - 1, Total: run.MaxShards},
		Cause: &run.Cause{
			Run: run.Key{TriggerID: 1 << 62, ScheduledAt: at, Kind: run.KindCatchUp}.String(), On: string(run.OnFailure), State: run.TimedOut,
			Class: run.ClassSecretReplaced, Error: name,
		},
		Carried: &run.CarriedState{State: json.RawMessage(`"` + strings.Repeat("s", run.MaxCarriedState-2) + `"`)},
	}
}

// sampleCallback returns the callback of the target of a sampleCall; nil if it has none.
func sampleCallback(policy *CallbackPolicy, sample Call) *run.CallToken {
	if policy == nil {
		return nil
	}
	return &run.CallToken{
		URL:   "https://" + strings.Repeat("h", 253) + "/v1/runs/" + sample.Key.String(),
		Token: run.CallbackToken(nil, sample.EventID, sample.Attempt), Timeout: policy.Timeout,
	}
}

// try fills in the templates for a sample, and for one with as few values as possible. The error is Problems.
func (t *Templates) try(sample Call) (url string, err error) {
	if t.message != nil {
		return "", t.message.try(sample)
	}
	sample.Templates = t
	url, _, _, err = sample.fill(t)
	if err == nil {
		sample = sample.least()
		_, _, _, err = sample.fill(t)
	}
	return url, err
}

// least returns a sample with as few values as possible.
func (c Call) least() Call {
	c.Trigger, c.PreviousFire, c.NextFire = "", time.Time{}, time.Time{}
	c.Key.Kind, c.Attempt, c.Shard, c.Cause, c.Carried = run.KindManual, 1, nil, nil, nil
	if c.Notification != nil {
		c.Notification = &AlertNotification{}
	}
	return c
}

// TemplateError explains why a filled-in template cannot be sent. It contains none of the text.
type TemplateError struct{ input.Problems }

func (e *TemplateError) Error() string { return "template: " + e.Problems.Error() }

// Request returns the request of an attempt of a webhook, with templates filled in. The error is a *TemplateError.
func (c Call) Request() (url string, headers map[string]string, body []byte, err error) {
	if c.Templates != nil {
		return c.filledIn()
	}
	w := c.Target.Webhook
	return w.URL, w.Headers, w.BodyOf(c.Body()), nil
}

// filledIn is Request for a target with templates. It is a separate method, so that only these calls
// move c to the heap.
func (c Call) filledIn() (url string, headers map[string]string, body []byte, err error) {
	url, headers, body, err = c.fill(c.Templates)
	var problems input.Problems
	if errors.As(err, &problems) {
		err = &TemplateError{problems}
	}
	return url, headers, body, err
}

// fill fills in templates. The error is Problems with pointers in the webhook.
func (c *Call) fill(t *Templates) (url string, headers map[string]string, body []byte, err error) {
	var problems input.Problems
	url = t.webhook.URL
	if t.url != nil {
		var fits bool
		if url, fits = t.url.render(c, maxURL, true); fits {
			checkURL(&problems, "/url", url)
		} else {
			problems.Add("/url", input.CodeURLTooLong, "URL has more than %d characters once its template is filled in", maxURL)
		}
	}
	if headers = t.webhook.Headers; t.headers != nil {
		headers = maps.Clone(headers)
	}
	for _, name := range input.SortedKeys(t.headers) {
		value, fits := t.headers[name].render(c, maxHeaderValue, false)
		if headers[name] = value; !fits {
			problems.Add("/headers"+input.Pointer(name), input.CodeHeaderSize,
				"value of header %s has more than 8 KiB once its template is filled in", input.Echo(name))
		} else if !httpguts.ValidHeaderFieldValue(value) {
			problems.Add("/headers"+input.Pointer(name), input.CodeHeaderValue,
				"value of header %s holds a control character such as CR, LF or NUL once its template is filled in", input.Echo(name))
		}
	}
	if t.body == nil {
		body = c.Body()
	} else {
		text, fits := t.body.render(c, input.MaxPayload, false)
		if body = []byte(text); !fits {
			problems.Add("/body", input.CodePayloadTooLarge, "body has more than 256 KiB once its template is filled in")
		} else if t.webhook.CloudEvents == CloudEventsStructured && !json.Valid(body) {
			problems.Add("/body", input.CodeJSONSyntax, "body is the data of a structured CloudEvent, so it has to be JSON "+
				"once its template is filled in; put texts in as {{json .Job}}, or use binary")
		}
	}
	return url, headers, t.webhook.BodyOf(body), problems.Err()
}
