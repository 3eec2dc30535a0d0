package web

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/secret"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

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
