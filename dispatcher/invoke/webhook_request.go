package invoke

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// request is the request of one attempt.
type request struct {
	app         string
	bounds      *dispatcher.Bounds // of the app
	method, url string
	header      http.Header
	body        []byte // nil for no body
	endpoint    string // see destination, as for host
	host        string
	clients     *clients
	revealed    []string // its secrets, which a response may repeat
	// signedAsNode tells that it is signed with the AWS credentials of the node.
	signedAsNode bool
}

// content is what a request says, wherever it goes: a webhook with its templates filled in.
type content struct {
	*dispatcher.Webhook
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

// build returns the request of an attempt at now.
func (h *webhooks) build(ctx context.Context, w *dispatcher.Webhook, call dispatcher.Call, now time.Time) (request, error) {
	url, headers, body, err := call.Request()
	if err != nil {
		return request{}, err
	}
	to := destination{url: url, scope: scopeOf(call.App, call.Bounds.Egress)}
	return h.buildFor(ctx, to, content{w, headers, body}, call, now)
}

// buildFor returns the request of an attempt at now to a destination. Carillon's headers overwrite those of the job.
func (h *webhooks) buildFor(
	ctx context.Context, to destination, w content, call dispatcher.Call, now time.Time,
) (request, error) {
	r := request{
		app: call.App, bounds: call.Bounds, method: w.Method, url: to.url, endpoint: to.endpoint, host: to.host,
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
	case dispatcher.CloudEventsBinary:
		setEvent(r.header, call)
	case dispatcher.CloudEventsStructured:
		body, err := envelope(call, r.body)
		if err != nil {
			return r, err
		}
		r.body = body
		r.header["Content-Type"] = []string{"application/cloudevents+json"}
	}
	h.identify(r.header, call, now)
	if to.endpoint != "" {
		r.header["Carillon-Endpoint"] = []string{to.endpoint}
	}
	if err := h.connect(&r, w.TLS, to.scope, now); err != nil {
		return r, err
	}
	if w.Signing != nil {
		signature, err := h.sign(&r, w.Signing, call.EventID, now)
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

// connect chooses the connections of a request.
func (h *webhooks) connect(r *request, t *dispatcher.TLS, of scope, now time.Time) (err error) {
	key := ""
	if t != nil && t.ClientKey != nil {
		if key, err = h.secrets.reveal(r.app, r.bounds, *t.ClientKey, now); err != nil {
			return badSecret("tls client_key", err)
		}
	}
	r.clients, err = h.pool.with(t, key, of, now)
	return err
}

// identify sets the headers that identify the run and the attempt. It writes their names in the
// canonical form of http.Header, which saves the conversion for each request.
func (h *webhooks) identify(header http.Header, call dispatcher.Call, now time.Time) {
	// One array holds all values, because a request has many headers and a node makes many requests.
	values := []string{
		h.agent, call.EventID, strconv.FormatInt(now.Unix(), 10), call.Traceparent(),
		call.App, call.Job, call.Trigger, call.Key.String(), string(call.Key.Kind),
		dispatcher.FormatInstant(call.Key.ScheduledAt), strconv.Itoa(call.Attempt), strconv.FormatInt(call.Fence(), 10),
	}
	for n, name := range identity {
		header[name] = values[n : n+1 : n+1]
	}
	if m := call.Missed; m != nil {
		header["Carillon-Missed-From"] = []string{dispatcher.FormatInstant(m.From)}
		header["Carillon-Missed-To"] = []string{dispatcher.FormatInstant(m.To)}
		header["Carillon-Missed-Count"] = []string{strconv.Itoa(m.Count)}
	}
}

// identity lists the headers that identify a request. Webhook-Id of Standard Webhooks is the same on
// every attempt; Webhook-Timestamp is the time of the attempt.
var identity = []string{
	"User-Agent", "Webhook-Id", "Webhook-Timestamp", "Traceparent",
	"Carillon-App", "Carillon-Job", "Carillon-Trigger", "Carillon-Run", "Carillon-Kind",
	"Carillon-Scheduled-At", "Carillon-Attempt", "Carillon-Fence",
}

// reveal returns the text of a secret of a request; field names the secret in the error.
func (h *webhooks) reveal(r *request, field string, secret dispatcher.Secret, now time.Time) (string, error) {
	text, err := h.secrets.reveal(r.app, r.bounds, secret, now)
	if err == nil && strings.ContainsAny(text, "\r\n\x00") {
		err = errors.New("the value contains a control character such as CR, LF or NUL")
	}
	if err != nil {
		return "", badSecret(field, err)
	}
	r.hide(text)
	return text, nil
}

// hide marks texts for removal from the stored response.
func (r *request) hide(texts ...string) {
	for _, text := range texts {
		if len(text) >= leastSecret {
			r.revealed = append(r.revealed, text)
		}
	}
}
