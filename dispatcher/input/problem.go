package input

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing wrong with an input.
type Problem struct {
	// Path is a JSON pointer (RFC 6901) to the wrong value; empty means the input as a whole.
	Path string `json:"path"`
	// Code is one of Codes.
	Code string `json:"code" schema:"Code"`
	// Message names the value, the rule and the remedy. It never contains a secret.
	Message string `json:"message"`
}

// Error returns path and message.
func (f *Problem) Error() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Refuse returns a problem with the input as a whole, with a formatted message.
func Refuse(code, format string, args ...any) error {
	return &Problem{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Problems are all problems of one input. As an error it is never empty.
type Problems []Problem

// Error joins the problems.
func (f Problems) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "; ")
}

// Add appends a problem with a formatted message.
func (f *Problems) Add(path, code, format string, args ...any) {
	*f = append(*f, Problem{Path: path, Code: code, Message: fmt.Sprintf(format, args...)})
}

// AddError appends the Problem or Problems in err, under path.
func (f *Problems) AddError(path string, err error) {
	var one *Problem
	var many Problems
	switch {
	case err == nil:
	case errors.As(err, &one):
		*f = append(*f, Problem{Path: path + one.Path, Code: one.Code, Message: one.Message})
	case errors.As(err, &many):
		for _, problem := range many {
			*f = append(*f, Problem{Path: path + problem.Path, Code: problem.Code, Message: problem.Message})
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

// Pointer joins tokens to a JSON pointer, escaped by RFC 6901. A token of more than 64 characters is cut, as Echo
// cuts values, because names are shorter.
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

// Codes of problems. They are part of the API: clients branch on them.
const (
	CodeAlertForm       = "alert_form"
	CodeAlertJobUnknown = "alert_job_unknown"
	CodeAppDisabled     = "app_disabled"
	CodeAppNotEmpty     = "app_not_empty"
	CodeAtPast          = "at_past"
	CodeAttemptsRange   = "attempts_range"
	CodeAttributeName   = "attribute_name"
	CodeAuthForm        = "auth_form"
	CodeAuthPlaintext   = "auth_plaintext"
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
	CodeBoundTopic      = "bound_topic"
	CodeBulkFilter      = "bulk_filter"
	CodeCalendarBase    = "calendar_base"
	CodeCalendarCost    = "calendar_cost" // a calendar that costs too much, or too many steps to a fire
	CodeCalendarInUse   = "calendar_in_use"
	CodeCalendarRule    = "calendar_rule" // a calendar rule that is not of exactly one kind
	CodeCalendarUnknown = "calendar_unknown"
	CodeCallbackURL     = "callback_url"
	CodeCarryState      = "carry_state"
	CodeCountRange      = "count_range"
	CodeCronControl     = "cron_control"   // control, invisible or non-ASCII white space
	CodeCronDays        = "cron_days"      // quartz: not exactly one of the two day fields is ?
	CodeCronEmpty       = "cron_empty"     // only white space
	CodeCronFields      = "cron_fields"    // wrong number of fields
	CodeCronHash        = "cron_hash"      // H without an identity to hash
	CodeCronMacro       = "cron_macro"     // unknown @name
	CodeCronName        = "cron_name"      // a word that is not a name in this field
	CodeCronNever       = "cron_never"     // well formed, but no date matches
	CodeCronRange       = "cron_range"     // a value outside its field, or a reversed range
	CodeCronStep        = "cron_step"      // a step that is missing, zero or too large
	CodeCronSyntax      = "cron_syntax"    // anything else that is malformed
	CodeCronTooLong     = "cron_too_long"  // more than 256 bytes
	CodeCronTZPrefix    = "cron_tz_prefix" // TZ= inside the expression
	CodeDurationEmpty   = "duration_empty"
	CodeDurationMax     = "duration_max"
	CodeDurationMin     = "duration_min"
	CodeDurationSyntax  = "duration_syntax"
	CodeDurationUnit    = "duration_unit"
	CodeEgressDenied    = "egress_denied"
	CodeEnum            = "enum"
	CodeExecutorTimeout = "executor_timeout"
	CodeFollowCycle     = "follow_cycle"
	CodeFollowUnknown   = "follow_unknown"
	CodeFollowTwice     = "follow_twice"
	CodeForbidden       = "forbidden"
	CodeGroupInUse      = "group_in_use"
	CodeGroupKind       = "group_kind"
	CodeGroupUnknown    = "group_unknown"
	CodeHeaderName      = "header_name"
	CodeHeaderReserved  = "header_reserved"
	CodeHeaderSize      = "header_size"
	CodeHeaderValue     = "header_value"
	CodeInternal        = "internal"
	CodeJitterRange     = "jitter_range" // a jitter that is negative or more than a day
	CodeJSONDepth       = "json_depth"
	CodeJSONDuplicate   = "json_duplicate_key"
	CodeJSONNumber      = "json_number"
	CodeJSONSyntax      = "json_syntax"
	CodeJSONTrailing    = "json_trailing"
	CodeJSONType        = "json_type"
	CodeJSONUnknown     = "json_unknown_field"
	CodeJSONUTF8        = "json_utf8"
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
	CodeNodeEgress      = "node_egress"   // a warning: no live node may call an address
	CodeNodeIdentity    = "node_identity" // a warning: no live node can read a secret or find a function
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
	CodeRateMax         = "rate_max"    // an interval of more than 100 years
	CodeRateMin         = "rate_min"    // an interval of less than a second
	CodeRateSyntax      = "rate_syntax" // an interval that is malformed
	CodeRegexp          = "regexp"
	CodeRegexpSize      = "regexp_size"
	CodeRepeatRange     = "repeat_range" // a negative or too large repeat count
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
	CodeTZRequired      = "timezone_required"
	CodeTLSCertificate  = "tls_certificate"
	CodeTokenAdmin      = "token_admin"
	CodeTokenLastAdmin  = "token_last_admin"
	CodeTooMany         = "too_many"
	CodeTopicARN        = "topic_arn"
	CodeTZOffset        = "tz_offset"  // an offset where a zone is needed
	CodeTZUnknown       = "tz_unknown" // not an IANA zone
	CodeUnauthorized    = "unauthorized"
	CodeUnavailable     = "unavailable"
	CodeURLFragment     = "url_fragment"
	CodeURLHost         = "url_host"
	CodeURLPort         = "url_port"
	CodeURLScheme       = "url_scheme"
	CodeURLSyntax       = "url_syntax"
	CodeURLTooLong      = "url_too_long"
	CodeURLUserinfo     = "url_userinfo"
	CodeWindowOrder     = "window_order" // start_at after end_at
	CodeZoneData        = "zone_data"
)

// Codes of warnings, about properties of a schedule that are allowed but may be unintended.
const (
	WarnDay         = "day_missing"  // day of month 29 to 31 only
	WarnDST         = "dst"          // fires that daylight saving skips within a year, without a rule for gaps
	WarnJitter      = "jitter_long"  // jitter as long as the time between two fires, or longer
	WarnMovedHour   = "moved_hour"   // next_included moves a fire to another hour
	WarnNoFire      = "no_fire"      // no fire in the window
	WarnShortMonths = "short_months" // a calendar interval from a day that some months lack
	WarnStarStep    = "star_step"    // crontab's */n day field: both day fields must match
	WarnStep        = "step_uneven"  // a step that does not divide its field
	WarnZone        = "tz_abbrev"    // an abbreviation as the zone
)

// CodeRow is the meaning of the code of a problem or warning.
type CodeRow struct {
	// Code is the value of `code` in a problem+json response and in a warning.
	Code string
	// Status is the status of a response with only this problem; 0 for a warning.
	Status int
	// Title names the problem in a few words, as the first line of a diagnostic of Terraform.
	Title string
}

// Codes is the closed list of codes, in order.
var Codes = []CodeRow{
	{CodeAlertForm, 422, "The alert cannot have this"},
	{CodeAlertJobUnknown, 422, "The alert selects no job"},
	{CodeAppDisabled, 409, "The app is disabled"},
	{CodeAppNotEmpty, 409, "The app still has jobs, calendars or endpoint groups"},
	{CodeAtPast, 422, "A time in the past"},
	{CodeAttemptsRange, 422, "Number of attempts out of range"},
	{CodeAttributeName, 422, "Invalid or reserved name of an attribute"},
	{CodeAuthForm, 422, "Authentication is not of exactly one kind"},
	{CodeAuthPlaintext, 422, "A secret is sent unencrypted"},
	{CodeBackoffOrder, 422, "The longest wait is shorter than the first"},
	{CodeBodyMethod, 422, "The method sends no body"},
	{CodeBoundEgress, 422, "The app may not call this host or port"},
	{CodeBoundForm, 422, "Invalid bound of the app"},
	{CodeBoundFunction, 422, "The app may not invoke this function"},
	{CodeBoundOperator, 422, "Only operators change bounds"},
	{CodeBoundQueue, 422, "The app may not send to this queue"},
	{CodeBoundQuota, 422, "A quota of the app is used up"},
	{CodeBoundRole, 422, "The app may not assume this role"},
	{CodeBoundSecret, 422, "The app may not use this secret"},
	{CodeBoundSigning, 422, "The app may not sign as the node"},
	{CodeBoundSuspended, 409, "The app is suspended"},
	{CodeBoundTopic, 422, "The app may not publish to this topic"},
	{CodeBulkFilter, 422, "A filter does not fit its action"},
	{CodeCalendarBase, 422, "Invalid base of a calendar"},
	{CodeCalendarCost, 422, "The calendar takes too long to evaluate"},
	{CodeCalendarInUse, 409, "The calendar is in use"},
	{CodeCalendarRule, 422, "Invalid rule of a calendar"},
	{CodeCalendarUnknown, 422, "The calendar does not exist"},
	{CodeCallbackURL, 422, "The nodes do not know where targets call back"},
	{CodeCarryState, 422, "The job cannot carry a state"},
	{CodeCountRange, 422, "Number out of range"},
	{CodeCronControl, 422, "Invisible character in the expression"},
	{CodeCronDays, 422, "Day of month and day of week contradict each other"},
	{CodeCronEmpty, 422, "Empty expression"},
	{CodeCronFields, 422, "Wrong number of fields in the expression"},
	{CodeCronHash, 422, "H has no name to hash"},
	{CodeCronMacro, 422, "Unknown macro"},
	{CodeCronName, 422, "Unknown name in the expression"},
	{CodeCronNever, 422, "The expression never fires"},
	{CodeCronRange, 422, "Value out of range in the expression"},
	{CodeCronStep, 422, "Invalid step in the expression"},
	{CodeCronSyntax, 422, "Invalid expression"},
	{CodeCronTooLong, 422, "The expression is too long"},
	{CodeCronTZPrefix, 422, "Time zone inside the expression"},
	{WarnDay, 0, "Some months lack this day"},
	{WarnDST, 0, "Daylight saving changes fires"},
	{CodeDurationEmpty, 422, "Empty duration"},
	{CodeDurationMax, 422, "Duration too long"},
	{CodeDurationMin, 422, "Duration too short"},
	{CodeDurationSyntax, 422, "Invalid duration"},
	{CodeDurationUnit, 422, "Unit missing or unknown in a duration"},
	{CodeEgressDenied, 422, "Nodes never call this host"},
	{CodeEnum, 422, "Not one of the allowed values"},
	{CodeExecutorTimeout, 422, "The executor interrupts runs after their callback is missing"},
	{CodeFollowCycle, 422, "Jobs follow one another in a circle"},
	{CodeFollowTwice, 422, "A job follows the same event twice"},
	{CodeFollowUnknown, 422, "The job or alert that is to follow does not exist"},
	{CodeForbidden, 403, "The token does not allow this"},
	{CodeGroupInUse, 409, "The endpoint group is in use"},
	{CodeGroupKind, 422, "Not for endpoint groups of this kind"},
	{CodeGroupUnknown, 422, "The endpoint group does not exist"},
	{CodeHeaderName, 422, "Invalid or repeated name of a header"},
	{CodeHeaderReserved, 422, "Header that Carillon sets itself"},
	{CodeHeaderSize, 422, "Headers too many or too long"},
	{CodeHeaderValue, 422, "Invalid character in a header"},
	{CodeInternal, 500, "Internal error of Carillon"},
	{WarnJitter, 0, "Jitter as long as the time between fires"},
	{CodeJitterRange, 422, "Jitter out of range"},
	{CodeJSONDepth, 400, "JSON nested too deep"},
	{CodeJSONDuplicate, 400, "Key repeated in JSON"},
	{CodeJSONNumber, 400, "Number is out of range"},
	{CodeJSONSyntax, 400, "Invalid JSON"},
	{CodeJSONTrailing, 400, "Text after the JSON value"},
	{CodeJSONType, 400, "Wrong type of a value"},
	{CodeJSONUnknown, 400, "Field unknown to the API"},
	{CodeJSONUTF8, 400, "Text is not UTF-8"},
	{CodeLabelFormat, 422, "Invalid label"},
	{CodeLambdaARN, 422, "Invalid Lambda function or region"},
	{CodeLambdaRegion, 422, "The function is in another region than the nodes"},
	{CodeMediaType, 415, "The request is not JSON"},
	{CodeMethodNotServed, 405, "The API does not serve this method"},
	{CodeMethodUnknown, 422, "Unknown HTTP method"},
	{WarnMovedHour, 0, "A calendar moves fires to another hour"},
	{CodeNameFormat, 422, "Invalid name"},
	{CodeNameMismatch, 422, "Two different names"},
	{CodeNameTaken, 412, "The name is taken"},
	{CodeNetwork, 422, "Invalid network"},
	{WarnNoFire, 0, "Nothing is left to fire"},
	{CodeNodeEgress, 422, "No node may call this address"},
	{CodeNodeIdentity, 422, "No node has what this needs"},
	{CodeNotFound, 404, "It does not exist"},
	{CodeObjectiveForm, 422, "Invalid objective"},
	{CodePageCursor, 400, "Invalid cursor of a page"},
	{CodePageLimit, 400, "Invalid length of a page"},
	{CodePayloadTooLarge, 413, "The payload is too large"},
	{CodePayloadUnused, 422, "The payload is not sent"},
	{CodePrecondition, 412, "Changed outside of Terraform"},
	{CodePreconditionReq, 428, "A revision is required"},
	{CodeQueryDuplicate, 400, "Query parameter repeated"},
	{CodeQuerySyntax, 400, "Invalid query"},
	{CodeQueryUnknown, 400, "Unknown query parameter"},
	{CodeQueueARN, 422, "Invalid SQS queue"},
	{CodeRateLimited, 429, "Too many requests"},
	{CodeRateMax, 422, "Interval too long"},
	{CodeRateMin, 422, "Interval too short"},
	{CodeRateSyntax, 422, "Invalid interval"},
	{CodeRegexp, 422, "Invalid regular expression"},
	{CodeRegexpSize, 422, "The regular expression is too large"},
	{CodeRepeatRange, 422, "Repeat count out of range"},
	{CodeRequestTimeout, 408, "Request took too long"},
	{CodeRequired, 422, "A value is missing"},
	{CodeRoleARN, 422, "Invalid role"},
	{CodeRouteUnknown, 404, "The API does not know this address"},
	{CodeSecretForm, 422, "Invalid secret"},
	{CodeSecretKeys, 422, "Carillon has no key to store secrets with"},
	{CodeSecretLength, 422, "Length of a secret out of range"},
	{CodeSecretMissing, 422, "The value of a secret is missing"},
	{CodeSecretOrigin, 422, "A stored secret would go to another server"},
	{CodeSecretReference, 422, "Invalid reference to a secret"},
	{CodeSessionTag, 422, "Reserved session tag"},
	{WarnShortMonths, 0, "Some months are too short"},
	{WarnStarStep, 0, "Both day fields must match"},
	{CodeStateConflict, 409, "Its state does not allow this"},
	{CodeStateInvalid, 422, "Invalid state"},
	{CodeStatusCode, 422, "Invalid success code"},
	{WarnStep, 0, "Uneven steps"},
	{CodeStringNUL, 422, "Text with the character NUL"},
	{CodeTargetKind, 422, "Not exactly one target"},
	{CodeTemplateField, 422, "Unknown field in a template"},
	{CodeTemplateForm, 422, "Construct that templates do not allow"},
	{CodeTemplateFunc, 422, "Wrong function in a template"},
	{CodeTemplateHost, 422, "Template in the host of a URL"},
	{CodeTemplateSyntax, 422, "Invalid template"},
	{CodeTextInvalid, 422, "Character that is not allowed"},
	{CodeTextTooLong, 422, "The text is too long"},
	{CodeTimeInvalid, 422, "Invalid date or time"},
	{CodeTimeRange, 422, "Time out of range"},
	{CodeTimeZoneMissing, 422, "Time without a zone"},
	{CodeTZRequired, 422, "The time zone is missing"},
	{CodeTLSCertificate, 422, "Invalid certificate or key"},
	{CodeTokenAdmin, 422, "Scope admin on a token of single apps"},
	{CodeTokenLastAdmin, 409, "The last token of scope admin"},
	{CodeTooMany, 422, "Too many"},
	{CodeTopicARN, 422, "Invalid SNS topic"},
	{WarnZone, 0, "Abbreviation instead of a time zone"},
	{CodeTZOffset, 422, "Offset instead of a time zone"},
	{CodeTZUnknown, 422, "Unknown time zone"},
	{CodeUnauthorized, 401, "Carillon's API does not accept the token"},
	{CodeUnavailable, 503, "Carillon cannot serve requests at this moment"},
	{CodeURLFragment, 422, "URL with a fragment"},
	{CodeURLHost, 422, "Invalid host of a URL"},
	{CodeURLPort, 422, "Invalid port of a URL"},
	{CodeURLScheme, 422, "The URL is not http or https"},
	{CodeURLSyntax, 422, "Invalid URL"},
	{CodeURLTooLong, 422, "The URL is too long"},
	{CodeURLUserinfo, 422, "User name or password in a URL"},
	{CodeWindowOrder, 422, "The start is after the end"},
	{CodeZoneData, 422, "Time zone data that cannot be used"},
}

// RowOf returns the row of a code. It is empty for codes of a newer API, which clients may get.
func RowOf(code string) CodeRow {
	i, known := slices.BinarySearchFunc(Codes, code, func(row CodeRow, code string) int { return strings.Compare(row.Code, code) })
	if !known {
		return CodeRow{}
	}
	return Codes[i]
}
