package dispatcher

import (
	"net/netip"
	"net/url"
	"strings"
)

// checkURL never echoes the URL: it may hold a password or a key.
func checkURL(problems *Problems, path, text string) {
	if len(text) > maxURL {
		problems.Add(path, CodeURLTooLong, "URL has %d characters; the maximum is %d", len(text), maxURL)
		return
	}
	if text == "" {
		problems.Add(path, CodeRequired, "URL is empty; write it as https://host/path")
		return
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		problems.Add(path, CodeURLSyntax, "URL holds a space or control character; percent-encode it")
		return
	}
	u, err := url.Parse(text)
	if err != nil {
		problems.Add(path, CodeURLSyntax, "URL cannot be parsed; write it as https://host/path")
		return
	}
	if u.User != nil {
		problems.Add(path, CodeURLUserinfo, "URL carries a user name or password; send it as a header instead")
	}
	switch {
	case u.Scheme == "" && u.Host != "":
		problems.Add(path, CodeURLHost, "URL has no scheme; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		problems.Add(path, CodeURLScheme, "URL scheme %s is not http or https", Echo(u.Scheme))
	case !validHost(u):
		problems.Add(path, CodeURLHost, "URL has no valid host; write it as https://host/path")
	case neverCalledHost(u.Hostname()):
		problems.Add(path, CodeEgressDenied, "host %s is never called: it is reserved, or a cloud serves metadata and "+
			"credentials there", Echo(u.Hostname()))
	case OddAddress(u.Hostname()):
		problems.Add(path, CodeEgressDenied, "host %s is an address in an ambiguous form; write it as 192.0.2.1", Echo(u.Hostname()))
	}
	if u.Fragment != "" || strings.HasSuffix(text, "#") {
		problems.Add(path, CodeURLFragment, "URL has a fragment, which is never sent; remove the part from # on")
	}
}

// validHost checks the host by RFC 1123, section 2.1, and the range of the port.
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

func neverCalledHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && NeverCalled(addr) || MetadataName(host)
}
