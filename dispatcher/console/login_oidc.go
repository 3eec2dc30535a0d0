package console

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
)

// loginLife is how long a login at the issuer may take.
const loginLife = 10 * time.Minute

// pendingLogin is a login at the issuer that has begun. It waits in a cookie of this host, which no script can read. A signature
// would add nothing: its values count only with those that come back from the issuer, and next is checked when it is used.
type pendingLogin struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Next     string `json:"to"`
}

// beginOIDC sends the browser to the issuer. It is a link, and no form, because browsers refuse a form that another site
// redirects to; it changes nothing but a cookie.
func (c *Console) beginOIDC(v *visit) {
	if c.opts.Login == nil || c.opts.URL == nil {
		v.fail(notFound("page", v.URL.Path))
		return
	}
	// RFC 7636 wants 43 characters or more in a verifier.
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
	v.setCookie(loginCookie, "", 0) // it serves once
	identity, err := c.opts.Login.Finish(v.Context(), c.loginRequest(pending), v.URL.Query(), v.Now)
	if err != nil {
		v.failOIDC(err)
		return
	}
	ends := v.Now.Add(access.SessionLife) // the ID token itself is for the login only
	identity.ExpiresAt = &ends
	if err := v.begin(identity, c.opts.Login.Rules()); err != nil {
		v.failLogin(err)
		return
	}
	v.redirect(v.next(pending.Next))
}

// failOIDC shows the login again, with why the issuer's did not succeed.
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
