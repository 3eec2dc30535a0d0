package dispatcher

import (
	"fmt"
	"runtime"
	"strings"
)

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
