package invoke

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// request is the request of one attempt.
type request struct {
	owner
	method, url string
	header      http.Header
	body        []byte // nil for no body
	endpoint    string // see destination, as for host
	host        string
	most        int // bytes of the response that are read; 0: mostResponse
	// Repeatable tells that the request may be made twice, if the connection is lost at the first.
	Repeatable bool
	clients    *clients
	revealed   []string   // its secrets, which a response may repeat
	looked     []lookedUp // those that it refers to
	// judge, if not nil, returns the outcome of a response whose status is a success.
	judge func(response) run.Outcome
	// fenced tells that the receiver may refuse it as superseded.
	fenced bool
	// signedAsNode tells that it is signed with the AWS credentials of the node.
	signedAsNode bool
	held         func() bool // see Call.Held
	token        *usedToken  // nil: it carries none of OAuth 2
	// returns, if not nil, adds to an outcome what the response returned as the state of the job.
	returns func(*run.Outcome, response, redaction)
}

// content is what a request says, wherever it goes: a webhook with its templates filled in.
type content struct {
	*target.Webhook
	headers map[string]string
	body    []byte
}

// destination is where a request goes.
type destination struct {
	url   string
	scope scope
	// endpoint is the id of the endpoint of a group that the URL is of; empty: it is of none.
	endpoint string
	// host is sent as Host; empty: that of the URL.
	host string
}

// Request returns a request on behalf of a call that is not its attempt. It is not connected yet.
func (h *webhooks) Request(call target.Call, method string, to destination) request {
	header := http.Header{"User-Agent": {h.agent}}
	return request{owner: ownerOf(call), method: method, url: to.url, host: to.host, endpoint: to.endpoint, header: header}
}

// build returns the request of an attempt at now.
func (h *webhooks) build(ctx context.Context, w *target.Webhook, call target.Call, now time.Time) (request, error) {
	url, headers, body, err := call.Request()
	if err != nil {
		return request{}, err
	}
	to := destination{url: url, scope: scopeOf(call.App, call.Bounds.Egress)}
	return h.buildFor(ctx, to, content{w, headers, body}, call, now)
}

// buildFor returns the request of an attempt at now to a destination.
func (h *webhooks) buildFor(
	ctx context.Context, to destination, w content, call target.Call, now time.Time,
) (request, error) {
	r, err := h.compose(to, w, call, now)
	if err != nil {
		return r, err
	}
	if err := h.connect(ctx, &r, w.TLS, to.scope, now); err != nil {
		return r, err
	}
	if w.Signing != nil {
		signature, err := h.sign(ctx, &r, w.Signing, call.EventID, now)
		if err != nil {
			return r, err
		}
		r.header["Webhook-Signature"] = []string{signature}
	}
	if w.Auth == nil {
		return r, nil
	}
	return r, h.authorize(ctx, &r, w.Auth, now) // last, because it may sign all the headers
}

// compose returns the part of a request that needs no secret. Carillon's headers overwrite those of the job.
func (h *webhooks) compose(to destination, w content, call target.Call, now time.Time) (request, error) {
	r := request{
		held: call.Held, fenced: call.Key.Kind.MayBeSuperseded(),
		owner: ownerOf(call), method: w.Method, url: to.url, endpoint: to.endpoint, host: to.host,
		header: make(http.Header, len(w.headers)+20), body: w.body,
	}
	if scheme, _, _ := strings.Cut(r.url, ":"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return r, denied("the URL", "its scheme is neither http nor https")
	}
	r.header["Content-Type"] = []string{"application/json"}
	for name, value := range w.headers {
		r.header.Set(name, value)
	}
	switch w.CloudEvents {
	case target.CloudEventsBinary:
		setEvent(r.header, call)
	case target.CloudEventsStructured:
		body, err := envelope(call, r.body)
		if err != nil {
			return r, err
		}
		r.body = body
		r.header["Content-Type"] = []string{"application/cloudevents+json"}
	}
	h.identify(r.header, call, now)
	if call.Callback != nil {
		r.header["Carillon-Callback-Url"] = []string{call.Callback.URL}
		r.header["Carillon-Callback-Token"] = []string{call.Callback.Token}
		r.header["Carillon-Callback-Timeout"] = []string{call.Callback.Timeout.String()}
		r.hide(call.Callback.Token)
	}
	if call.Carried != nil {
		if state := call.State(); state != nil {
			r.header[run.HeaderState] = []string{string(state)}
		}
		r.returns = func(outcome *run.Outcome, got response, clean redaction) {
			keepReturned(outcome, call, stateOf(got.header, got.body, got.more), clean)
		}
	}
	if to.endpoint != "" {
		r.header["Carillon-Endpoint"] = []string{to.endpoint}
	}
	return r, nil
}

// connect chooses the connections of a request.
func (h *webhooks) connect(ctx context.Context, r *request, t *target.TLS, of scope, now time.Time) (err error) {
	key := ""
	if t != nil && t.ClientKey != nil {
		if key, err = h.look(ctx, r, *t.ClientKey, now); err != nil {
			return badSecret("tls client_key", err)
		}
	}
	r.clients, err = h.pool.with(t, key, of, now)
	return err
}

// identify sets the headers that identify the run and the attempt. It writes their names in the
// canonical form of http.Header, which saves the conversion for each request.
func (h *webhooks) identify(header http.Header, call target.Call, now time.Time) {
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

// headerText returns the beginning of a text as every server takes it in a header: printable ASCII.
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

// reveal returns the text of a secret of a request; field names the secret in the error.
func (h *webhooks) reveal(
	ctx context.Context, r *request, field string, secret target.Secret, now time.Time,
) (string, error) {
	text, err := h.look(ctx, r, secret, now)
	if err == nil && strings.ContainsAny(text, "\r\n\x00") {
		err = errors.New("the value contains a control character such as CR, LF or NUL")
	}
	if err != nil {
		return "", badSecret(field, err)
	}
	r.hide(text)
	return text, nil
}

// look returns the text of a secret of a request, and notes what it refers to, so that it can be looked up again if it is
// refused.
func (h *webhooks) look(ctx context.Context, r *request, secret target.Secret, now time.Time) (string, error) {
	text, err := h.secrets.reveal(ctx, r.owner, secret, now)
	if err == nil && secret.Reference != "" {
		r.looked = append(r.looked, lookedUp{secret.Reference, text})
	}
	return text, err
}

// Redaction returns what removes the secrets of a request from what its target says.
func (r *request) Redaction() redaction { return newRedaction(r.revealed) }

// hide marks texts for removal from the stored response.
func (r *request) hide(texts ...string) { r.revealed = append(r.revealed, texts...) }
