package input

import "time"

// Change is the author of a change, and its conditions.
type Change struct {
	// Actor is the name of the API token, "system" or "command line". It goes into the audit log, with the id of the
	// token, the address of the caller and the id of the request, each empty if there is none.
	Actor                       string
	TokenID, Address, RequestID string
	// Traceparent is the trace context of the request, as ParseTraceparent reads it; empty if it has none.
	Traceparent string
	// Operator is true if the change may set the bounds of an app.
	Operator bool
	// IfRevision refuses with ErrPrecondition unless it is the current revision; 0 means no condition.
	IfRevision int64
	// IfAbsent refuses with ErrPrecondition if the thing exists.
	IfAbsent bool
	// Reason comes from the author. A pause keeps it, and Until, when it ends by itself; nil if it does not.
	Reason string
	Until  *time.Time
	Now    time.Time
}

// Page asks for one page of a list.
type Page struct {
	// Limit is the maximum number of items, 1 to 1000.
	Limit int
	// Cursor is the key of the last item of the previous page; empty for the first page.
	Cursor string
	// Labels selects the jobs that have all of them; nil means every job. Other lists ignore it.
	Labels Labels
	// Origin selects the job with that Origin, whatever its name is now; empty means every job. Other lists ignore it.
	Origin string
	// Bytes ends a page of jobs, calendars or groups after the item that reaches about that many bytes, with
	// ErrPageBytes if there are more; 0 means no bound.
	Bytes int
}
