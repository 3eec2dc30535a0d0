package target

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// checkURL never echoes the URL: it may hold a password or a key.
func checkURL(problems *input.Problems, path, text string) {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxURL:
		problems.Add(path, input.CodeURLTooLong, "URL has %d characters; the maximum is %d", len(text), maxURL)
	case text == "":
		problems.Add(path, input.CodeRequired, "URL is empty; write it as https://host/path")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		problems.Add(path, input.CodeURLSyntax, "URL holds a space or control character; percent-encode it")
	case !validPort(writtenPort(text)):
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
	case u.Scheme == "" && u.Host != "":
		problems.Add(path, input.CodeURLHost, "URL has no scheme; write it as https://host/path")
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

// writtenPort returns what follows the colon after the host of a URL, if there is one. net/url takes an empty port and
// leading zeros, which servers and proxies read in different ways.
func writtenPort(text string) (port string, given bool) {
	_, authority, found := strings.Cut(text, "//")
	if !found {
		return "", false
	}
	if end := strings.IndexAny(authority, `/?#\`); end >= 0 {
		authority = authority[:end]
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	authority = authority[strings.LastIndexByte(authority, ']')+1:]
	_, port, given = strings.Cut(authority, ":")
	return port, given
}

func validPort(text string, given bool) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return !given || err == nil && n > 0 && text[0] != '0'
}

// checkUnicodeHost refuses a host that is not ASCII. What name or address it stands for depends on who reads it, and it
// may look like another one.
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

// validPunycode reports whether a label is not punycode, or the one spelling of a Unicode label.
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
