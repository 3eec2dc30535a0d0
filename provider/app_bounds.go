package provider

import (
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
)

var boundsRows = binding.Of(func() *target.Bounds { return &target.Bounds{Weight: 1, Quotas: *standardQuotas()} },
	binding.Bool("suspended", func(b *target.Bounds) *bool { return &b.Suspended }, binding.Default, "Stops the app: nodes claim no "+
		"fire and send no request for it, and the app's owner cannot lift that. Runs wait; afterwards they follow `misfire_policy`, "+
		"as with `enabled`."),
	binding.Text("suspended_reason", func(b *target.Bounds) *string { return &b.SuspendedReason }, binding.Default,
		"Why the app is suspended, shown to its owner; at most 1024 characters. Default: empty.", binding.EmptyIsValue),
	countRow("weight", func(b *target.Bounds) *int { return &b.Weight }, binding.Default, "How many turns the app gets for each turn "+
		"of an app with weight 1 when fires of several apps wait for a node, `1` to `100`."),
	binding.Texts("secrets", func(b *target.Bounds) *[]string { return &b.Secrets }, binding.Optional, "References that jobs may "+
		"use: `env:SECRET_NAME`, `file:PATH`, `awssm:NAME`, `ssm:NAME` or `vault:PATH`, each with `*` for any text. One of the last "+
		"three without key and version allows all of them; `[]`: none. Default: `env:SECRET_<APP>_*` and `file:<app>/*`.",
		binding.NilIsNull),
	binding.Part("quotas", binding.Nested(func(b *target.Bounds) *target.Quotas { return &b.Quotas }, quotasRows), binding.Optional,
		"How much of the installation the app may use. What is over a quota that you lower stays; no more is added. Default: the "+
			"default of each argument."),
	binding.Part("egress", binding.Nested(func(b *target.Bounds) *target.EgressBounds { return &b.Egress }, egressRows), binding.Optional,
		"Addresses that webhooks may call. Nodes check the address that they dial, too. Default: any public address, and what "+
			"`--egress-private` of the nodes lists."),
	binding.Part("lambda", binding.Nested(func(b *target.Bounds) *target.LambdaBounds { return &b.Lambda }, lambdaBoundsRows),
		binding.Optional, "Functions and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any character. "+
			"Default: none."),
	binding.Part("sqs", binding.Nested(func(b *target.Bounds) *target.SQSBounds { return &b.SQS }, sqsBoundsRows), binding.Optional,
		"Queues and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any character. Default: none."),
	binding.Part("sns", binding.Nested(func(b *target.Bounds) *target.SNSBounds { return &b.SNS }, snsBoundsRows), binding.Optional,
		"Topics and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any character. Default: none."),
	binding.Blocks("sign_as_node", binding.Nested(func(b *target.Bounds) *[]target.SignatureBound { return &b.SignAsNode }, signatureRows),
		binding.Optional, "A service for which webhooks may sign requests with the AWS credentials of the node. Default: none.",
		binding.AlwaysThere),
)

// countRow is a number of which zero is not a value: the API takes it for the default.
func countRow[P any, N ~int | ~int64](name string, field func(P) *N, of binding.Presence, text string,
	options ...binding.Option) *binding.Row {
	return binding.Whole(name, field, of, text, append(options,
		binding.NotZero(input.CodeCountRange, "0 is less than the minimum of 1; leave it out for the default"))...)
}

func standardQuotas() *target.Quotas {
	b := target.Bounds{}.WithDefaults("")
	return &b.Quotas
}

var quotasRows = binding.Of(standardQuotas,
	countRow("jobs", func(q *target.Quotas) *int { return &q.Jobs }, binding.Default, "Jobs of the app, `1` to `1000000`."),
	countRow("triggers", func(q *target.Quotas) *int { return &q.Triggers }, binding.Default, "Triggers of all jobs of the app, `1` "+
		"to `10000000`."),
	countRow("waiting_runs", func(q *target.Quotas) *int { return &q.WaitingRuns }, binding.Default, "Runs that wait, above which "+
		"requests for runs are refused and what follows runs is set aside, `1` to `10000000`."),
	countRow("chain_runs", func(q *target.Quotas) *int { return &q.ChainRuns }, binding.Default, "Runs that may follow one run, "+
		"directly and through others, `1` to `1000000`. Shards of broadcasts count."),
	countRow("chain_depth", func(q *target.Quotas) *int { return &q.ChainDepth }, binding.Default, "Runs that may follow one after "+
		"another, `1` to `1000`."),
	countRow("requests_per_minute", func(q *target.Quotas) *int { return &q.RequestsPerMinute }, binding.Default,
		"Requests to the API by tokens that are bound to the app, for each node, `1` to `1000000`."),
	countRow("manual_runs_per_minute", func(q *target.Quotas) *int { return &q.ManualRunsPerMinute }, binding.Default,
		"Requests to run or retry a job, `1` to `1000000`."),
	countRow("bytes_kept", func(q *target.Quotas) *int64 { return &q.BytesKept }, binding.Default, "Bytes of responses, and of what "+
		"runs were given, in the history, from 1 MiB to 10 TiB. Above it, nodes record outcomes without the responses, and requests "+
		"with a payload are refused."),
	binding.Duration("retention", func(q *target.Quotas) *input.Duration { return &q.Retention }, binding.Default,
		"The longest `retention` that the app may choose, from `24h` to `87600h`."),
)

var egressRows = binding.Of(binding.Fresh[target.EgressBounds],
	binding.Texts("hosts", func(e *target.EgressBounds) *[]string { return &e.Hosts }, binding.Optional, "Hosts that a URL may hold, "+
		"or `*.example.com` for all names below; `[]`: none. Default: any.", binding.NilIsNull),
	binding.Texts("networks", func(e *target.EgressBounds) *[]string { return &e.Networks }, binding.Optional, "Networks that may be "+
		"dialled: `public` for all public addresses, or a CIDR, which alone opens a private network to the app; `[]`: none. Default: "+
		"`public`, and what `--egress-private` of the nodes lists.", binding.NilIsNull),
	binding.Wholes("ports", func(e *target.EgressBounds) *[]int { return &e.Ports }, binding.Optional, "Ports that a URL may lead "+
		"to; `[]`: none. Default: any.", binding.NilIsNull, portAdvice),
)

var portAdvice = binding.Advice(input.CodeCountRange, "give a port from 1 to 65535")

const rolesText = "ARNs of roles to assume. Default: none."

var lambdaBoundsRows = binding.Of(binding.Fresh[target.LambdaBounds],
	binding.Texts("functions", func(b *target.LambdaBounds) *[]string { return &b.Functions }, binding.Default,
		"Functions, as targets name them, without version or alias. Default: none."),
	binding.Texts("roles", func(b *target.LambdaBounds) *[]string { return &b.Roles }, binding.Default, rolesText),
)

var sqsBoundsRows = binding.Of(binding.Fresh[target.SQSBounds],
	binding.Texts("queues", func(b *target.SQSBounds) *[]string { return &b.Queues }, binding.Default, "ARNs of queues. Default: none."),
	binding.Texts("roles", func(b *target.SQSBounds) *[]string { return &b.Roles }, binding.Default, rolesText),
)

var snsBoundsRows = binding.Of(binding.Fresh[target.SNSBounds],
	binding.Texts("topics", func(b *target.SNSBounds) *[]string { return &b.Topics }, binding.Default, "ARNs of topics. Default: none."),
	binding.Texts("roles", func(b *target.SNSBounds) *[]string { return &b.Roles }, binding.Default, rolesText),
)

var signatureRows = binding.Of(binding.Fresh[target.SignatureBound],
	binding.Text("service", func(s *target.SignatureBound) *string { return &s.Service }, binding.Required,
		"Service in the signature, such as `execute-api`."),
	binding.Texts("hosts", func(s *target.SignatureBound) *[]string { return &s.Hosts }, binding.Required, "Hosts that may get such "+
		"requests, or `*.example.com` for all names below."),
)

// shownBounds returns the bounds of an app as prior has them: nil if it has none, and without the secrets where it leaves out the
// default ones. A plan cannot add what the configuration leaves out.
func shownBounds(app access.App, prior types.Object) *target.Bounds {
	if prior.IsNull() || prior.IsUnknown() {
		return nil
	}
	standard := target.Bounds{}.WithDefaults(app.Name)
	bounds := standard
	if app.Bounds != nil {
		bounds = *app.Bounds
	}
	if binding.In(prior).List("secrets").IsNull() && slices.Equal(bounds.Secrets, standard.Secrets) {
		bounds.Secrets = nil
	}
	return &bounds
}
