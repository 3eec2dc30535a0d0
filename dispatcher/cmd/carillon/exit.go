package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher"
	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/cmd/carillon/node"
	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Exit codes, for scripts. docs/reference/cli.md lists them.
const (
	exitFailure     = 1 // any failure other than those below
	exitUsage       = 2 // a flag, variable or argument is invalid, or the database cannot be opened
	exitTooNew      = 3 // the database schema is newer than this program
	exitMissing     = 4 // a named object does not exist, or is invisible to the token
	exitRefused     = 5 // the token is refused, or lacks a scope or an app
	exitConflict    = 6 // the state of the object does not permit it, or another client has changed it
	exitUnreachable = 7 // the API cannot be reached, or is overloaded
	exitNegative    = 8 // the command worked and found a problem: a failed run, an unexplained fire, an error in a file
)

// usageError is an invalid flag or variable.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// negativeError means that a command found a problem in what it examined.
type negativeError struct{ error }

func (e *negativeError) Unwrap() error { return e.error }

// fail prints an error and returns its exit code.
func fail(c console, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(c.err, "carillon:", plain(line))
	}
	var usage *usageError
	var invalid *node.InvalidError
	var negative *negativeError
	switch {
	case errors.Is(err, dispatcher.ErrSchemaTooNew):
		return exitTooNew
	case errors.As(err, &usage), errors.As(err, &invalid):
		return exitUsage
	case errors.As(err, &negative):
		return exitNegative
	}
	return exitCodeOfAPI(err)
}

func exitCodeOfAPI(err error) int {
	var refused *client.Error
	var unanswered *url.Error // the client of the API returns it
	switch {
	case errors.Is(err, client.ErrForeign):
		return exitFailure
	case errors.Is(err, dispatcher.ErrNotFound):
		return exitMissing
	case errors.Is(err, dispatcher.ErrConflict), errors.Is(err, dispatcher.ErrPrecondition):
		return exitConflict
	case errors.As(err, &unanswered):
		return exitUnreachable
	case !errors.As(err, &refused):
		return exitFailure
	case refused.Status == http.StatusUnauthorized, refused.Status == http.StatusForbidden, client.HasCode(refused, input.CodeBoundOperator):
		return exitRefused
	case refused.Status == http.StatusTooManyRequests, refused.Status >= http.StatusBadGateway:
		return exitUnreachable
	}
	return exitFailure
}
