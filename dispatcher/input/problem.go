package input

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-dev/carillon/dispatcher/schedule"
)

// Codes of problems. With schedule.Codes they are the closed list of values of `code` in a
// problem+json response.
const (
	CodeAlertForm       = "alert_form"
	CodeAlertJobUnknown = "alert_job_unknown"
	CodeAtPast          = "at_past"
	CodeAppDisabled     = "app_disabled"
	CodeAppNotEmpty     = "app_not_empty"
	CodeAuthForm        = "auth_form"
	CodeAuthPlaintext   = "auth_plaintext"
	CodeAttributeName   = "attribute_name"
	CodeAttemptsRange   = "attempts_range"
	CodeBackoffOrder    = "backoff_order"
	CodeBodyMethod      = "body_method"
	CodeBoundEgress     = "bound_egress"
	CodeBoundForm       = "bound_form"
	CodeBoundFunction   = "bound_function"
	CodeBoundOperator   = "bound_operator"
	CodeBoundQueue      = "bound_queue"
	CodeBoundQuota      = "bound_quota"
	CodeBoundRole       = "bound_role"
	CodeBoundSecret     = "bound_secret"
	CodeBoundSigning    = "bound_signing"
	CodeBoundSuspended  = "bound_suspended"
	CodeBulkFilter      = "bulk_filter"
	CodeBoundTopic      = "bound_topic"
	CodeCalendarBase    = "calendar_base"
	CodeCalendarInUse   = "calendar_in_use"
	CodeCalendarUnknown = "calendar_unknown"
	CodeCallbackURL     = "callback_url"
	CodeCarryState      = "carry_state"
	CodeCountRange      = "count_range"
	CodeDurationEmpty   = "duration_empty"
	CodeDurationMax     = "duration_max"
	CodeDurationMin     = "duration_min"
	CodeDurationSyntax  = "duration_syntax"
	CodeDurationUnit    = "duration_unit"
	CodeEgressDenied    = "egress_denied"
	CodeEnum            = "enum"
	CodeExecutorTimeout = "executor_timeout"
	CodeFollowCycle     = "follow_cycle"
	CodeFollowTwice     = "follow_twice"
	CodeFollowUnknown   = "follow_job_unknown"
	CodeForbidden       = "forbidden"
	CodeGroupInUse      = "group_in_use"
	CodeGroupKind       = "group_kind"
	CodeGroupUnknown    = "group_unknown"
	CodeHeaderName      = "header_name"
	CodeHeaderReserved  = "header_reserved"
	CodeHeaderSize      = "header_size"
	CodeHeaderValue     = "header_value"
	CodeInternal        = "internal"
	CodeJSONDepth       = "json_depth"
	CodeJSONDuplicate   = "json_duplicate_key"
	CodeJSONNumber      = "json_number"
	CodeJSONSyntax      = "json_syntax"
	CodeJSONTrailing    = "json_trailing"
	CodeJSONType        = "json_type"
	CodeJSONUTF8        = "json_utf8"
	CodeJSONUnknown     = "json_unknown_field"
	CodeJobInUse        = "job_in_use"
	CodeLabelFormat     = "label_format"
	CodeLambdaARN       = "lambda_arn"
	CodeLambdaRegion    = "lambda_region"
	CodeMediaType       = "media_type"
	CodeMethodNotServed = "method_not_allowed"
	CodeMethodUnknown   = "method_unknown"
	CodeNameFormat      = "name_format"
	CodeNameMismatch    = "name_mismatch"
	CodeNameTaken       = "name_taken"
	CodeNetwork         = "network"
	CodeNotFound        = "not_found"
	CodeObjectiveForm   = "objective_form"
	CodePageCursor      = "page_cursor"
	CodePageLimit       = "page_limit"
	CodePayloadTooLarge = "payload_too_large"
	CodePayloadUnused   = "payload_unused"
	CodePrecondition    = "precondition_failed"
	CodePreconditionReq = "precondition_required"
	CodeQueryDuplicate  = "query_duplicate"
	CodeQuerySyntax     = "query_syntax"
	CodeQueryUnknown    = "query_unknown"
	CodeQueueARN        = "queue_arn"
	CodeRateLimited     = "rate_limited"
	CodeRegexp          = "regexp"
	CodeRegexpSize      = "regexp_size"
	CodeRequestTimeout  = "request_timeout"
	CodeRequired        = "required"
	CodeRoleARN         = "role_arn"
	CodeRouteUnknown    = "route_unknown"
	CodeSecretForm      = "secret_form"
	CodeSecretKeys      = "secret_keys"
	CodeSecretLength    = "secret_length"
	CodeSecretMissing   = "secret_missing"
	CodeSecretOrigin    = "secret_origin"
	CodeSecretReference = "secret_reference"
	CodeSessionTag      = "session_tag_reserved"
	CodeStateConflict   = "state_conflict"
	CodeStateInvalid    = "state_invalid"
	CodeStatusCode      = "status_code"
	CodeStringNUL       = "string_nul"
	CodeTZRequired      = "timezone_required"
	CodeZoneData        = "zone_data"
	CodeTLSCertificate  = "tls_certificate"
	CodeTargetKind      = "target_kind"
	CodeTemplateField   = "template_field"
	CodeTemplateForm    = "template_form"
	CodeTemplateFunc    = "template_function"
	CodeTemplateHost    = "template_host"
	CodeTemplateSyntax  = "template_syntax"
	CodeTextInvalid     = "text_invalid"
	CodeTextTooLong     = "text_too_long"
	CodeTimeInvalid     = "time_invalid"
	CodeTimeRange       = "time_range"
	CodeTimeZoneMissing = "time_zone_missing"
	CodeTokenAdmin      = "token_admin"
	CodeTokenLastAdmin  = "token_last_admin"
	CodeTooMany         = "too_many"
	CodeTopicARN        = "topic_arn"
	CodeUnauthorized    = "unauthorized"
	CodeUnavailable     = "unavailable"
	CodeURLFragment     = "url_fragment"
	CodeURLHost         = "url_host"
	CodeURLPort         = "url_port"
	CodeURLScheme       = "url_scheme"
	CodeURLSyntax       = "url_syntax"
	CodeURLTooLong      = "url_too_long"
	CodeURLUserinfo     = "url_userinfo"
)

// Problem is one thing wrong with an input.
type Problem struct {
	// Path is a JSON pointer (RFC 6901) to the wrong value; empty means the input as a whole.
	Path string `json:"path"`
	// Code is one of the Code constants or of schedule.Codes.
	Code string `json:"code"`
	// Message names the value, the rule and the way out. It never holds a secret.
	Message string `json:"message"`
}

// Error returns path and message.
func (f *Problem) Error() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Problems are all that is wrong with one input. As an error it is never empty.
type Problems []Problem

// Error joins the problems.
func (f Problems) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "; ")
}

// Add appends a problem whose message is formatted.
func (f *Problems) Add(path, code, format string, args ...any) {
	*f = append(*f, Problem{Path: path, Code: code, Message: fmt.Sprintf(format, args...)})
}

// AddError appends what err holds under path: a Problem, Problems or
// schedule.Errors.
func (f *Problems) AddError(path string, err error) {
	var one *Problem
	var many Problems
	var ofSchedule schedule.Errors
	switch {
	case err == nil:
	case errors.As(err, &one):
		*f = append(*f, Problem{Path: path + one.Path, Code: one.Code, Message: one.Message})
	case errors.As(err, &many):
		for _, problem := range many {
			*f = append(*f, Problem{Path: path + problem.Path, Code: problem.Code, Message: problem.Message})
		}
	case errors.As(err, &ofSchedule):
		for _, e := range ofSchedule {
			*f = append(*f, Problem{Path: path + "/" + e.Field, Code: e.Code, Message: e.Message})
		}
	default:
		f.Add(path, CodeInternal, "%v", err)
	}
}

// Err returns f as an error, nil if it is empty.
func (f Problems) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// Echo quotes a value for a message: escaped, and cut to 64 characters.
func Echo(value string) string { return strconv.Quote(Clip(value)) }

// Pointer joins tokens to a JSON pointer, escaping them as RFC 6901 says. A token of more
// than 64 characters is cut, as Echo cuts values: no name is so long.
func Pointer(tokens ...string) string {
	var b strings.Builder
	for _, token := range tokens {
		b.WriteByte('/')
		b.WriteString(pointerEscapes.Replace(Clip(token)))
	}
	return b.String()
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Clip cuts text to 64 characters.
func Clip(text string) string {
	const most = 64
	n := 0
	for i := range text {
		if n == most {
			return text[:i] + "…"
		}
		n++
	}
	return text
}
