package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/console/kit"
)

// The cookies. The prefix __Host- binds one to this host and to https; a browser refuses it over plain http.
const (
	sessionCookie  = "carillon"
	noticeCookie   = "carillon-notice"
	settingsCookie = "carillon-settings"
	zoneCookie     = "carillon-zone" // set by the script
	loginCookie    = "carillon-login"
	securePrefix   = "__Host-"
)

// secure reports whether the browser reaches the console by https.
func (v *visit) secure() bool {
	return v.TLS != nil || v.console.opts.URL != nil && v.console.opts.URL.Scheme == "https"
}

// cookieName returns the name under which a cookie is set and read; never both.
func (v *visit) cookieName(name string) string {
	if v.secure() {
		return securePrefix + name
	}
	return name
}

// cookie returns the value of a cookie, or an empty text.
func (v *visit) cookie(name string) string {
	if found, err := v.Cookie(v.cookieName(name)); err == nil {
		return found.Value
	}
	return ""
}

// setCookie sets a cookie for some time; an empty value removes it.
func (v *visit) setCookie(name, value string, life time.Duration) {
	set := &http.Cookie{
		Name: v.cookieName(name), Value: value, Path: "/", HttpOnly: true, Secure: v.secure(), SameSite: http.SameSiteLaxMode,
		MaxAge: int(life / time.Second),
	}
	if value == "" {
		set.MaxAge = -1
	}
	http.SetCookie(v.w, set)
}

// signedIn wraps the routes that need a session.
func (c *Console) signedIn(serve func(*visit)) func(*visit) {
	return func(v *visit) {
		switch found, err := v.findSession(); {
		case err != nil:
			v.fail(err)
		case !found:
			v.askLogin()
		default:
			serve(v)
		}
	}
}

func (v *visit) findSession() (found bool, err error) {
	value, err := base64.RawURLEncoding.DecodeString(v.cookie(sessionCookie))
	if err != nil || len(value) != sessionBytes {
		return false, nil // not a cookie of ours
	}
	ctx, cancel := context.WithTimeout(v.Context(), sessionPatience)
	defer cancel()
	// A page that refreshes itself keeps no session alive. Otherwise, a forgotten tab would keep one permanently.
	refreshes := v.Header.Get(refreshHeader) != "" || v.Header.Get("Sec-Fetch-Dest") == "empty"
	session, err := v.console.opts.Sessions.Session(ctx, sha256.Sum256(value), v.Now, !refreshes)
	switch {
	case errors.Is(err, dispatcher.ErrNotFound) || err == nil && !v.rulesHold(session):
		if wait := v.console.opts.API.AdmitUnknown(v.Request, v.Now); wait > 0 {
			return false, &pageError{status: http.StatusTooManyRequests, key: "problem.limited", wait: wait}
		}
		v.setCookie(sessionCookie, "", 0)
		return false, nil
	case err != nil:
		return false, err
	}
	v.session, v.token = &session, session.Token
	v.client, err = v.newClient(v.console.opts.API.As(v.Request, session.Token), "")
	return true, err
}

// refreshHeader is sent by the script with the requests that no person makes.
const refreshHeader = "Carillon-Refresh"

// rulesHold reports whether a session of an identity was permitted by the current rules.
func (v *visit) rulesHold(session access.Session) bool {
	login := v.console.opts.Login
	return session.Rules == "" || login != nil && session.Rules == login.Rules()
}

// newClient returns a client that uses a transport. It does not retry: a person can.
func (v *visit) newClient(transport http.RoundTripper, token string) (*client.Client, error) {
	return client.New("http://console.invalid", token, client.Options{UserAgent: "carillon-console", RetryFor: -1, Transport: transport})
}

// sessionBytes is the size of the secret of a session.
const sessionBytes = 32

// begin signs a person in: with a new secret, whatever cookie the browser had.
func (v *visit) begin(token access.APIToken, rules string) error {
	var secret [sessionBytes]byte
	_, _ = rand.Read(secret[:]) // never fails; see its documentation
	session := access.Session{
		ID: strings.ToLower(rand.Text()), Hash: sha256.Sum256(secret[:]), Token: token, Rules: rules,
		EndsAt: v.Now.Add(access.SessionLife),
	}
	v.token = token
	if err := v.console.opts.Sessions.CreateSession(v.Context(), session, v.by()); err != nil {
		return err
	}
	v.setCookie(sessionCookie, base64.RawURLEncoding.EncodeToString(secret[:]), access.SessionLife)
	return nil
}

// settingsLife is how long a browser keeps a person's choices.
const settingsLife = 365 * 24 * time.Hour

func themes() []string { return []string{"auto", "light", "dark"} }

// settings stores a person's choices, and shows the page again.
func (c *Console) settings(v *visit) {
	if !v.readForm() {
		return
	}
	chosen := url.Values{"zone": {string(v.Zone.Choice)}, "theme": {v.theme}}
	if old, err := url.ParseQuery(v.cookie(settingsCookie)); err == nil && c.languages[old.Get("language")] != nil {
		chosen.Set("language", old.Get("language"))
	}
	if zone := kit.ZoneChoice(v.PostForm.Get("zone")); slices.Contains(kit.ZoneChoices(), zone) {
		chosen.Set("zone", string(zone))
	}
	if theme := v.PostForm.Get("theme"); slices.Contains(themes(), theme) {
		chosen.Set("theme", theme)
	}
	if language := v.PostForm.Get("language"); c.languages[language] != nil {
		chosen.Set("language", language)
	}
	v.setCookie(settingsCookie, chosen.Encode(), settingsLife)
	next := v.PostForm.Get("next")
	if next == "login" {
		v.redirect(v.link("login"))
		return
	}
	v.redirect(v.next(next))
}
