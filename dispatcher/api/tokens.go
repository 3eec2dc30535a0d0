package api

import (
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

func (a *API) listTokens(r *request) (response, error) {
	name := func(token access.APIToken) string { return token.Name }
	return pagedByName(r, name, func(page input.Page) ([]access.APIToken, error) {
		return a.store.Tokens(r.Context(), page)
	})
}

// ownToken returns the token that the request bears.
func (a *API) ownToken(r *request) (response, error) { return response{body: r.Token}, nil }

func (a *API) getToken(r *request) (response, error) {
	token, err := a.store.Token(r.Context(), r.PathValue("token"))
	return response{revision: token.Revision, body: token}, err
}

// putToken creates a token and returns its secret, or changes a token and leaves its secret as it is.
func (a *API) putToken(r *request) (response, error) {
	token := access.APIToken{Name: r.PathValue("token")}
	problems := r.Decode(&token)
	mustMatch(&problems, "/name", token.Name, r.PathValue("token"))
	for i, scope := range token.Scopes {
		if err := r.mayGive(scope); err != nil {
			problems.AddError("/scopes/"+strconv.Itoa(i), err)
		}
	}
	secret, hash := access.NewToken() // of one that is created
	token.ID, token.Hash = access.NewTokenID(), hash
	res, err := put(a, r, token, problems, a.store.PutToken, func(stored access.APIToken) int64 { return stored.Revision })
	if stored, is := res.body.(access.APIToken); is && res.status == http.StatusCreated {
		res = issued(res, stored, secret)
	}
	return res, keepsAdmin(r, err)
}

// issued adds a secret to the response about its token. No cache may keep it.
func issued(res response, token access.APIToken, secret string) response {
	res.body = access.IssuedToken{APIToken: token, Secret: secret}
	res.header = map[string]string{"Cache-Control": "no-store"}
	return res
}

// mayGive refuses a scope that the caller lacks: no token makes one that can do more than itself. Operators, who have admin,
// give export and import to those who move apps.
func (r *request) mayGive(scope access.Scope) error {
	moves := scope == access.ScopeExport || scope == access.ScopeImport
	known := slices.Contains(access.Scopes(), scope) // Validate refuses others
	if r.Token.May(scope) || moves && r.Token.May(access.ScopeAdmin) || !known {
		return nil
	}
	return input.Refuse(input.CodeForbidden, "token %s does not have the scope %s, so it cannot give it; use one that does, "+
		"or the database: carillon token create --database URL", input.Echo(r.Token.Name), input.Echo(string(scope)))
}

// keepsAdmin says what to do if the last token that can manage tokens would go.
func keepsAdmin(r *request, err error) error {
	if !errors.Is(err, dispatcher.ErrLastAdmin) {
		return err
	}
	name := r.PathValue("token")
	return input.Refuse(input.CodeTokenLastAdmin, "token %s is the last one with scope admin that works; create another one first: "+
		"carillon token create --name NAME --scope admin", name)
}

func (a *API) deleteToken(r *request) (response, error) {
	res, err := a.remove(r, func(change input.Change) error {
		return a.store.DeleteToken(r.Context(), r.PathValue("token"), change)
	})
	return res, keepsAdmin(r, err)
}

// rotateToken gives a token another secret and returns it.
func (a *API) rotateToken(r *request) (response, error) {
	var rotation access.TokenRotation
	rotation.SetDefaults()
	var problems input.Problems
	if r.ContentLength != 0 {
		problems = r.Decode(&rotation)
	}
	decode.AddInvalid(&problems, rotation.Validate())
	if err := problems.Err(); err != nil {
		return response{}, err
	}
	change, err := a.gate.Change(r.Request)
	if err != nil {
		return response{}, err
	}
	name := r.PathValue("token")
	token, err := a.store.Token(r.Context(), name)
	if err != nil {
		return response{}, err
	}
	for _, scope := range token.Scopes { // the secret would give them
		if err := r.mayGive(scope); err != nil {
			return response{}, err
		}
	}
	if change.IfRevision == 0 { // nobody gives it more in the meantime
		change.IfRevision = token.Revision
	}
	secret, hash := access.NewToken()
	rotation.Hash = hash
	stored, err := a.store.RotateToken(r.Context(), name, rotation, change)
	if err != nil {
		return response{}, conflict(a.gate.ExplainFailed(r.Request, change, err), "give a later expires_at with the rotation")
	}
	return issued(response{revision: stored.Revision}, stored, secret), nil
}
