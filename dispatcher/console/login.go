package console

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// loginPage is the page on which people sign in.
type loginPage struct {
	// Next is the page that they want to open.
	Next string
	// OIDC means that they can sign in with the issuer.
	OIDC bool
	// Ended means that they sent a form after their session had ended.
	Ended bool
}

// askLogin sends a person without a session to the login, and back afterwards.
func (v *visit) askLogin() {
	if v.cannotSignIn() {
		return
	}
	q := url.Values{}
	next := v.here()
	if v.Method == http.MethodPost {
		next = v.formPage()
		q.Set("ended", "true")
	}
	if isNext(next) {
		q.Set("next", next)
	}
	v.redirect(v.linkQuery(q, "login"))
}

// formPage returns the console's page that sent a form, with its query; empty: the browser does not send it, or it is a
// page of another site.
func (v *visit) formPage() string {
	from, err := url.Parse(v.Referer())
	if err != nil || from.Host != v.Host {
		return ""
	}
	below, found := strings.CutPrefix(v.console.local(from.EscapedPath()), base)
	if !found {
		return ""
	}
	if from.RawQuery != "" {
		below += "?" + from.RawQuery
	}
	return below
}

func (c *Console) showLogin(v *visit) {
	if v.cannotSignIn() {
		return
	}
	if found, err := v.findSession(); err == nil && found {
		v.redirect(v.next(v.query("next")))
		return
	}
	v.render("login", content{Data: v.loginPage(v.query("next"))})
}

func (v *visit) loginPage(next string) loginPage {
	if !isNext(next) {
		next = ""
	}
	return loginPage{Next: next, OIDC: v.console.opts.Login != nil, Ended: v.query("ended") == "true"}
}

// login signs in with an API token, which is checked by the API and not kept.
func (c *Console) login(v *visit) {
	if !v.readForm() {
		return
	}
	token, err := v.ownToken(strings.TrimSpace(v.PostForm.Get("token")))
	if err == nil {
		err = v.begin(token, "")
	}
	if err != nil {
		v.failLogin(err)
		return
	}
	v.redirect(v.next(v.PostForm.Get("next")))
}

func (v *visit) failLogin(err error) {
	if failure := v.databaseFailure(err); failure != nil {
		v.showOutage(failure)
		return
	}
	problem := v.problemOf(err)
	v.problem = &problem
	v.render("login", content{Data: v.loginPage(v.FormValue("next")), Status: problem.Status})
}

// ownToken gets the owner of a token from the API, for a login.
func (v *visit) ownToken(secret string) (access.APIToken, error) {
	var none access.APIToken
	refused := &pageError{status: http.StatusUnauthorized, key: "login.refused"}
	if secret == "" || len(secret) > 256 || strings.Count(secret, ".") == 2 {
		return none, refused
	}
	asked, err := v.newClient(v.console.opts.API.Bearer(v.Request), secret)
	if err != nil {
		return none, err
	}
	token, err := asked.OwnToken(v.Context())
	if problem, is := errors.AsType[*client.Error](err); is && problem.Status == http.StatusUnauthorized {
		return none, refused
	}
	return token, err
}

// logout ends the session, or with everywhere=true all of the same person.
func (c *Console) logout(v *visit) {
	if !v.readForm() {
		return
	}
	found, err := v.findSession()
	switch {
	case err == nil && found && v.PostForm.Get("everywhere") == "true":
		_, err = c.opts.Sessions.EndSessions(v.Context(), v.token.ID, v.by())
	case err == nil && found:
		err = c.opts.Sessions.EndSession(v.Context(), v.session.ID, v.by())
	}
	if err != nil {
		v.fail(err)
		return
	}
	v.setCookie(sessionCookie, "", 0)
	v.w.Header().Set("Clear-Site-Data", `"cache"`)
	v.redirect(v.link("login"))
}

// loginLife is how long a login at the issuer may take.
const loginLife = 10 * time.Minute

// pendingLogin is a login at the issuer that has begun. It waits in a cookie of this host, which no script can read. It
// needs no signature: its values count only with those from the issuer, and next is checked when it is used.
type pendingLogin struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"to"`
}

// beginOIDC sends the browser to the issuer. It is a link, and not a form, because browsers refuse a form that
// redirects to another site; it changes only a cookie.
func (c *Console) beginOIDC(v *visit) {
	if c.opts.Login == nil || c.opts.URL == nil {
		v.fail(notFound("page", v.URL.Path))
		return
	}
	// RFC 7636 requires 43 characters or more in a verifier.
	pending := pendingLogin{State: rand.Text(), Nonce: rand.Text(), Verifier: rand.Text() + rand.Text()}
	if next := v.query("next"); isNext(next) && len(next) <= 1<<10 {
		pending.Next = next
	}
	raw, err := json.Marshal(pending)
	if err != nil {
		v.fail(err)
		return
	}
	to, err := c.opts.Login.Begin(v.Context(), c.loginRequest(pending), v.Now)
	if err != nil {
		v.failOIDC(err)
		return
	}
	v.setCookie(loginCookie, base64.RawURLEncoding.EncodeToString(raw), loginLife)
	v.redirect(to)
}

func (c *Console) loginRequest(p pendingLogin) access.LoginRequest {
	return access.LoginRequest{
		State: p.State, Nonce: p.Nonce, Verifier: p.Verifier, Callback: c.opts.URL.String() + base + "login/callback",
	}
}

// finishOIDC signs in the person whom the issuer sends back.
func (c *Console) finishOIDC(v *visit) {
	if c.opts.Login == nil || c.opts.URL == nil {
		v.fail(notFound("page", v.URL.Path))
		return
	}
	var pending pendingLogin
	if raw, err := base64.RawURLEncoding.DecodeString(v.cookie(loginCookie)); err == nil {
		_ = json.Unmarshal(raw, &pending) // without it there is no state, and the login is refused
	}
	v.setCookie(loginCookie, "", 0) // it is used once
	identity, err := c.opts.Login.Finish(v.Context(), c.loginRequest(pending), v.URL.Query(), v.Now)
	if err != nil {
		v.failOIDC(err)
		return
	}
	ends := v.Now.Add(access.SessionLife) // the ID token itself is only for the login
	identity.ExpiresAt = &ends
	if err := v.begin(identity, c.opts.Login.Rules()); err != nil {
		v.failLogin(err)
		return
	}
	v.redirect(v.next(pending.Next))
}

// failOIDC shows the login again, with the reason why the issuer's did not succeed.
func (v *visit) failOIDC(err error) {
	if refused, is := errors.AsType[interface {
		error
		BadToken() string
	}](err); is {
		if wait := v.console.opts.API.AdmitUnknown(v.Request, v.Now); wait > 0 {
			v.limited(wait)
			return
		}
		v.console.log.WarnContext(v.Context(), "login refused", "reason", strings.ToValidUTF8(refused.BadToken(), "?"), "request_id", v.id,
			"address", v.RemoteAddr)
		err = &pageError{status: http.StatusForbidden, key: "login.oidc_refused", values: []any{"why", refused.BadToken()}}
	} else {
		v.console.log.WarnContext(v.Context(), "login at the issuer failed", "request_id", v.id, "err", err)
		err = &pageError{status: http.StatusBadGateway, key: "login.oidc_failed"}
	}
	v.failLogin(err)
}
