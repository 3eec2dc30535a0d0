package dispatcher

import "time"

// Store is the sum of what the engine, the API, verify and the command line ask of a store. Package
// store implements it over PostgreSQL and over SQLite; storetest checks both.
//
// Every method takes its deadline from the context. If there is a field or an argument Now, zero
// means the database's clock; tests pass a time. Times are whole milliseconds in UTC. Methods may be
// called concurrently.
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
