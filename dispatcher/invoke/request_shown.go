package invoke

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/carillon-dev/carillon/dispatcher/invoke/attempt"
	"github.com/carillon-dev/carillon/dispatcher/invoke/group"
	"github.com/carillon-dev/carillon/dispatcher/invoke/web"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// plainSecrets are headers that always hold a secret, in lower case.
var plainSecrets = []string{"authorization", "proxy-authorization", "cookie", "x-api-key"}

// Show returns the request that an attempt of a call at now would send, with secrets masked. It looks up no secret and
// makes no request. endpoint is the member of a group for the request; nil: it is unknown. The caller adds the run.
func (i *Invoker) Show(call target.Call, endpoint *target.Endpoint, now time.Time) target.ShownRequest {
	shown := shownRequest{ShownRequest: target.ShownRequest{Attempt: call.Attempt, Target: call.Target.Kind()}}
	if policy := call.Target.Callback(); policy != nil {
		url := i.callbacks.url + "/v1/runs/" + call.Key.String()
		call.Callback = &run.CallToken{URL: url, Token: target.Mask, Timeout: policy.Timeout}
		shown.mask("token of the callback")
	}
	if call.Bounds == nil {
		bounds := target.Bounds{}.WithDefaults(call.App)
		call.Bounds = &bounds
	}
	var err error
	switch target := call.Target; {
	case target.Webhook != nil:
		err = shown.webhook(i.hooks, call, nil, now)
	case target.Group != nil && call.Group != nil:
		err = shown.group(i.hooks, call, endpoint, now)
	case target.Lambda != nil:
		err = shown.function(call)
	case target.SQS != nil:
		shown.Queue = target.SQS.QueueARN
		err = shown.message(call)
	case target.SNS != nil:
		shown.Topic = target.SNS.TopicARN
		err = shown.message(call)
	case target.Alert != nil:
		if call, err = i.withNotification(call); err == nil {
			err = shown.notification(i.hooks, call, now)
		}
	default:
		err = errors.New("requests to this kind of target are not shown")
	}
	if err != nil {
		shown.Problem = err.Error()
	}
	return shown.ShownRequest
}

// shownRequest is a request on its way to be shown.
type shownRequest struct{ target.ShownRequest }

// mask adds an entry to the list of masked parts.
func (s *shownRequest) mask(what string) { s.Masked = append(s.Masked, what) }

// notification shows what the destination of an alert gets.
func (s *shownRequest) notification(h *web.Webhooks, call target.Call, now time.Time) error {
	to := call.Target.Alert
	if to.SNS != nil {
		call.Target, s.Topic = target.Target{SNS: to.SNS.SNS()}, to.SNS.TopicARN
		return s.message(call)
	}
	for name, secret := range map[string]*target.Secret{"routing_key": to.Webhook.RoutingKey, "secret_url": to.Webhook.SecretURL} {
		if secret != nil {
			s.mask(name)
		}
	}
	call.Target = target.Target{Webhook: &to.Webhook.Webhook}
	return s.webhook(h, call, to.Webhook.Message(*call.Notification, call.Payload, target.Mask), now)
}

// webhook shows the request to a webhook. message replaces the body; nil: the call determines it.
func (s *shownRequest) webhook(h *web.Webhooks, call target.Call, message []byte, now time.Time) error {
	url, headers, body, err := call.Request()
	if err != nil {
		return err
	}
	if message != nil {
		body = message
	}
	r, err := h.Compose(web.Destination{URL: url}, web.Content{Webhook: call.Target.Webhook, Headers: headers, Body: body}, call, now)
	if err != nil {
		return err
	}
	s.request(r, call.Target.Webhook, nil)
	return nil
}

func (s *shownRequest) group(h *web.Webhooks, call target.Call, endpoint *target.Endpoint, now time.Time) error {
	w, path, headers, body, err := call.GroupRequest()
	if err != nil {
		return err
	}
	to := web.Destination{URL: call.Group.URL(target.StaticEndpoint{URL: "http://ENDPOINT"}, path)}
	if endpoint != nil {
		s.Endpoint = endpoint.ID
		to = web.Destination{URL: call.Group.URL(endpoint.StaticEndpoint, path), Endpoint: endpoint.ID}
	}
	r, err := h.Compose(to, web.Content{Webhook: w, Headers: headers, Body: body}, call, now)
	if err != nil {
		return err
	}
	var token *string
	if xxl := call.Target.Group.XXLJob; xxl != nil {
		token, s.Handler = new(group.AccessTokenHeader), xxl.Handler
	}
	s.request(r, w, token)
	return nil
}

// request shows a request with the parts that signing and authentication would add. accessToken is the header of an
// executor's token, or nil.
func (s *shownRequest) request(r web.Request, w *target.Webhook, accessToken *string) {
	s.Method, s.URL, s.Body = r.Method, r.URL, attempt.Text(r.Body)
	if kind := r.Header.Get("Content-Type"); r.Header.Get("Accept") == "" && (resty.IsJSONType(kind) || resty.IsXMLType(kind)) {
		r.Header.Set("Accept", kind) // as the HTTP client does
	}
	masked := map[string]string{}
	if accessToken != nil {
		masked[*accessToken] = target.Mask
		s.mask("access_token of the group")
	}
	if _, is := r.Header["Carillon-Callback-Token"]; is {
		masked["Carillon-Callback-Token"] = target.Mask
	}
	if w.Signing != nil {
		var signatures []string
		for _, name := range slices.Sorted(maps.Keys(w.Signing.Secrets)) {
			signatures = append(signatures, "v1,"+target.Mask)
			s.mask("signature by secret " + name)
		}
		masked["Webhook-Signature"] = strings.Join(signatures, " ")
	}
	s.authenticate(w.Auth, masked)
	for name, values := range r.Header {
		value := strings.Join(values, ", ")
		_, is := masked[name]
		switch {
		case is:
		case slices.Contains(plainSecrets, strings.ToLower(name)):
			masked[name] = target.Mask
			s.mask("header " + name)
		default:
			masked := strings.Contains(value, target.Mask) // the token of the callback, by a template
			s.Headers = append(s.Headers, target.ShownHeader{Name: name, Value: value, Masked: masked})
		}
	}
	for name, value := range masked {
		s.Headers = append(s.Headers, target.ShownHeader{Name: name, Value: value, Masked: true})
	}
	slices.SortFunc(s.Headers, func(a, b target.ShownHeader) int { return strings.Compare(a.Name, b.Name) })
}

// authenticate adds what the authentication of a webhook would add.
func (s *shownRequest) authenticate(a *target.Auth, masked map[string]string) {
	if a == nil {
		return
	}
	switch {
	case a.Basic != nil:
		masked["Authorization"] = "Basic " + target.Mask
		s.mask("auth basic password")
	case a.Bearer != nil:
		masked["Authorization"] = "Bearer " + target.Mask
		s.mask("auth bearer token")
	case a.OAuth2 != nil:
		masked["Authorization"] = "Bearer " + target.Mask
		s.mask("auth oauth2 token")
	case a.SigV4 != nil:
		masked["Authorization"] = "AWS4-HMAC-SHA256 " + target.Mask
		s.mask("auth sigv4 signature")
	case a.APIKey != nil && a.APIKey.Header != "":
		masked[http.CanonicalHeaderKey(a.APIKey.Header)] = target.Mask
		s.mask("auth api_key key")
	case a.APIKey != nil:
		separator := "?"
		if strings.Contains(s.URL, "?") {
			separator = "&"
		}
		s.URL += separator + a.APIKey.Query + "=" + target.Mask
		s.mask("auth api_key key")
	}
}

func (s *shownRequest) function(call target.Call) error {
	l := call.Target.Lambda
	s.Function, s.Invocation = l.Function, string(l.Invocation)
	if l.Invocation == target.InvokeRequestResponse {
		s.ClientContext = string(l.ClientContext)
	}
	event, err := call.FunctionEvent()
	s.Body = attempt.Text(event)
	return err
}

func (s *shownRequest) message(call target.Call) error {
	m, err := call.Message()
	if err != nil {
		return err
	}
	s.Body, s.Subject, s.Attributes = attempt.Text([]byte(m.Body)), m.Subject, m.Attributes
	s.MessageGroupID, s.DeduplicationID = m.GroupID, m.DeduplicationID
	return nil
}
