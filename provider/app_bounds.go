package provider

import (
	"context"
	"strconv"
	"sync"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/carillon-dev/carillon/dispatcher/access"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

type boundsModel struct {
	Suspended       types.Bool   `tfsdk:"suspended"`
	SuspendedReason types.String `tfsdk:"suspended_reason"`
	Weight          types.Number `tfsdk:"weight"`
	Quotas          types.Object `tfsdk:"quotas"`
	Secrets         types.List   `tfsdk:"secrets"`
	Egress          types.Object `tfsdk:"egress"`
	Lambda          types.Object `tfsdk:"lambda"`
	SQS             types.Object `tfsdk:"sqs"`
	SNS             types.Object `tfsdk:"sns"`
	SignAsNode      types.List   `tfsdk:"sign_as_node"`
}

type quotasModel struct {
	Jobs                types.Number   `tfsdk:"jobs"`
	Triggers            types.Number   `tfsdk:"triggers"`
	WaitingRuns         types.Number   `tfsdk:"waiting_runs"`
	ChainRuns           types.Number   `tfsdk:"chain_runs"`
	ChainDepth          types.Number   `tfsdk:"chain_depth"`
	RequestsPerMinute   types.Number   `tfsdk:"requests_per_minute"`
	ManualRunsPerMinute types.Number   `tfsdk:"manual_runs_per_minute"`
	BytesKept           types.Number   `tfsdk:"bytes_kept"`
	Retention           durationString `tfsdk:"retention"`
}

type egressModel struct {
	Hosts    types.List `tfsdk:"hosts"`
	Ports    types.List `tfsdk:"ports"`
	Networks types.List `tfsdk:"networks"`
}

type lambdaBoundsModel struct {
	Functions types.List `tfsdk:"functions"`
	Roles     types.List `tfsdk:"roles"`
}

type sqsBoundsModel struct {
	Queues types.List `tfsdk:"queues"`
	Roles  types.List `tfsdk:"roles"`
}

type snsBoundsModel struct {
	Topics types.List `tfsdk:"topics"`
	Roles  types.List `tfsdk:"roles"`
}

type signatureModel struct {
	Service types.String `tfsdk:"service"`
	Hosts   types.List   `tfsdk:"hosts"`
}

func boundsAttribute() schema.SingleNestedAttribute {
	return optionalObject("What operators allow the app. Setting it needs a token with scope `admin` that is bound to no app; "+
		"tokens that are bound to the app read it and obey it. Jobs outside of it are refused at plan, and a change that jobs "+
		"break stops these jobs and no others. Default: Terraform does not manage the bounds. They stay as they are, also when you "+
		"remove the block; a new app gets the default of each. The data source `carillon_app` shows them.",
		map[string]schema.Attribute{
			"suspended": boolWithDefault(false, "Stops the app: nodes claim no fire and send no request for it, and the app's owner "+
				"cannot lift that. Runs wait; afterwards they follow `misfire_policy`, as with `enabled`."),
			"suspended_reason": descriptionLike("Why the app is suspended, shown to its owner; at most 1024 characters. Default: empty."),
			"weight": numberWithDefault(1, "How many turns the app gets for each turn of an app with weight 1 when fires of several "+
				"apps wait for a node, `1` to `100`."),
			"quotas": quotasAttribute(),
			"secrets": optionalList(types.StringType, "References that jobs may use: `env:SECRET_NAME`, `file:PATH`, `awssm:NAME`, "+
				"`ssm:NAME` or `vault:PATH`, each with `*` for any text. One of the last three without key and version allows all of "+
				"them; `[]`: none. Default: `env:SECRET_<APP>_*` and `file:<app>/*`."),
			"egress":       egressAttribute(),
			"lambda":       lambdaBoundsAttribute(),
			"sqs":          messageBoundsAttribute("queues", "Queues"),
			"sns":          messageBoundsAttribute("topics", "Topics"),
			"sign_as_node": signAsNodeAttribute(),
		})
}

func descriptionLike(text string) schema.StringAttribute {
	a := descriptionAttribute()
	a.MarkdownDescription = text
	return a
}

func quotasAttribute() schema.SingleNestedAttribute {
	q := target.Bounds{}.WithDefaults("").Quotas
	return optionalObject("How much of the installation the app may use. What is over a quota that you lower "+
		"stays; no more is added. Default: the default of each argument.", map[string]schema.Attribute{
		"jobs":     numberWithDefault(q.Jobs, "Jobs of the app, `1` to `1000000`."),
		"triggers": numberWithDefault(q.Triggers, "Triggers of all jobs of the app, `1` to `10000000`."),
		"waiting_runs": numberWithDefault(q.WaitingRuns, "Runs that wait, above which requests for runs are refused and what "+
			"follows runs is set aside, `1` to `10000000`."),
		"chain_runs": numberWithDefault(q.ChainRuns, "Runs that may follow one run, directly and through others, `1` to `1000000`. "+
			"Shards of broadcasts count."),
		"chain_depth": numberWithDefault(q.ChainDepth, "Runs that may follow one after another, `1` to `1000`."),
		"requests_per_minute": numberWithDefault(q.RequestsPerMinute, "Requests to the API by tokens that are bound to the app, for "+
			"each node, `1` to `1000000`."),
		"manual_runs_per_minute": numberWithDefault(q.ManualRunsPerMinute, "Requests to run or retry a job, `1` to `1000000`."),
		"bytes_kept": numberWithDefault(int(q.BytesKept), "Bytes of responses, and of what runs were given, in the history, from 1 MiB "+
			"to 10 TiB. Above it, nodes record outcomes without the responses, and requests with a payload are refused."),
		"retention": durationWithDefault(q.Retention, "The longest `retention` that the app may choose, from `24h` to `87600h`."),
	})
}

func quotaValues(q target.Quotas) map[string]attr.Value {
	return map[string]attr.Value{
		"jobs": flattenNumber(q.Jobs), "triggers": flattenNumber(q.Triggers), "waiting_runs": flattenNumber(q.WaitingRuns),
		"chain_runs": flattenNumber(q.ChainRuns), "chain_depth": flattenNumber(q.ChainDepth),
		"requests_per_minute": flattenNumber(q.RequestsPerMinute), "manual_runs_per_minute": flattenNumber(q.ManualRunsPerMinute),
		"bytes_kept": flattenNumber(int(q.BytesKept)), "retention": flattenDuration(q.Retention),
	}
}

func egressAttribute() schema.SingleNestedAttribute {
	return optionalObject("Addresses that webhooks may call. Nodes check the address that they dial, too. "+
		"Default: any public address, and what `--egress-private` of the nodes lists.", map[string]schema.Attribute{
		"hosts": optionalList(types.StringType, "Hosts that a URL may hold, or `*.example.com` for all names below; `[]`: none. Default: any."),
		"ports": optionalList(types.NumberType, "Ports that a URL may lead to; `[]`: none. Default: any."),
		"networks": optionalList(types.StringType, "Networks that may be dialled: `public` for all public addresses, or a CIDR, "+
			"which alone opens a private network to the app; `[]`: none. Default: `public`, and what `--egress-private` of the nodes lists."),
	})
}

func lambdaBoundsAttribute() schema.SingleNestedAttribute {
	return optionalObject("Functions and roles that jobs may use, as patterns in which `*` stands for any text and "+
		"`?` for any character. Default: none.", map[string]schema.Attribute{
		"functions": listWithDefault(types.StringType, "Functions, as targets name them, without version or alias. Default: none."),
		"roles":     listWithDefault(types.StringType, "ARNs of roles to assume. Default: none."),
	})
}

// messageBoundsAttribute are the bounds of queues or topics.
func messageBoundsAttribute(name, title string) schema.SingleNestedAttribute {
	return optionalObject(title+" and roles that jobs may use, as patterns in which `*` stands for any text and `?` for any "+
		"character. Default: none.", map[string]schema.Attribute{
		name:    listWithDefault(types.StringType, "ARNs of "+name+". Default: none."),
		"roles": listWithDefault(types.StringType, "ARNs of roles to assume. Default: none."),
	})
}

func signAsNodeAttribute() schema.ListNestedAttribute {
	bound := schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"service": requiredString("Service in the signature, such as `execute-api`."),
		"hosts": schema.ListAttribute{
			Required: true, ElementType: types.StringType,
			MarkdownDescription: "Hosts that may get such requests, or `*.example.com` for all names below.",
		},
	}}
	return schema.ListNestedAttribute{
		Optional: true, NestedObject: bound,
		MarkdownDescription: "A service for which webhooks may sign requests with the AWS credentials of the node. Default: none.",
	}
}

// boundsType is the type of bounds, and of its attributes.
var boundsType = sync.OnceValue(func() types.ObjectType { return boundsAttribute().GetType().(types.ObjectType) })

func signatureType() types.ObjectType {
	return signAsNodeAttribute().GetType().(attr.TypeWithElementType).ElementType().(types.ObjectType)
}

// expandBounds returns the bounds that a model describes; nil: it has none, or they are unknown.
func expandBounds(ctx context.Context, e *expander, object types.Object) *target.Bounds {
	var m boundsModel
	if !e.object(ctx, "/bounds", object, &m) {
		return nil
	}
	b := target.Bounds{
		Suspended: e.bool("/bounds/suspended", m.Suspended, false), SuspendedReason: e.string("/bounds/suspended_reason", m.SuspendedReason),
		Weight: e.count("/bounds/weight", m.Weight), Secrets: e.stringList("/bounds/secrets", m.Secrets),
	}
	var q quotasModel
	if e.object(ctx, "/bounds/quotas", m.Quotas, &q) {
		const at = "/bounds/quotas/"
		b.Quotas = target.Quotas{
			Jobs: e.count(at+"jobs", q.Jobs), Triggers: e.count(at+"triggers", q.Triggers),
			WaitingRuns:         e.count(at+"waiting_runs", q.WaitingRuns),
			ChainRuns:           e.count(at+"chain_runs", q.ChainRuns),
			ChainDepth:          e.count(at+"chain_depth", q.ChainDepth),
			RequestsPerMinute:   e.count(at+"requests_per_minute", q.RequestsPerMinute),
			ManualRunsPerMinute: e.count(at+"manual_runs_per_minute", q.ManualRunsPerMinute),
			BytesKept:           int64(e.count(at+"bytes_kept", q.BytesKept)),
			Retention:           e.duration(at+"retention", q.Retention, 0),
		}
	}
	var egress egressModel
	if e.object(ctx, "/bounds/egress", m.Egress, &egress) {
		b.Egress.Hosts = e.stringList("/bounds/egress/hosts", egress.Hosts)
		b.Egress.Networks = e.stringList("/bounds/egress/networks", egress.Networks)
		b.Egress.Ports = e.ports("/bounds/egress/ports", egress.Ports)
	}
	var lambda lambdaBoundsModel
	if e.object(ctx, "/bounds/lambda", m.Lambda, &lambda) {
		b.Lambda.Functions = e.stringList("/bounds/lambda/functions", lambda.Functions)
		b.Lambda.Roles = e.stringList("/bounds/lambda/roles", lambda.Roles)
	}
	var sqs sqsBoundsModel
	if e.object(ctx, "/bounds/sqs", m.SQS, &sqs) {
		b.SQS.Queues = e.stringList("/bounds/sqs/queues", sqs.Queues)
		b.SQS.Roles = e.stringList("/bounds/sqs/roles", sqs.Roles)
	}
	var sns snsBoundsModel
	if e.object(ctx, "/bounds/sns", m.SNS, &sns) {
		b.SNS.Topics = e.stringList("/bounds/sns/topics", sns.Topics)
		b.SNS.Roles = e.stringList("/bounds/sns/roles", sns.Roles)
	}
	for i, element := range e.list("/bounds/sign_as_node", m.SignAsNode) {
		at := "/bounds/sign_as_node/" + strconv.Itoa(i)
		one, _ := element.(types.Object)
		e.rejectNull(at, one)
		var s signatureModel
		if e.object(ctx, at, one, &s) {
			b.SignAsNode = append(b.SignAsNode, target.SignatureBound{
				Service: e.required(at+"/service", s.Service), Hosts: e.stringList(at+"/hosts", s.Hosts),
			})
		}
	}
	return &b
}

// count expands a number of which zero is not a value: the API takes it for the default.
func (e *expander) count(pointer string, v types.Number) int {
	before := len(e.problems)
	n := e.whole(pointer, v, 0, input.CodeCountRange, "give a whole number")
	if n == 0 && !v.IsNull() && !v.IsUnknown() && len(e.problems) == before {
		e.problems.Add(pointer, input.CodeCountRange, "0 is less than the minimum of 1; leave it out for the default")
	}
	return n
}

// flattenBounds returns the model of bounds, null if prior has none. Blocks and secrets that are the default stay left out
// where prior leaves them out: a plan cannot add what the configuration leaves out.
func flattenBounds(ctx context.Context, diags *diag.Diagnostics, app string, b target.Bounds, prior types.Object) types.Object {
	var before boundsModel
	if !(&expander{}).object(ctx, "", prior, &before) {
		return nullObject(boundsType())
	}
	m, defaults := boundsModelOf(ctx, diags, b), boundsModelOf(ctx, diags, target.Bounds{}.WithDefaults(app))
	for _, block := range []struct{ now, before, otherwise *types.Object }{
		{&m.Quotas, &before.Quotas, &defaults.Quotas},
		{&m.Egress, &before.Egress, &defaults.Egress},
		{&m.Lambda, &before.Lambda, &defaults.Lambda},
		{&m.SQS, &before.SQS, &defaults.SQS},
		{&m.SNS, &before.SNS, &defaults.SNS},
	} {
		if block.before.IsNull() && block.now.Equal(*block.otherwise) {
			*block.now = *block.before
		}
	}
	if before.Secrets.IsNull() && m.Secrets.Equal(defaults.Secrets) {
		m.Secrets = before.Secrets
	}
	return flattenObject(ctx, diags, boundsType(), m)
}

// boundsModelOf returns the model of bounds with everything in it.
func boundsModelOf(ctx context.Context, diags *diag.Diagnostics, b target.Bounds) boundsModel {
	of := boundsType()
	m := boundsModel{
		Suspended: types.BoolValue(b.Suspended), SuspendedReason: types.StringValue(b.SuspendedReason),
		Weight:  flattenNumber(b.Weight),
		Secrets: flattenList(ctx, diags, types.StringType, b.Secrets),
	}
	m.Quotas = types.ObjectValueMust(objectType(of, "quotas").AttrTypes, quotaValues(b.Quotas))
	m.Egress = flattenObject(ctx, diags, objectType(of, "egress"), egressModel{
		Hosts:    nullIfMissing(ctx, b.Egress.Hosts, flattenList(ctx, diags, types.StringType, b.Egress.Hosts)),
		Ports:    nullIfMissing(ctx, b.Egress.Ports, flattenPorts(ctx, diags, b.Egress.Ports)),
		Networks: nullIfMissing(ctx, b.Egress.Networks, flattenList(ctx, diags, types.StringType, b.Egress.Networks)),
	})
	m.Lambda = flattenObject(ctx, diags, objectType(of, "lambda"), lambdaBoundsModel{
		Functions: flattenList(ctx, diags, types.StringType, b.Lambda.Functions),
		Roles:     flattenList(ctx, diags, types.StringType, b.Lambda.Roles),
	})
	m.SQS = flattenObject(ctx, diags, objectType(of, "sqs"), sqsBoundsModel{
		Queues: flattenList(ctx, diags, types.StringType, b.SQS.Queues), Roles: flattenList(ctx, diags, types.StringType, b.SQS.Roles),
	})
	m.SNS = flattenObject(ctx, diags, objectType(of, "sns"), snsBoundsModel{
		Topics: flattenList(ctx, diags, types.StringType, b.SNS.Topics), Roles: flattenList(ctx, diags, types.StringType, b.SNS.Roles),
	})
	var signed []signatureModel
	for _, s := range b.SignAsNode {
		signed = append(signed, signatureModel{
			Service: types.StringValue(s.Service), Hosts: flattenList(ctx, diags, types.StringType, s.Hosts),
		})
	}
	m.SignAsNode = flattenList(ctx, diags, signatureType(), signed)
	return m
}

// appOf returns an app as it is stored; nil: it cannot be read now.
func (c *connection) appOf(ctx context.Context, name string) *access.App {
	if c == nil || len(c.unknown) > 0 || name == "" {
		return nil
	}
	return c.apps.once(name, func() *access.App {
		app, err := c.App(ctx, name)
		if err != nil { // apply reports it, if it still is so
			return nil
		}
		return &app
	})
}

// boundsOf returns the bounds of an app, by this plan or, for an app that the plan leaves alone, by the API; nil: they are not
// known now, so the API judges at apply.
func (c *connection) boundsOf(ctx context.Context, name string) *target.Bounds {
	if c == nil || len(c.unknown) > 0 || name == "" {
		return nil
	}
	if planned, there := c.bounds.get(name); there {
		return planned
	}
	if app := c.appOf(ctx, name); app != nil {
		return app.Bounds
	}
	return nil
}
