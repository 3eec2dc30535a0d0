package provider

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

// ofKinds is an option of each kind of target. The number of kinds cannot be checked while one may still be null.
var ofKinds = binding.Decides("webhook", "lambda", "sqs", "sns", "group")

// otherKind ends the description of each kind of target.
const otherKind = " Default: the target is of another kind."

// targetRows are the target of a run.
var targetRows = binding.Of(binding.Fresh[target.Target],
	binding.Block("webhook", binding.Nested(func(t *target.Target) **target.Webhook { return &t.Webhook }, webhookRows), binding.Optional,
		"An HTTP request. Any 2xx response is a success, and redirects are not followed."+otherKind, ofKinds),
	binding.Block("lambda", binding.Nested(func(t *target.Target) **target.Lambda { return &t.Lambda }, lambdaRows), binding.Optional,
		"An AWS Lambda function, invoked once for each attempt with the credentials of the node."+otherKind, ofKinds),
	binding.Block("sqs", binding.Nested(func(t *target.Target) **target.SQS { return &t.SQS }, sqsRows), binding.Optional,
		"An Amazon SQS queue, which gets one message for each attempt, sent with the credentials of the node."+otherKind, ofKinds),
	binding.Block("sns", binding.Nested(func(t *target.Target) **target.SNS { return &t.SNS }, snsRows), binding.Optional,
		"An Amazon SNS topic, which gets one message for each attempt, published with the credentials of the node. The message has at "+
			"most 256 KiB with its attributes."+otherKind, ofKinds),
	binding.Block("group", binding.Nested(func(t *target.Target) **target.GroupTarget { return &t.Group }, groupTargetRows), binding.Optional,
		"An HTTP request to one endpoint of an endpoint group, chosen for each run. The group says how requests authenticate and are "+
			"signed. An endpoint that cannot be reached is passed over for the next one within the same attempt, but never after it may "+
			"have received the request."+otherKind, ofKinds),
	binding.Shown("kind", func(t *target.Target) string { return string(t.Summary().Kind) }, binding.InData, "`webhook`, `lambda`, "+
		"`group`, `sqs` or `sns`."),
	binding.Shown("name", func(t *target.Target) string { return t.Summary().Name }, binding.InData, "The host of a webhook, with "+
		"its port unless that is the scheme's, or the name of the function, group, queue or topic."),
)

// request has the fields that webhooks and requests to endpoint groups share.
type request struct {
	method, body, expectBody *string
	headers                  *map[string]string
	timeout                  *input.Duration
	successCodes             *[]target.SuccessCode
	cloudEvents              *target.CloudEvents
	callback                 **target.CallbackPolicy
	traceContext             *bool
}

func requestOf(w *target.Webhook) *request {
	return &request{&w.Method, &w.Body, &w.ExpectBody, &w.Headers, &w.Timeout, &w.SuccessCodes, &w.CloudEvents, &w.Callback, &w.TraceContext}
}

// requestRows takes the rows of method and body, which alerts describe differently.
func requestRows(method, body string) binding.List {
	return binding.List{
		binding.Text("method", func(r *request) *string { return r.method }, binding.Default, method, binding.EmptyIsValue,
			binding.Decides("cloud_events")),
		binding.Duration("timeout", func(r *request) *input.Duration { return r.timeout }, binding.Default,
			"Time limit of one attempt, from connecting to the last byte, such as `500ms`, `30s` or `1h30m`; from `100ms` to `24h`."),
		binding.Map("headers", func(r *request) *map[string]string { return r.headers }, binding.Optional, "Headers to send: at most "+
			"50, each value at most 8 KiB. Values may be templates, like `body`. Headers that frame the request or identify the "+
			"sender (`Host`, `Content-Length`, `User-Agent`, `webhook-*` and the like) are refused. The state contains all headers; "+
			"set secret ones from a variable marked `sensitive`. Default: none."),
		binding.Text("body", func(r *request) *string { return r.body }, binding.Optional, body),
		binding.Texts("success_codes", func(r *request) *[]target.SuccessCode { return r.successCodes }, binding.Optional, fmt.Sprintf(
			"Statuses that count as success, such as `\"204\"`, or classes of statuses, such as `\"2xx\"`; at most %d. Default: "+
				"`[\"2xx\"]`.", target.MaxSuccessCodes)),
		binding.Text("expect_body", func(r *request) *string { return r.expectBody }, binding.Optional, "A regular expression (RE2) "+
			"that the first 64 KiB of a successful response's body must match; otherwise the attempt fails. Default: any body is "+
			"accepted."),
		binding.Text("cloud_events", func(r *request) *target.CloudEvents { return r.cloudEvents }, binding.Optional,
			"Makes each request a CloudEvent 1.0: "+
				"`binary` puts its attributes into headers, `structured` wraps the payload in an envelope. Default: requests are not CloudEvents.",
			binding.Decides("cloud_events")), // not every method can carry one
		traceContextRow("as the header `traceparent`", func(r *request) *bool { return r.traceContext }),
	}
}

// jobRequestRows are requestRows for the targets of jobs.
func jobRequestRows() binding.List {
	return append(requestRows("HTTP method: "+either(target.Methods)+". `GET` and `HEAD` send no body.",
		"A template for the body, which replaces the payload. Template and result are at most 256 KiB. These actions insert values of the "+
			"attempt: "+either(templateActions(target.TemplateFields))+". With `callback`, these do, too: "+
			either(templateActions(target.CallbackTemplateFields))+". `{{json .Job}}` and `{{urlquery .Job}}` write any of them as "+
			"JSON or "+
			"percent-encoded, `{{date \"%Y-%m-%d\" \"Europe/Berlin\" .ScheduledAt}}` writes an instant in the format of strftime, and "+
			"`{{if .PreviousFire}}…{{else}}…{{end}}` tests whether there is one. Write `{{\"{{\"}}` for literal braces. The body is sent as "+
			"`application/json` unless `headers` say otherwise. Default: the payload is the body."),
		binding.Block("callback", binding.Nested(func(r *request) **target.CallbackPolicy { return r.callback }, callbackRows), binding.Optional,
			"Lets the target respond "+
				"with status 202 and finish later: the run then waits for its callback. Any other success ends the run at once. The nodes need "+
				"`--callback-url`. Default: 202 is a success like any other."))
}

// templateActions returns the fields of templates as a user writes them.
func templateActions(fields []string) []string {
	var all []string
	for _, field := range fields {
		all = append(all, strings.Replace("{{."+field+"}}", ".Payload", "json .Payload", 1))
	}
	return all
}

// traceContextRow is a row of every kind of target; how describes where the target finds the context.
func traceContextRow[P any](how string, field func(P) *bool) *binding.Row {
	return binding.Bool("trace_context", field, binding.Optional, "Whether the target gets the W3C trace context of the attempt, "+how+
		", to continue the "+
		"trace of the run. Set it for targets of your own, not for those of others. Default: `false`.")
}

var callbackRows = binding.Of(binding.Fresh[target.CallbackPolicy],
	binding.Duration("timeout", func(c *target.CallbackPolicy) *input.Duration { return &c.Timeout }, binding.Default,
		"How long after the acceptance, and after each heartbeat, the callback may come, such as `90s` or `2h`; from `1s` to `168h`. "+
			"After that, the attempt has timed out. With heartbeats, an attempt waits for at most `168h` in total."),
)

var webhookRows = binding.Of(binding.Fresh[target.Webhook],
	binding.Text("url", func(w *target.Webhook) *string { return &w.URL }, binding.Required, "Absolute URL, `http` or `https`, of at "+
		"most 2048 characters, without user, password and fragment. The part after the host may be a template, like `body`; values "+
		"are percent-encoded."),
	binding.Within(requestOf, jobRequestRows()),
	binding.Within(protectedBy, protectionRows()),
)

// protected has the fields for the signature, authentication and TLS of requests.
type protected struct {
	signing **target.Signing
	auth    **target.Auth
	tls     **target.TLS
}

func protectedBy(w *target.Webhook) *protected { return &protected{&w.Signing, &w.Auth, &w.TLS} }

func protectionRows() binding.List {
	return binding.List{
		signingRow(func(p *protected) **target.Signing { return p.signing }),
		binding.Block("auth", binding.Nested(func(p *protected) **target.Auth { return p.auth }, authRows), binding.Optional,
			"How requests authenticate; exactly one of these. Default: none."),
		binding.Block("tls", binding.Nested(func(p *protected) **target.TLS { return p.tls }, tlsRows), binding.Optional,
			"Settings of `https` connections. Default: the certificates of the node's system, and TLS 1.2 or later."),
	}
}

func signingRow[P any](field func(P) **target.Signing) *binding.Row {
	return binding.Block("signing", binding.Nested(field, signingRows), binding.Optional,
		"Signs each request by Standard Webhooks, in the header `webhook-signature`. Default: requests are not signed.")
}

var signingRows = binding.Of(binding.Fresh[target.Signing],
	binding.Named("secret", binding.Nested(func(s *target.Signing) *map[string]target.Secret { return &s.Secrets }, binding.Secrets),
		binding.Optional, fmt.Sprintf("A secret: at least one and at most %d. Each request carries a signature for each. To replace a "+
			"secret, add the new one, give it to the receivers, and then remove the old one. `whsec_` and base64 of 24 to 64 bytes makes "+
			"HMAC-SHA256 signatures (`v1`), `whsk_` and base64 of a private key makes ed25519 ones (`v1a`). Default: none, which is "+
			"refused.", target.MaxSigningSecrets), binding.Key("Name of the secret"), binding.Token("secrets")),
)

var tlsRows = binding.Of(binding.Fresh[target.TLS],
	binding.Text("ca_certificates", func(t *target.TLS) *string { return &t.CACertificates }, binding.Optional,
		"PEM certificates of the authorities that may sign the target's certificate, instead of those that the node's system trusts. "+
			"Default: those of the system."),
	binding.Text("client_certificate", func(t *target.TLS) *string { return &t.ClientCertificate }, binding.Optional,
		"PEM certificate chain that the node "+
			"presents. Default: none.", binding.Decides(""), binding.Hides("client_key")), // they must belong together
	binding.Text("min_version", func(t *target.TLS) *string { return &t.MinVersion }, binding.Optional, "`1.2` or `1.3`. Default: `1.2`."),
	binding.Block("client_key", binding.Nested(func(t *target.TLS) **target.Secret { return &t.ClientKey }, binding.Secrets),
		binding.Optional, "PEM private key of the client certificate. Default: none.", binding.Decides(""), binding.Hides("client_key")),
)

// sharedMessage has the fields that messages to a queue and to a topic share.
type sharedMessage struct {
	body, group  *string
	attributes   *map[string]string
	role         **target.AssumeRole
	timeout      *input.Duration
	traceContext *bool
}

func messageRows(what, verb string) binding.List {
	return binding.List{
		binding.Text("body", func(m *sharedMessage) *string { return m.body }, binding.Optional, "Template for the body, at most 256 "+
			"KiB. Default: the payload, or without one a description of the fire."),
		binding.Map("attributes", func(m *sharedMessage) *map[string]string { return m.attributes }, binding.Optional,
			"Attributes of the message, at most 9. Values may be templates; one that is empty once it is filled in is left out. "+
				"Carillon adds the attribute `carillon`, which describes the attempt. Default: none."),
		binding.Text("message_group_id", func(m *sharedMessage) *string { return m.group }, binding.Optional,
			"Template for the group of the message, up to 128 characters. Default: `APP/JOB` for a FIFO "+what+", otherwise none."),
		roleRow(verb, func(m *sharedMessage) **target.AssumeRole { return m.role }),
		messageTimeoutRow(func(m *sharedMessage) *input.Duration { return m.timeout }),
		traceContextRow("as `traceparent` in the message's attribute `carillon`", func(m *sharedMessage) *bool { return m.traceContext }),
	}
}

func messageTimeoutRow[P any](field func(P) *input.Duration) *binding.Row {
	return binding.Duration("timeout", field, binding.Default, "Time limit of one attempt, from `100ms` to `24h`.")
}

// decidesOfResource are attributes that cannot be checked while the ARN of a queue or topic is
// unknown: region and role must agree, and only a FIFO one has a group.
var decidesOfResource = binding.Decides("assume_role/role_arn", "message_group_id")

var sqsRows = binding.Of(binding.Fresh[target.SQS],
	binding.Text("queue_arn", func(s *target.SQS) *string { return &s.QueueARN }, binding.Required, "ARN of the queue, such as "+
		"`aws_sqs_queue.orders.arn`.", decidesOfResource),
	binding.Within(func(s *target.SQS) *sharedMessage {
		return &sharedMessage{&s.Body, &s.MessageGroupID, &s.Attributes, &s.AssumeRole, &s.Timeout, &s.TraceContext}
	}, messageRows("queue", "send the message")),
)

var snsRows = binding.Of(binding.Fresh[target.SNS],
	binding.Text("topic_arn", func(s *target.SNS) *string { return &s.TopicARN }, binding.Required, "ARN of the topic, such as "+
		"`aws_sns_topic.orders.arn`.", decidesOfResource),
	binding.Text("subject", func(s *target.SNS) *string { return &s.Subject }, binding.Optional, "Template for the subject of mails, "+
		"which is cut to 99 characters. Default: none."),
	binding.Within(func(s *target.SNS) *sharedMessage {
		return &sharedMessage{&s.Body, &s.MessageGroupID, &s.Attributes, &s.AssumeRole, &s.Timeout, &s.TraceContext}
	}, messageRows("topic", "publish the message")),
)

// roleRow is the role of an AWS target. verb is what a node does with the role.
func roleRow[P any](verb string, field func(P) **target.AssumeRole) *binding.Row {
	return binding.Block("assume_role", binding.Nested(field, assumeRoleRows), binding.Optional,
		"A role to "+verb+" as. Default: the node's own.")
}

var assumeRoleRows = binding.Of(binding.Fresh[target.AssumeRole],
	binding.Text("role_arn", func(a *target.AssumeRole) *string { return &a.RoleARN }, binding.Required, "ARN of the role."),
	binding.Map("session_tags", func(a *target.AssumeRole) *map[string]string { return &a.SessionTags }, binding.Optional,
		"Tags of the session, at most 48; none that begins with `carillon:` or `aws:`. Default: none."),
)

var lambdaRows = binding.Of(binding.Fresh[target.Lambda],
	binding.Text("function", func(l *target.Lambda) *string { return &l.Function }, binding.Required, "Name (`my-function`), partial ARN "+
		"(`123456789012:function:my-function`) or ARN, each with or without `:QUALIFIER`, a version or alias.",
		binding.Decides("region", "assume_role/role_arn")), // function, region and role must agree
	binding.Text("invocation", func(l *target.Lambda) *target.Invocation { return &l.Invocation }, binding.Default,
		"`RequestResponse` waits for the "+
			"result of the function. `Event` succeeds as soon as Lambda accepts the invocation, and leaves it to Lambda's own queue and "+
			"retries.", binding.Decides("client_context", "callback")), // client_context and callback each need one of the types
	binding.Text("region", func(l *target.Lambda) *string { return &l.Region }, binding.Optional, "Region of the function. Default: "+
		"that of its ARN, or else that of the node.", binding.Decides("region", "assume_role/role_arn")),
	binding.JSON("client_context", func(l *target.Lambda) *json.RawMessage { return &l.ClientContext }, binding.Optional,
		"JSON object that the function finds in its context, at most 3583 bytes in base64; only with `RequestResponse`. Default: none."),
	binding.Whole("concurrency", func(l *target.Lambda) *int { return &l.Concurrency }, binding.Default, "How many attempts a node "+
		"makes at once, at most `10000`. With `0`, the node's limit for any host applies.", binding.Advice(input.CodeCountRange,
		"give how many attempts a node makes at once, or 0 for no limit of its own")),
	binding.Duration("timeout", func(l *target.Lambda) *input.Duration { return &l.Timeout }, binding.Default,
		"Time limit of one attempt, from `100ms` to `15m`. Set it longer than the function's own timeout: the function keeps running "+
			"when an attempt is abandoned."),
	roleRow("invoke the function", func(l *target.Lambda) **target.AssumeRole { return &l.AssumeRole }),
	binding.Block("callback", binding.Nested(func(l *target.Lambda) **target.CallbackPolicy { return &l.Callback }, callbackRows),
		binding.Optional, "Lets a function that is invoked with `Event` finish the attempt: the run waits for its callback. The nodes need "+
			"`--callback-url`. Default: the attempt succeeds as soon as Lambda accepts the event."),
	traceContextRow("as `carillon.traceparent` of its event", func(l *target.Lambda) *bool { return &l.TraceContext }),
)

var groupTargetRows = binding.Of(binding.Fresh[target.GroupTarget],
	binding.Within(func(g *target.GroupTarget) *request {
		return &request{
			&g.Method, &g.Body, &g.ExpectBody, &g.Headers, &g.Timeout, &g.SuccessCodes, &g.CloudEvents, &g.Callback, &g.TraceContext,
		}
	}, jobRequestRows()),
	binding.Text("name", func(g *target.GroupTarget) *string { return &g.Name }, binding.Required, "Name of an endpoint group of the "+
		"app. Refer to the resource, `carillon_endpoint_group.NAME.name`, so that Terraform creates it first."),
	binding.Text("path", func(g *target.GroupTarget) *string { return &g.Path }, binding.Optional, "What follows the URL of the "+
		"endpoint and the `path` of the group, such as `/nightly`. It begins with `/` or `?` and may be a template, like `body`. "+
		"Default: nothing follows."),
	binding.Text("strategy", func(g *target.GroupTarget) *target.Strategy { return &g.Strategy }, binding.Optional,
		"How the endpoint is chosen for this "+
			"job: "+either(target.Strategies)+". Default: the `strategy` of the group.", binding.Decides("hash_key")), // only one has a key
	binding.Text("hash_key", func(g *target.GroupTarget) *string { return &g.HashKey }, binding.Optional, "With `consistent_hash`, a "+
		"template of what is hashed, such as `{{json .Payload}}`: requests with the same key go to the same endpoint. Default: the "+
		"names of app and job."),
	binding.Text("endpoint_concurrency", func(g *target.GroupTarget) *run.ConcurrencyPolicy { return &g.EndpointConcurrency },
		binding.Optional, "What happens to a run that the strategy sends to an endpoint at which another run of this job is under "+
			"way: `allow` (it goes there, too), `queue` (it waits for that endpoint; at most `queue_limit` runs wait, others are "+
			"skipped), `forbid` (it is skipped) or `replace` (the run under way is cancelled, and the new one begins when that has "+
			"stopped). With the strategies `busyover` and `global_busyover`, another endpoint is chosen instead. The job's "+
			"`concurrency_policy` applies first, over all endpoints. Default: `allow`."),
	binding.Block("xxl_job", binding.Nested(func(g *target.GroupTarget) **target.XXLJobRun { return &g.XXLJob }, xxlJobRows),
		binding.Optional, "What executors run, for a group of the kind `xxl_job`. Then `timeout` bounds how long an executor may take to "+
			"accept the run, and `path`, `method`, `headers`, `body`, `success_codes`, `expect_body`, `cloud_events`, `callback` and "+
			"`endpoint_concurrency` are not there. Default: the endpoints of the group are no executors."),
)

var xxlJobRows = binding.Of(binding.Fresh[target.XXLJobRun],
	binding.Text("handler", func(x *target.XXLJobRun) *string { return &x.Handler }, binding.Required, "Name of the JobHandler (BEAN "+
		"mode)."),
	binding.Text("param", func(x *target.XXLJobRun) *string { return &x.Param }, binding.Optional, "The parameter of the run, which "+
		"may be a template, like `body`. Default: the `payload` of the job, of which a JSON string is sent without its quotes."),
	binding.Text("blocking", func(x *target.XXLJobRun) *target.ExecutorBlocking { return &x.Blocking }, binding.Default,
		"What an executor does if it runs the job already: `queue` (serial execution), `forbid` (discard later: the attempt fails) "+
			"or `replace` (cover early: it stops the earlier run)."),
	binding.Duration("executor_timeout", func(x *target.XXLJobRun) *input.Duration { return &x.ExecutorTimeout }, binding.Default,
		"How long a run may take until its executor interrupts it, in whole seconds. `0s`: for any time."),
	timeRow("callback_timeout", func(x *target.XXLJobRun) *input.Duration { return &x.CallbackTimeout }, binding.Default,
		"How long after it accepted a run an executor may call back, from `1s` to `7d`. After it, the attempt is timed out."),
)

// timeRow is a duration where zero is invalid, because the API takes it for the default.
func timeRow[P any](name string, field func(P) *input.Duration, of binding.Presence, text string, options ...binding.Option) *binding.Row {
	return binding.Duration(name, field, of, text, append(options,
		binding.NotZero(input.CodeDurationMin, "duration 0s is too short; leave it out for the default"))...)
}

// secretRow is a required secret.
func secretRow[P any](name string, field func(P) *target.Secret, text string) *binding.Row {
	return binding.Part(name, binding.Nested(field, binding.Secrets), binding.Required, text+" Set `reference` or `value`.")
}

// authRows are the kinds of authentication. The number of kinds cannot be checked while one may still be null.
var authRows = binding.Of(binding.Fresh[target.Auth],
	binding.Block("basic", binding.Nested(func(a *target.Auth) **target.BasicAuth { return &a.Basic }, basicRows), binding.Optional,
		"HTTP basic authentication. Default: none.", binding.Decides("")),
	binding.Block("bearer", binding.Nested(func(a *target.Auth) **target.BearerAuth { return &a.Bearer }, bearerRows), binding.Optional,
		"A bearer token in the header `Authorization`. Default: none.", binding.Decides("")),
	binding.Block("api_key", binding.Nested(func(a *target.Auth) **target.APIKeyAuth { return &a.APIKey }, apiKeyRows), binding.Optional,
		"A key in a header or in the query. Default: none.", binding.Decides("")),
	binding.Block("sigv4", binding.Nested(func(a *target.Auth) **target.SigV4Auth { return &a.SigV4 }, sigV4Rows), binding.Optional,
		"AWS Signature Version 4, for Lambda function URLs and API Gateway. Default: none.", binding.Decides("")),
	binding.Block("oauth2", binding.Nested(func(a *target.Auth) **target.OAuth2Auth { return &a.OAuth2 }, oauth2Rows), binding.Optional,
		"OAuth 2 client credentials: each node gets a bearer token from an authorization server, and keeps it until shortly before "+
			"it expires. Default: none.", binding.Decides("")),
)

var basicRows = binding.Of(binding.Fresh[target.BasicAuth],
	binding.Text("username", func(b *target.BasicAuth) *string { return &b.Username }, binding.Required, "The user name, without a colon."),
	secretRow("password", func(b *target.BasicAuth) *target.Secret { return &b.Password }, "The password."),
)

var bearerRows = binding.Of(binding.Fresh[target.BearerAuth],
	secretRow("token", func(b *target.BearerAuth) *target.Secret { return &b.Token }, "The token."),
)

var apiKeyRows = binding.Of(binding.Fresh[target.APIKeyAuth], // exactly one of header and query is required
	binding.Text("header", func(a *target.APIKeyAuth) *string { return &a.Header }, binding.Optional, "Name of the header, such as "+
		"`X-Api-Key`. Default: the key is in the query.", binding.Decides("")),
	binding.Text("query", func(a *target.APIKeyAuth) *string { return &a.Query }, binding.Optional, "Name of the query parameter. "+
		"Default: the key is in a header.", binding.Decides("")),
	secretRow("key", func(a *target.APIKeyAuth) *target.Secret { return &a.Key }, "The key."),
)

var sigV4Rows = binding.Of(binding.Fresh[target.SigV4Auth],
	binding.Text("service", func(s *target.SigV4Auth) *string { return &s.Service }, binding.Required, "`lambda` for function URLs, "+
		"`execute-api` for API Gateway."),
	binding.Text("region", func(s *target.SigV4Auth) *string { return &s.Region }, binding.Required, "Region of the service, such as "+
		"`eu-central-1`."),
	binding.Block("credentials", binding.Nested(func(s *target.SigV4Auth) **target.AWSCredentials { return &s.Credentials },
		credentialsRows), binding.Optional, "Credentials to sign with. Default: those of the node, which it finds as AWS's tools do."),
)

var credentialsRows = binding.Of(binding.Fresh[target.AWSCredentials],
	binding.Text("access_key_id", func(c *target.AWSCredentials) *string { return &c.AccessKeyID }, binding.Required,
		"Id of the access key."),
	secretRow("secret_access_key", func(c *target.AWSCredentials) *target.Secret { return &c.SecretAccessKey }, "The secret access key."),
	binding.Block("session_token", binding.Nested(func(c *target.AWSCredentials) **target.Secret { return &c.SessionToken },
		binding.Secrets), binding.Optional, "Session token of temporary credentials. Default: none."),
)

// ofClient are attributes that depend on how the client authenticates.
var ofClient = []binding.Option{binding.Decides(""), binding.Hides("client_secret", "private_key")}

var oauth2Rows = binding.Of(binding.Fresh[target.OAuth2Auth],
	binding.Text("token_url", func(o *target.OAuth2Auth) *string { return &o.TokenURL }, binding.Required,
		"URL of the token endpoint. The egress rules of nodes and bounds apply to it, as to the URL of a webhook."),
	binding.Text("client_id", func(o *target.OAuth2Auth) *string { return &o.ClientID }, binding.Required, "Id of the client."),
	binding.Texts("scopes", func(o *target.OAuth2Auth) *[]string { return &o.Scopes }, binding.Optional, fmt.Sprintf(
		"Scopes of the token; at most %d. Default: the authorization server chooses.", target.MaxScopes)),
	binding.Text("client_auth", func(o *target.OAuth2Auth) *target.OAuth2ClientAuth { return &o.ClientAuth }, binding.Optional,
		"How the client authenticates at the token endpoint: "+either(target.OAuth2ClientAuths)+". Default: `basic`.", ofClient...),
	binding.Text("key_id", func(o *target.OAuth2Auth) *string { return &o.KeyID }, binding.Optional, "Id of the private key, sent as "+
		"`kid` in the JWT. Default: the JWT has none.", ofClient...),
	binding.Text("algorithm", func(o *target.OAuth2Auth) *target.AssertionAlgorithm { return &o.Algorithm }, binding.Optional,
		"Algorithm that signs the JWT: "+either(target.AssertionAlgorithms)+". Default: `RS256`.", ofClient...),
	binding.Text("audience", func(o *target.OAuth2Auth) *string { return &o.Audience }, binding.Optional, "Audience of the token, "+
		"which some authorization servers require. Default: none is sent."),
	binding.Text("ca_certificates", func(o *target.OAuth2Auth) *string { return &o.CACertificates }, binding.Optional,
		"PEM certificates of the authorities to trust for the token endpoint. Default: those of the node's system."),
	binding.Block("client_secret", binding.Nested(func(o *target.OAuth2Auth) **target.Secret { return &o.ClientSecret }, binding.Secrets),
		binding.Optional, "The client's secret, for `basic` and `post`. Set `reference` or `value`. Default: none.", ofClient...),
	binding.Block("private_key", binding.Nested(func(o *target.OAuth2Auth) **target.Secret { return &o.PrivateKey }, binding.Secrets),
		binding.Optional, "The client's private key in PEM, for `private_key_jwt`. Set `reference` or `value`. Default: none.", ofClient...),
)
