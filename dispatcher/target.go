package dispatcher

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Target is what a run calls. Exactly one of its fields is set.
type Target struct {
	Webhook *Webhook `json:"webhook,omitempty"`
}

// Webhook is an HTTP request to make.
type Webhook struct {
	// URL is absolute, http or https, of at most 2048 characters.
	URL string `json:"url"`
	// Method is GET, POST, PUT, PATCH, DELETE or HEAD; empty means POST.
	Method string `json:"method,omitempty"`
	// Headers are sent with the request: at most 50, each value at most 8 KiB.
	Headers map[string]string `json:"headers,omitempty"`
	// Timeout bounds one attempt from dialling to the last byte; 0 means 30s.
	Timeout Duration `json:"timeout,omitempty"`
}

// DefaultTimeout bounds an attempt whose job names no timeout.
const DefaultTimeout = Duration(30 * time.Second)

// Methods are the HTTP methods a webhook may use.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// SetDefaults gives a decoded webhook the values of fields that its JSON leaves out.
func (w *Webhook) SetDefaults() {
	w.Method = "POST"
	w.Timeout = DefaultTimeout
}

// Validate returns everything wrong with t, as Faults with JSON pointers, or nil.
func (t Target) Validate() error {
	var faults Faults
	if t.Webhook == nil {
		faults.Add("/webhook", CodeRequired, "target names nothing to call; give it a webhook")
		return faults
	}
	w := t.Webhook
	checkURL(&faults, "/webhook/url", w.URL)
	if !slices.Contains(Methods, w.Method) {
		faults.Add("/webhook/method", CodeMethodUnknown, "method %s is not one of %s", Echo(w.Method), strings.Join(Methods, ", "))
	}
	w.Timeout.check(&faults, "/webhook/timeout", MinDuration, MaxDuration)
	checkHeaders(&faults, "/webhook/headers", w.Headers)
	return faults.Err()
}

// sendsNoBody tells the methods whose requests carry no payload.
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

// checkURL never echoes the URL: it may hold a password or a key.
func checkURL(faults *Faults, path, text string) {
	const most = 2048
	if len(text) > most {
		faults.Add(path, CodeURLTooLong, "URL has %d characters; the maximum is %d", len(text), most)
		return
	}
	if text == "" {
		faults.Add(path, CodeRequired, "URL is empty; write it as https://host/path")
		return
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		faults.Add(path, CodeURLSyntax, "URL holds a space or control character; percent-encode it")
		return
	}
	u, err := url.Parse(text)
	if err != nil {
		faults.Add(path, CodeURLSyntax, "URL cannot be parsed; write it as https://host/path")
		return
	}
	if u.User != nil {
		faults.Add(path, CodeURLUserinfo, "URL carries a user name or password; send it as a header instead")
	}
	switch {
	case u.Scheme == "" && u.Host != "":
		faults.Add(path, CodeURLHost, "URL has no scheme; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		faults.Add(path, CodeURLScheme, "URL scheme %s is not http or https", Echo(u.Scheme))
	case !validHost(u):
		faults.Add(path, CodeURLHost, "URL has no valid host; write it as https://host/path")
	case linkLocal(u.Hostname()):
		faults.Add(path, CodeEgressDenied, "host %s is link-local, where clouds keep their metadata and credentials; it is never called", u.Hostname())
	}
	if u.Fragment != "" || strings.HasSuffix(text, "#") {
		faults.Add(path, CodeURLFragment, "URL has a fragment, which is never sent; remove the part from # on")
	}
}

// validHost checks the host by the rules of RFC 1123, section 2.1, and the port's range.
func validHost(u *url.URL) bool {
	if port := u.Port(); port != "" && (len(port) > 5 || len(port) == 5 && port > "65535" || strings.Trim(port, "0") == "") {
		return false
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' || strings.EqualFold(label, "xn--") {
			return false
		}
		if strings.ContainsAny(label, "%:/?#[]@!$&'()*+,;=\"<>\\^`{|}") {
			return false
		}
	}
	return true
}

func linkLocal(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLinkLocalUnicast()
}

// checkHeaders applies RFC 9110, section 5, and our bounds. Values are never echoed: they
// may be credentials.
func checkHeaders(faults *Faults, path string, headers map[string]string) {
	const most, mostBytes = 50, 8 << 10
	if len(headers) > most {
		faults.Add(path, CodeHeaderSize, "%d headers are given; the maximum is %d", len(headers), most)
		return
	}
	folded := map[string]string{}
	for _, name := range sortedKeys(headers) {
		at := path + Pointer(name)
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			faults.Add(at, CodeHeaderName, "header name %s is not a token of letters, digits and !#$%%&'*+-.^_`|~", Echo(name))
		case reservedHeader(lower):
			faults.Add(at, CodeHeaderReserved, "header %s is set by Carillon or by HTTP itself; remove it", Echo(name))
		case folded[lower] != "":
			faults.Add(at, CodeHeaderName, "header %s is given twice, as %s too; names do not differ by case", Echo(name), Echo(folded[lower]))
		}
		folded[lower] = name
		switch value := headers[name]; {
		case len(value) > mostBytes:
			faults.Add(at, CodeHeaderSize, "value of header %s has %d bytes; the maximum is 8 KiB", Echo(name), len(value))
		case !httpguts.ValidHeaderFieldValue(value):
			faults.Add(at, CodeHeaderValue, "value of header %s holds a control character such as CR, LF or NUL", Echo(name))
		}
	}
}

// reservedHeader tells the headers that a user may not set: those that frame the request,
// those that say who it is, and the two names that make Go's client resend a request.
func reservedHeader(lower string) bool {
	switch lower {
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
		"proxy-authorization", "proxy-connection", "expect", "user-agent", "idempotency-key", "x-idempotency-key":
		return true
	}
	return strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "carillon-")
}
