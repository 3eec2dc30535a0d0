package dispatcher

import (
	"cmp"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// maxHashKey bounds the templates of hash keys that are read, in bytes: 1024 characters.
const maxHashKey = 4 << 10

// URL returns the URL of a request to an endpoint of g: the URL of the endpoint, the path of the group and path, which is
// empty or begins with / or ?. Where two of them meet, there is one slash. What nothing follows stays as it is written.
func (g EndpointGroup) URL(endpoint StaticEndpoint, path string) string {
	return joinPath(joinPath(endpoint.URL, g.Path), path)
}

func joinPath(base, path string) string {
	if strings.HasPrefix(path, "/") {
		return strings.TrimSuffix(base, "/") + path
	}
	return base + path
}

// GroupRequest returns what an attempt of a group target sends to whichever endpoint is chosen, with templates filled in.
// The URL of w stands for any endpoint; path is what follows that of the chosen one. The error is a *TemplateError.
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

// HashKey returns what consistent_hash hashes for an attempt of a group target. The error is a *TemplateError.
func (c Call) HashKey() (string, error) {
	switch target := c.Target.Group; {
	case target.HashKey == "":
		return c.App + "/" + c.Job, nil
	case c.Templates == nil || c.Templates.hashKey == nil:
		return target.HashKey, nil
	}
	return c.filledInHashKey()
}

// filledInHashKey is HashKey for a template. It is a separate method for the reason that filledIn is one.
func (c Call) filledInHashKey() (string, error) {
	key, fits := c.Templates.hashKey.render(&c, input.MaxPayload, false)
	if !fits {
		var problems input.Problems
		problems.Add("/hash_key", input.CodePayloadTooLarge, "hash key has more than 256 KiB once its template is filled in")
		return "", &TemplateError{problems}
	}
	return key, nil
}

func (g *GroupTarget) checkHashKey(problems *input.Problems) {
	input.CheckText(problems, "/hash_key", g.HashKey)
	if isTemplate(g.HashKey) && len(g.HashKey) <= maxHashKey {
		parseTemplate(problems, "/hash_key", g.HashKey, g.hashKeyFields())
	}
}

// hashKeyFields are the fields that the template of the hash key may use.
func (g *GroupTarget) hashKeyFields() []string {
	if g.Callback == nil {
		return TemplateFields
	}
	return withCallbackURL(TemplateFields)
}
