package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/carillon-dev/carillon/dispatcher/client"
	"github.com/carillon-dev/carillon/dispatcher/input"
	"github.com/carillon-dev/carillon/dispatcher/target"
	"github.com/carillon-dev/carillon/provider/binding"
	"github.com/carillon-dev/carillon/provider/plan"
)

// groups is carillon_endpoint_group.
func groups(c *connection) kind {
	return &definition[target.EndpointGroup]{
		heading: heading{plan.GroupKind, groupRows, importNested("group", "billing/workers"),
			"An endpoint group: several HTTP endpoints that do the same work. A job whose `target` is the group " +
				"sends each run to one of them. Endpoints are declared here, register themselves by heartbeat, or come from DNS. Import it by " +
				"`app/group`.\n\n" +
				"Endpoints that registered themselves or come from DNS are no part of the state: the data source `carillon_endpoints` shows them.\n\n" +
				"Terraform destroys a group before it updates the jobs that used it. Carillon therefore keeps a destroyed group until no job " +
				"has it as its target, so you remove a group together with its uses in one apply."},
		conn: c, check: target.EndpointGroup.Validate,
		api: requests[target.EndpointGroup]{
			put: (*client.Client).PutGroup, get: (*client.Client).Group,
			remove: func(c *client.Client, ctx context.Context, app, name string, cond client.Condition) error {
				_, err := c.DeleteGroupWhenUnused(ctx, app, name, cond)
				return err
			},
			revision: func(g target.EndpointGroup) int64 { return g.Revision },
		},
		secrets: secretsOf[target.EndpointGroup]{
			target.EndpointGroup.CheckKept,
			func(e *binding.Expander, _ string) bool {
				return e.AllKnown("/endpoints") && e.AllKnown("/registration") && e.AllKnown("/auth/oauth2/token_url")
			},
		},
		bounds:   func(bounds *target.Bounds, g target.EndpointGroup) error { return bounds.CheckGroup(g) },
		planning: (*plan.Plan).OfGroup,
		leaving:  func(g target.EndpointGroup) bool { return g.RemovalRequestedAt != nil },
	}
}

var groupRows = binding.Of(binding.Fresh[target.EndpointGroup],
	definitionRows("group", func(g *target.EndpointGroup) *named { return &named{&g.App, &g.Name, &g.Description, &g.Revision} }),
	binding.Text("kind", func(g *target.EndpointGroup) *target.GroupKind { return &g.Kind }, binding.Default,
		"Protocol of the endpoints: `http` for web "+
			"servers that take the request of a job, or `xxl_job` for executors of XXL-JOB, which move over by changing one address. Changing "+
			"it replaces the group.", replaces(), binding.Decides("app_name", "access_token", "signing", "auth")), // which of them may be there
	binding.Text("app_name", func(g *target.EndpointGroup) *string { return &g.AppName }, binding.Optional,
		"For `xxl_job`, the AppName that executors register under. Default: the name of the group."),
	binding.Block("access_token", binding.Nested(func(g *target.EndpointGroup) **target.Secret { return &g.AccessToken }, binding.Secrets),
		binding.Optional, "For `xxl_job`, the access token that executors and Carillon send one another. A group of that kind must "+
			"have one, and then no `signing`, `auth` and `health_check`. Set `reference` or `value`. Default: none."),
	binding.Text("path", func(g *target.EndpointGroup) *string { return &g.Path }, binding.Optional, "What follows the URL of each "+
		"endpoint, before the `path` of a job, such as `/jobs`. It begins with `/`. Default: nothing follows."),
	binding.Text("strategy", func(g *target.EndpointGroup) *target.Strategy { return &g.Strategy }, binding.Default,
		"How the endpoint of a run is chosen, unless the job says otherwise: "+either(target.Strategies)+"."),
	binding.Within(func(g *target.EndpointGroup) *protected { return &protected{&g.Signing, &g.Auth, &g.TLS} }, protectionRows()),
	binding.Text("server_name", func(g *target.EndpointGroup) *string { return &g.ServerName }, binding.Optional,
		"Host name that all endpoints get as `Host`, and that their certificates must have, for endpoints whose URLs hold addresses. "+
			"Default: the host of each URL and, for addresses from DNS, their name."),
	binding.Part("probe", binding.Nested(func(g *target.EndpointGroup) *target.Probe { return &g.Probe }, probeRows), binding.Optional,
		"How endpoints are asked before they get a run. Only the strategies `failover`, `busyover` and `global_busyover` ask. "+
			"Default: the default of each argument."),
	binding.Block("registration", binding.Nested(func(g *target.EndpointGroup) **target.Registration { return &g.Registration },
		registrationRows), binding.Optional, "Lets endpoints register themselves, with a token of the scope `register`. Default: none may "+
		"register."),
	binding.Named("dns", binding.Nested(func(g *target.EndpointGroup) *map[string]target.DNSMembers { return &g.DNS }, dnsRows),
		binding.Optional, fmt.Sprintf("A name of DNS, each address or service of which is an endpoint. Each node asks for it "+
			"again when its TTL has passed. The endpoints are no part of the state. A group has at most %d names, which stand for %d "+
			"endpoints together. Default: none.", target.MaxDNSMembers, target.MaxEndpoints),
		binding.Key("Name of the block, unique within the group")),
	binding.Block("health_check", binding.Nested(func(g *target.EndpointGroup) **target.HealthCheck { return &g.HealthCheck },
		healthCheckRows), binding.Optional, "Checks the endpoints of the group. Each node that used the group in the last 5 minutes checks "+
		"them for itself, and sends nothing to those that are down. Default: nobody checks."),
	binding.Whole("eject_after", func(g *target.EndpointGroup) *int { return &g.EjectAfter }, binding.Default, fmt.Sprintf(
		"How many failures in a row eject an endpoint, up to `%d`: responses of 5xx, connections that break, and timeouts. A node "+
			"tries an ejected endpoint after all others for some time. `0` means never.", target.MaxEjectAfter),
		binding.Advice(input.CodeCountRange, "give a whole number, or 0 for never")),
	binding.Named("endpoint", binding.Nested(func(g *target.EndpointGroup) *map[string]target.StaticEndpoint { return &g.Endpoints },
		endpointRows), binding.Optional, fmt.Sprintf("An endpoint. A group has at most %d, together with those that registered themselves. "+
		"Default: none, so endpoints have to register or to come from DNS.", target.MaxEndpoints),
		binding.Key("Id of the endpoint, unique within the group"), binding.Token("endpoints")),
)

var probeRows = binding.Of(func() *target.Probe { return &binding.Fresh[target.EndpointGroup]().Probe },
	binding.Text("alive_path", func(p *target.Probe) *string { return &p.AlivePath }, binding.Default, "Path below `path` to which "+
		"`failover` sends a `GET`. An endpoint that responds with 2xx is alive."),
	binding.Text("idle_path", func(p *target.Probe) *string { return &p.IdlePath }, binding.Default, "Path below `path` to which "+
		"`busyover` and `global_busyover` send a `GET`, `busyover` with the query parameter `job`. An endpoint that responds with "+
		"2xx is idle."),
	timeRow("timeout", func(p *target.Probe) *input.Duration { return &p.Timeout }, binding.Default, "Time limit of a probe, from "+
		"`100ms` to `1m`."),
)

var endpointRows = binding.Of(func() *target.StaticEndpoint { return &target.StaticEndpoint{Weight: 1} },
	binding.Text("url", func(s *target.StaticEndpoint) *string { return &s.URL }, binding.Required, "Absolute URL, `http` or "+
		"`https`, without a query and not a template. The `path` of the group and that of the job follow it."),
	countRow("weight", func(s *target.StaticEndpoint) *int { return &s.Weight }, binding.Default, fmt.Sprintf("The endpoint's share "+
		"with the strategies that know one, `1` to `%d`.", target.MaxEndpointWeight)),
	binding.Bool("backup", func(s *target.StaticEndpoint) *bool { return &s.Backup }, binding.Default, "Whether the endpoint is "+
		"chosen only while no other one is up."),
	binding.Map("labels", func(s *target.StaticEndpoint) *input.Labels { return &s.Labels }, binding.Optional,
		"Labels by which people and programs tell endpoints apart, such as `{ zone = \"a\" }`. Default: none."),
)

var registrationRows = binding.Of(binding.Fresh[target.Registration],
	binding.Texts("networks", func(r *target.Registration) *[]string { return &r.Networks }, binding.Required,
		"Networks, such as `10.0.0.0/16`, in which registered endpoints must be. Nodes check the address that they dial, too. A "+
			"registered endpoint gets no request and no secret outside of them."),
	binding.Wholes("ports", func(r *target.Registration) *[]int { return &r.Ports }, binding.Required, "Ports on which registered "+
		"endpoints may listen, `1` to `65535`.", portAdvice),
	timeRow("heartbeat", func(r *target.Registration) *input.Duration { return &r.Heartbeat }, binding.Default,
		"How often an endpoint registers again, from `1s` to `1h`.", binding.Decides("expire_after")),
	timeRow("expire_after", func(r *target.Registration) *input.Duration { return &r.ExpireAfter }, binding.Default,
		"How long an endpoint stays after its last heartbeat; at least twice `heartbeat`."),
)

var dnsRows = binding.Of(binding.Fresh[target.DNSMembers],
	binding.Text("hostname", func(d *target.DNSMembers) *string { return &d.Hostname }, binding.Required, "Name to ask for, such as "+
		"`workers.internal`: absolute, in lower case, without a dot at its end."),
	binding.Text("type", func(d *target.DNSMembers) *target.DNSType { return &d.Type }, binding.Default, "Type of its records: "+
		either(target.DNSTypes)+".", binding.Decides("port", "weight", "backup")),
	countRow("port", func(d *target.DNSMembers) *int { return &d.Port }, binding.Optional, "Port of each address, `1` to `65535`. "+
		"Required unless `type` is `SRV`, whose records have their own. Default: none."),
	binding.Text("scheme", func(d *target.DNSMembers) *string { return &d.Scheme }, binding.Default,
		"`http` or `https`. Certificates must have `hostname`, or the `server_name` of the group; those of services the name of their "+
			"target."),
	countRow("weight", func(d *target.DNSMembers) *int { return &d.Weight }, binding.Default, fmt.Sprintf("Weight of each address, "+
		"as that of an `endpoint`, `1` to `%d`. Records of type `SRV` have their own.", target.MaxEndpointWeight)),
	binding.Bool("backup", func(d *target.DNSMembers) *bool { return &d.Backup }, binding.Default, "Whether each address is chosen "+
		"only while no other endpoint is up. Of records of type `SRV`, those are backups that have not the best priority."),
	binding.Map("labels", func(d *target.DNSMembers) *input.Labels { return &d.Labels }, binding.Optional, "Labels of each endpoint. "+
		"Default: none."),
)

var healthCheckRows = binding.Of(binding.Fresh[target.HealthCheck],
	binding.Text("path", func(h *target.HealthCheck) *string { return &h.Path }, binding.Default, "Path below `path` of the group "+
		"that is asked with `GET`. An endpoint that responds with 2xx is healthy."),
	timeRow("interval", func(h *target.HealthCheck) *input.Duration { return &h.Interval }, binding.Default,
		"Time between the checks of one endpoint by one node, from `1s` to `1h`."),
	timeRow("timeout", func(h *target.HealthCheck) *input.Duration { return &h.Timeout }, binding.Default, "Time limit of a check, "+
		"from `100ms` to `1m`."),
	countRow("healthy_threshold", func(h *target.HealthCheck) *int { return &h.HealthyThreshold }, binding.Default, fmt.Sprintf(
		"How many healthy responses in a row bring an endpoint up again, `1` to `%d`.", target.MaxHealthThreshold)),
	countRow("unhealthy_threshold", func(h *target.HealthCheck) *int { return &h.UnhealthyThreshold }, binding.Default, fmt.Sprintf(
		"How many failures in a row bring an endpoint down, `1` to `%d`.", target.MaxHealthThreshold)),
)

// endpointsSource is carillon_endpoints: the current endpoints of a group.
var endpointsSource = dataSource{
	name: "endpoints", read: readEndpoints,
	text: "The endpoints that an endpoint group has now: those that the group declares, those that registered " +
		"themselves, and those from DNS. They come and go, so each plan may read others.",
	attributes: func() map[string]dataschema.Attribute {
		attributes := endpointsRows.DataAttributes()
		attributes["app"] = dataschema.StringAttribute{Required: true, MarkdownDescription: "Name of the app."}
		attributes["group"] = dataschema.StringAttribute{Required: true, MarkdownDescription: "Name of the endpoint group."}
		return attributes
	},
}

var endpointsRows = binding.Of(binding.Fresh[client.List[target.Endpoint]],
	binding.Blocks("endpoints", binding.Nested(func(l *client.List[target.Endpoint]) *[]target.Endpoint { return &l.Items },
		liveEndpointRows), binding.InData, "The endpoints by id.", binding.AlwaysThere),
)

var liveEndpointRows = binding.Of(binding.Fresh[target.Endpoint],
	binding.Text("id", func(e *target.Endpoint) *string { return &e.ID }, binding.InData, "Id of the endpoint, unique within the group."),
	binding.Text("url", func(e *target.Endpoint) *string { return &e.URL }, binding.InData, "Where the paths of group and job go on."),
	binding.Whole("weight", func(e *target.Endpoint) *int { return new(max(e.Weight, 1)) }, binding.InData,
		"Its share with the strategies that know one."),
	binding.Bool("backup", func(e *target.Endpoint) *bool { return &e.Backup }, binding.InData, "Whether it is chosen only while no "+
		"other one is up."),
	binding.Map("labels", func(e *target.Endpoint) *input.Labels { return &e.Labels }, binding.InData, "Its labels; null if it has none."),
	binding.Text("source", func(e *target.Endpoint) *target.EndpointSource { return &e.Source }, binding.InData,
		"How it came: `static` (the group declares it), `registered` (it registered itself) or `dns` (a name stands for it)."),
	binding.Bool("draining", func(e *target.Endpoint) *bool { return &e.Draining }, binding.InData, "Whether an operator drains it: "+
		"it gets no new requests."),
	binding.Instant("registered_at", func(e *target.Endpoint) **time.Time { return new(&e.RegisteredAt) }, binding.InData,
		"When it registered or was declared first, since it was there without a break."),
	binding.Instant("expires_at", func(e *target.Endpoint) **time.Time { return &e.ExpiresAt }, binding.InData,
		"When it goes unless it registers again; null unless it is registered."),
	binding.Text("server_name", func(e *target.Endpoint) *string { return &e.ServerName }, binding.InData, "Name and port that an "+
		"address from DNS gets as `Host` unless the group has a `server_name`; null for others.", binding.EmptyIsNull),
)

func readEndpoints(ctx context.Context, c *connection, diags *diag.Diagnostics, m binding.Values) binding.Values {
	app, group := m.Text("app"), m.Text("group")
	if !validNames(diags, m, "app", "group") {
		return m
	}
	var all client.List[target.Endpoint]
	for page := (input.Page{}); ; {
		list, err := c.Endpoints(ctx, app.ValueString(), group.ValueString(), page)
		if err != nil {
			c.report(diags, fmt.Sprintf("list the endpoints of group %q", importID(app, group)), err)
			return m
		}
		all.Items = append(all.Items, list.Items...)
		if page.Cursor = list.Next; page.Cursor == "" {
			break
		}
	}
	// Refused endpoints are not part of the group, and only operators see them.
	all.Items = slices.DeleteFunc(all.Items, func(e target.Endpoint) bool { return e.Refused != "" })
	maps.Copy(m, endpointsRows.Shown(diags, &all))
	return m
}
