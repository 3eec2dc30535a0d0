package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Request is the request of one attempt.
type Request struct {
	secret.Owner
	Method, URL string
	Header      http.Header
	Body        []byte // nil for no body
	endpoint    string // see Destination, as for host
	host        string
	Most        int // bytes of the response to read; 0: attempt.MostBody
	// Repeatable means that the request may be made again if the connection of the first one is lost.
	Repeatable bool
	clients    *clients
	revealed   []string      // its secrets, which a response may repeat
	looked     []secret.Sent // the secrets that it refers to
	// Judge, if not nil, returns the outcome of a response whose status is a success.
	Judge func(Response) run.Outcome
	// fenced means that the receiver may refuse it as superseded.
	fenced bool
	// signedAsNode means that it is signed with the AWS credentials of the node.
	signedAsNode bool
	held         func() bool // see Call.Held
	token        *usedToken  // nil: no token of OAuth 2
	// returns, if not nil, adds the state of the job that the response returned to an outcome.
	returns func(*run.Outcome, Response, attempt.Redaction)
}

// Content is the content of a request, independent of its destination: a webhook with its templates filled in.
type Content struct {
	*target.Webhook
	Headers map[string]string
	Body    []byte
}

// Destination is the destination of a request.
type Destination struct {
	URL   string
	Scope Scope
	// Endpoint is the id of the group's endpoint with this URL; empty: not an endpoint of a group.
	Endpoint string
	// Host is sent as Host; empty: that of the URL.
	Host string
}

// Request returns a request on behalf of a call that is not its attempt. It is not connected yet.
func (h *Webhooks) Request(call target.Call, method string, to Destination) Request {
	header := http.Header{"User-Agent": {h.agent}}
	return Request{Owner: secret.OwnerOf(call), Method: method, URL: to.URL, host: to.Host, endpoint: to.Endpoint, Header: header}
}

// BuildFor returns the request of an attempt at now to a destination.
func (h *Webhooks) BuildFor(
	ctx context.Context, to Destination, w Content, call target.Call, now time.Time,
) (Request, error) {
	r, err := h.Compose(to, w, call, now)
	if err != nil {
		return r, err
	}
	if err := h.Connect(ctx, &r, w.TLS, to.Scope, now); err != nil {
		return r, err
	}
	if w.Signing != nil {
		signature, err := h.sign(ctx, &r, w.Signing, call.EventID, now)
		if err != nil {
			return r, err
		}
		r.Header["Webhook-Signature"] = []string{signature}
	}
	if w.Auth == nil {
		return r, nil
	}
	return r, h.Authorize(ctx, &r, w.Auth, now) // last, because it may sign all the headers
}

// Compose returns the part of a request that needs no secret. Carillon's headers overwrite those of the job.
func (h *Webhooks) Compose(to Destination, w Content, call target.Call, now time.Time) (Request, error) {
	r := Request{
		held: call.Held, fenced: call.Key.Kind.MayBeSuperseded(),
		Owner: secret.OwnerOf(call), Method: w.Method, URL: to.URL, endpoint: to.Endpoint, host: to.Host,
		Header: make(http.Header, len(w.Headers)+20), Body: w.Body,
	}
	if scheme, _, _ := strings.Cut(r.URL, ":"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return r, attempt.Denied("the URL", "its scheme is neither http nor https")
	}
	r.Header["Content-Type"] = []string{"application/json"}
	for name, value := range w.Headers {
		r.Header.Set(name, value)
	}
	switch w.CloudEvents {
	case target.CloudEventsBinary:
		setEvent(r.Header, call)
	case target.CloudEventsStructured:
		body, err := envelope(call, r.Body)
		if err != nil {
			return r, err
		}
		r.Body = body
		r.Header["Content-Type"] = []string{"application/cloudevents+json"}
	}
	h.identify(r.Header, call, now)
	if call.Callback != nil {
		r.Header["Carillon-Callback-Url"] = []string{call.Callback.URL}
		r.Header["Carillon-Callback-Token"] = []string{call.Callback.Token}
		r.Header["Carillon-Callback-Timeout"] = []string{call.Callback.Timeout.String()}
		r.hide(call.Callback.Token)
	}
	if call.Carried != nil {
		if state := call.State(); state != nil {
			r.Header[run.HeaderState] = []string{string(state)}
		}
		r.returns = func(outcome *run.Outcome, got Response, clean attempt.Redaction) {
			attempt.KeepState(outcome, call, attempt.StateOf(got.header, got.Body, got.More), clean)
		}
	}
	if to.Endpoint != "" {
		r.Header["Carillon-Endpoint"] = []string{to.Endpoint}
	}
	return r, nil
}

// Connect chooses the connections of a request.
func (h *Webhooks) Connect(ctx context.Context, r *Request, t *target.TLS, of Scope, now time.Time) (err error) {
	key := ""
	if t != nil && t.ClientKey != nil {
		if key, err = h.look(ctx, r, *t.ClientKey, now); err != nil {
			return attempt.BadSecret("tls client_key", err)
		}
	}
	r.clients, err = h.pool.with(t, key, of, now)
	return err
}

// identify sets the headers that identify the run and the attempt. It writes their names in the
// canonical form of http.Header, which saves the conversion for each request.
func (h *Webhooks) identify(header http.Header, call target.Call, now time.Time) {
	// One array holds all values, because a request has many headers and a node makes many requests.
	values := []string{
		h.agent, call.EventID, strconv.FormatInt(now.Unix(), 10),
		call.App, call.Job, call.Trigger, call.Key.String(), string(call.Key.Kind),
		input.FormatInstant(call.Key.ScheduledAt), strconv.Itoa(call.Attempt), strconv.FormatInt(call.Fence(), 10),
	}
	for n, name := range identityHeaders {
		header[name] = values[n : n+1 : n+1]
	}
	if trace := call.Traceparent(); trace != "" {
		header["Traceparent"] = []string{trace}
	}
	if s := call.Shard; s != nil {
		header["Carillon-Shard-Index"] = []string{strconv.Itoa(s.Index)}
		header["Carillon-Shard-Total"] = []string{strconv.Itoa(s.Total)}
	}
	if c := call.Cause; c != nil && c.On != "" {
		for name, value := range map[string]string{
			"Carillon-Parent-Run": c.Run, "Carillon-Parent-Event": c.On, "Carillon-Parent-State": string(c.State),
			"Carillon-Parent-Class": string(c.Class), "Carillon-Parent-Error": headerText(c.Error),
		} {
			if value != "" {
				header[name] = []string{value}
			}
		}
	}
	if m := call.Missed; m != nil {
		header["Carillon-Missed-From"] = []string{input.FormatInstant(m.From)}
		header["Carillon-Missed-To"] = []string{input.FormatInstant(m.To)}
		header["Carillon-Missed-Count"] = []string{strconv.Itoa(m.Count)}
	}
}

// headerText returns the beginning of a text in a form that every server accepts in a header: printable ASCII.
func headerText(text string) string {
	const most = 256
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(clean[:min(len(clean), most)])
}

// identityHeaders lists the headers that identify a request. Webhook-Id of Standard Webhooks is the same on
// every attempt; Webhook-Timestamp is the time of the attempt.
var identityHeaders = []string{
	"User-Agent", "Webhook-Id", "Webhook-Timestamp",
	"Carillon-App", "Carillon-Job", "Carillon-Trigger", "Carillon-Run", "Carillon-Kind",
	"Carillon-Scheduled-At", "Carillon-Attempt", "Carillon-Fence",
}

// Reveal returns the text of a secret of a request; field names the secret in the error.
func (h *Webhooks) Reveal(
	ctx context.Context, r *Request, field string, secret target.Secret, now time.Time,
) (string, error) {
	text, err := h.look(ctx, r, secret, now)
	if err == nil && strings.ContainsAny(text, "\r\n\x00") {
		err = errors.New("the value contains a control character such as CR, LF or NUL")
	}
	if err != nil {
		return "", attempt.BadSecret(field, err)
	}
	r.hide(text)
	return text, nil
}

// look returns the text of a secret of a request, and notes its reference, so that it can be looked up again if the
// target refuses the request.
func (h *Webhooks) look(ctx context.Context, r *Request, s target.Secret, now time.Time) (string, error) {
	text, err := h.secrets.Reveal(ctx, r.Owner, s, now)
	if err == nil && s.Reference != "" {
		r.looked = append(r.looked, secret.Sent{Reference: s.Reference, Text: text})
	}
	return text, err
}

// Redaction returns the Redaction for the secrets of a request.
func (r *Request) Redaction() attempt.Redaction { return attempt.NewRedaction(r.revealed) }

// hide marks texts for removal from the stored response.
func (r *Request) hide(texts ...string) { r.revealed = append(r.revealed, texts...) }

// eventType is the type of all CloudEvents that Carillon sends.
const eventType = "dev.carillon.run"

// eventSource names the job. Source and event id together are unique.
func eventSource(call target.Call) string { return "/apps/" + call.App + "/jobs/" + call.Job }

// setEvent sets the headers of a CloudEvent in binary mode.
func setEvent(h http.Header, call target.Call) {
	h["Ce-Specversion"] = []string{"1.0"}
	h["Ce-Id"] = []string{call.EventID}
	h["Ce-Source"] = []string{eventSource(call)}
	h["Ce-Type"] = []string{eventType}
	h["Ce-Time"] = []string{input.FormatInstant(call.Key.ScheduledAt)}
	if call.Trigger != "" {
		h["Ce-Subject"] = []string{call.Trigger}
	}
}

// envelope returns the body of a CloudEvent in structured mode.
func envelope(call target.Call, data json.RawMessage) ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion string          `json:"specversion"`
		ID          string          `json:"id"`
		Source      string          `json:"source"`
		Type        string          `json:"type"`
		Time        string          `json:"time"`
		Subject     string          `json:"subject,omitempty"`
		ContentType string          `json:"datacontenttype"`
		Data        json.RawMessage `json:"data"`
	}{
		"1.0", call.EventID, eventSource(call), eventType, input.FormatInstant(call.Key.ScheduledAt), call.Trigger,
		"application/json", data,
	})
}
