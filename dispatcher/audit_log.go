package dispatcher

import (
	"context"
	"encoding/json"
	"time"
)

// AuditEntry is a change, or the refusal of one. It holds no secret: values of secrets are replaced by short hashes, by
// which two entries can be compared.
type AuditEntry struct {
	At time.Time `json:"at"`
	ID string    `json:"id"`
	// Actor is the name of the token, "system" or "command line"; TokenID is the token's id, empty for the others.
	Actor   string `json:"actor"`
	TokenID string `json:"token_id,omitempty"`
	// Address is that of the caller, and RequestID the id of the request; empty if there was none.
	Address   string `json:"address,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Action is what was done, such as put, delete or pause.
	Action string `json:"action"`
	// App is empty for what belongs to none. Subject is kind and name of what was changed, such as "job nightly".
	App     string `json:"app,omitempty"`
	Subject string `json:"subject"`
	// Revision is that after the change; 0: the subject has none.
	Revision int64 `json:"revision,omitempty"`
	// Refused is the code of the problem for which the change was refused; empty: it was done.
	Refused string `json:"refused,omitempty"`
	// Before and After are the subject's definition before and after the change; nil: there was none, or it is none that
	// has a definition.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// AuditQuery asks for entries of the audit log, the latest first.
type AuditQuery struct {
	// Apps are those whose entries are wanted; nil: all, and what belongs to none.
	Apps []string
	// Actor, Action and Subject are compared whole; empty: any. The actor may be given by name or by token id.
	Actor, Action, Subject string
	// Refused asks for refusals only, if true, or for changes only, if false; nil: both.
	Refused *bool
	// From and To bound At; zero: no bound. To is exclusive.
	From, To time.Time
	Page
}

// AuditLog is who changed what. Changes enter it in their own transaction.
type AuditLog interface {
	// AuditEntries lists entries. Page.Cursor is AuditEntry.Cursor of the last one.
	AuditEntries(ctx context.Context, query AuditQuery) ([]AuditEntry, error)
	// RecordRefusal adds the refusal of a change, of which entry says all but At and ID.
	RecordRefusal(ctx context.Context, entry AuditEntry) error
}
