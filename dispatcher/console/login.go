package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
)

// loginPage is the page on which people sign in.
type loginPage struct {
	// Next is where they want to go.
	Next string
	// OIDC tells that they can sign in with the issuer.
	OIDC bool
	// Ended tells that they sent a form after their session had ended.
	Ended bool
}

// askLogin sends somebody without a session to the login, and back afterwards.
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

// formPage returns the page below the console from which a form comes, with its query; empty: the browser does not tell, or it is
// a page of another site.
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

// failLogin shows the login again.
func (v *visit) failLogin(err error) {
	if v.databaseAway(err) {
		v.showOutage(err)
		return
	}
	problem := v.problemOf(err)
	v.problem = &problem
	v.render("login", content{Data: v.loginPage(v.FormValue("next")), Status: problem.Status})
}

// ownToken asks the API whose token it is that somebody signs in with.
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
