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

// AuditEntry is a change, or the refusal of one. It holds no secret: values of secrets are replaced by short hashes, by
// which two entries can be compared.
type AuditEntry struct {
	// At is when the change was made, by the database's clock. Entries may be committed in another order, within a minute.
	At time.Time `json:"at"`
	// ID is unique, and its order is that of the log.
	ID string `json:"id"`
	// Actor is the name of the token, "system" or "command line"; TokenID is the token's id, empty for the others.
	Actor string `json:"actor"`
	// The id of the token. Unlike a name, it is never used again.
	TokenID string `json:"token_id,omitempty"`
	// Address is that of the caller, and RequestID the id of the request; empty if there was none.
	Address string `json:"address,omitempty"`
	// The X-Request-Id of the request.
	RequestID string `json:"request_id,omitempty"`
	// Action is what was done, such as put, delete or pause.
	Action string `json:"action"`
	// App is empty for what belongs to none. Subject is kind and name of what was changed, such as "job nightly".
	App string `json:"app,omitempty"`
	// Kind and name of what was changed, such as job nightly.
	Subject string `json:"subject"`
	// Revision is that after the change; 0: the subject has none.
	Revision int64 `json:"revision,omitempty"`
	// Refused is the code of the problem for which the change was refused; empty: it was done.
	Refused string `json:"refused,omitempty"`
	// Before and After are the subject's definition before and after the change; nil: there was none, or it is none that
	// has a definition. Of one larger than MaxAuditDefinition they hold the beginning, and say so.
	Before json.RawMessage `json:"before,omitempty"`
	// The definition after the change; left out if there is none.
	After json.RawMessage `json:"after,omitempty"`
}

// MaxAuditDefinition bounds AuditEntry.Before and After, in bytes.
const MaxAuditDefinition = 64 << 10

// AuditMoreRefused is the action of an entry that stands for refusals which have no entries of their own, because one
// token had too many of them. After says how many and for which codes.
const AuditMoreRefused = "more_refused"

// AuditID returns the id of an entry. Its text sorts as the log does.
func AuditID(at time.Time, id int64) string { return fmt.Sprintf("%012x-%016x", at.UnixMilli(), id) }

// ParseAuditID returns what AuditID was given.
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
	// Apps are those whose entries are wanted; nil: all, and what belongs to none.
	Apps []string
	// Actor, Action and Subject are compared whole; empty: any. The actor may be given by name or by token id.
	Actor, Action, Subject string
	// Refused asks for refusals only, if true, or for changes only, if false; nil: both.
	Refused *bool
	// From and To bound At; zero: no bound. To is exclusive.
	From, To time.Time
	// OldestFirst reverses the order, which begins with the latest.
	OldestFirst bool
	// Page.Cursor is AuditEntry.ID of the last entry of the previous page.
	input.Page
}

// AuditPage is a page of the audit log.
type AuditPage struct {
	Entries []AuditEntry
	// More tells that entries follow. A page of large entries ends before its limit.
	More bool
}

// DefaultAuditRetention is how long entries of the audit log are kept unless an operator says otherwise, and
// MinAuditRetention how short that may be.
const (
	DefaultAuditRetention = 400 * 24 * time.Hour
	MinAuditRetention     = 24 * time.Hour
)

// AuditRetention returns how long the audit log is kept; 0 stands for the default.
func AuditRetention(kept time.Duration) time.Duration { return cmp.Or(kept, DefaultAuditRetention) }

// AuditLog is who changed what. Changes enter it in their own transaction.
type AuditLog interface {
	// AuditEntries lists entries.
	AuditEntries(ctx context.Context, query AuditQuery) (AuditPage, error)
	// RecordRefusal adds the refusal of a change, of which entry says all but At and ID.
	RecordRefusal(ctx context.Context, entry AuditEntry) error
}
