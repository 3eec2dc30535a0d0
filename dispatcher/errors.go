package dispatcher

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Sentinels that callers of a Store branch on.
var (
	// ErrNotFound: the named thing does not exist.
	ErrNotFound = errors.New("not found")
	// ErrPrecondition: the revision that the caller expected is not the current one, or a thing exists that must not.
	ErrPrecondition = errors.New("precondition failed")
	// ErrPageBytes comes with a page that ended early, because its items reached the byte limit of a page. More
	// follow.
	ErrPageBytes = errors.New("the page ended early")
	// ErrNotEmpty: the app cannot be deleted because it has jobs, calendars, groups or alerts.
	ErrNotEmpty = errors.New("app is not empty")
	// ErrInUse: the calendar or group cannot be deleted because something refers to it.
	ErrInUse = errors.New("in use")
	// ErrConflict: the state of the thing does not allow the request.
	ErrConflict = errors.New("conflict")
	// ErrLastAdmin: the request would leave no token that can manage tokens.
	ErrLastAdmin = errors.New("it is the last token with scope admin that works")
	// ErrNodeDead: the node was marked dead and must register again.
	ErrNodeDead = errors.New("the node was marked dead")
	// ErrRolledBack: a node cannot be resumed while a rollback is unresolved.
	ErrRolledBack = errors.New("the database lost commits, and nobody has chosen yet what happens to the affected " +
		"fires; see carillon rollback show, then run carillon rollback skip or carillon rollback replay")
	// ErrKeyMissing: no key decrypts a stored secret.
	ErrKeyMissing = errors.New("a key-encryption key is missing")
	// ErrSchemaTooNew: a newer version has migrated the database.
	ErrSchemaTooNew = errors.New("the schema is newer than this version of Carillon")
)

// NotFound returns an ErrNotFound that names the missing thing.
func NotFound(kind, name string) error {
	return fmt.Errorf("%s %s: %w", kind, input.Echo(name), ErrNotFound)
}

// PanicError is a panic in work on one row, which must end neither the process nor the work on other rows.
type PanicError struct {
	Value any
	// At is the place of the panic, FUNCTION (FILE:LINE).
	At string
}

// Error describes the panic and its place.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v, in %s", e.Value, e.At) }

// WithoutPanic calls do and returns its error; a panic of do becomes a *PanicError.
func WithoutPanic(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, At: panickedAt()}
		}
	}()
	return do()
}

// panickedAt returns the function that panicked. It is called by the deferred function that recovers.
func panickedAt() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") {
			return fmt.Sprintf("%s (%s:%d)", frame.Function, frame.File[strings.LastIndexByte(frame.File, '/')+1:], frame.Line)
		}
		if !more {
			return "an unknown function"
		}
	}
}
