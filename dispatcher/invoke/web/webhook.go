// Package web makes the attempts of webhooks, and the requests to endpoints of groups. A request is made in these
// steps, each in its own file:
//
//	request.go   fills in URL, headers and body, and adds the attributes of a CloudEvent
//	clients.go   chooses a connection by the TLS options
//	signature.go signs the request and adds credentials
//	oauth2.go    gets a token, or takes one from oauth2_cache.go
//	egress.go    checks the address before it is dialled
//	response.go  reads the response and turns it into an outcome
//
// alert.go makes the messages of alerts, which are then sent like webhooks.
package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/identity"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Webhooks calls webhooks.
type Webhooks struct {
	guard   *guard
	pool    *clientPool
	agent   string
	secrets *secret.Reader
	node    *identity.Node // for SigV4 without credentials of the job
	tokens  *tokens

	expectations *expectations
}

// Options are the options of webhooks; see invoke.Options.
type Options struct {
	Version                   string
	Egress                    Egress
	Resolver                  *net.Resolver
	ConnsPerHost, Connections int
}

// New returns Webhooks. Without credentials of the job, node signs with its own for AWS.
func New(o Options, secrets *secret.Reader, node *identity.Node) *Webhooks {
	guard := newGuard(o.Egress, o.Resolver)
	return &Webhooks{
		guard: guard, pool: newClientPool(guard, o.ConnsPerHost, o.Connections), agent: "carillon/" + o.Version, secrets: secrets,
		node: node, tokens: newTokens(), expectations: newExpectations(),
	}
}

// DenyAPIs sets the addresses, HOST:PORT, on which the nodes of the fleet serve their APIs. No webhook calls them.
// Connections that are open already stay open.
func (h *Webhooks) DenyAPIs(addresses []string) {
	peers := make([]netip.AddrPort, 0, len(addresses))
	for _, text := range addresses {
		if address, err := netip.ParseAddrPort(text); err == nil {
			peers = append(peers, address)
		}
	}
	if known := h.guard.peers.Load(); known == nil || !slices.Equal(*known, peers) { // lists of members are made again for others
		h.guard.peers.Store(&peers)
	}
}

// Peers returns the addresses of DenyAPIs, another list for each change; nil: not set.
func (h *Webhooks) Peers() *[]netip.AddrPort { return h.guard.peers.Load() }

// Close ends requests for tokens, and closes idle connections.
func (h *Webhooks) Close() {
	h.tokens.close()
	h.pool.closeIdle()
}

// Invoke calls a webhook once.
func (h *Webhooks) Invoke(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	w := call.Target.Webhook
	bounded, cancel := context.WithTimeout(ctx, w.Timeout.Std())
	defer cancel()
	url, headers, body, err := call.Request()
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	to := Destination{URL: url, Scope: ScopeOf(call.App, call.Bounds.Egress)}
	r, err := h.BuildFor(bounded, to, Content{w, headers, body}, call, started)
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	return h.Attempt(ctx, bounded, w, r, &attempt.Stopwatch{Start: started})
}

// Attempt sends a request and returns its outcome. ctx is the context of the attempt without its timeout, bounded the
// one with its timeout. watch records how far the attempt came.
func (h *Webhooks) Attempt(
	ctx, bounded context.Context, w *target.Webhook, r Request, watch *attempt.Stopwatch,
) run.Outcome {
	if r.held != nil {
		bounded = context.WithValue(bounded, heldKey{}, r.held)
	}
	got, err := r.Send(bounded, watch)
	if err != nil && !watch.Sent() && bounded.Err() == nil && r.client() == r.clients.kept {
		// The server had closed the kept connection and no byte was sent, so this is still the
		// first request on the wire.
		got, err = send(bounded, r.clients.fresh, r, watch)
	}
	if errors.Is(err, attempt.ErrNotHeld) {
		return attempt.NotHeld()
	}
	var outcome run.Outcome
	if err != nil {
		if bounded.Err() != nil {
			watch.CutOff()
		}
		outcome = attempt.Classify(ctx, bounded, err, w.Timeout)
		outcome.NotSent = outcome.State == run.Cancelled && !watch.Sent()
		if outcome.Class == run.ClassTimeout && watch.Unconnected() {
			// The timeout of the attempt ended before the timeout of the dial. Nothing was sent.
			outcome = attempt.Failed(run.ClassConnectTimeout, fmt.Sprintf("no connection within %s", w.Timeout))
		}
		outcome.HTTPStatus = got.Status
	} else {
		outcome = h.responded(ctx, bounded, r, w, got)
	}
	clean := r.Redaction()
	outcome.Error = clean.Clean(outcome.Error)
	outcome.Response = keep(outcome, r.endpoint, got, watch.Seen(err == nil), clean)
	if r.returns != nil {
		r.returns(&outcome, got, clean)
	}
	if r.signedAsNode && outcome.Response != nil {
		outcome.Response.Body = attempt.HideCredentials(outcome.Response.Body)
	}
	return outcome
}

func (h *Webhooks) responded(ctx, bounded context.Context, r Request, w *target.Webhook, got Response) run.Outcome {
	outcome := h.judge(ctx, bounded, r, w, got)
	if outcome.State == run.Succeeded && r.Judge != nil {
		outcome = r.Judge(got)
		outcome.HTTPStatus = got.Status
	}
	if outcome.State != run.Succeeded {
		outcome.RetryAfter = retryAfter(got.header, time.Now())
		if h.Refused(r, got.Status) {
			outcome.Class = run.ClassOAuth2
			outcome.Error = fmt.Sprintf("the target refused the token with status 401; the next attempt gets another from %s", r.token.endpoint)
		}
	}
	if outcome.HTTPStatus == http.StatusUnauthorized && outcome.Class == run.ClassHTTP4xx &&
		h.secrets.Replaced(bounded, r.Owner, r.looked, time.Now()) {
		outcome.Class = run.ClassSecretReplaced
		outcome.Error = "the target responded with status 401 to a secret that has been replaced since; the next attempt sends the new one"
	}
	return outcome
}

// client returns the HTTP client of a request. net/http repeats one without a body if a kept connection dies.
func (r *Request) client() *resty.Client {
	if len(r.Body) == 0 && !r.Repeatable {
		return r.clients.fresh
	}
	return r.clients.kept
}

// Send makes a request once and reads its response, up to the size that is kept. With an error, it returns the part of
// the response that arrived.
func (r *Request) Send(ctx context.Context, watch *attempt.Stopwatch) (Response, error) {
	return send(ctx, r.client(), *r, watch)
}

func send(ctx context.Context, client *resty.Client, r Request, watch *attempt.Stopwatch) (Response, error) {
	if err := checkHeld(ctx); err != nil {
		return Response{}, err
	}
	request := client.R().SetContext(httptrace.WithClientTrace(ctx, watch.Trace())).SetDoNotParseResponse(true)
	request.Header = r.Header
	if r.host != "" {
		request.Header.Set("Host", r.host)
	}
	if r.Body != nil {
		request.SetBody(bytes.NewReader(r.Body))
		request.Header.Set("Content-Length", strconv.Itoa(len(r.Body)))
	}
	sent, err := request.Execute(r.Method, r.URL)
	if err != nil {
		return Response{}, err
	}
	defer sent.RawBody().Close()
	most := cmp.Or(r.Most, attempt.MostBody)
	a := Response{Status: sent.RawResponse.StatusCode, header: sent.RawResponse.Header}
	if sent.RawResponse.ContentLength == 0 {
		return a, nil
	}
	body, err := io.ReadAll(io.LimitReader(sent.RawResponse.Body, int64(most)+1))
	if a.More = len(body) > most; a.More {
		body = body[:most]
	}
	a.Body = body
	return a, err
}

// Notify delivers call.Notification, which is also the payload, to a webhook in the format of the webhook.
func (h *Webhooks) Notify(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	w := call.Target.Alert.Webhook
	bounded, cancel := context.WithTimeout(ctx, w.Timeout.Std())
	defer cancel()
	call.Target = target.Target{Webhook: &w.Webhook}
	address, headers, body, err := call.Request()
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	secrets := Request{Owner: secret.OwnerOf(call)}
	if w.SecretURL != nil {
		if address, err = h.secretURL(bounded, &secrets, w, started); err != nil {
			return attempt.NotSent(ctx, err)
		}
	}
	routingKey := ""
	if w.RoutingKey != nil {
		if routingKey, err = h.Reveal(bounded, &secrets, "routing_key", *w.RoutingKey, started); err != nil {
			return attempt.NotSent(ctx, err)
		}
	}
	if message := w.Message(*call.Notification, call.Payload, routingKey); message != nil {
		body = message
	}
	to := Destination{URL: address, Scope: ScopeOf(call.App, call.Bounds.Egress)}
	r, err := h.BuildFor(bounded, to, Content{&w.Webhook, headers, body}, call, started)
	r.revealed = append(r.revealed, secrets.revealed...)
	r.looked = append(r.looked, secrets.looked...)
	if err != nil {
		return attempt.NotSent(ctx, err)
	}
	return h.Attempt(ctx, bounded, &w.Webhook, r, &attempt.Stopwatch{Start: started})
}

// secretURL returns a URL that is a secret. It also hides path and query, because a receiver may repeat them alone.
func (h *Webhooks) secretURL(
	ctx context.Context, secrets *Request, w *target.AlertWebhook, now time.Time,
) (string, error) {
	text, err := h.Reveal(ctx, secrets, "secret_url", *w.SecretURL, now)
	if err != nil {
		return "", err
	}
	if _, err := w.WithURL(text); err != nil {
		return "", attempt.BadSecret("secret_url", err)
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", attempt.BadSecret("secret_url", fmt.Errorf("the URL cannot be parsed"))
	}
	secrets.hide(u.RequestURI(), u.Path)
	return text, nil
}
