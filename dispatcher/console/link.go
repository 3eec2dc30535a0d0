package console

import (
	"html/template"
	"net/url"
	"regexp"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// link returns the relative URL of a page: link("apps", app, "jobs", job). Without segments it is that of the first page.
func (v *visit) link(segments ...string) string {
	var b strings.Builder
	b.WriteString(v.root())
	for i, segment := range segments {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(url.PathEscape(segment))
	}
	return b.String()
}

// linkQuery returns the relative URL of a page with a query.
func (v *visit) linkQuery(q url.Values, segments ...string) string {
	if len(q) == 0 {
		return v.link(segments...)
	}
	return v.link(segments...) + "?" + kit.Encoded(q)
}

// root returns the relative URL of the console: it holds below any path at which a proxy shows it.
func (v *visit) root() string {
	below, found := strings.CutPrefix(v.URL.EscapedPath(), base)
	if !found {
		return strings.TrimPrefix(base, "/")
	}
	if up := strings.Repeat("../", strings.Count(below, "/")); up != "" {
		return up
	}
	return "./" // so that a colon in what follows makes no scheme of it
}

// here returns this page below the console, with its query, as link would not: it is the next of a login.
func (v *visit) here() string {
	here := strings.TrimPrefix(v.URL.EscapedPath(), base)
	if v.URL.RawQuery != "" {
		here += "?" + v.URL.RawQuery
	}
	return here
}

// next returns the URL for what here returned of an earlier page; that of the first page if it is anything else.
func (v *visit) next(text string) string {
	if !isNext(text) {
		text = ""
	}
	return v.root() + text
}

// elsewhere matches paths that lead out of the console, or to its login.
var elsewhere = regexp.MustCompile(`^/|//|\\|(^|/)\.\.?(/|$)|^log(in|out)`)

// isNext tells whether text can be a page below the console. A browser reads a backslash as a slash, and leaves out some bytes.
func isNext(text string) bool {
	if text == "" || len(text) > maxQuery || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme+u.Opaque+u.Host+u.Fragment == "" && u.User == nil && !elsewhere.MatchString(u.Path)
}

// runHTML returns a link to a run.
func (v *visit) runHTML(id string) template.HTML {
	if id == "" {
		return kit.None
	}
	return kit.Markup(`<a class="run" href="`, v.link("runs", id), `">`, id, `</a>`)
}
