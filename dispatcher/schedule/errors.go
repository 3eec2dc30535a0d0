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

// report appends the problem of a field that holds text, unless it is nil.
func report(problems *input.Problems, field, text string, problem *input.Problem) {
	if problem != nil {
		problems.Add("/"+field, problem.Code, "%s %s: %s", field, input.Echo(text), problem.Message)
	}
}

// reportInt is report for a field that holds a number.
func reportInt(problems *input.Problems, field string, value int, problem *input.Problem) {
	problems.Add("/"+field, problem.Code, "%s %d: %s", field, value, problem.Message)
}

// problemf is a problem of a value, before the field that holds it is known.
func problemf(code, format string, args ...any) *input.Problem {
	return &input.Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}
