package dispatcher

import (
	"slices"
	"strconv"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/schedule"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// WarningCodes are the codes of warnings that Job.Acknowledge answers. Warnings of other codes say that a job does not
// work, such as one outside the bounds of its app, and stay.
var WarningCodes = append([]string{
	input.CodeAuthPlaintext, input.CodeBodyMethod, input.CodeExecutorTimeout, input.CodeLambdaRegion, input.CodePayloadUnused,
}, schedule.WarningCodes...)

// Warn returns what is allowed but probably a mistake, without what the job acknowledges; calendars are those of its
// app. Schedules are judged from UpdatedAt on.
func (j Job) Warn(calendars Calendars) []input.Problem {
	var problems input.Problems
	j.Target.Warn(j.Payload, &problems)
	for _, name := range input.SortedKeys(j.Triggers) {
		warnings := j.Triggers[name].warn(j.Identity(name), calendars, j.UpdatedAt)
		problems.AddError(input.Pointer("triggers", name), warnings.Err())
	}
	return j.unanswered(problems)
}

// unanswered returns warnings without those that the job acknowledges.
func (j Job) unanswered(warnings []input.Problem) []input.Problem {
	return slices.DeleteFunc(warnings, func(w input.Problem) bool { return slices.Contains(j.Acknowledge, w.Code) })
}

// checkAcknowledged reports codes that no warning has.
func checkAcknowledged(problems *input.Problems, codes []string) {
	if most := len(WarningCodes); len(codes) > most {
		problems.Add("/acknowledge", input.CodeTooMany, "%d codes are given; there are %d", len(codes), most)
		return
	}
	for i, code := range codes {
		at := input.Pointer("acknowledge", strconv.Itoa(i))
		switch {
		case !slices.Contains(WarningCodes, code):
			problems.Add(at, input.CodeEnum, "%s is not the code of a warning%s; the codes are listed under Warnings in the reference of the API",
				input.Echo(code), input.DidYouMean(code, WarningCodes))
		case slices.Contains(codes[:i], code):
			problems.Add(at, input.CodeEnum, "%s is given twice", input.Echo(code))
		}
	}
}

// WarnOfCallback warns of a job whose attempts all fail because no node knows the URL to which callbacks go.
func (j Job) WarnOfCallback() []input.Problem {
	if j.Target.Callback() == nil {
		return nil
	}
	return []input.Problem{{Path: "/target/" + string(j.Target.Kind()) + "/callback", Code: input.CodeCallbackURL,
		Message: "the node does not " +
			"know the URL of this API, so it can tell no target where to call back; start the nodes with --callback-url (CARILLON_CALLBACK_URL)"}}
}

// WarnOfRegion warns of a function whose ARN names another region than the node's: calls cross regions, or the ARN was
// copied from another installation. A job that names the region in its own field means it. Empty: the node has none.
func (j Job) WarnOfRegion(node string) []input.Problem {
	l := j.Target.Lambda
	if l == nil || node == "" || l.Region != "" || l.FunctionRegion() == "" || l.FunctionRegion() == node {
		return nil
	}
	return j.unanswered([]input.Problem{{Path: "/target/lambda/function", Code: input.CodeLambdaRegion, Message: "the function is in " +
		l.FunctionRegion() + ", and the nodes are in " + node + "; if that is meant, name the region in region, too"}})
}

// CheckBounds returns what of j is outside the bounds of its app, as Problems with JSON pointers in the job, or nil: of its own
// target, and of those of what follows it.
func (j Job) CheckBounds(bounds *target.Bounds) error {
	var problems input.Problems
	problems.AddError("", bounds.CheckTarget(j.App, j.Target))
	for event, follow := range j.EachFollow() {
		if follow.Target != nil {
			problems.AddError("/"+string(event), bounds.CheckTarget(j.App, *follow.Target))
		}
	}
	return problems.Err()
}
