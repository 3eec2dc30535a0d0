package target

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Bounds of the expression that a webhook expects its response to match. Matching takes time in
// proportion to the length of the text times the size of the program: some 10 ms of processor for a
// KiB of text and the largest program.
const (
	MaxExpectBody        = 1024 // bytes of the expression
	MaxExpectProgram     = 1000 // instructions of the compiled program; literal text is exempt
	maxExpectationNested = 50   // open brackets
	// mostCompiled bounds the estimate up to which a program is compiled to be counted.
	mostCompiled = 8 * MaxExpectProgram
)

// CompileExpectation compiles an expression. It checks the length first, then the nesting, then the size of the
// program, because each bounds the cost of the next step. The error is a *Problem without a path.
func CompileExpectation(text string) (*regexp.Regexp, error) {
	if len(text) > MaxExpectBody {
		return nil, expectationProblem(input.CodeTextTooLong, "expression has %d bytes; the maximum is %d", len(text), MaxExpectBody)
	}
	if n := nesting(text); n > maxExpectationNested {
		return nil, expectationProblem(input.CodeRegexpSize, "brackets of the expression are nested %d deep; the maximum is %d",
			n, maxExpectationNested)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		reason := err.Error()
		var wrong *syntax.Error
		if errors.As(err, &wrong) {
			reason = wrong.Code.String() + ": " + input.Echo(wrong.Expr)
		}
		return nil, expectationProblem(input.CodeRegexp, "the expression is not valid RE2 syntax: %s", reason)
	}
	size := programSize(parsed)
	if size <= mostCompiled {
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return nil, expectationProblem(input.CodeRegexp, "the expression is not valid RE2 syntax: %s", input.Echo(err.Error()))
		}
		size = len(program.Inst)
	}
	if size > MaxExpectProgram && parsed.Op != syntax.OpLiteral {
		return nil, expectationProblem(input.CodeRegexpSize, "the expression compiles to %d instructions or more; the maximum is %d: "+
			"use fewer or smaller repeat counts such as {100}, or match a shorter part of the body", size, MaxExpectProgram)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, expectationProblem(input.CodeRegexp, "the expression is not valid RE2 syntax: %s", input.Echo(err.Error()))
	}
	return compiled, nil
}

func expectationProblem(code, format string, args ...any) *input.Problem {
	var one input.Problems
	one.Add("", code, format, args...)
	return &one[0]
}

// nesting returns how deep the brackets of an expression are nested. It also counts brackets in a class, which cost
// little.
func nesting(text string) (deepest int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(':
			depth++
			deepest = max(deepest, depth)
		case ')':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// programSize estimates how many instructions an expression compiles to. It does not compile, because
// a repeat of repeats would take long.
func programSize(re *syntax.Regexp) int {
	const most = 1 << 30
	size := 2 // more than a class or an operator adds
	if re.Op == syntax.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size = min(size+programSize(sub), most)
	}
	if re.Op == syntax.OpRepeat {
		size = min(size*max(re.Max, re.Min+1), most)
	}
	return size
}

// SuccessCode is a status that counts as success, such as 204, or a class of them, such as 2xx.
type SuccessCode string

// MaxSuccessCodes bounds the statuses that a webhook expects.
const MaxSuccessCodes = 20

var successCode = regexp.MustCompile(`^[1-5](xx|[0-9][0-9])$`)

// Succeeds reports whether a status counts as success for w.
func (w Webhook) Succeeds(status int) bool {
	if len(w.SuccessCodes) == 0 {
		return status >= 200 && status <= 299
	}
	text := strconv.Itoa(status)
	return slices.ContainsFunc(w.SuccessCodes, func(code SuccessCode) bool {
		class, isClass := strings.CutSuffix(string(code), "xx")
		return isClass && strings.HasPrefix(text, class) || text == string(code)
	})
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
