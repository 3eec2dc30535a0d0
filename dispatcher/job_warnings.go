package dispatcher

import (
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// WarningCodes are the codes of warnings that Job.Acknowledge answers. Warnings of other codes say that a job does not
// work, such as one outside the bounds of its app, and stay.
var WarningCodes = append([]string{
	CodeAuthPlaintext, CodeBodyMethod, CodeExecutorTimeout, CodeLambdaRegion, CodePayloadUnused,
}, schedule.WarningCodes...)

// Warn returns what is allowed but probably a mistake, without what the job acknowledges; calendars are those of its
// app. Schedules are judged from UpdatedAt on.
func (j Job) Warn(calendars Calendars) []Problem {
	var problems Problems
	if one := j.Target.one(); one != nil {
		one.warn(j, &problems)
	}
	for _, name := range sortedKeys(j.Triggers) {
		warnings := j.Triggers[name].warn(j.Identity(name), calendars, j.UpdatedAt)
		problems.AddError(Pointer("triggers", name), warnings.Err())
	}
	return j.unanswered(problems)
}

// unanswered returns warnings without those that the job acknowledges.
func (j Job) unanswered(warnings []Problem) []Problem {
	return slices.DeleteFunc(warnings, func(w Problem) bool { return slices.Contains(j.Acknowledge, w.Code) })
}

// checkAcknowledged reports codes that no warning has.
func checkAcknowledged(problems *Problems, codes []string) {
	if most := len(WarningCodes); len(codes) > most {
		problems.Add("/acknowledge", CodeTooMany, "%d codes are given; there are %d", len(codes), most)
		return
	}
	for i, code := range codes {
		at := Pointer("acknowledge", strconv.Itoa(i))
		switch {
		case !slices.Contains(WarningCodes, code):
			problems.Add(at, CodeEnum, "%s is not the code of a warning%s; the codes are listed under Warnings in the reference of the API",
				Echo(code), DidYouMean(code, WarningCodes))
		case slices.Contains(codes[:i], code):
			problems.Add(at, CodeEnum, "%s is given twice", Echo(code))
		}
	}
}
