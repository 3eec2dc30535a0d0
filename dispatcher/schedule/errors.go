package schedule

import (
	"errors"
	"fmt"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

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
