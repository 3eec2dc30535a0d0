package api

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/api/decode"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// listTokens lists tokens by name, including expired ones, without their secrets.
func (a *API) listTokens(r *request) (response, error) {
	name := func(token access.APIToken) string { return token.Name }
	return pagedByName(r, name, func(page input.Page) ([]access.APIToken, error) {
		return a.store.Tokens(r.Context(), page)
	})
}

// getOwnToken gets the token of the request, without its secret. Every scope permits this. For a JSON Web Token it
// returns the identity, with the scopes and apps that the rules give it.
func (a *API) getOwnToken(r *request) (response, error) { return response{body: r.Token}, nil }

// getToken gets a token, without its secret.
func (a *API) getToken(r *request) (response, error) {
	token, err := a.store.Token(r.Context(), r.PathValue("token"))
	return response{revision: token.Revision, body: token}, err
}

// putToken creates a token and returns its secret, or changes a token. Your token needs every scope that you give to
// this one. Only the response to the creation holds the secret; a change keeps id and secret.
func (a *API) putToken(r *request) (response, error) {
	token := access.APIToken{Name: r.PathValue("token")}
	problems := r.Decode(&token)
	mustMatch(&problems, "/name", token.Name, r.PathValue("token"))
	for i, scope := range token.Scopes {
		if err := r.mayGive(scope); err != nil {
			problems.AddError("/scopes/"+strconv.Itoa(i), err)
		}
	}
	secret, hash := access.NewToken() // only for a new token
	token.ID, token.Hash = access.NewTokenID(), hash
	res, err := put(a, r, token, problems, a.store.PutToken, func(stored access.APIToken) int64 { return stored.Revision })
	if stored, is := res.body.(access.APIToken); is && res.status == http.StatusCreated {
		res = issued(res, stored, secret)
	}
	return res, keepsAdmin(r, err)
}

// issued adds a secret to the response about its token. The response must not be cached.
func issued(res response, token access.APIToken, secret string) response {
	res.body = access.IssuedToken{APIToken: token, Secret: secret}
	res.header = map[string]string{"Cache-Control": "no-store"}
	return res
}

// mayGive refuses a scope that the caller lacks: a token cannot make one with more permissions than its own. Operators,
// who have admin, give export and import to callers that move apps.
func (r *request) mayGive(scope access.Scope) error {
	moves := scope == access.ScopeExport || scope == access.ScopeImport
	known := slices.Contains(access.Scopes(), scope) // Validate refuses unknown ones
	if r.Token.May(scope) || moves && r.Token.May(access.ScopeAdmin) || !known {
		return nil
	}
	return input.Refuse(input.CodeForbidden, "token %s does not have the scope %s, so it cannot give it; use one that does, "+
		"or the database: carillon token create --database URL --name NAME --scope SCOPE", input.Echo(r.Token.Name), input.Echo(string(scope)))
}

// keepsAdmin adds a remedy to the error if the last token that can manage tokens would go.
func keepsAdmin(r *request, err error) error {
	if !errors.Is(err, dispatcher.ErrLastAdmin) {
		return err
	}
	name := r.PathValue("token")
	return input.Refuse(input.CodeTokenLastAdmin, "token %s is the last one with scope admin that works; create another one first: "+
		"carillon token create --name NAME --scope admin", name)
}

// deleteToken revokes a token, which stops working at once. 409 if no working token with the scope admin would be left:
// revoke that one on the database.
func (a *API) deleteToken(r *request) (response, error) {
	res, err := a.remove(r, func(change input.Change) error {
		return a.store.DeleteToken(r.Context(), r.PathValue("token"), change)
	})
	return res, keepsAdmin(r, err)
}

// rotateToken gives a token another secret. The old secret works for the overlap, but not past the former expiry of the
// token. A token has at most one old secret: another rotation ends it. Your token needs every scope of this one.
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
	for _, scope := range token.Scopes { // the secret gives them to the caller
		if err := r.mayGive(scope); err != nil {
			return response{}, err
		}
	}
	if change.IfRevision == 0 { // the token gets no further scopes in the meantime
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

// maxAuditWord is longer than any word of an entry that the API writes.
const maxAuditWord = 512

// listAudit lists changes and refused changes, latest first. Each entry has its actor. A token that is bound to apps
// gets the entries of those apps. Values of secrets are shown as hash:xxxxxxxx: the same value has the same hash in one
// installation. A page of large entries may contain fewer entries than you asked for; continue as long as the response
// has next. Entries may become visible up to a minute later than others that were made after them, so a reader that
// follows the log should read the last two minutes again and compare ids.
func (a *API) listAudit(r *request) (response, error) {
	query, err := r.auditQuery()
	if err != nil {
		return response{}, err
	}
	page, err := a.store.AuditEntries(r.Context(), query)
	if err != nil {
		return response{}, err
	}
	body := newList(page.Entries)
	if page.More {
		body.Next = page.Entries[len(page.Entries)-1].ID
	}
	return response{body: body}, nil
}

// auditQuery reads the parameters of the audit log.
func (r *request) auditQuery() (access.AuditQuery, error) {
	var problems input.Problems
	values := r.URL.Query()
	query := access.AuditQuery{
		Actor: values.Get("actor"), Action: values.Get("action"), Subject: values.Get("subject"),
		From: r.instant(&problems, "from"), To: r.instant(&problems, "to"),
		Page: r.page(&problems, func(text string) bool { _, _, err := access.ParseAuditID(text); return err == nil }),
	}
	for _, name := range []string{"actor", "action", "subject"} {
		if text := values.Get(name); len(text) > maxAuditWord || !printable(text) {
			problems.Add("/"+name, input.CodeTextInvalid, "%s is longer than %d bytes or holds a control character, as no entry does",
				name, maxAuditWord)
		}
	}
	switch refused := values.Get("refused"); {
	case !values.Has("refused"):
	case refused == "true" || refused == "false":
		query.Refused = new(refused == "true")
	default:
		input.CheckEnum(&problems, "/refused", "refused", refused, []string{"true", "false"})
	}
	switch order := values.Get("order"); {
	case !values.Has("order") || order == "latest":
	case order == "oldest":
		query.OldestFirst = true
	default:
		input.CheckEnum(&problems, "/order", "order", order, []string{"latest", "oldest"})
	}
	checkOrder(&problems, query.From, query.To)
	var err error
	query.Apps, err = r.queriedApps(&problems)
	return query, err
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
