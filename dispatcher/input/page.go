package input

import "time"

// Change is who changes something, and on what condition.
type Change struct {
	// Actor is the name of the API token, "system" or "command line". It goes into the audit log, as do the id of the
	// token, the address of the caller and the id of the request, which are empty if there are none.
	Actor                       string
	TokenID, Address, RequestID string
	// Traceparent is the trace context of the request, as ParseTraceparent reads it; empty: it has none.
	Traceparent string
	// Operator tells that the change may set the bounds of an app.
	Operator bool
	// IfRevision refuses with ErrPrecondition unless it is the current revision; 0: no condition.
	IfRevision int64
	// IfAbsent refuses with ErrPrecondition if the thing exists.
	IfAbsent bool
	// Reason is why, as its author says. A pause keeps it, and Until, when it ends by itself; nil: it does not.
	Reason string
	Until  *time.Time
	Now    time.Time
}

// Page asks for one page of a list.
type Page struct {
	// Limit is the greatest number of items, 1 to 1000.
	Limit int
	// Cursor is the key of the last item of the previous page; empty for the first page.
	Cursor string
	// Labels selects the jobs that have all of them; nil: every job. Other lists do without.
	Labels Labels
	// Bytes ends a page of jobs, calendars or groups after the item with which they have about as many bytes, with ErrPageBytes if
	// there are more; 0: no bound.
	Bytes int
}
