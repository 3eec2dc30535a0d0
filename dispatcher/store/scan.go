package store

import "time"

// instant turns a column into a time.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// optional turns a column that may be NULL into a time or nil.
func optional(ms *int64) *time.Time {
	if ms == nil {
		return nil
	}
	t := instant(*ms)
	return &t
}

// zeroable returns the time that t points to, the zero time if it is nil.
func zeroable(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// orNull turns a time into a parameter: NULL if it is zero.
func orNull(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

// orNullAt is orNull for a time that may be nil.
func orNullAt(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return orNull(*t)
}

// dueOrNull is orNull of when a fire is due: at its instant, unless due says otherwise. It is
// NULL exactly if the instant is.
func dueOrNull(instant, due time.Time) *int64 {
	if instant.IsZero() || due.IsZero() {
		return orNull(instant)
	}
	return orNull(due)
}

// orZero turns a time into a parameter: 0 if it is zero, which stands for the database's clock.
func orZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
