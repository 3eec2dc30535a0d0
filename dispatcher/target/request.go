package target

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
)

// request is what one attempt sends.
type request struct {
	method, url string
	header      http.Header
	body        []byte // nil: none
}

// build makes the request of an attempt at now. The user's headers come first and ours win.
func (i *Invoker) build(ctx context.Context, w *dispatcher.Webhook, call dispatcher.Call, now time.Time) (request, error) {
	r := request{method: w.Method, url: w.URL, header: make(http.Header, len(w.Headers)+20), body: w.BodyOf(call.Body())}
	if scheme, _, _ := strings.Cut(r.url, ":"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return r, &deniedError{"URL", "it is neither http nor https"}
	}
	r.header["Content-Type"] = []string{"application/json"}
	for name, value := range w.Headers {
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
		if scheme, _, _ := strings.Cut(r.url, ":"); !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return r, &deniedError{"URL", "it is neither http nor https"}
		}
		r.header["Content-Type"] = []string{"application/cloudevents+json"}
	}
	i.identify(r.header, call, now)
	if w.Signing != nil {
		signature, err := i.sign(w.Signing, call.EventID, now, r.body)
		if err != nil {
			return r, err
		}
		r.header["Webhook-Signature"] = []string{signature}
	}
	if w.Auth == nil {
		return r, nil
	}
	return r, i.authorize(ctx, &r, w.Auth, now) // last, because it may sign all the others
}

// identify sets the headers that say what is sent, by whom and why. Names are in the form that
// http.Header keeps them in, which saves making it for each request.
func (i *Invoker) identify(h http.Header, call dispatcher.Call, now time.Time) {
	// One array for all values: a request has many headers, and a node many requests.
	values := []string{
		i.agent, call.EventID, strconv.FormatInt(now.Unix(), 10), call.Traceparent(),
		call.App, call.Job, call.Trigger, call.Key.String(), string(call.Key.Kind),
		dispatcher.FormatInstant(call.Key.ScheduledAt), strconv.Itoa(call.Attempt), strconv.FormatInt(call.Fence(), 10),
	}
	for n, name := range identity {
		h[name] = values[n : n+1 : n+1]
	}
	if m := call.Missed; m != nil {
		h["Carillon-Missed-From"] = []string{dispatcher.FormatInstant(m.From)}
		h["Carillon-Missed-To"] = []string{dispatcher.FormatInstant(m.To)}
		h["Carillon-Missed-Count"] = []string{strconv.Itoa(m.Count)}
	}
}

// identity are the headers that say what a request is. Those of Standard Webhooks come first:
// the id is equal on every attempt, the time is that of the attempt.
var identity = []string{
	"User-Agent", "Webhook-Id", "Webhook-Timestamp", "Traceparent",
	"Carillon-App", "Carillon-Job", "Carillon-Trigger", "Carillon-Run", "Carillon-Kind",
	"Carillon-Scheduled-At", "Carillon-Attempt", "Carillon-Fence",
}
