package target

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-dev/carillon/dispatcher/input"
)

// Lambda is an AWS Lambda function, invoked with the credentials of the node.
type Lambda struct {
	// Function is the name, ARN or partial ARN (ACCOUNT:function:NAME), optionally with :QUALIFIER, a version or
	// alias.
	Function string `json:"function" schema:"required"`
	// Invocation is how the function is invoked; empty means RequestResponse.
	Invocation Invocation `json:"invocation,omitempty"`
	// Region is the function's region; empty means that of its ARN, else the node's.
	Region string `json:"region,omitempty"`
	// ClientContext is a JSON object in the function's context.
	ClientContext json.RawMessage `json:"client_context,omitempty"`
	// AssumeRole is a role to invoke the function as; nil means the node's own.
	AssumeRole *AssumeRole `json:"assume_role,omitempty"`
	// Concurrency is how many attempts of the job a node makes at once at most; 0 means as many as of any job.
	Concurrency int `json:"concurrency,omitempty" schema:"max=10000,min=0"`
	// Timeout bounds one attempt. It should be longer than the function's own timeout: a function
	// may go on after its attempt timed out.
	Timeout input.Duration `json:"timeout,omitempty"`
	// Callback lets a function with InvokeEvent finish the attempt; if nil, queueing the event is a success.
	Callback *CallbackPolicy `json:"callback,omitempty"`
	// TraceContext puts the W3C trace context of the attempt into the event, as carillon.traceparent.
	TraceContext bool `json:"trace_context,omitempty"`
}

// AssumeRole is a role to assume, for example in another account. The session is named after the app, and has its
// external id (App.AWSExternalID) and the tags SessionTagApp and SessionTagJob, so that the role's trust policy can
// require them.
type AssumeRole struct {
	RoleARN string `json:"role_arn" schema:"required"`
	// SessionTags are passed on to the session, at most maxSessionTags.
	SessionTags map[string]string `json:"session_tags,omitempty" schema:"each_max=256,max=48"`
}

// The tags of every session. Policies distinguish apps and jobs by them. Jobs cannot declare tags with their prefix.
const (
	SessionTagApp = "carillon:app"
	SessionTagJob = "carillon:job"

	maxSessionTags = 48 // AWS allows 50
)

// ReservedSessionTag reports whether jobs may not declare a session tag. AWS compares tags without regard to case.
func ReservedSessionTag(key string) bool {
	lower := strings.ToLower(key)
	return strings.HasPrefix(lower, "carillon:") || strings.HasPrefix(lower, "aws:")
}

// Invocation is how a function is invoked.
type Invocation string

// The ways to invoke a function.
const (
	InvokeRequestResponse Invocation = "RequestResponse" // wait for its result
	InvokeEvent           Invocation = "Event"           // hand the event to Lambda's own queue and retries
)

// MaxLambdaTimeout is how long a function may run.
const MaxLambdaTimeout = 15 * time.Minute

// timeout is short for an event: Lambda only queues it.
func (l Lambda) timeout() time.Duration {
	if l.Invocation == InvokeEvent {
		return min(l.Timeout, DefaultTimeout).Std()
	}
	return l.Timeout.Std()
}

// SetDefaults gives a decoded target the values of fields that its JSON leaves out.
func (l *Lambda) SetDefaults() {
	l.Invocation, l.Timeout = InvokeRequestResponse, input.Duration(MaxLambdaTimeout)
}

const functionName = `([a-zA-Z0-9_-]{1,64})(:(\$LATEST|[a-zA-Z0-9_-]{1,128}))?`

var (
	functionForms = []*regexp.Regexp{
		regexp.MustCompile(`^` + functionName + `$`),
		regexp.MustCompile(`^[0-9]{12}:function:` + functionName + `$`),
		regexp.MustCompile(`^arn:aws[a-z-]*:lambda:[a-z0-9-]+:[0-9]{12}:function:` + functionName + `$`),
	}
	roleForm   = regexp.MustCompile(`^arn:aws[a-z-]*:iam::[0-9]{12}:role/[a-zA-Z0-9+=,.@_/-]{1,512}$`)
	regionForm = regexp.MustCompile(`^[a-z]{2,3}(-[a-z]+)+-[0-9]{1,2}$`)
	// partitions of regions, by the beginning of their names; all others are in "aws".
	partitions = map[string]string{"cn-": "aws-cn", "us-gov-": "aws-us-gov", "us-iso-": "aws-iso",
		"us-isob-": "aws-iso-b", "eu-isoe-": "aws-iso-e", "us-isof-": "aws-iso-f", "eusc-": "aws-eusc"}
)

// partitionOf returns the partition of a region.
func partitionOf(region string) string {
	for begin, partition := range partitions {
		if strings.HasPrefix(region, begin) {
			return partition
		}
	}
	return "aws"
}

// FunctionRegion returns the region that the target names; empty means the node's.
func (l Lambda) FunctionRegion() string {
	if parts := strings.Split(l.Function, ":"); parts[0] == "arn" && len(parts) > 3 {
		return parts[3]
	}
	return l.Region
}

// Validate returns everything wrong with l, as Problems with JSON pointers, or nil.
func (l Lambda) Validate() error {
	var problems input.Problems
	l.checkFunction(&problems)
	if l.Region != "" && !regionForm.MatchString(l.Region) {
		problems.Add("/region", input.CodeLambdaARN, "region %s is not of the form eu-central-1", input.Echo(l.Region))
	}
	input.CheckEnum(&problems, "/invocation", "invocation", l.Invocation, []Invocation{InvokeRequestResponse, InvokeEvent})
	l.checkContext(&problems)
	if role := l.AssumeRole; role != nil {
		role.check(&problems, "/assume_role", l.FunctionRegion())
	}
	if l.Concurrency < 0 || l.Concurrency > 10_000 {
		problems.Add("/concurrency", input.CodeCountRange, "concurrency %d is not between 0 and 10000; 0 means no limit of its own",
			l.Concurrency)
	}
	l.Timeout.CheckRange(&problems, "/timeout", input.MinDuration, MaxLambdaTimeout)
	if l.Callback.check(&problems, "/callback"); l.Callback != nil && l.Invocation == InvokeRequestResponse {
		problems.Add("/callback", input.CodeEnum, "the result of a function invoked with RequestResponse is the end of its attempt; "+
			"use Event, or remove callback")
	}
	return problems.Err()
}

func (l Lambda) checkFunction(problems *input.Problems) {
	const at, form = "/function", "write it as NAME, ACCOUNT:function:NAME or " +
		"arn:aws:lambda:REGION:ACCOUNT:function:NAME, each with or without :QUALIFIER"
	if l.Function == "" {
		problems.Add(at, input.CodeRequired, "function is missing; %s", form)
		return
	}
	if !slices.ContainsFunc(functionForms, func(r *regexp.Regexp) bool { return r.MatchString(l.Function) }) {
		problems.Add(at, input.CodeLambdaARN, "function %s is neither a name nor an ARN of a Lambda function; %s", input.Echo(l.Function), form)
		return
	}
	parts := strings.Split(l.Function, ":")
	if parts[0] != "arn" || len(parts) < 4 {
		return
	}
	switch partition, region := parts[1], parts[3]; {
	case partitionOf(region) != partition:
		problems.Add(at, input.CodeLambdaARN, "region %s is in partition %s, not in %s", input.Echo(region), partitionOf(region),
			input.Echo(partition))
	case l.Region != "" && l.Region != region:
		problems.Add("/region", input.CodeLambdaARN, "region %s is not the region of the function's ARN, which is %s; leave it out",
			input.Echo(l.Region), input.Echo(region))
	}
}

func (l Lambda) checkContext(problems *input.Problems) {
	const at, most = "/client_context", 3583 // of base64, by Lambda's API
	if len(l.ClientContext) == 0 {
		return
	}
	if !json.Valid(l.ClientContext) || !strings.HasPrefix(strings.TrimSpace(string(l.ClientContext)), "{") {
		problems.Add(at, input.CodeJSONType, "client context is not a JSON object")
		return
	}
	if n := base64.StdEncoding.EncodedLen(len(l.ClientContext)); n > most {
		problems.Add(at, input.CodeTextTooLong, "client context has %d bytes in base64; the maximum is %d", n, most)
	}
	if l.Invocation == InvokeEvent {
		problems.Add(at, input.CodeEnum, "Lambda passes no client context to functions invoked with Event; remove it, or use RequestResponse")
	}
}

func (r AssumeRole) check(problems *input.Problems, at, region string) {
	switch {
	case r.RoleARN == "":
		problems.Add(at+"/role_arn", input.CodeRequired, "role is missing; write it as arn:aws:iam::ACCOUNT:role/NAME")
	case !roleForm.MatchString(r.RoleARN):
		problems.Add(at+"/role_arn", input.CodeRoleARN, "role %s is not of the form arn:aws:iam::ACCOUNT:role/NAME", input.Echo(r.RoleARN))
	case region != "" && strings.Split(r.RoleARN, ":")[1] != partitionOf(region):
		problems.Add(at+"/role_arn", input.CodeRoleARN, "role %s is in another partition than region %s, which is in %s",
			input.Echo(r.RoleARN), input.Echo(region), partitionOf(region))
	}
	if len(r.SessionTags) > maxSessionTags {
		problems.Add(at+"/session_tags", input.CodeTooMany, "%d session tags are given; the maximum is %d, because AWS allows 50 and "+
			"two are Carillon's", len(r.SessionTags), maxSessionTags)
		return
	}
	for _, key := range input.SortedKeys(r.SessionTags) {
		switch n, m := len(key), len(r.SessionTags[key]); {
		case ReservedSessionTag(key):
			problems.Add(at+"/session_tags"+input.Pointer(key), input.CodeSessionTag,
				"session tag %s begins with carillon: or aws:, which only Carillon and AWS set; name it otherwise", input.Echo(key))
		case n == 0 || n > 128 || m > 256 || strings.ContainsFunc(key+r.SessionTags[key], unicode.IsControl):
			problems.Add(at+"/session_tags"+input.Pointer(key), input.CodeLabelFormat, "session tag %s does not have a name of 1 to 128 bytes "+
				"and a value of at most 256 bytes, both without control characters", input.Echo(key))
		}
	}
}

func (l *Lambda) kind() Kind { return KindLambda }

// host is lambda:ACCOUNT:REGION:function:NAME:ROLE, without the parts that the target leaves to the node.
func (l *Lambda) host() (name string, atOnce int) {
	parts := []string{"lambda", l.account(), l.FunctionRegion(), "function", l.FunctionName()}
	if l.AssumeRole != nil {
		parts = append(parts, l.AssumeRole.RoleARN)
	}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ":"), l.Concurrency
}

// FunctionName returns the name of the function alone, because its versions and aliases are one function.
func (l *Lambda) FunctionName() string {
	switch parts := strings.Split(l.Function, ":"); {
	case parts[0] == "arn" && len(parts) > 6:
		return parts[6]
	case len(parts) > 2 && parts[1] == "function":
		return parts[2]
	default:
		return parts[0]
	}
}

// account returns the account that the target names; empty means that of the node or of the role.
func (l *Lambda) account() string {
	switch parts := strings.Split(l.Function, ":"); {
	case parts[0] == "arn" && len(parts) > 4:
		return parts[4]
	case len(parts) > 2 && parts[1] == "function":
		return parts[0]
	}
	return ""
}

// origin is empty: a function has no secrets.
func (l *Lambda) origin() string { return "" }

func (l *Lambda) templates(*input.Problems) *Templates { return nil }

func (l *Lambda) warn(json.RawMessage, *input.Problems) {}
