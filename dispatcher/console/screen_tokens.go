package console

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// tokensPage is the list of API tokens.
type tokensPage struct {
	Tokens []tokenRow
	More   string
}

type tokenRow struct {
	access.APIToken
	State string
}

func showTokens(v *visit) (content, error) {
	list, err := v.client.Tokens(v.Context(), v.page())
	page := tokensPage{More: v.more(list.Next)}
	for _, token := range list.Items {
		row := tokenRow{token, "valid"}
		if token.Expired(v.Now) {
			row.State = "expired"
		}
		page.Tokens = append(page.Tokens, row)
	}
	return content{Data: page}, err
}

// newTokenPage asks for a token.
type newTokenPage struct{ Scopes []scopeChoice }

type scopeChoice struct {
	Scope   access.Scope
	Checked bool
}

func showNewToken(v *visit) (content, error) {
	page := newTokenPage{}
	for _, scope := range access.Scopes() {
		given := access.APIToken{}
		for _, one := range v.PostForm["scope"] {
			given.Scopes = append(given.Scopes, access.Scope(one))
		}
		page.Scopes = append(page.Scopes, scopeChoice{scope, given.May(scope)})
	}
	return content{Data: page}, nil
}

// secretPage shows the secret of a token, once.
type secretPage struct{ access.IssuedToken }

func createToken(v *visit) (done, error) {
	f := v.fields()
	token := access.APIToken{Name: f.Text("name"), TokenSpec: access.TokenSpec{Description: f.Text("description"), Apps: f.List("apps"),
		ExpiresAt: f.Until("for", v.Now)}}
	for _, scope := range v.PostForm["scope"] {
		token.Scopes = append(token.Scopes, access.Scope(scope))
	}
	input.CheckName(&f.Problems, "/name", token.Name) // it becomes a part of the request's path
	if err := f.Err(); err != nil {
		return done{}, err
	}
	issued, err := v.client.PutToken(v.Context(), token, client.Condition{Absent: true})
	return done{page: "token_secret", content: content{Data: secretPage{issued}}}, err
}

// tokenConfirm asks before something is done to a token. Its revision is sent with the form, so that what happens to the token
// is what the person has seen.
func (v *visit) tokenConfirm(name string, page confirmPage) (content, error) {
	token, err := v.client.Token(v.Context(), v.PathValue("token"))
	if err != nil {
		return content{}, err
	}
	scopes := make([]string, len(token.Scopes))
	for i, scope := range token.Scopes {
		scopes[i] = string(scope)
	}
	apps := strings.Join(token.Apps, ", ")
	if apps == "" {
		apps = v.Texts.Text("tokens.all_apps")
	}
	page.Facts = []fact{v.fact("tokens.scopes", strings.Join(scopes, ", ")), v.fact("tokens.apps", apps)}
	page.Fields = url.Values{"revision": {strconv.FormatInt(token.Revision, 10)}}
	page.Harm, page.Back = true, v.link("tokens")
	return v.confirm(name, page, "token", token.Name), nil
}

func showTokenRotation(v *visit) (content, error) {
	return v.tokenConfirm("token_rotate", confirmPage{Asks: []ask{v.ask("overlap", "token_rotate.overlap", "24h")}})
}

func rotateToken(v *visit) (done, error) {
	f := v.fields()
	rotation := access.TokenRotation{Overlap: f.Duration("overlap")}
	if err := f.Err(); err != nil {
		return done{}, err
	}
	issued, err := v.client.RotateToken(v.Context(), v.PathValue("token"), rotation)
	return done{page: "token_secret", content: content{Data: secretPage{issued}}}, err
}

func showTokenRevocation(v *visit) (content, error) {
	return v.tokenConfirm("token_revoke", confirmPage{})
}

func revokeToken(v *visit) (done, error) {
	name, f := v.PathValue("token"), v.fields()
	revision := f.Number("revision", 0)
	if err := f.Err(); err != nil {
		return done{}, err
	}
	err := v.client.DeleteToken(v.Context(), name, client.Condition{Revision: int64(revision)})
	return done{to: v.link("tokens"), notice: "tokens.notice.revoked", values: []any{"token", name}}, err
}
