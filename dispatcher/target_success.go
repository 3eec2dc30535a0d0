package dispatcher

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// SuccessCode is a status that counts as success, such as 204, or a class of them, such as 2xx.
type SuccessCode string

// MaxSuccessCodes bounds the statuses that a webhook expects.
const MaxSuccessCodes = 20

var successCode = regexp.MustCompile(`^[1-5](xx|[0-9][0-9])$`)

// covers reports whether the code includes a status.
func (c SuccessCode) covers(status int) bool {
	text := strconv.Itoa(status)
	class, isClass := strings.CutSuffix(string(c), "xx")
	return isClass && strings.HasPrefix(text, class) || text == string(c)
}

// Succeeds reports whether a status counts as success for w.
func (w Webhook) Succeeds(status int) bool {
	if len(w.SuccessCodes) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.ContainsFunc(w.SuccessCodes, func(code SuccessCode) bool { return code.covers(status) })
}

func (w Webhook) checkExpectations(problems *input.Problems) {
	if w.SuccessCodes != nil && len(w.SuccessCodes) == 0 {
		problems.Add("/success_codes", input.CodeRequired, "success_codes is an empty list, so no response would count as success; "+
			"leave it out for 2xx, or give codes such as 204")
	}
	if len(w.SuccessCodes) > MaxSuccessCodes {
		problems.Add("/success_codes", input.CodeTooMany, "%d success codes are given; the maximum is %d", len(w.SuccessCodes), MaxSuccessCodes)
	}
	for i, code := range w.SuccessCodes {
		if i < MaxSuccessCodes && !successCode.MatchString(string(code)) {
			problems.Add("/success_codes/"+strconv.Itoa(i), input.CodeStatusCode,
				"%s is neither a status such as 204 nor a class such as 2xx%s", input.Echo(string(code)),
				input.DidYouMean(string(code), []string{"1xx", "2xx", "3xx", "4xx", "5xx"}))
		}
	}
	switch _, err := CompileExpectation(w.ExpectBody); {
	case err != nil:
		problems.AddError("/expect_body", err)
	case w.ExpectBody != "" && w.Method == "HEAD":
		problems.Add("/expect_body", input.CodeBodyMethod, "a response to HEAD has no body; use GET")
	}
}
