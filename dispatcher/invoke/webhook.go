package invoke

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// webhooks calls webhooks.
type webhooks struct {
	guard   *guard
	pool    *clientPool
	agent   string
	secrets *secrets
	node    *nodeConfig // for SigV4 without credentials of the job
	tokens  *tokens

	expectations *expectations
}

// webOptions tunes how webhooks are called; see invoke.Options.
type webOptions struct {
	Version                   string
	Egress                    Egress
	Resolver                  *net.Resolver
	ConnsPerHost, Connections int
}

// newWebhooks returns what calls webhooks. Without credentials of the job, node signs with its own for AWS.
func newWebhooks(o webOptions, secrets *secrets, node *nodeConfig) *webhooks {
	guard := newGuard(o.Egress, o.Resolver)
	return &webhooks{
		guard: guard, pool: newClientPool(guard, o.ConnsPerHost, o.Connections), agent: "carillon/" + o.Version, secrets: secrets,
		node: node, tokens: newTokens(), expectations: newExpectations(),
	}
}

// DenyAPIs sets the addresses, HOST:PORT, on which the nodes of the fleet serve their APIs. No webhook calls them.
// Connections that are open already stay.
func (h *webhooks) DenyAPIs(addresses []string) {
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

// Peers returns the addresses that DenyAPIs has set, another list for each change; nil: none were.
func (h *webhooks) Peers() *[]netip.AddrPort { return h.guard.peers.Load() }

// Close ends requests for tokens, and closes idle connections.
func (h *webhooks) Close() {
	h.tokens.close()
	h.pool.closeIdle()
}

// Invoke calls a webhook once.
func (h *webhooks) Invoke(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	w := call.Target.Webhook
	bounded, cancel := context.WithTimeout(ctx, w.Timeout.Std())
	defer cancel()
	r, err := h.build(bounded, w, call, started)
	if err != nil {
		return notSent(ctx, err)
	}
	return h.attempt(ctx, bounded, w, r, &stopwatch{start: started})
}

// attempt sends a request and returns its outcome. ctx is the context of the attempt without its
// timeout, bounded the one with its timeout. watch tells afterwards how far the attempt came.
func (h *webhooks) attempt(
	ctx, bounded context.Context, w *target.Webhook, r request, watch *stopwatch,
) run.Outcome {
	bounded = withHeld(bounded, r.held)
	got, err := r.Send(bounded, watch)
	if err != nil && !watch.sent() && bounded.Err() == nil && r.client() == r.clients.kept {
		// The server had closed the kept connection and no byte was sent, so this is still the
		// first request on the wire.
		got, err = send(bounded, r.clients.fresh, r, watch)
	}
	if errors.Is(err, errNotHeld) {
		return notHeld()
	}
	var outcome run.Outcome
	if err != nil {
		outcome = classify(ctx, bounded, err, w.Timeout)
		outcome.NotSent = outcome.State == run.Cancelled && !watch.sent()
		if outcome.Class == run.ClassTimeout && watch.unconnected() {
			// The timeout of the attempt ended before the timeout of the dial. Nothing was sent.
			outcome = failed(run.ClassConnectTimeout, fmt.Sprintf("no connection within %s", w.Timeout))
		}
		outcome.HTTPStatus = got.status
	} else {
		outcome = h.judge(ctx, bounded, r, w, got)
		if outcome.State == run.Succeeded && r.judge != nil {
			outcome = r.judge(got)
			outcome.HTTPStatus = got.status
		}
		if outcome.State != run.Succeeded {
			outcome.RetryAfter = retryAfter(got.header, time.Now())
			if h.refused(r, got.status) {
				outcome.Class = run.ClassOAuth2
				outcome.Error = fmt.Sprintf("the target refused the token with status 401; the next attempt gets another from %s", r.token.endpoint)
			}
		}
		if outcome.HTTPStatus == http.StatusUnauthorized && outcome.Class == run.ClassHTTP4xx &&
			h.secrets.replaced(bounded, r.owner, r.looked, time.Now()) {
			outcome.Class = run.ClassSecretReplaced
			outcome.Error = "the target responded with status 401 to a secret that has been replaced since; the next attempt sends the new one"
		}
	}
	clean := r.Redaction()
	outcome.Error = clean.clean(outcome.Error)
	outcome.Response = keep(outcome, r.endpoint, got, watch.seen(err == nil), clean)
	if r.returns != nil {
		r.returns(&outcome, got, clean)
	}
	if r.signedAsNode && outcome.Response != nil {
		outcome.Response.Body = hideCredentials(outcome.Response.Body)
	}
	return outcome
}

// client returns the HTTP client of a request. net/http repeats one without a body if a kept connection dies.
func (r *request) client() *resty.Client {
	if len(r.body) == 0 && !r.Repeatable {
		return r.clients.fresh
	}
	return r.clients.kept
}

// Send makes a request once and reads its response, up to the size that is kept. With an error, it returns the part of the
// response that arrived.
func (r *request) Send(ctx context.Context, watch *stopwatch) (response, error) {
	return send(ctx, r.client(), *r, watch)
}

func send(ctx context.Context, client *resty.Client, r request, watch *stopwatch) (response, error) {
	if err := checkHeld(ctx); err != nil {
		return response{}, err
	}
	request := client.R().SetContext(httptrace.WithClientTrace(ctx, watch.trace())).SetDoNotParseResponse(true)
	request.Header = r.header
	if r.host != "" {
		request.Header.Set("Host", r.host)
	}
	if r.body != nil {
		request.SetBody(bytes.NewReader(r.body))
		request.Header.Set("Content-Length", strconv.Itoa(len(r.body)))
	}
	sent, err := request.Execute(r.method, r.url)
	if err != nil {
		return response{}, err
	}
	defer sent.RawBody().Close()
	return readResponse(sent.RawResponse, cmp.Or(r.most, mostResponse))
}
