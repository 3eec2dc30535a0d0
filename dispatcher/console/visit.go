package console

import (
	"context"
	"crypto/rand"
	"errors"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// visit is one request to the console.
type visit struct {
	*http.Request
	w       http.ResponseWriter
	console *Console
	kit.Reader
	// client and token are those of the session; nil and zero without one.
	client  *client.Client
	token   access.APIToken
	session *access.Session
	theme   string
	// id identifies the request in the log and in the audit log.
	id string
	// problem is the problem with the form that the page shows again; nil: none.
	problem *problemView
	// nodes are the names of the nodes, by id, once a page has shown one.
	nodes map[string]string
}

// visitKey is the context key of a request's visit.
type visitKey struct{}

func visitOf(r *http.Request) *visit { return r.Context().Value(visitKey{}).(*visit) }

// The bounds of a request.
const (
	maxForm  = 64 << 10 // bytes
	maxQuery = 8 << 10  // bytes
)

func (c *Console) visit(w http.ResponseWriter, r *http.Request) *visit {
	v := &visit{w: w, console: c, Reader: kit.Reader{Now: time.Now().UTC()}, id: rand.Text()} //nolint:forbidigo // the console's clock
	v.Request = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	v.Request.Header = r.Header.Clone()
	v.Request.Header.Set("X-Request-Id", v.id) // the API logs the same
	v.Body = http.MaxBytesReader(w, r.Body, maxForm)
	chosen, _ := url.ParseQuery(v.cookie(settingsCookie))
	var browser string
	if told, err := v.Cookie(zoneCookie); err == nil { // by a script, under the same name everywhere
		browser, _ = url.QueryUnescape(told.Value)
	}
	v.Zone = kit.ReadZone(chosen.Get("zone"), browser)
	v.Texts = v.console.languages.Of(chosen.Get("language"), v.Header.Get("Accept-Language"))
	if v.theme = chosen.Get("theme"); !slices.Contains(themes(), v.theme) {
		v.theme = "auto"
	}
	return v
}

// admit makes the checks for all requests, and continues.
func (c *Console) admit(v *visit, serve func()) {
	if c.opts.API != nil { // before that there is nothing to protect
		if wait := c.opts.API.Admit(v.Request, v.Now); wait > 0 {
			v.limited(wait)
			return
		}
	}
	if c.opts.ClientCertificates && (v.TLS == nil || len(v.TLS.VerifiedChains) == 0) {
		v.fail(&pageError{status: http.StatusForbidden, key: "problem.certificate"})
		return
	}
	if len(v.URL.RawQuery) > maxQuery {
		v.fail(&pageError{status: http.StatusRequestURITooLong, key: "problem.query"})
		return
	}
	if err := c.protect.Check(v.Request); err != nil {
		v.fail(&pageError{status: http.StatusForbidden, key: "problem.foreign"})
		return
	}
	serve()
}

// by is the caller of the request, for the audit log.
func (v *visit) by() input.Change {
	address, _, _ := net.SplitHostPort(v.RemoteAddr)
	return input.Change{Actor: v.token.Name, TokenID: v.token.ID, Address: address, RequestID: v.id, Now: v.Now}
}

func (v *visit) query(name string) string { return v.URL.Query().Get(name) }

// readBounds reads the times from and to in the URL, and returns the problems with them. One that is missing, or not a
// time, stays the same.
func (v *visit) readBounds(from, to *time.Time) (problems []string) {
	for _, bound := range []struct {
		field string
		at    *time.Time
	}{{"from", from}, {"to", to}} {
		given := v.query(bound.field)
		if given == "" {
			continue
		}
		at, err := input.ParseInstant(given)
		if err != nil {
			problems = append(problems, bound.field+": "+err.Error())
			continue
		}
		*bound.at = at
	}
	return problems
}

// more returns the URL of this page with another cursor; empty without one.
func (v *visit) more(cursor string) string {
	if cursor == "" {
		return ""
	}
	q := v.URL.Query()
	q.Set("cursor", cursor)
	return v.sameWith(q)
}

// sameWith returns the URL of this page with another query.
func (v *visit) sameWith(q url.Values) string { return "?" + q.Encode() }

// may reports whether the token has a scope for an app; an empty app stands for objects that belong to none.
func (v *visit) may(scope access.Scope, app string) bool {
	return v.token.May(scope) && (len(v.token.Apps) == 0 || slices.Contains(v.token.Apps, app))
}

// permits reports whether the token may use a page or an action.
func (v *visit) permits(needs access.Scope, allApps bool) bool {
	return v.token.May(needs) && (!allApps || len(v.token.Apps) == 0)
}

func (v *visit) serveScreen(s screen) {
	if !v.permits(s.needs, s.allApps) {
		v.fail(&pageError{status: http.StatusForbidden, key: "problem.forbidden", values: []any{"scope", s.needs}})
		return
	}
	shown, err := s.show(v)
	if err != nil {
		v.fail(err)
		return
	}
	if shown.To != "" {
		v.redirect(shown.To)
		return
	}
	v.render(s.name, shown)
}

// serveAction carries out the request of a form, and goes to the next page.
func (v *visit) serveAction(a action) {
	if !v.permits(a.needs, a.allApps) {
		v.fail(&pageError{status: http.StatusForbidden, key: "problem.forbidden", values: []any{"scope", a.needs}})
		return
	}
	if !v.readForm() {
		return
	}
	result, err := a.do(v)
	if err != nil {
		v.failForm(a, err)
		return
	}
	if result.page != "" {
		v.render(result.page, result.content)
		return
	}
	if result.notice != "" {
		v.setNotice(result.notice, result.values)
	}
	v.redirect(result.to)
}

// readForm reads the form as soon as there is a place for it. If it cannot, it shows the reason, and returns false.
func (v *visit) readForm() bool {
	leave, wait := v.console.opts.API.AdmitBody(v.Request, v.token)
	if wait > 0 {
		v.limited(wait)
		return false
	}
	defer leave()
	switch err := v.ParseForm(); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		v.fail(&pageError{status: http.StatusRequestTimeout, key: "problem.form"})
		return false
	case err != nil:
		v.fail(&pageError{status: http.StatusBadRequest, key: "problem.form"})
		return false
	}
	return true
}

// failForm shows the page of an action again, with the problems.
func (v *visit) failForm(a action, err error) {
	at := slices.IndexFunc(v.console.screens, func(s screen) bool { return s.name == a.page })
	if at < 0 || v.databaseFailure(err) != nil {
		v.fail(err)
		return
	}
	s := v.console.screens[at]
	problem := v.problemOf(err)
	v.problem = &problem
	shown, showErr := s.show(v)
	if showErr != nil {
		v.fail(err)
		return
	}
	shown.Status, shown.Refresh = problem.Status, false
	v.render(s.name, shown)
}

// redirect sends the browser to a page of the console; see link.
func (v *visit) redirect(to string) {
	v.w.Header().Set("Location", to)
	v.w.WriteHeader(http.StatusSeeOther)
}

// fields returns the fields of the form of a POST, or of the query of a GET.
func (v *visit) fields() *kit.Fields {
	if v.Method == http.MethodPost {
		return kit.FieldsOf(v.PostForm)
	}
	return kit.FieldsOf(v.URL.Query())
}

// filtered returns a page with a filter that a person has filled in: the page shows the problems with the filter.
func (v *visit) filtered(page content, err error) (content, error) {
	if err == nil {
		return page, nil
	}
	problem := v.problemOf(err)
	if problem.Status != http.StatusBadRequest && problem.Status != http.StatusUnprocessableEntity {
		return page, err
	}
	v.problem = &problem
	page.Status, page.Refresh = problem.Status, false
	return page, nil
}

// link returns the relative URL of a page: link("apps", app, "jobs", job). Without segments it is the first page's.
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

// root returns the relative URL of the console: it works below any path of a proxy.
func (v *visit) root() string {
	below, found := strings.CutPrefix(v.URL.EscapedPath(), base)
	if !found {
		return strings.TrimPrefix(base, "/")
	}
	if up := strings.Repeat("../", strings.Count(below, "/")); up != "" {
		return up
	}
	return "./" // otherwise a colon in the next segment would make it a scheme
}

// here returns this page below the console, with its query, in a form that link cannot give: it is the next of a login.
func (v *visit) here() string {
	here := strings.TrimPrefix(v.URL.EscapedPath(), base)
	if v.URL.RawQuery != "" {
		here += "?" + v.URL.RawQuery
	}
	return here
}

// next returns the URL for a text that here returned on an earlier page; the first page for any other text.
func (v *visit) next(text string) string {
	if !isNext(text) {
		text = ""
	}
	return v.root() + text
}

// elsewhere matches paths that lead out of the console, or to its login.
var elsewhere = regexp.MustCompile(`^/|//|\\|(^|/)\.\.?(/|$)|^log(in|out)`)

// isNext reports whether text can be a page below the console. Browsers read \ as a slash, and leave out some bytes.
func isNext(text string) bool {
	if text == "" || len(text) > maxQuery || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme+u.Opaque+u.Host+u.Fragment == "" && u.User == nil && !elsewhere.MatchString(u.Path)
}

// nodeHTML names a node and links to it; one that is purged, or that the session may not see, is named by its id.
func (v *visit) nodeHTML(id string) template.HTML {
	if v.nodes == nil {
		v.nodes = map[string]string{}
		if len(v.token.Apps) == 0 {
			list, _ := v.client.Nodes(v.Context()) // without it, ids are shown
			for _, node := range list.Items {
				v.nodes[node.ID.String()] = node.Name
			}
		}
	}
	if v.nodes[id] == "" {
		return kit.Markup(`<code>`, id, `</code>`)
	}
	return kit.Markup(`<a href="`, v.link("nodes")+"#node-"+id, `">`, v.nodes[id], `</a>`)
}

func (v *visit) runHTML(id string) template.HTML {
	if id == "" {
		return kit.None
	}
	return kit.Markup(`<a class="run" href="`, v.link("runs", id), `">`, id, `</a>`)
}
