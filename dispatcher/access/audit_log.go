package access

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// AuditEntry is a change, or the refusal of one. It contains no secret: values of secrets are replaced by short
// hashes, so that entries can be compared.
type AuditEntry struct {
	// At is when the change was made, by the database's clock. Entries may be committed in another order, within a minute.
	At time.Time `json:"at"`
	// ID is unique, and sorts in the order of the log.
	ID string `json:"id"`
	// Actor is the name of the token, "system" or "command line"; TokenID is the token's id, empty for other actors.
	Actor string `json:"actor"`
	// The id of the token. Unlike a name, it is never used again.
	TokenID string `json:"token_id,omitempty"`
	// Address is the address of the caller, and RequestID the id of the request; empty if there was none.
	Address string `json:"address,omitempty"`
	// The X-Request-Id of the request.
	RequestID string `json:"request_id,omitempty"`
	// Action is the kind of change, such as put, delete or pause.
	Action string `json:"action"`
	// App is empty without an app. Subject is kind and name of the changed thing, such as "job nightly".
	App string `json:"app,omitempty"`
	// Kind and name of the changed thing, such as job nightly.
	Subject string `json:"subject"`
	// Revision is the revision after the change; 0 if the subject has none.
	Revision int64 `json:"revision,omitempty"`
	// Refused is the code of the problem for which the change was refused; empty if it was made.
	Refused string `json:"refused,omitempty"`
	// Before and After are the subject's definition before and after the change; nil if there was none, or if the
	// subject has no definition. A definition larger than MaxAuditDefinition is cut and marked.
	Before json.RawMessage `json:"before,omitempty"`
	// The definition after the change; left out if there is none.
	After json.RawMessage `json:"after,omitempty"`
}

// MaxAuditDefinition bounds AuditEntry.Before and After, in bytes.
const MaxAuditDefinition = 64 << 10

// AuditMoreRefused is the action of an entry that stands for refusals without entries of their own, because one token
// had too many of them. After has their number and codes.
const AuditMoreRefused = "more_refused"

// AuditID returns the id of an entry. Its text sorts as the log does.
func AuditID(at time.Time, id int64) string { return fmt.Sprintf("%012x-%016x", at.UnixMilli(), id) }

// ParseAuditID is the inverse of AuditID.
func ParseAuditID(text string) (at time.Time, id int64, err error) {
	first, second, found := strings.Cut(text, "-")
	millis, err := strconv.ParseInt(first, 16, 64)
	if err == nil {
		id, err = strconv.ParseInt(second, 16, 64)
	}
	if at = time.UnixMilli(millis).UTC(); err != nil || !found || AuditID(at, id) != text {
		return time.Time{}, 0, fmt.Errorf("%s is not the id of an entry of the audit log", input.Echo(text))
	}
	return at, id, nil
}

// AuditQuery asks for entries of the audit log.
type AuditQuery struct {
	// Apps selects the entries of these apps; nil selects all entries, also those without an app.
	Apps []string
	// Actor, Action and Subject must match completely; empty matches any. The actor may be a name or a token id.
	Actor, Action, Subject string
	// Refused selects only refusals, if true, or only changes, if false; nil selects both.
	Refused *bool
	// From and To bound At; zero means no bound. To is exclusive.
	From, To time.Time
	// OldestFirst reverses the order, which begins with the latest.
	OldestFirst bool
	// Page.Cursor is AuditEntry.ID of the last entry of the previous page.
	input.Page
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Entries []AuditEntry
	// More is true if entries follow. A page of large entries ends before its limit.
	More bool
}

// DefaultAuditRetention is how long the audit log is kept by default, and MinAuditRetention is the minimum.
const (
	DefaultAuditRetention = 400 * 24 * time.Hour
	MinAuditRetention     = 24 * time.Hour
)

// AuditRetention returns how long the audit log is kept; 0 means the default.
func AuditRetention(kept time.Duration) time.Duration { return cmp.Or(kept, DefaultAuditRetention) }

// AuditLog records who changed what. Changes write their entries in their own transaction.
type AuditLog interface {
	// AuditEntries lists entries.
	AuditEntries(ctx context.Context, query AuditQuery) (AuditPage, error)
	// RecordRefusal adds the refusal of a change; entry has everything but At and ID.
	RecordRefusal(ctx context.Context, entry AuditEntry) error
}
