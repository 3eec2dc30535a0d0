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
	// ErrNotFound says that the named thing does not exist.
	ErrNotFound = errors.New("not found")
	// ErrPrecondition says that the revision the caller expected is not the current one, or
	// that what must not exist does.
	ErrPrecondition = errors.New("precondition failed")
	// ErrPageBytes comes with a page that ended early, because its items have as many bytes as it may have. There are
	// more.
	ErrPageBytes = errors.New("the page ended early")
	// ErrNotEmpty says that an app cannot be deleted because it has jobs, calendars, groups or
	// alerts.
	ErrNotEmpty = errors.New("app is not empty")
	// ErrInUse says that a calendar or a group cannot be deleted because something refers to it.
	ErrInUse = errors.New("in use")
	// ErrConflict says that the state of a thing does not allow the request.
	ErrConflict = errors.New("conflict")
	// ErrLastAdmin says that a request with a token would leave no token that can manage tokens.
	ErrLastAdmin = errors.New("it is the last token with scope admin that works")
	// ErrNodeDead says that a node was marked dead; it must register again.
	ErrNodeDead = errors.New("the node was marked dead")
	// ErrRolledBack says that a node cannot be resumed while a rollback is unresolved.
	ErrRolledBack = errors.New("the database lost commits, and nobody has chosen yet what happens to the affected " +
		"fires; see carillon rollback show, then run carillon rollback skip or carillon rollback replay")
	// ErrKeyMissing says that no key opens a stored secret.
	ErrKeyMissing = errors.New("a key-encryption key is missing")
	// ErrSchemaTooNew says that the database was migrated by a newer version.
	ErrSchemaTooNew = errors.New("the schema is newer than this version of Carillon")
)

// NotFound returns an error that names the missing thing and is ErrNotFound.
func NotFound(kind, name string) error {
	return fmt.Errorf("%s %s: %w", kind, input.Echo(name), ErrNotFound)
}

// PanicError is a panic in work on one row, which must end neither the process nor the work on other rows.
type PanicError struct {
	Value any
	// At is where it happened, FUNCTION (FILE:LINE).
	At string
}

// Error says what the panic was, and where.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v, in %s", e.Value, e.At) }

// WithoutPanic calls do and returns its error; a panic of do is a *PanicError.
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
