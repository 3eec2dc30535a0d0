package schedule

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// invalid are all problems of a Spec or CalendarSpec, in the order of its fields: input.Problems, but as a text without their
// paths, because each message begins with its field.
type invalid struct{ input.Problems }

// Error joins the messages with "; ".
func (e invalid) Error() string {
	lines := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		lines[i] = problem.Message
	}
	return strings.Join(lines, "; ")
}

// Unwrap returns the problems.
func (e invalid) Unwrap() error { return e.Problems }

// asError returns problems as an error, nil if there are none.
func asError(problems input.Problems) error {
	if len(problems) == 0 {
		return nil
	}
	return invalid{problems}
}

// Never reports whether the only problem is that a well-formed expression matches no date
// (input.CodeCronNever). Tools that list fire times may show that as an empty list.
func Never(err error) bool {
	var problems input.Problems
	return errors.As(err, &problems) && len(problems) == 1 && problems[0].Code == input.CodeCronNever
}

// report appends a problem of the Spec's field, which holds text.
func report(problems *input.Problems, field, text, code, format string, args ...any) {
	problems.Add("/"+field, code, "%s %s: %s", field, input.Echo(text), fmt.Sprintf(format, args...))
}

// reportInt is report for a field that holds a number.
func reportInt(problems *input.Problems, field string, value int, code, format string, args ...any) {
	problems.Add("/"+field, code, "%s %d: %s", field, value, fmt.Sprintf(format, args...))
}

// reportProblem is report of the problem of a part of a calendar, unless it is nil.
func reportProblem(problems *input.Problems, field, text string, err *input.Problem) {
	if err != nil {
		report(problems, field, text, err.Code, "%s", err.Message)
	}
}

// problemf is a problem inside a text, before the field that holds the text is known.
func problemf(code, format string, args ...any) *input.Problem {
	return &input.Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}
