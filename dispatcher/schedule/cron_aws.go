package schedule

import (
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// readAWS parses cron(...), rate(...) and at(...) as EventBridge Scheduler documents them:
// https://docs.aws.amazon.com/scheduler/latest/UserGuide/schedule-types.html
// Times are local to the schedule's zone, or UTC without a zone.
func (p *program) readAWS(text string, spec Spec, loc *timeZone) []*input.Problem {
	kind, rest, _ := strings.Cut(text, "(")
	inner, closed := strings.CutSuffix(rest, ")")
	if !closed || strings.ContainsAny(inner, "()") && !UsesHash(inner) {
		return one(problemf(input.CodeCronSyntax,
			"not cron(...), rate(...) or at(...); write it as for EventBridge, such as cron(0 12 * * ? *)"))
	}
	switch kind {
	case "cron":
		return p.readCron(&awsGrammar, inner, spec, loc)
	case "rate":
		return one(p.readAWSRate(text, inner))
	case "at":
		if strings.ContainsAny(inner, "Z+.") || strings.Count(inner, "-") > 2 {
			return one(problemf(input.CodeTimeInvalid,
				"EventBridge takes a local time, yyyy-mm-ddThh:mm:ss; set timezone for its zone"))
		}
		if spec.Timezone == "" {
			spec.Timezone = "UTC"
		}
		at, err := readAt(text, spec, loc)
		p.source, p.meaning = at, meaning{times: at}
		return one(err)
	}
	return one(problemf(input.CodeCronSyntax, "%q is not cron, rate or at", kind))
}

// readAWSRate reads rate(n unit). EventBridge Scheduler takes rate(1 days) as well as rate(1 day), but no singular unit
// after another number.
func (p *program) readAWSRate(text, inner string) *input.Problem {
	value, unit, _ := strings.Cut(inner, " ")
	switch strings.TrimSuffix(unit, "s") {
	case "minute", "hour", "day":
	default:
		return problemf(input.CodeRateSyntax, "write rate(n unit) with minute, minutes, hour, hours, day or days")
	}
	if !strings.HasSuffix(unit, "s") && isNumber(value) && number(value) != 1 {
		return problemf(input.CodeRateSyntax, "the unit must agree with the number; write rate(%s %ss)", value, unit)
	}
	period, _, err := parseInterval(text)
	p.setElapsed(period)
	return err
}

// one returns a list of the problem, or nil if there is none.
func one(f *input.Problem) []*input.Problem {
	if f == nil {
		return nil
	}
	return []*input.Problem{f}
}
