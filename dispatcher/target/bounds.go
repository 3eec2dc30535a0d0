package target

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/run"
)

// Bounds are what operators allow an app. Tokens that are bound to apps obey them, can read them and cannot change
// them. A zero field means its default; WithDefaults fills them in. A list that is empty but not nil allows nothing,
// so that a computed list that came out empty never permits everything.
type Bounds struct {
	// Suspended stops the app: nodes claim no fire and send no request for it until an operator lifts the suspension.
	// It is independent of App.Enabled, which the app's owner may change.
	Suspended bool `json:"suspended"`
	// SuspendedReason is shown to the app's owner; free text of at most 1024 characters.
	SuspendedReason string `json:"suspended_reason" schema:"max=1024"`
	// Suspension says who suspended the app, and when. Read-only.
	Suspension `body:"-"`
	// Weight is how many turns the app gets for each turn of an app with weight 1 when fires of
	// several apps wait for a node: 1 to MaxWeight; default 1.
	Weight int `json:"weight" schema:"default=1,max=100,min=0"`
	// Quotas limit how much of the installation the app may use.
	Quotas Quotas `json:"quotas"`
	// Secrets are the references that jobs may use, each with * for any text, / included. A secret of a manager
	// without key and version allows all of them. nil: those of DefaultSecrets, so none of a manager. Empty: none.
	Secrets []string `json:"secrets" schema:"max=100"`
	// Egress are the addresses that webhooks may call.
	Egress EgressBounds `json:"egress"`
	// Lambda are the functions and roles that jobs may use.
	Lambda LambdaBounds `json:"lambda"`
	// SQS are the queues, and SNS the topics, that jobs may send to, and the roles that they may assume for this.
	SQS SQSBounds `json:"sqs"`
	SNS SNSBounds `json:"sns"`
	// SignAsNode are services that webhooks may sign requests for with the AWS credentials of the node. Empty: none.
	SignAsNode []SignatureBound `json:"sign_as_node" schema:"max=100"`

	// Reserved are prefixes of references that belong to other apps although the default of Secrets allows them:
	// SECRET_A_B_KEY belongs to app a-b, not to app a. The store fills it in; it is empty if operators list Secrets.
	Reserved []string `json:"-"`
}

// Suspension says who suspended an app, and when. It is empty if the app is not suspended.
type Suspension struct {
	// SuspendedBy is the actor, as in the audit log.
	SuspendedBy string     `json:"suspended_by,omitempty"`
	SuspendedAt *time.Time `json:"suspended_at,omitempty"`
}

// Quotas limit the use of the installation by an app. Below the current usage, they only refuse new things.
type Quotas struct {
	// Jobs bounds the declared jobs, 1 to 1,000,000; default 10,000.
	Jobs int `json:"jobs" schema:"default=10000,max=1000000,min=0"`
	// Triggers bounds the triggers of all jobs of the app, 1 to 10,000,000; default 100,000.
	Triggers int `json:"triggers" schema:"default=100000,max=10000000,min=0"`
	// WaitingRuns bounds the runs of all kinds that wait for a node, a slot, a host, a callback or their next
	// attempt, 1 to 10,000,000; default 100,000. Above it requests are refused, backfills wait, fires that would have
	// to wait end, and the followers of a run are set aside.
	WaitingRuns int `json:"waiting_runs" schema:"default=100000,max=10000000,min=0"`
	// ChainRuns bounds the runs that follow one run, directly and through others, shards included, 1 to 1,000,000;
	// default 10,000. ChainDepth bounds how many follow one after another, 1 to 1000; default 100.
	ChainRuns int `json:"chain_runs" schema:"default=10000,max=1000000,min=0"`
	// Runs that may follow one after another.
	ChainDepth int `json:"chain_depth" schema:"default=100,max=1000,min=0"`
	// RequestsPerMinute bounds requests to the API by app-bound tokens, for each node, 1 to 1,000,000; default 6,000.
	RequestsPerMinute int `json:"requests_per_minute" schema:"default=6000,max=1000000,min=0"`
	// ManualRunsPerMinute bounds the requests to run or retry a job, 1 to 1,000,000; default 600.
	ManualRunsPerMinute int `json:"manual_runs_per_minute" schema:"default=600,max=1000000,min=0"`
	// BytesKept bounds the bytes of responses and of inputs of runs in the history of the app, 1 MiB to 10 TiB;
	// default 10 GiB. Above it, nodes record runs and attempts without the responses, followers get no result,
	// backfills with a payload wait, and requests with a payload are refused.
	BytesKept int64 `json:"bytes_kept" schema:"default=1.073741824e+10,max=10995116277760,min=0"`
	// Retention is the longest App.Retention, from MinRetention to MaxRetention; default DefaultMostRetention.
	Retention input.Duration `json:"retention" schema:"default=9600h0m0s"`
}

// EgressBounds are the addresses that webhooks of an app may call. All three must allow a call, and the node as well.
type EgressBounds struct {
	// Hosts are the allowed hosts of URLs: a name, an address, or *.example.com for all names below. nil: any; empty:
	// none.
	Hosts []string `json:"hosts" schema:"max=100"`
	// Ports are the allowed ports of URLs. nil: any; empty: none.
	Ports []int `json:"ports" schema:"each_max=65535,each_min=1,max=100"`
	// Networks are the networks that may be dialled: NetworkPublic for every public address, or a CIDR, which is
	// required for a private network. nil: NetworkPublic, and the networks of the node's --egress-private. Empty: none.
	Networks []string `json:"networks" schema:"max=100"`
}

// NetworkPublic stands for all public addresses in EgressBounds.Networks.
const NetworkPublic = "public"

// LambdaBounds are the functions and roles that jobs of an app may use, as patterns of ARNs: * stands for any text and
// ? for any character, as in IAM policies. Empty: none.
type LambdaBounds struct {
	// Functions are matched with the function of a target as written, without its qualifier.
	Functions []string `json:"functions" schema:"max=100"`
	// Roles are matched with assume_role.
	Roles []string `json:"roles" schema:"max=100"`
}

// SQSBounds are the queues and roles that jobs of an app may use, as patterns of ARNs as in LambdaBounds. Empty: none.
type SQSBounds struct {
	// Queues are matched with queue_arn.
	Queues []string `json:"queues" schema:"max=100"`
	// Roles are matched with assume_role.
	Roles []string `json:"roles" schema:"max=100"`
}

// SNSBounds are the topics and roles that jobs of an app may use, as patterns of ARNs as in LambdaBounds. Empty: none.
type SNSBounds struct {
	// Topics are matched with topic_arn.
	Topics []string `json:"topics" schema:"max=100"`
	// Roles are matched with assume_role.
	Roles []string `json:"roles" schema:"max=100"`
}

// SignatureBound allows webhooks to be signed as the node (SigV4).
type SignatureBound struct {
	// Service is the service's name in the signature, such as execute-api.
	Service string `json:"service" schema:"required"`
	// Hosts are the hosts that may be called in this way, in the form of egress.hosts; at least one.
	Hosts []string `json:"hosts" schema:"required,max=100,min=1"`
}

// MaxWeight bounds Bounds.Weight.
const MaxWeight = 100

// DefaultMostRetention is the longest retention that an app may choose by default.
const DefaultMostRetention = input.Duration(400 * 24 * time.Hour)

// Bounds of the lists in Bounds.
const (
	maxBoundPatterns = 100
	maxBoundPattern  = 512 // bytes of one of them
)

// WithDefaults returns the bounds of an app with the defaults of fields that are zero.
func (b Bounds) WithDefaults(app string) Bounds {
	q := &b.Quotas
	b.Weight = cmp.Or(b.Weight, 1)
	q.Jobs, q.Triggers = cmp.Or(q.Jobs, 10_000), cmp.Or(q.Triggers, 100_000)
	q.WaitingRuns, q.ChainRuns, q.ChainDepth = cmp.Or(q.WaitingRuns, 100_000), cmp.Or(q.ChainRuns, 10_000), cmp.Or(q.ChainDepth, 100)
	q.RequestsPerMinute, q.ManualRunsPerMinute = cmp.Or(q.RequestsPerMinute, 6_000), cmp.Or(q.ManualRunsPerMinute, 600)
	q.BytesKept, q.Retention = cmp.Or(q.BytesKept, 10<<30), cmp.Or(q.Retention, DefaultMostRetention)
	if b.Secrets == nil {
		b.Secrets = DefaultSecrets(app)
	}
	for _, list := range b.closedLists() {
		if *list == nil {
			*list = []string{}
		}
	}
	if b.SignAsNode == nil {
		b.SignAsNode = []SignatureBound{}
	}
	return b
}

// closedLists returns the lists that allow nothing by default.
func (b *Bounds) closedLists() []*[]string {
	return []*[]string{&b.Lambda.Functions, &b.Lambda.Roles, &b.SQS.Queues, &b.SQS.Roles, &b.SNS.Topics, &b.SNS.Roles}
}

// DefaultSecrets returns the references that an app may use if its bounds list none: variables that begin with
// SECRET_, the app's name in capitals with _ for -, and _; and files in the app's own directory of the secret
// directory.
func DefaultSecrets(app string) []string {
	return []string{"env:" + SecretEnvPrefix + secretAppName(app) + "_*", "file:" + app + "/*"}
}

// Usage is how much of its quotas an app uses.
type Usage struct {
	Jobs     int64 `json:"jobs"`
	Triggers int64 `json:"triggers"`
	// BytesKept is an estimate: nodes report stored bytes some seconds later.
	BytesKept int64 `json:"bytes_kept"`
}

// CheckGroupOfJob returns, as Problems with the JSON pointer of the group in the job or nil, where the endpoint group
// of a job is outside the bounds of its app.
func (b Bounds) CheckGroupOfJob(g EndpointGroup) error {
	var of, problems input.Problems
	of.AddError("", b.CheckGroup(g))
	for _, p := range of {
		problems.Add("/target/group/name", p.Code, "group %s, %s: %s", input.Echo(g.Name), strings.TrimPrefix(p.Path, "/"), p.Message)
	}
	return problems.Err()
}

// WaitingRunsReached reports that an app has as many waiting runs as its bounds allow.
func WaitingRunsReached(app string, waiting int64, most int) *input.Problem {
	return &input.Problem{Code: input.CodeBoundQuota,
		Message: fmt.Sprintf("%d runs of app %s wait, and its bounds allow %d (quotas.waiting_runs); "+
			"wait until some end, cancel some, or ask an operator for more", waiting, app, most)}
}

// BytesKeptReached reports that an app keeps as many bytes as its bounds allow.
func BytesKeptReached(app string, most int64) string {
	return fmt.Sprintf("the responses and inputs of app %s have reached the %d bytes that its bounds allow (quotas.bytes_kept); "+
		"keep runs for a shorter time, or ask an operator for more", app, most)
}

// SuspendedMessage reports that an app is suspended, why, and who can lift the suspension.
func (b Bounds) SuspendedMessage(app string) string {
	reason := ""
	if b.SuspendedReason != "" {
		reason = " (" + b.SuspendedReason + ")"
	}
	return fmt.Sprintf("app %s is suspended%s; an operator must lift the suspension", app, reason)
}

// secretAppName returns the name of an app in variables.
func secretAppName(app string) string { return strings.ToUpper(input.FoldName(app)) }

// Reserve sets Reserved from the folded names of the apps that begin with the name of this app and _.
func (b *Bounds) Reserve(longer []string) {
	b.Reserved = nil
	for _, name := range longer {
		b.Reserved = append(b.Reserved, "env:"+SecretEnvPrefix+secretAppName(name)+"_")
	}
}

// WithoutDefaults returns bounds without values that equal the default, so that they follow the default.
func (b Bounds) WithoutDefaults(app string) Bounds {
	d := Bounds{}.WithDefaults(app)
	b.Reserved = nil
	if slices.Equal(b.Secrets, d.Secrets) {
		b.Secrets = nil
	}
	for _, list := range b.closedLists() {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if len(b.SignAsNode) == 0 {
		b.SignAsNode = nil
	}
	q := &b.Quotas
	for _, one := range []struct {
		value    *int
		standard int
	}{
		{&b.Weight, d.Weight}, {&q.Jobs, d.Quotas.Jobs}, {&q.Triggers, d.Quotas.Triggers}, {&q.WaitingRuns, d.Quotas.WaitingRuns},
		{&q.RequestsPerMinute, d.Quotas.RequestsPerMinute}, {&q.ManualRunsPerMinute, d.Quotas.ManualRunsPerMinute},
		{&q.ChainRuns, d.Quotas.ChainRuns}, {&q.ChainDepth, d.Quotas.ChainDepth},
	} {
		if *one.value == one.standard {
			*one.value = 0
		}
	}
	if q.BytesKept == d.Quotas.BytesKept {
		q.BytesKept = 0
	}
	if q.Retention == d.Quotas.Retention {
		q.Retention = 0
	}
	return b
}

// Validate returns everything wrong with b, as Problems, or nil.
func (b Bounds) Validate() error {
	var problems input.Problems
	input.CheckText(&problems, "/suspended_reason", b.SuspendedReason)
	input.CheckRange(&problems, "/weight", b.Weight, 0, MaxWeight)
	b.Quotas.check(&problems, "/quotas")
	checkPatterns(&problems, "/secrets", b.Secrets, func(pattern string) string {
		source, name, _ := strings.Cut(pattern, ":")
		switch s := SecretSource(source); {
		case s == SecretEnv && strings.HasPrefix(name, SecretEnvPrefix), s == SecretFile, s.Managed() && name != "":
			return ""
		}
		return "is not " + SecretForms + ", each with * for any text"
	})
	b.Egress.check(&problems, "/egress")
	checkPatterns(&problems, "/lambda/functions", b.Lambda.Functions, func(string) string { return "" })
	role := patternOfARNs("arn:aws:iam::123456789012:role/payments-*")
	checkPatterns(&problems, "/lambda/roles", b.Lambda.Roles, role)
	checkPatterns(&problems, "/sqs/queues", b.SQS.Queues, patternOfARNs("arn:aws:sqs:eu-central-1:123456789012:payments-*"))
	checkPatterns(&problems, "/sqs/roles", b.SQS.Roles, role)
	checkPatterns(&problems, "/sns/topics", b.SNS.Topics, patternOfARNs("arn:aws:sns:eu-central-1:123456789012:payments-*"))
	checkPatterns(&problems, "/sns/roles", b.SNS.Roles, role)
	if len(b.SignAsNode) > maxBoundPatterns {
		problems.Add("/sign_as_node", input.CodeTooMany, "%d services are given; the maximum is %d", len(b.SignAsNode), maxBoundPatterns)
	}
	for i, bound := range b.SignAsNode[:min(len(b.SignAsNode), maxBoundPatterns)] {
		at := fmt.Sprintf("/sign_as_node/%d", i)
		if !awsWord.MatchString(bound.Service) {
			problems.Add(at+"/service", input.CodeAuthForm, "service %s is not the name of an AWS service, such as execute-api",
				input.Echo(bound.Service))
		}
		if len(bound.Hosts) == 0 {
			problems.Add(at+"/hosts", input.CodeRequired,
				"hosts are missing; list those that may get requests signed as the node, such as *.amazonaws.com")
		}
		checkPatterns(&problems, at+"/hosts", bound.Hosts, wrongHostPattern)
	}
	return problems.Err()
}

func (q Quotas) check(problems *input.Problems, at string) {
	input.CheckRange(problems, at+"/jobs", q.Jobs, 0, 1_000_000)
	input.CheckRange(problems, at+"/triggers", q.Triggers, 0, 10_000_000)
	input.CheckRange(problems, at+"/waiting_runs", q.WaitingRuns, 0, 10_000_000)
	input.CheckRange(problems, at+"/chain_runs", q.ChainRuns, 0, 1_000_000)
	input.CheckRange(problems, at+"/chain_depth", q.ChainDepth, 0, 1_000)
	input.CheckRange(problems, at+"/requests_per_minute", q.RequestsPerMinute, 0, 1_000_000)
	input.CheckRange(problems, at+"/manual_runs_per_minute", q.ManualRunsPerMinute, 0, 1_000_000)
	if n := q.BytesKept; n != 0 && (n < 1<<20 || n > 10<<40) {
		problems.Add(at+"/bytes_kept", input.CodeCountRange, "bytes_kept %d is not between 1 MiB (1048576) and 10 TiB (10995116277760)", n)
	}
	if q.Retention != 0 {
		q.Retention.CheckRange(problems, at+"/retention", input.MinRetention, input.MaxRetention)
	}
}

func (e EgressBounds) check(problems *input.Problems, at string) {
	checkPatterns(problems, at+"/hosts", e.Hosts, wrongHostPattern)
	if len(e.Ports) > maxBoundPatterns {
		problems.Add(at+"/ports", input.CodeTooMany, "%d ports are given; the maximum is %d", len(e.Ports), maxBoundPatterns)
	}
	for i, port := range e.Ports[:min(len(e.Ports), maxBoundPatterns)] {
		if port < 1 || port > 65535 {
			problems.Add(fmt.Sprintf("%s/ports/%d", at, i), input.CodeCountRange, "port %d is not between 1 and 65535", port)
		}
	}
	checkPatterns(problems, at+"/networks", e.Networks, func(network string) string {
		prefix, err := netip.ParsePrefix(network)
		switch {
		case network == NetworkPublic:
			return ""
		case err != nil || prefix != prefix.Masked():
			return "is neither " + NetworkPublic + " nor a network such as 10.1.0.0/16"
		case prefix.Addr().IsLoopback() || NeverCalled(prefix.Addr()):
			return "is a network that no app may call: it is the node itself, or reserved, or clouds serve metadata there"
		}
		return ""
	})
}

// checkPatterns reports a list that is too long, and each entry that wrong returns a reason for.
func checkPatterns(problems *input.Problems, at string, patterns []string, wrong func(string) string) {
	if len(patterns) > maxBoundPatterns {
		problems.Add(at, input.CodeTooMany, "%d entries are given; the maximum is %d", len(patterns), maxBoundPatterns)
		return
	}
	for i, pattern := range patterns {
		why := wrong(pattern)
		if pattern == "" || len(pattern) > maxBoundPattern || strings.ContainsFunc(pattern, input.IsControl) {
			why = fmt.Sprintf("does not have 1 to %d bytes without control characters", maxBoundPattern)
		}
		if why != "" {
			problems.Add(fmt.Sprintf("%s/%d", at, i), input.CodeBoundForm, "%s %s", input.Echo(pattern), why)
		}
	}
}

// patternOfARNs returns a check of patterns of ARNs, with an example in its message.
func patternOfARNs(example string) func(string) string {
	return func(pattern string) string {
		if strings.HasPrefix(pattern, "arn:") || pattern == "*" {
			return ""
		}
		return "is not a pattern of ARNs, such as " + example
	}
}

// wrongHostPattern explains what is wrong with a host, or with *. and the end of one.
func wrongHostPattern(pattern string) string {
	host := strings.TrimPrefix(pattern, "*.")
	_, noAddress := netip.ParseAddr(strings.Trim(host, "[]"))
	if host == "" || strings.ContainsAny(host, "*?/: ") && noAddress != nil || host != strings.ToLower(host) || !ascii(host) {
		return "is neither a host in lower case, without port, nor *. and a domain, such as *.example.com"
	}
	return ""
}

// ImportCounts are the amounts of quotas that an import would use.
type ImportCounts struct {
	Jobs, Triggers, WaitingRuns int
}

// CheckImport returns the quotas that an import into app would exceed, as Problems with JSON pointers in the Export, or nil.
func (q Quotas) CheckImport(app string, counts ImportCounts) error {
	var problems input.Problems
	for _, one := range []struct {
		at, what, name string
		count, most    int
	}{
		{"/jobs", "jobs", "jobs", counts.Jobs, q.Jobs},
		{"/jobs", "triggers", "triggers", counts.Triggers, q.Triggers},
		{"/waiting_runs", "runs that wait", "waiting_runs", counts.WaitingRuns, q.WaitingRuns},
	} {
		if one.count > one.most {
			problems.Add(one.at, input.CodeBoundQuota,
				"the import has %d %s, and the bounds of app %s allow %d (quotas.%s); an operator may import it with wider bounds",
				one.count, one.what, app, one.most, one.name)
		}
	}
	return problems.Err()
}

// Link returns the place of the count runs that follow a run. of is the cause of that run, or nil, and shards is the
// number of its shards. The error is a Problem: these runs would exceed the quotas.
func (q Quotas) Link(of *run.Cause, shards, count int) (run.ChainLink, error) {
	depth, left := 0, q.ChainRuns
	if of != nil && of.Depth > 0 {
		depth, left = of.Depth, min(of.MayFollow, q.ChainRuns)
	}
	left -= shards
	switch {
	case depth >= q.ChainDepth:
		return run.ChainLink{}, &input.Problem{Code: input.CodeBoundQuota,
			Message: fmt.Sprintf("%d runs follow one another, and the bounds of the app "+
				"allow %d (quotas.chain_depth); make the chain shorter, or ask an operator for more", depth+1, q.ChainDepth)}
	case count > left:
		return run.ChainLink{}, &input.Problem{Code: input.CodeBoundQuota,
			Message: fmt.Sprintf("%d runs would follow, and %d are left of the %d that may "+
				"follow the first run of the chain, directly and through others (quotas.chain_runs); let fewer jobs follow, or ask an "+
				"operator for more", count, max(left, 0), q.ChainRuns)}
	}
	return run.ChainLink{Depth: depth + 1, MayFollow: (left - count) / max(count, 1)}, nil
}
