package target

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/idna"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Webhook is an HTTP request to send.
type Webhook struct {
	// URL is absolute, http or https, of at most 2048 characters. Its path and query may be templates.
	URL string `json:"url" schema:"required,max=2048"`
	// Method is GET, POST, PUT, PATCH, DELETE or HEAD; empty means POST.
	Method string `json:"method,omitempty" schema:"enum=GET|HEAD|POST|PUT|PATCH|DELETE"`
	// Headers are sent with the request: at most 50, each value at most 8 KiB. Values may be templates.
	Headers map[string]string `json:"headers,omitempty" schema:"each_max=8192,max=50"`
	// Body is a template that replaces the payload; it and its result have at most MaxPayload bytes. If empty, the
	// payload is the body.
	Body string `json:"body,omitempty" schema:"max=262144"`
	// Timeout bounds one attempt from dialling to the last byte; 0 means 30s.
	Timeout input.Duration `json:"timeout,omitempty"`
	// Signing signs the requests, unless it is nil.
	Signing *Signing `json:"signing,omitempty"`
	// Auth authenticates the requests, unless it is nil.
	Auth *Auth `json:"auth,omitempty"`
	// TLS tunes https connections; nil means the defaults of the node's system.
	TLS *TLS `json:"tls,omitempty"`
	// SuccessCodes are the statuses that count as success; nil means 2xx. An empty list is refused.
	SuccessCodes []SuccessCode `json:"success_codes,omitzero" schema:"max=20"`
	// ExpectBody is a regular expression (RE2) that the body of a successful response must match.
	ExpectBody string `json:"expect_body,omitempty" schema:"max=1024"`
	// CloudEvents makes each request a CloudEvent.
	CloudEvents CloudEvents `json:"cloud_events,omitempty"`
	// Callback lets the target respond 202 and finish later; if nil, 202 is a success.
	Callback *CallbackPolicy `json:"callback,omitempty"`
	// TraceContext sends the W3C trace context of the attempt as header traceparent.
	TraceContext bool `json:"trace_context,omitempty"`
}

// DefaultTimeout bounds an attempt if the job names no timeout.
const DefaultTimeout = input.Duration(30 * time.Second)

// Bounds of a webhook. They apply to templates and to their results.
const (
	maxURL         = 2048 // characters
	maxHeaders     = 50
	maxHeaderValue = 8 << 10 // bytes
)

// Methods are the HTTP methods a webhook may use.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

func (w Webhook) timeout() time.Duration { return cmp.Or(w.Timeout, DefaultTimeout).Std() }

// SetDefaults gives a decoded webhook the values of fields that its JSON leaves out.
func (w *Webhook) SetDefaults() {
	w.Method = "POST"
	w.Timeout = DefaultTimeout
}

// Validate returns everything wrong with w, as Problems with JSON pointers, or nil.
func (w Webhook) Validate() error { return w.validate(sampleCall(nil)) }

// validate is Validate with the call that templates are tried with.
func (w Webhook) validate(sample Call) error {
	var problems input.Problems
	if !isTemplate(w.URL) {
		checkURL(&problems, "/url", w.URL)
	}
	if !slices.Contains(Methods, w.Method) {
		problems.Add("/method", input.CodeMethodUnknown, "method %s is %s", input.Echo(w.Method), input.NotOneOf(w.Method, Methods))
	}
	w.Timeout.CheckRange(&problems, "/timeout", input.MinDuration, input.MaxDuration)
	checkHeaders(&problems, "/headers", w.Headers, w.setsHeader)
	w.Signing.check(&problems, "/signing")
	w.Auth.check(&problems, "/auth", w.checkTemplates(&problems, sample))
	w.TLS.check(&problems, "/tls")
	w.checkExpectations(&problems)
	w.Callback.check(&problems, "/callback")
	if w.CloudEvents != "" {
		input.CheckEnum(&problems, "/cloud_events", "mode", w.CloudEvents, CloudEventsModes)
	}
	if w.CloudEvents == CloudEventsStructured && w.sendsNoBody() {
		problems.Add("/cloud_events", input.CodeBodyMethod, "method %s sends no body, which a structured event needs; use binary, or POST",
			w.Method)
	}
	return problems.Err()
}

// setsHeader reports whether the webhook itself sets a header, given in lower case.
func (w Webhook) setsHeader(lower string) bool {
	return w.CloudEvents != "" && strings.HasPrefix(lower, "ce-") ||
		w.CloudEvents == CloudEventsStructured && lower == "content-type" || w.Auth.setsHeader(lower)
}

func (w *Webhook) kind() Kind { return KindWebhook }

func (w *Webhook) host() (name string, atOnce int) { return hostOf(w.URL), 0 }

// origin cuts the origin out of the text of the URL, so that every text has one, valid or not.
func (w *Webhook) origin() string {
	scheme, host, _ := strings.Cut(strings.ToLower(w.URL), "://")
	if end := strings.IndexAny(host, `/?#\`); end >= 0 {
		host = host[:end]
	}
	switch scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return scheme + "://" + host
}

// warn warns of a secret that is sent in plain text, and of a body or payload that is not sent.
func (w *Webhook) warn(payload json.RawMessage, problems *input.Problems) {
	w.warnOfBody(payload, problems)
	if w.Auth != nil && w.Auth.SigV4 == nil && w.isPlain() {
		problems.Add("/target/webhook/auth", input.CodeAuthPlaintext, "the URL is http, so the secret can be read on the way; use https")
	}
	w.Auth.oauth2().warn(problems, "/target/webhook/auth/oauth2")
}

// isPlain reports whether requests travel unencrypted. Requests to the node's own machine do not travel.
func (w *Webhook) isPlain() bool {
	u, err := url.Parse(w.URL)
	if err != nil || !strings.EqualFold(u.Scheme, "http") {
		return false
	}
	host := strings.ToLower(u.Hostname())
	if addr, err := netip.ParseAddr(host); err == nil {
		return !addr.Unmap().IsLoopback()
	}
	return !loopbackName(host)
}

// loopbackName reports whether a name, in lower case, stands for the node itself (RFC 6761, section 6.3).
func loopbackName(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// warnOfBody adds a warning about a body or payload that is not sent.
func (w *Webhook) warnOfBody(payload json.RawMessage, problems *input.Problems) {
	if w.sendsNoBody() && w.Body != "" {
		problems.Add("/target/webhook/body", input.CodeBodyMethod, "method %s sends no body, so this one is not sent; use POST, PUT or PATCH",
			w.Method)
	}
	var wrong input.Problems
	templates := w.templates(&wrong)
	switch used := templates.any(func(t *template) bool { return t.payload }); {
	case len(wrong) > 0 || len(payload) == 0 || used:
	case w.Body != "":
		problems.Add("/payload", input.CodePayloadUnused,
			"the payload is not sent, because the webhook has a body and no template that uses the payload; "+
				"write {{json .Payload}} where it belongs, or remove it")
	case w.sendsNoBody():
		problems.Add("/payload", input.CodeBodyMethod, "method %s sends no body, so the payload is not sent; use POST, PUT or PATCH", w.Method)
	}
}

// sendsNoBody reports whether requests with the webhook's method have no body.
func (w Webhook) sendsNoBody() bool {
	return w.Method == "GET" || w.Method == "HEAD"
}

// BodyOf returns the request body for payload: none for GET and HEAD.
func (w Webhook) BodyOf(payload []byte) []byte {
	if w.sendsNoBody() {
		return nil
	}
	return payload
}

// checkHeaders applies RFC 9110, section 5, and our bounds; also reports further reserved headers.
// Values are never echoed, because they may be credentials.
func checkHeaders(problems *input.Problems, path string, headers map[string]string, also func(lower string) bool) {
	if len(headers) > maxHeaders {
		problems.Add(path, input.CodeHeaderSize, "%d headers are given; the maximum is %d", len(headers), maxHeaders)
		return
	}
	folded := map[string]string{}
	for _, name := range input.SortedKeys(headers) {
		at := path + input.Pointer(name)
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			problems.Add(at, input.CodeHeaderName, "header name %s is not a token of letters, digits and !#$%%&'*+-.^_`|~", input.Echo(name))
		case reservedHeader(lower) || also(lower), reservedHeader(foldHeader(lower)) || also(foldHeader(lower)):
			problems.Add(at, input.CodeHeaderReserved, "header %s is set by Carillon or by HTTP itself; remove it", input.Echo(name))
		case folded[lower] != "":
			problems.Add(at, input.CodeHeaderName, "header %s is given twice, also as %s; case does not matter", input.Echo(name),
				input.Echo(folded[lower]))
		}
		folded[lower] = name
		switch value := headers[name]; {
		case len(value) > maxHeaderValue:
			problems.Add(at, input.CodeHeaderSize, "value of header %s has %d bytes; the maximum is 8 KiB", input.Echo(name), len(value))
		case !httpguts.ValidHeaderFieldValue(value):
			problems.Add(at, input.CodeHeaderValue, "value of header %s holds a control character such as CR, LF or NUL", input.Echo(name))
		}
	}
}

// foldHeader returns a header name with - for each character that is not a letter or digit. CGI, WSGI and PHP give
// programs X_A and X.A under the same name as X-A (RFC 3875, section 4.1.18), so one could pass for another.
func foldHeader(lower string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, lower)
}

// reservedHeader reports whether a user may not set a header: headers that frame the request, headers
// that identify it, and the two names that make Go's client resend a request.
func reservedHeader(lower string) bool {
	switch lower {
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
		"proxy-authorization", "proxy-connection", "expect", "user-agent", "traceparent", "tracestate",
		"idempotency-key", "x-idempotency-key":
		return true
	}
	return strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "carillon-")
}

// checkURL never echoes the URL: it may contain a password or a key.
func checkURL(problems *input.Problems, path, text string) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		problems.Add(path, input.CodeURLTooLong, "URL has %d characters; the maximum is %d", len(text), maxURL)
	case text == "":
		problems.Add(path, input.CodeRequired, "URL is empty; write it as https://host/path")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		problems.Add(path, input.CodeURLSyntax, "URL holds a space or control character; percent-encode it")
	case !validPort(text):
		problems.Add(path, input.CodeURLPort, "the port is not a plain number from 1 to 65535; if you name none, leave out the colon, too")
	case err != nil:
		problems.Add(path, input.CodeURLSyntax, "URL cannot be parsed; write it as https://host/path")
	default:
		checkURLParts(problems, path, text, u)
	}
}

func checkURLParts(problems *input.Problems, path, text string, u *url.URL) {
	if u.User != nil {
		problems.Add(path, input.CodeURLUserinfo, "URL carries a user name or password; send it as a header instead")
	}
	switch {
	case u.Scheme == "":
		problems.Add(path, map[bool]string{true: input.CodeURLScheme, false: input.CodeURLHost}[u.Host == ""],
			"URL has no scheme; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		problems.Add(path, input.CodeURLScheme, "URL scheme %s is not http or https", input.Echo(u.Scheme))
	case !ascii(u.Hostname()):
		checkUnicodeHost(problems, path, u.Hostname())
	case !validHost(u):
		problems.Add(path, input.CodeURLHost, "URL has no valid host; write it as https://host/path")
	case neverCalledHost(u.Hostname()):
		problems.Add(path, input.CodeEgressDenied, "host %s is never called: it is reserved, or a cloud serves metadata and "+
			"credentials there", input.Echo(u.Hostname()))
	case OddAddress(u.Hostname()):
		problems.Add(path, input.CodeEgressDenied, "host %s is an address in an ambiguous form; write it as 192.0.2.1", input.Echo(u.Hostname()))
	}
	if u.Fragment != "" || strings.HasSuffix(text, "#") {
		problems.Add(path, input.CodeURLFragment, "URL has a fragment, which is never sent; remove the part from # on")
	}
}

// validPort reports whether a URL has no port or a plain one. net/url accepts an empty port and leading zeros, which
// servers and proxies read in different ways.
func validPort(text string) bool {
	_, authority, found := strings.Cut(text, "//")
	if !found {
		return true
	}
	if end := strings.IndexAny(authority, `/?#\`); end >= 0 {
		authority = authority[:end]
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	authority = authority[strings.LastIndexByte(authority, ']')+1:]
	_, port, given := strings.Cut(authority, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	return !given || err == nil && n > 0 && port[0] != '0'
}

// checkUnicodeHost refuses a host that is not ASCII. Programs may read it as different names or addresses, and it may
// look like another one.
func checkUnicodeHost(problems *input.Problems, path, host string) {
	name, err := idna.Lookup.ToASCII(host)
	if err != nil {
		problems.Add(path, input.CodeURLHost, "host %s holds characters that no host name has; write it in ASCII", input.Echo(host))
		return
	}
	if _, err := netip.ParseAddr(name); err == nil || OddAddress(name) || neverCalledHost(name) {
		problems.Add(path, input.CodeEgressDenied, "host %s is an address or a reserved name, %s, in characters that only look like it",
			input.Echo(host), input.Echo(name))
		return
	}
	problems.Add(path, input.CodeURLHost, "host %s is not ASCII; write its punycode form, %s", input.Echo(host), input.Echo(name))
}

func ascii(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// validHost checks the host by RFC 1123, section 2.1.
func validHost(u *url.URL) bool {
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || !validPunycode(label) {
			return false
		}
		if strings.ContainsAny(label, "%:/?#[]@!$&'()*+,;=\"<>\\^`{|}") {
			return false
		}
	}
	return true
}

// validPunycode reports whether a label is not punycode, or is the only spelling of a Unicode label.
func validPunycode(label string) bool {
	lower := strings.ToLower(label)
	if !strings.HasPrefix(lower, "xn--") {
		return true
	}
	unicode, err := idna.Lookup.ToUnicode(lower)
	return err == nil && !ascii(unicode)
}

func neverCalledHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && NeverCalled(addr) || MetadataName(host)
}
