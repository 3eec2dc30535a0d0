package invoke

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// Notify delivers the notification of an alert to a webhook: the message that the format of the webhook makes of it.
func (h *webhooks) Notify(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	w := call.Target.Alert.Webhook
	bounded, cancel := context.WithTimeout(ctx, w.Timeout.Std())
	defer cancel()
	r, err := h.buildNotification(bounded, w, call, started)
	if err != nil {
		return notSent(ctx, err)
	}
	return h.attempt(ctx, bounded, &w.Webhook, r, &stopwatch{start: started})
}

// buildNotification returns the request of an attempt at now.
func (h *webhooks) buildNotification(
	ctx context.Context, w *target.AlertWebhook, call target.Call, now time.Time,
) (request, error) {
	notification, err := target.ParseAlertNotification(call.Payload)
	if err != nil {
		return request{}, err
	}
	call.Notification, call.Target = &notification, target.Target{Webhook: &w.Webhook}
	address, headers, body, err := call.Request()
	if err != nil {
		return request{}, err
	}
	secrets := request{owner: ownerOf(call)}
	if w.SecretURL != nil {
		if address, err = h.secretURL(ctx, &secrets, w, now); err != nil {
			return request{}, err
		}
	}
	routingKey := ""
	if w.RoutingKey != nil {
		if routingKey, err = h.reveal(ctx, &secrets, "routing_key", *w.RoutingKey, now); err != nil {
			return request{}, err
		}
	}
	if message := w.Message(notification, call.Payload, routingKey); message != nil {
		body = message
	}
	to := destination{url: address, scope: scopeOf(call.App, call.Bounds.Egress)}
	r, err := h.buildFor(ctx, to, content{&w.Webhook, headers, body}, call, now)
	r.revealed = append(r.revealed, secrets.revealed...)
	r.looked = append(r.looked, secrets.looked...)
	return r, err
}

// secretURL returns the URL that is a secret. Its path and query are hidden as well, because a receiver may repeat them alone.
func (h *webhooks) secretURL(
	ctx context.Context, secrets *request, w *target.AlertWebhook, now time.Time,
) (string, error) {
	text, err := h.reveal(ctx, secrets, "secret_url", *w.SecretURL, now)
	if err != nil {
		return "", err
	}
	if _, err := w.WithURL(text); err != nil {
		return "", badSecret("secret_url", err)
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", badSecret("secret_url", fmt.Errorf("the URL cannot be parsed"))
	}
	secrets.hide(u.RequestURI(), u.Path)
	return text, nil
}
