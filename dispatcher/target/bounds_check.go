package target

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// CheckTarget returns, as Problems with JSON pointers in the target or nil, where the target of a job of app is
// outside its bounds. It does not check the addresses that a name resolves to, which only an attempt knows.
func (b Bounds) CheckTarget(app string, t Target) error {
	var problems input.Problems
	if d := t.Alert; d != nil {
		problems.AddError("/alert", b.CheckDestination(app, *d))
		return problems.Err()
	}
	b.checkSecrets(&problems, "", app, Secrets(t))
	if w := t.Webhook; w != nil {
		b.checkWebhook(&problems, "/webhook", app, w)
		b.checkTokenURL(&problems, "/webhook/auth/oauth2", app, w.Auth.oauth2())
	}
	if l := t.Lambda; l != nil {
		if function := l.unqualified(); !anyMatches(b.Lambda.Functions, function) {
			problems.Add("/lambda/function", input.CodeBoundFunction,
				"function %s is not one that app %s may invoke; its bounds allow %s (lambda.functions)",
				input.Echo(function), app, orNone(b.Lambda.Functions))
		}
		b.checkRole(&problems, "/lambda", app, l.AssumeRole, "lambda")
	}
	if s := t.SQS; s != nil {
		if !anyMatches(b.SQS.Queues, s.QueueARN) {
			problems.Add("/sqs/queue_arn", input.CodeBoundQueue,
				"queue %s is not one that app %s may send to; its bounds allow %s (sqs.queues)",
				input.Echo(s.QueueARN), app, orNone(b.SQS.Queues))
		}
		b.checkRole(&problems, "/sqs", app, s.AssumeRole, "sqs")
	}
	if s := t.SNS; s != nil {
		b.checkTopic(&problems, "/sns", app, s)
	}
	return problems.Err()
}

func (b Bounds) checkTopic(problems *input.Problems, at, app string, s *SNS) {
	if !anyMatches(b.SNS.Topics, s.TopicARN) {
		problems.Add(at+"/topic_arn", input.CodeBoundTopic, "topic %s is not one that app %s may publish to; its bounds allow %s (sns.topics)",
			input.Echo(s.TopicARN), app, orNone(b.SNS.Topics))
	}
	b.checkRole(problems, at, app, s.AssumeRole, "sns")
}

// checkSecrets checks the references of secrets of an app, by their JSON pointers below at.
func (b Bounds) checkSecrets(problems *input.Problems, at, app string, all map[string]Secret) {
	for _, path := range input.SortedKeys(all) {
		reference := all[path].Reference
		switch {
		case reference == "" || b.AllowsSecret(reference):
		case b.reserves(reference):
			problems.Add(at+path+"/reference", input.CodeBoundSecret,
				"secret %s is of another app, whose name begins with that of app %s; rename the variable, or ask an operator to list it "+
					"(secrets in the bounds of the app)", input.Echo(reference), app)
		default:
			problems.Add(at+path+"/reference", input.CodeBoundSecret,
				"secret %s is not one that app %s may use; its bounds allow %s (secrets in the bounds of the app)",
				input.Echo(reference), app, orNone(b.Secrets))
		}
	}
}

// CheckGroup returns, as Problems with JSON pointers in the group or nil, where a group is outside the bounds of its
// app. It checks the endpoints and names of DNS that the group declares; see CheckEndpoint.
func (b Bounds) CheckGroup(g EndpointGroup) error {
	var problems input.Problems
	b.checkSecrets(&problems, "", g.App, Secrets(g))
	b.checkTokenURL(&problems, "/auth/oauth2", g.App, g.Auth.oauth2())
	for _, id := range input.SortedKeys(g.Endpoints) {
		problems.AddError(input.Pointer("endpoints", id), b.CheckEndpoint(g, g.Endpoints[id]))
	}
	for _, label := range input.SortedKeys(g.DNS) {
		if d := g.DNS[label]; d.Type != DNSTypeSRV { // the targets of services are known only when they are called
			wrong := b.CheckEndpoint(g, StaticEndpoint{URL: d.Resolved().url()})
			problems.AddError(input.Pointer("dns", label), dnsPaths(wrong))
		}
	}
	return problems.Err()
}

// CheckEndpoint returns, as Problems with JSON pointers in the endpoint or nil, where an endpoint of a group, from
// any source, is outside the bounds of the app.
func (b Bounds) CheckEndpoint(g EndpointGroup, e StaticEndpoint) error {
	var problems input.Problems
	b.checkWebhook(&problems, "", g.App, &Webhook{URL: e.URL, Auth: g.Auth})
	for i := range problems {
		problems[i].Path = "/url" // the group signs the requests, but the endpoint receives them
	}
	return problems.Err()
}

// AllowsSecret reports whether jobs may use a reference. A pattern may name a key and a version of a secret, or the
// whole secret, which allows all keys and versions.
func (b Bounds) AllowsSecret(reference string) bool {
	if anyMatches(b.Secrets, reference) {
		return !b.reserves(reference)
	}
	r, _ := splitReference(reference)
	return r.Source.Managed() && anyMatches(b.Secrets, r.Whole())
}

func (b Bounds) reserves(reference string) bool {
	return slices.ContainsFunc(b.Reserved, func(beginning string) bool { return strings.HasPrefix(reference, beginning) })
}

func (b Bounds) checkWebhook(problems *input.Problems, at, app string, w *Webhook) {
	u, err := url.Parse(w.URL)
	if err != nil {
		return // Validate reports it
	}
	host := hostName(u)
	b.checkEgress(problems, at+"/url", app, u)
	if w.Auth != nil && w.Auth.SigV4 != nil && w.Auth.SigV4.Credentials == nil && !b.allowsSigning(w.Auth.SigV4.Service, host) {
		problems.Add(at+"/auth/sigv4", input.CodeBoundSigning,
			"app %s may not sign requests for service %s to %s with the AWS credentials of the node; give credentials, or ask an "+
				"operator to allow it (sign_as_node in the bounds of the app)", app, input.Echo(w.Auth.SigV4.Service), input.Echo(host))
	}
}

// checkTokenURL checks the token endpoint of client credentials, which nodes call for the app.
func (b Bounds) checkTokenURL(problems *input.Problems, at, app string, o *OAuth2Auth) {
	if o == nil {
		return
	}
	if u, err := url.Parse(o.TokenURL); err == nil { // otherwise Validate reports it
		b.checkEgress(problems, at+"/token_url", app, u)
	}
}

// checkEgress checks the host and the port of a URL that nodes call for an app.
func (b Bounds) checkEgress(problems *input.Problems, at, app string, u *url.URL) {
	host := hostName(u)
	if hosts := b.Egress.Hosts; hosts != nil && !allowsHost(hosts, host) {
		problems.Add(at, input.CodeBoundEgress, "host %s is not one that app %s may call; its bounds allow %s (egress.hosts)",
			input.Echo(host), app, orNone(hosts))
	}
	if ports := b.Egress.Ports; ports != nil && !slices.Contains(ports, portOf(u)) {
		problems.Add(at, input.CodeBoundEgress, "port %d is not one that app %s may call; its bounds allow %s (egress.ports)",
			portOf(u), app, orNone(strings.Fields(strings.Trim(fmt.Sprint(ports), "[]"))))
	}
}

func (b Bounds) allowsSigning(service, host string) bool {
	return slices.ContainsFunc(b.SignAsNode, func(bound SignatureBound) bool {
		return bound.Service == service && allowsHost(bound.Hosts, host)
	})
}

// checkRole checks the role of a target of a kind, which may be nil.
func (b Bounds) checkRole(problems *input.Problems, at, app string, role *AssumeRole, kind string) {
	allowed := map[string][]string{"lambda": b.Lambda.Roles, "sqs": b.SQS.Roles, "sns": b.SNS.Roles}[kind]
	if role != nil && !anyMatches(allowed, role.RoleARN) {
		problems.Add(at+"/assume_role/role_arn", input.CodeBoundRole, "role %s is not one that app %s may use; its bounds allow %s (%s.roles)",
			input.Echo(role.RoleARN), app, orNone(allowed), kind)
	}
}

// unqualified returns the function without its version or alias.
func (l *Lambda) unqualified() string {
	parts := strings.Split(l.Function, ":")
	switch n := len(parts); {
	case parts[0] == "arn" && n == 8, parts[0] != "arn" && (n == 2 || n == 4):
		return strings.Join(parts[:n-1], ":")
	}
	return l.Function
}

// hostName returns the host of a URL as bounds compare it: in lower case, without the dot that may end a name.
func hostName(u *url.URL) string { return strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")) }

func portOf(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	return map[string]int{"http": 80, "https": 443}[u.Scheme]
}

// allowsHost reports whether one of some patterns is the host or a domain above it.
func allowsHost(patterns []string, host string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		domain, below := strings.CutPrefix(pattern, "*")
		return !below && strings.Trim(pattern, "[]") == host || below && strings.HasSuffix(host, domain) && host != domain[1:]
	})
}

func anyMatches(patterns []string, text string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, text) })
}

// matches reports whether a pattern, with * for any text and ? for any byte, matches the whole text. Its time is at
// most the product of both lengths.
func matches(pattern, text string) bool {
	p, t, star, from := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p, t = p+1, t+1
		case star >= 0: // let the latest star stand for one byte more
			from++
			p, t = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// orNone lists a few patterns for a message.
func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	const most = 3
	shown := make([]string, 0, most)
	for _, pattern := range list[:min(len(list), most)] {
		shown = append(shown, input.Clip(pattern))
	}
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(shown, ", "), more)
	}
	return strings.Join(shown, ", ")
}
