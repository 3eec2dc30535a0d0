package dispatcher

import (
	"time"
)

// Methods may be called concurrently.
type Store interface {
	Definitions
	Credentials
	Ledger
	Retention
	Revisions
	Locks
	States
	Zones
	Rollbacks
	Fleet
	Dispatch
	Retries
	// Close releases the database.
	Close() error
}

// Change is who changes something, and on what condition.
type Change struct {
	// Actor is the name of the API token, or "system"; it goes into the audit log.
	Actor string
	// IfRevision refuses with ErrPrecondition unless it is the current revision; 0: no condition.
	IfRevision int64
	// IfAbsent refuses with ErrPrecondition if the thing exists.
	IfAbsent bool
	Now      time.Time
}

// Page asks for one page of a list.
type Page struct {
	// Limit is the greatest number of items, 1 to 1000.
	Limit int
	// Cursor is the key of the last item of the previous page; empty for the first page.
	Cursor string
}
