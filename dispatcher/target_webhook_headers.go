package dispatcher

import (
	"strings"

	"golang.org/x/net/http/httpguts"
)

// checkHeaders applies RFC 9110, section 5, and our bounds; also reports further reserved headers.
// Values are never echoed, because they may be credentials.
func checkHeaders(problems *Problems, path string, headers map[string]string, also func(lower string) bool) {
	if len(headers) > maxHeaders {
		problems.Add(path, CodeHeaderSize, "%d headers are given; the maximum is %d", len(headers), maxHeaders)
		return
	}
	folded := map[string]string{}
	for _, name := range sortedKeys(headers) {
		at := path + Pointer(name)
		lower := strings.ToLower(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			problems.Add(at, CodeHeaderName, "header name %s is not a token of letters, digits and !#$%%&'*+-.^_`|~", Echo(name))
		case reservedHeader(lower) || also(lower):
			problems.Add(at, CodeHeaderReserved, "header %s is set by Carillon or by HTTP itself; remove it", Echo(name))
		case folded[lower] != "":
			problems.Add(at, CodeHeaderName, "header %s is given twice, also as %s; case does not matter", Echo(name), Echo(folded[lower]))
		}
		folded[lower] = name
		switch value := headers[name]; {
		case len(value) > maxHeaderValue:
			problems.Add(at, CodeHeaderSize, "value of header %s has %d bytes; the maximum is 8 KiB", Echo(name), len(value))
		case !httpguts.ValidHeaderFieldValue(value):
			problems.Add(at, CodeHeaderValue, "value of header %s holds a control character such as CR, LF or NUL", Echo(name))
		}
	}
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
