package console

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// auditPage is a page of the audit log.
type auditPage struct {
	client.List[access.AuditEntry]
	More   string
	Filter map[string]string
}

func showAudit(v *visit) (content, error) {
	f := v.fields()
	names := []string{"app", "actor", "action", "subject", "refused", "from", "to", "order"}
	query := access.AuditQuery{Actor: f.Text("actor"), Action: f.Text("action"), Subject: f.Text("subject"), From: f.Instant("from"),
		To: f.Instant("to"), OldestFirst: f.Text("order") == "oldest", Page: v.page()}
	if app := f.Text("app"); app != "" {
		query.Apps = []string{app}
	}
	if refused, err := strconv.ParseBool(f.Text("refused")); err == nil {
		query.Refused = &refused
	}
	page := auditPage{Filter: f.All(names...)}
	err := f.Err()
	if err == nil {
		page.List, err = v.client.Audit(v.Context(), query)
	}
	page.More = v.more(page.Next)
	return v.filtered(content{Data: page}, err)
}

// auditEntryPage is one entry with what was before and after it.
type auditEntryPage struct {
	access.AuditEntry
	BeforeText, AfterText string
}

func showAuditEntry(v *visit) (content, error) {
	wanted := v.PathValue("entry")
	at, id, err := access.ParseAuditID(wanted)
	if err != nil {
		return content{}, notFound("entry", wanted)
	}
	// The entry is the first one after that which would have the id before.
	list, err := v.client.Audit(v.Context(), access.AuditQuery{From: at, To: at.Add(time.Millisecond), OldestFirst: true,
		Page: input.Page{Limit: 1, Cursor: access.AuditID(at, id-1)}})
	if err != nil {
		return content{}, err
	}
	if len(list.Items) == 0 || list.Items[0].ID != wanted {
		return content{}, notFound("entry", wanted)
	}
	entry := list.Items[0]
	return content{Data: auditEntryPage{entry, indented(entry.Before), indented(entry.After)}}, nil
}

// indented returns JSON as people read it. The numbers stay as they are stored.
func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}
