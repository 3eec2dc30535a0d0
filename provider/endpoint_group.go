package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
)

// groupKind is what messages call an endpoint group.
const groupKind = "endpoint group"

// groups is carillon_endpoint_group.
func groups(c *connection) kind {
	return &definition[target.EndpointGroup]{
		heading: heading{groupKind, groupSchema, importNested("group", "billing/workers")}, conn: c,
		expand: expandedBy[target.EndpointGroup](groupRows), flatten: flattenedBy[target.EndpointGroup](groupRows), check: target.EndpointGroup.Validate,
		api: requests[target.EndpointGroup]{
			(*client.Client).PutGroup, (*client.Client).Group, (*client.Client).DeleteGroup,
			func(g target.EndpointGroup) int64 { return g.Revision },
		},
		secrets: secretsOf[target.EndpointGroup]{
			target.EndpointGroup.Secrets, target.EndpointGroup.WithSecrets, target.EndpointGroup.CheckKept,
			func(e *expander, _ string) bool {
				return e.allKnown("/endpoints") && e.allKnown("/registration") && e.allKnown("/auth/oauth2/token_url")
			},
		},
		bounds: func(bounds *target.Bounds, g target.EndpointGroup) error { return bounds.CheckGroup(g) },
		planning: func(_ context.Context, c *connection, _ *diag.Diagnostics, p planned[target.EndpointGroup]) {
			c.groups.planned.set(p.declared.App+"/"+p.declared.Name, true)
		},
		inUse: input.Problem{Code: input.CodeGroupInUse, Message: "Terraform destroys a group before it updates the jobs that used it. " +
			"Give these jobs another target in one apply and remove the group in the next one, or set create_before_destroy in the " +
			"lifecycle block of the group."},
	}
}

var groupRows = rowsOf(fresh[target.EndpointGroup],
	definitionRows("group", func(g *target.EndpointGroup) *named { return &named{&g.App, &g.Name, &g.Description, &g.Revision} }),
	textRow("kind", func(g *target.EndpointGroup) *target.GroupKind { return &g.Kind }, standard, "Protocol of the endpoints: `http` for web "+
		"servers that take the request of a job, or `xxl_job` for executors of XXL-JOB, which move over by changing one address. Changing "+
		"it replaces the group.", replaces(), decides("app_name", "access_token", "signing", "auth")), // which of them may be there
	textRow("app_name", func(g *target.EndpointGroup) *string { return &g.AppName }, optional, "For `xxl_job`, the AppName that executors "+
		"register under. Default: the name of the group."),
	blockRow("access_token", func(g *target.EndpointGroup) **target.Secret { return &g.AccessToken }, secretRows, optional, "For `xxl_job`, "+
		"the access token that executors and Carillon send one another. A group of that kind must have one, and then no `signing`, `auth` "+
		"and `health_check`. Set `reference` or `value`. Default: none."),
	textRow("path", func(g *target.EndpointGroup) *string { return &g.Path }, optional, "What follows the URL of each endpoint, before the "+
		"`path` of a job, such as `/jobs`. It begins with `/`. Default: nothing follows."),
	textRow("strategy", func(g *target.EndpointGroup) *target.Strategy { return &g.Strategy }, standard, "How the endpoint of a run is chosen, "+
		"unless the job says otherwise: "+either(target.Strategies)+"."),
	within(func(g *target.EndpointGroup) *protected { return &protected{&g.Signing, &g.Auth, &g.TLS} }, protectionRows()),
	textRow("server_name", func(g *target.EndpointGroup) *string { return &g.ServerName }, optional, "Host name that all endpoints get as "+
		"`Host`, and that their certificates must have, for endpoints whose URLs hold addresses. Default: the host of each URL and, for "+
		"addresses from DNS, their name."),
	partRow("probe", func(g *target.EndpointGroup) *target.Probe { return &g.Probe }, probeRows, optional, "How endpoints are asked before they "+
		"get a run. Only the strategies `failover`, `busyover` and `global_busyover` ask. Default: the default of each argument."),
	blockRow("registration", func(g *target.EndpointGroup) **target.Registration { return &g.Registration }, registrationRows, optional,
		"Lets endpoints register themselves, with a token of the scope `register`. Default: none may register."),
	labelledRow("dns", func(g *target.EndpointGroup) *map[string]target.DNSMembers { return &g.DNS }, dnsRows, optional, fmt.Sprintf("A name "+
		"of DNS, each address or service of which is an endpoint; its label is a name of its own (%s). Each node asks for it again when "+
		"its TTL has passed. The endpoints are no part of the state. A group has at most %d names, which stand for %d endpoints together. "+
		"Default: none.", nameRule, target.MaxDNSMembers, target.MaxEndpoints)),
	blockRow("health_check", func(g *target.EndpointGroup) **target.HealthCheck { return &g.HealthCheck }, healthCheckRows, optional, "Checks "+
		"the endpoints of the group. Each node that used the group in the last 5 minutes checks them for itself, and sends nothing to "+
		"those that are down. Default: nobody checks."),
	wholeRow("eject_after", func(g *target.EndpointGroup) *int { return &g.EjectAfter }, standard, fmt.Sprintf("How many failures in a row eject an endpoint, "+
		"up to `%d`: responses of 5xx, connections that break, and timeouts. A node tries an ejected endpoint after all others for some "+
		"time. `0` means never.", target.MaxEjectAfter),
		advice(input.CodeCountRange, "give a whole number, or 0 for never")),
	labelledRow("endpoint", func(g *target.EndpointGroup) *map[string]target.StaticEndpoint { return &g.Endpoints }, endpointRows, optional,
		fmt.Sprintf("An endpoint; its label is its id (%s). A group has at most %d, together with those that registered themselves. Default: "+
			"none, so endpoints have to register or to come from DNS.", nameRule, target.MaxEndpoints), token("endpoints")),
)

var probeRows = rowsOf(func() *target.Probe { return &fresh[target.EndpointGroup]().Probe },
	textRow("alive_path", func(p *target.Probe) *string { return &p.AlivePath }, standard, "Path below `path` to which `failover` sends a "+
		"`GET`. An endpoint that responds with 2xx is alive."),
	textRow("idle_path", func(p *target.Probe) *string { return &p.IdlePath }, standard, "Path below `path` to which `busyover` and "+
		"`global_busyover` send a `GET`, `busyover` with the query parameter `job`. An endpoint that responds with 2xx is idle."),
	timeRow("timeout", func(p *target.Probe) *input.Duration { return &p.Timeout }, standard, "Time limit of a probe, from `100ms` to `1m`."),
)

var endpointRows = rowsOf(func() *target.StaticEndpoint { return &target.StaticEndpoint{Weight: 1} },
	textRow("url", func(s *target.StaticEndpoint) *string { return &s.URL }, required, "Absolute URL, `http` or `https`, without a query and "+
		"not a template. The `path` of the group and that of the job follow it."),
	countRow("weight", func(s *target.StaticEndpoint) *int { return &s.Weight }, standard, fmt.Sprintf("The endpoint's share with the "+
		"strategies that know one, `1` to `%d`.", target.MaxEndpointWeight)),
	boolRow("backup", func(s *target.StaticEndpoint) *bool { return &s.Backup }, standard, "Whether the endpoint is chosen only while no other "+
		"one is up."),
	mapRow("labels", func(s *target.StaticEndpoint) *input.Labels { return &s.Labels }, optional, "Labels by which people and programs tell "+
		"endpoints apart, such as `{ zone = \"a\" }`. Default: none."),
)

var registrationRows = rowsOf(fresh[target.Registration],
	textsRow("networks", func(r *target.Registration) *[]string { return &r.Networks }, required, "Networks, such as `10.0.0.0/16`, in which "+
		"registered endpoints must be. Nodes check the address that they dial, too. A registered endpoint gets no request and no secret "+
		"outside of them."),
	wholesRow("ports", func(r *target.Registration) *[]int { return &r.Ports }, required, "Ports on which registered endpoints may listen, `1` "+
		"to `65535`.", portAdvice),
	timeRow("heartbeat", func(r *target.Registration) *input.Duration { return &r.Heartbeat }, standard, "How often an endpoint registers "+
		"again, from `1s` to `1h`.", decides("expire_after")),
	timeRow("expire_after", func(r *target.Registration) *input.Duration { return &r.ExpireAfter }, standard, "How long an endpoint stays "+
		"after its last heartbeat; at least twice `heartbeat`."),
)

var dnsRows = rowsOf(fresh[target.DNSMembers],
	textRow("name", func(d *target.DNSMembers) *string { return &d.Name }, required, "Name to ask for, such as `workers.internal`: absolute, "+
		"in lower case, without a dot at its end."),
	textRow("type", func(d *target.DNSMembers) *target.DNSType { return &d.Type }, standard, "Type of its records: "+either(target.DNSTypes)+
		".", decides("port", "weight", "backup")),
	countRow("port", func(d *target.DNSMembers) *int { return &d.Port }, optional, "Port of each address, `1` to `65535`. Required unless "+
		"`type` is `SRV`, whose records have their own. Default: none."),
	textRow("scheme", func(d *target.DNSMembers) *string { return &d.Scheme }, standard, "`http` or `https`. Certificates must have `name`, or "+
		"the `server_name` of the group; those of services the name of their target."),
	countRow("weight", func(d *target.DNSMembers) *int { return &d.Weight }, standard, fmt.Sprintf("Weight of each address, as that of an "+
		"`endpoint`, `1` to `%d`. Records of type `SRV` have their own.", target.MaxEndpointWeight)),
	boolRow("backup", func(d *target.DNSMembers) *bool { return &d.Backup }, standard, "Whether each address is chosen only while no other "+
		"endpoint is up. Of records of type `SRV`, those are backups that have not the best priority."),
	mapRow("labels", func(d *target.DNSMembers) *input.Labels { return &d.Labels }, optional, "Labels of each endpoint. Default: none."),
)

var healthCheckRows = rowsOf(fresh[target.HealthCheck],
	textRow("path", func(h *target.HealthCheck) *string { return &h.Path }, standard, "Path below `path` of the group that is asked with "+
		"`GET`. An endpoint that responds with 2xx is healthy."),
	timeRow("interval", func(h *target.HealthCheck) *input.Duration { return &h.Interval }, standard, "Time between the checks of one endpoint "+
		"by one node, from `1s` to `1h`."),
	timeRow("timeout", func(h *target.HealthCheck) *input.Duration { return &h.Timeout }, standard, "Time limit of a check, from `100ms` to "+
		"`1m`."),
	countRow("healthy_threshold", func(h *target.HealthCheck) *int { return &h.HealthyThreshold }, standard, fmt.Sprintf("How many healthy "+
		"responses in a row bring an endpoint up again, `1` to `%d`.", target.MaxHealthThreshold)),
	countRow("unhealthy_threshold", func(h *target.HealthCheck) *int { return &h.UnhealthyThreshold }, standard, fmt.Sprintf("How many "+
		"failures in a row bring an endpoint down, `1` to `%d`.", target.MaxHealthThreshold)),
)

func groupSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "An endpoint group: several HTTP endpoints that do the same work. A job whose `target` is the group " +
			"sends each run to one of them. Endpoints are declared here, register themselves by heartbeat, or come from DNS. Import it by " +
			"`app/group`.\n\n" +
			"Endpoints that registered themselves or come from DNS are no part of the state: the data source `carillon_endpoints` shows them.\n\n" +
			"A group that is the target of a job is not deleted. Terraform destroys a group before it updates the jobs that used it, so " +
			"remove the uses in one apply and the group in the next one, or set `create_before_destroy` in its `lifecycle` block.",
		Attributes: groupRows.attributes(),
	}
}
