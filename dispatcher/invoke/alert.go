package invoke

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// notifications delivers the notifications of alerts: the messages that the formats of their webhooks make of them.
type notifications struct {
	hooks  *webhooks
	topics topics
}

// close does nothing: the connections are those of webhooks and topics.
func (notifications) close() {}

func (n notifications) call(ctx context.Context, call target.Call, started time.Time) run.Outcome {
	if topic := call.Target.Alert.SNS; topic != nil {
		notification, err := target.ParseAlertNotification(call.Payload)
		if err != nil {
			return notSent(ctx, err)
		}
		call.Notification, call.Target = &notification, target.Target{SNS: topic.SNS()}
		return n.topics.call(ctx, call, started)
	}
	w := call.Target.Alert.Webhook
	if w == nil {
		return failed(run.ClassOther, "this version of Carillon does not know this kind of destination of alerts")
	}
	bounded, cancel := context.WithTimeout(ctx, w.Timeout.Std())
	defer cancel()
	r, err := n.build(bounded, w, call, started)
	if err != nil {
		return notSent(ctx, err)
	}
	return n.hooks.attempt(ctx, bounded, &w.Webhook, r, &stopwatch{start: started})
}

// build returns the request of an attempt at now.
func (n notifications) build(
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
		if address, err = n.secretURL(ctx, &secrets, w, now); err != nil {
			return request{}, err
		}
	}
	routingKey := ""
	if w.RoutingKey != nil {
		if routingKey, err = n.hooks.reveal(ctx, &secrets, "routing_key", *w.RoutingKey, now); err != nil {
			return request{}, err
		}
	}
	if message := w.Message(notification, call.Payload, routingKey); message != nil {
		body = message
	}
	to := destination{url: address, scope: scopeOf(call.App, call.Bounds.Egress)}
	r, err := n.hooks.buildFor(ctx, to, content{&w.Webhook, headers, body}, call, now)
	r.revealed = append(r.revealed, secrets.revealed...)
	r.looked = append(r.looked, secrets.looked...)
	return r, err
}

// secretURL returns the URL that is a secret. Its path and query are hidden as well, because a receiver may repeat them alone.
func (n notifications) secretURL(
	ctx context.Context, secrets *request, w *target.AlertWebhook, now time.Time,
) (string, error) {
	text, err := n.hooks.reveal(ctx, secrets, "secret_url", *w.SecretURL, now)
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
