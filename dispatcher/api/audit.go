package api

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// maxAuditWord is longer than any word of an entry that the API writes.
const maxAuditWord = 512

// listAudit lists the audit log. A token that is bound to apps gets the entries of those apps: what belongs to no app, or
// to others, is for operators.
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
		From: r.instant(&problems, "from"), To: r.instant(&problems, "to"), Page: r.page(&problems, isAuditID),
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
	if values.Has("app") {
		query.Apps = []string{values.Get("app")}
		input.CheckName(&problems, "/app", values.Get("app"))
	}
	if err := problems.Err(); err != nil {
		return query, err
	}
	if len(r.Token.Apps) == 0 {
		return query, nil
	}
	if query.Apps == nil {
		query.Apps = r.Token.Apps
	} else if !r.MaySee(query.Apps[0]) {
		return query, r.NotBound(query.Apps[0])
	}
	return query, nil
}

func isAuditID(text string) bool {
	_, _, err := access.ParseAuditID(text)
	return err == nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}
