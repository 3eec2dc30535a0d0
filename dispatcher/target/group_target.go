package target

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// GroupTarget is an HTTP request to an endpoint of a group, which the strategy of the group chooses. The group
// defines authentication and signing.
type GroupTarget struct {
	// Name is the name of an endpoint group of the job's app.
	Name string `json:"name" schema:"Name,required"`
	// Path follows the URL of the endpoint and the path of the group. It begins with / or ?, and may be a template.
	Path string `json:"path,omitempty" schema:"max=2048"`
	// Method, Headers, Body, Timeout, SuccessCodes, ExpectBody and CloudEvents are as in Webhook. Timeout bounds the
	// attempt with all endpoints that it tries.
	Method string `json:"method,omitempty" schema:"enum=GET|HEAD|POST|PUT|PATCH|DELETE"`
	// Values may be templates.
	Headers map[string]string `json:"headers,omitempty" schema:"each_max=8192,max=50"`
	// A template for the request body, as in a webhook. If left out, the payload is the body.
	Body string `json:"body,omitempty" schema:"max=262144"`
	// Limit of one attempt with all endpoints that it tries, 100ms to 24h.
	Timeout input.Duration `json:"timeout,omitempty"`
	// As in a webhook.
	SuccessCodes []SuccessCode `json:"success_codes,omitzero" schema:"max=20"`
	// As in a webhook.
	ExpectBody string `json:"expect_body,omitempty" schema:"max=1024"`
	// As in a webhook.
	CloudEvents CloudEvents `json:"cloud_events,omitempty"`
	// Callback and TraceContext are as in Webhook.
	Callback *CallbackPolicy `json:"callback,omitempty"`
	// Whether the target gets the trace context of the attempt, as header traceparent. Set it only for your own
	// targets.
	TraceContext bool `json:"trace_context,omitempty"`
	// Strategy replaces the strategy of the group; empty keeps it.
	Strategy Strategy `json:"strategy,omitempty"`
	// HashKey is a template of at most 4 KiB for the text that the strategy consistent_hash hashes; empty means the
	// names of app and job.
	HashKey string `json:"hash_key,omitempty"`
	// EndpointConcurrency decides about a run that the strategy sends to an endpoint with another run of the job
	// under way; empty means ConcurrencyAllow.
	EndpointConcurrency run.ConcurrencyPolicy `json:"endpoint_concurrency,omitempty"`
	// XXLJob is the run for executors, if the group is of kind xxl_job. Then Timeout bounds how long they may take to
	// accept the run, and Path, Method, Headers, Body, SuccessCodes, ExpectBody and CloudEvents are not allowed.
	XXLJob *XXLJobRun `json:"xxl_job,omitempty"`
}

// anyEndpoint stands for the URL of an endpoint that is not chosen yet. It never resolves (RFC 6761, section 6.4).
const anyEndpoint = "http://endpoint.invalid"

// SetDefaults gives a decoded target the values of fields that its JSON leaves out.
func (g *GroupTarget) SetDefaults() {
	g.Method, g.Timeout = "POST", DefaultTimeout
}

// webhook returns the request as a webhook of any endpoint.
func (g *GroupTarget) webhook() *Webhook {
	if g.XXLJob != nil {
		return &Webhook{URL: anyEndpoint + "/run", Method: "POST", Body: g.XXLJob.Param, Timeout: g.Timeout}
	}
	w := g.request()
	w.URL = g.url()
	return w
}

// url returns the URL of a request to any endpoint.
func (g *GroupTarget) url() string {
	if !strings.HasPrefix(g.Path, "/") {
		return anyEndpoint + "/" + g.Path
	}
	return anyEndpoint + g.Path
}

// request returns the request as a webhook without a URL.
func (g *GroupTarget) request() *Webhook {
	return &Webhook{Method: g.Method, Headers: g.Headers, Body: g.Body, Timeout: g.Timeout,
		SuccessCodes: g.SuccessCodes, ExpectBody: g.ExpectBody, CloudEvents: g.CloudEvents, Callback: g.Callback}
}

// Validate returns everything wrong with g, as Problems with JSON pointers, or nil.
func (g *GroupTarget) Validate() error {
	var problems input.Problems
	input.CheckName(&problems, "/name", g.Name)
	if g.XXLJob != nil {
		g.XXLJob.check(&problems, "/xxl_job", g)
		problems.AddError("", paramProblems(g.webhook().Validate()))
	} else if g.Path != "" && g.Path[0] != '/' && g.Path[0] != '?' {
		problems.Add("/path", input.CodeURLSyntax,
			"path begins neither with / nor with ?; the URL of the endpoint and the path of the group precede it")
	} else {
		problems.AddError("", pathProblems(g.webhook().Validate()))
	}
	if g.Strategy != "" {
		input.CheckEnum(&problems, "/strategy", "strategy", g.Strategy, Strategies)
	}
	if g.EndpointConcurrency != "" {
		input.CheckEnum(&problems, "/endpoint_concurrency", "endpoint_concurrency", g.EndpointConcurrency, run.ConcurrencyPolicies)
	}
	input.CheckText(&problems, "/hash_key", g.HashKey)
	if isTemplate(g.HashKey) && len(g.HashKey) <= maxHashKey {
		parseTemplate(&problems, "/hash_key", g.HashKey, g.hashKeyFields())
	}
	return problems.Err()
}

// pathProblems points problems of a URL at the path that it was made from.
func pathProblems(err error) error {
	problems, _ := err.(input.Problems) //nolint:errorlint // Validate returns Problems
	for i := range problems {
		if problems[i].Path == "/url" {
			problems[i].Path = "/path"
		}
	}
	return err
}

// paramProblems points problems of a body at the parameter of the run that it was made from.
func paramProblems(err error) error {
	problems, _ := err.(input.Problems) //nolint:errorlint // Validate returns Problems
	for i := range problems {
		if problems[i].Path == "/body" {
			problems[i].Path = "/xxl_job/param"
		}
	}
	return err
}

func (g *GroupTarget) kind() Kind { return KindGroup }

// host returns the group as a whole: its endpoints are ejected one by one, and its circuit opens when none responds.
func (g *GroupTarget) host() (name string, atOnce int) { return groupHost + g.Name, 0 }

// groupHost begins the names of groups among hosts; no host name has a space.
const groupHost = "group "

// IsGroupHost reports whether the name of a host from Target.Host stands for an endpoint group. Groups of two apps
// may have the same name.
func IsGroupHost(name string) bool { return strings.HasPrefix(name, groupHost) }

// origin is empty: the target has no secrets. Those of the group are bound to the group.
func (g *GroupTarget) origin() string { return "" }

func (g *GroupTarget) timeout() time.Duration { return g.webhook().timeout() }

func (g *GroupTarget) templates(problems *input.Problems) *Templates {
	var wrong input.Problems
	webhook := g.webhook()
	templates := webhook.templates(&wrong)
	if g.XXLJob != nil {
		problems.AddError("", paramProblems(wrong.Err()))
	} else {
		problems.AddError("", pathProblems(wrong.Err()))
	}
	if isTemplate(g.HashKey) && len(g.HashKey) <= maxHashKey {
		if templates == nil {
			templates = &Templates{webhook: webhook}
		}
		if templates.hashKey = parseTemplate(problems, "/hash_key", g.HashKey, g.hashKeyFields()); templates.hashKey != nil {
			templates.fires = templates.fires || templates.hashKey.fires
		}
	}
	return templates
}

func (g *GroupTarget) warn(payload json.RawMessage, problems *input.Problems) {
	g.warnOfCallback(problems)
	if g.XXLJob == nil {
		g.webhook().warnOfBody(payload, problems)
	}
}

// maxHashKey bounds the templates of hash keys, in bytes: 1024 characters.
const maxHashKey = 4 << 10

// URL returns the URL of a request to an endpoint of g: the URL of the endpoint, the path of the group and path, which
// is empty or begins with / or ?. It joins two parts with one slash, and leaves the end of the last part as it is.
func (g EndpointGroup) URL(endpoint StaticEndpoint, path string) string {
	return joinPath(joinPath(endpoint.URL, g.Path), path)
}

func joinPath(base, path string) string {
	if strings.HasPrefix(path, "/") {
		return strings.TrimSuffix(base, "/") + path
	}
	return base + path
}

// GroupRequest returns the request of an attempt of a group target to any endpoint, with templates filled in. The URL
// of w stands for any endpoint; path is appended to that of the chosen one. The error is a *TemplateError.
func (c Call) GroupRequest() (w *Webhook, path string, headers map[string]string, body []byte, err error) {
	target := c.Target.Group
	if target.XXLJob != nil {
		return c.executorRequest()
	}
	w = target.request()
	w.Method, w.Timeout = cmp.Or(w.Method, "POST"), cmp.Or(w.Timeout, DefaultTimeout)
	w.Signing, w.Auth, w.TLS = c.Group.Signing, c.Group.Auth, c.Group.TLS
	if c.Templates == nil {
		return w, target.Path, w.Headers, w.BodyOf(c.Body()), nil
	}
	w.URL = target.url()
	c.Target = Target{Webhook: w}
	url, headers, body, err := c.Request()
	path = strings.TrimPrefix(url, anyEndpoint)
	if !strings.HasPrefix(target.Path, "/") {
		path = strings.TrimPrefix(path, "/")
	}
	return w, path, headers, body, err
}

// HashKey returns the text that consistent_hash hashes for an attempt of a group target. The error is a *TemplateError.
func (c Call) HashKey() (string, error) {
	switch target := c.Target.Group; {
	case target.HashKey == "":
		return c.App + "/" + c.Job, nil
	case c.Templates == nil || c.Templates.hashKey == nil:
		return target.HashKey, nil
	}
	return c.filledInHashKey()
}

// filledInHashKey is HashKey for a template. It is a separate method for the same reason as filledIn.
func (c Call) filledInHashKey() (string, error) {
	key, fits := c.Templates.hashKey.render(&c, input.MaxPayload, false)
	if !fits {
		var problems input.Problems
		problems.Add("/hash_key", input.CodePayloadTooLarge, "hash key has more than 256 KiB once its template is filled in")
		return "", &TemplateError{problems}
	}
	return key, nil
}

// hashKeyFields are the fields that the template of the hash key may use.
func (g *GroupTarget) hashKeyFields() []string {
	if g.Callback == nil {
		return TemplateFields
	}
	return withCallbackURL(TemplateFields)
}
